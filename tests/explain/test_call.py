"""The command `explain` itself: its document, its refusals, and what it must not say."""

from __future__ import annotations

import pytest

from tests.explain.explain_fixture import Telling


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (("7",), "there is no run 7", "`resile status` lists the runs"),
        (("1", "biuld"), "run 1 has no step or item 'biuld'", "did you mean 'build'?"),
        (("1", "work[7]"), "run 1 has no step or item 'work[7]'", "did you mean 'work[0]'?"),
        (("1", "xyz"), "run 1 has no step or item 'xyz'", "`resile status 1` lists its steps"),
    ],
)
def test_what_there_is_not(telling: Telling, words: tuple[str, ...], error: str, hint: str) -> None:
    """An unknown run, step or item is refused, with what may have been meant."""
    telling.run("name: x\nsteps:\n  build: {shell: ./step b}\n  work: {map: {input: [1], steps: [{shell: echo}]}}\n")
    done = telling.program.call("explain", *words, code=2)
    assert (done.stdout, done.stderr) == ("", f"resile: error: {error}\n  hint: {hint}\n")


def test_secrets_stay_secret(telling: Telling) -> None:
    """What a step said of a secret is told as the log has it: not at all."""
    telling.program.env["TOKEN"] = "hunter2hunter2"
    telling.run(
        "name: leak\nsecrets: [TOKEN]\nsteps:\n- {id: a, shell: 'echo \"bad: $TOKEN\" >&2; exit 1', retry: {max: 1}}\n",
        1,
    )
    for words in ((), ("a",), ("a", "--json"), ("--json",)):
        said = telling.explain(*words)
        assert "bad: ***" in said
        assert "hunter2" not in said


def test_for_programs(telling: Telling) -> None:
    """The document has the verdict and, for each step, what was told of it, with the rules and the events' numbers."""
    telling.run("name: json\nsteps:\n  a: {shell: ./step a 1, retry: {max: 2}}\n  b: {shell: ./step b, when: false}\n")
    document = telling.program.json("explain", "1")
    skipped, retried = document.pop("tales")
    assert document == {
        "run": 1,
        "workflow": "json",
        "status": "completed",
        "exit_code": 0,
        "epoch": 1,
        "resumed": 0,
        "because": "",
        "failures": 1,
        "canceled": None,
        "more": 0,
    }
    place = {"scope": "root", "where": "flow.yaml:5:3", "status": "skipped"}
    assert skipped == {"job": 2, "step": "b", **place, "why": "`when` is false: false (flow.yaml:5:30)"}
    failure, passed = retried.pop("told")
    assert retried == {"job": 1, "step": "a", "scope": "root", "where": "flow.yaml:4:3", "status": "completed"}
    events = telling.program.call("events", "ls", "1", "--type", "attempt_failed", code=0).stdout
    assert failure.pop("seq") == int(events.split()[0])
    assert len(failure.pop("signature")) == 16
    rule = {"rule": "flow.yaml:4:26 retry 2", "then": "retry", "answer": "answers", "used": 1, "limit": 2}
    assert failure == {
        "what": "failed",
        "attempt": 1,
        "kind": "exit",
        "exit_code": 1,
        "message": "exit code 1: a is broken",
        "rules": [rule | {"next_attempt": 2}],
        "result": "retry",
        "then": "attempt 2",
    }
    assert (passed["what"], passed["attempt"]) == ("passed", 2)
