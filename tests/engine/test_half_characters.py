"""Half a character (a lone surrogate, as JSON can spell one) in a value fails the attempt that needs it as text."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.engine.conftest import Place, statuses

HALF = r"""printf '%s' '{"p": "\ud800"}'"""
MESSAGE = "a value is no valid text: it holds half a character (a lone surrogate)"


def _head() -> str:
    """A workflow whose first step captures such a value."""
    command = HALF.replace("'", "''")
    return f"resile: 1\nsteps:\n  a: {{shell: '{command}', capture: {{v: json}}}}\n"


@pytest.mark.parametrize(
    "step",
    [
        "shell: 'echo ${v.p}'",
        "shell: cat, env: {X: '${v.p}'}",
        "shell: pwd, working_dir: '${v.p}'",
        "agent: 'say ${v.p}'",
        "write_file: {path: f, content: '${v.p}'}",
        "write_file: {path: '${v.p}', content: f}",
    ],
)
def test_the_attempt_fails_and_climbs_the_ladder(place: Place, step: str) -> None:
    """It is tried again as its rule says, then the failure is let pass; the documents can be read."""
    code, document = place.run(f"{_head()}  b: {{{step}, needs: [a], retry: {{max: 1}}, on_failure: true}}\n")
    assert (code, statuses(document)["b"]) == (0, "failed")
    assert [job["attempts"] for job in document["jobs"] if job["step"] == "b"] == [2]
    assert (document["first_failure"]["kind"], document["first_failure"]["message"]) == ("contract", MESSAGE)
    assert document["outputs"] == {"v": {"p": "\ufffd"}}


def test_an_item_that_is_no_text_becomes_a_dead_letter(place: Place) -> None:
    """Every command that shows it does, as a document and as text."""
    command = HALF.replace('{"p": "', '[{"p": "').replace('"}', '"}]').replace("'", "''")
    steps = "{go: {shell: 'echo ${item.p}'}}"
    code, document = place.run(f"resile: 1\nsteps:\n  m: {{map: {{input: '{command}', steps: {steps}}}}}\n")
    assert (code, document["first_failure"]["message"]) == (1, MESSAGE)
    _, listed = place.call("dlq", "list", "1")
    (letter,) = listed["dead_letters"]
    assert letter["item_data"] == {"p": "\ufffd"}
    for words in (("status", "1"), ("dlq", "show", "1", letter["item_id"]), ("explain", "1")):
        assert place.call(*words)[0] == 0
    assert place.events(1)
    for words in (
        ("status", "1"),
        ("dlq", "list", "1"),
        ("dlq", "show", "1", letter["item_id"]),
        ("events", "ls", "1"),
    ):
        program = [sys.executable, "-m", "resile.cli.main", *words]
        done = subprocess.run(
            program, cwd=place.folder, env={**os.environ, **place.env}, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b""), words
