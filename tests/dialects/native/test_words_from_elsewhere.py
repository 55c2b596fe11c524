"""Words that users of other systems write: the hint has the native word, and its example compiles."""

from __future__ import annotations

import pytest

from resile.dialects.compile import compile_text
from resile.dialects.native.keys.elsewhere import ACTIONS, ANSWER_WORDS, RETRY_WORDS, SCRIPT, STEP_WORDS, WORKFLOW_WORDS
from resile.dialects.native.keys.failures import RETRY
from resile.dialects.native.keys.fanout import ERROR_POLICY, MAP
from resile.dialects.native.keys.steps import STEP, WORKFLOW


def found(text: str) -> list[tuple[str, str]]:
    """The message and the hint of every error."""
    findings = compile_text(text, file="f").diagnostics
    return [(finding.message, finding.hint) for finding in findings if finding.severity == "error"]


@pytest.mark.parametrize(
    ("word", "native"),
    [
        ("depends_on", "needs"),
        ("if", "when"),
        ("run", "shell"),
        ("command", "shell"),
        ("cmd", "shell"),
        ("image", "shell"),
        ("retries", "retry"),
        ("on_error", "on_failure"),
        ("environment", "env"),
        ("cwd", "working_dir"),
        ("continue-on-error", "on_failure"),
        ("matrix", "map"),
        ("register", "capture"),
        ("finally", "end"),
    ],
)
def test_a_word_of_a_step(word: str, native: str) -> None:
    """The only error is the unknown word, and its hint has the native one."""
    action = "" if word in ACTIONS else "shell: x, "
    [(message, hint)] = found(f"resile: 1\nsteps: {{a: {{{action}{word}: x}}}}\n")
    assert message == f"a step has no key `{word}`"
    assert hint == STEP_WORDS[word]
    assert f"`{native}" in hint or f"{native}:" in hint


def test_a_script_that_is_no_javascript() -> None:
    """`script` is answered with `shell`, and with the place of JavaScript."""
    [(_, hint)] = found("resile: 1\nsteps: [{script: [make, make test]}]\n")[:1]
    assert hint == SCRIPT


def test_words_of_the_workflow_and_of_retry() -> None:
    """The words of a whole file and those inside `retry` have their answers, too."""
    assert found("resile: 1\nsteps: [{shell: x}]\nparams: {a: 1}\n") == [
        ("the workflow has no key `params`", WORKFLOW_WORDS["params"])
    ]
    text = "resile: 1\nsteps: [{shell: x, retry: {attempts: 3}}]\n"
    assert ("retry has no key `attempts`", RETRY_WORDS["attempts"]) in found(text)


@pytest.mark.parametrize("word", sorted(ERROR_POLICY.keys))
def test_a_policy_that_stands_in_its_map(word: str) -> None:
    """What a map does about failed items is told that it stands in `error_policy`."""
    text = f"resile: 1\nsteps: [{{map: {{input: [1], {word}: 1, steps: [{{shell: x}}]}}}}]\n"
    expected = [(f"map has no key `{word}`", f"`error_policy` has it: error_policy: {{{word}: …}}")]
    assert found(text) == expected


@pytest.mark.parametrize("word", sorted(ANSWER_WORDS))
@pytest.mark.parametrize("form", ["{}", "[{}]", "{{commands: {}}}", "{{commands: [ls, {}], max_attempts: 2}}"])
def test_a_word_as_the_answer_to_a_failure(word: str, form: str) -> None:
    """A word that would run as a command is refused: `continue` always passes, and the failure would be recovered."""
    expected = [(f"`on_failure: {word}` would run a command of this name", ANSWER_WORDS[word])]
    assert found(f"resile: 1\nsteps: [{{shell: x, on_failure: {form.format(word)}}}]\n") == expected


def test_no_word_is_a_native_key() -> None:
    """A word that the native file has needs no other answer."""
    for table in (STEP, WORKFLOW, RETRY, MAP):
        assert table.elsewhere
        assert table.elsewhere.keys() & table.keys.keys() == set()
