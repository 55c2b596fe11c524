"""The command `explain` itself: its document, its refusals, and what it must not say."""

from __future__ import annotations

import pytest

from tests.explain.explain_fixture import ExplainFlows


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (("7",), "there is no run 7", "`resile ls` lists the runs"),
        (("1", "biuld"), "run 1 has no step or item 'biuld'", "did you mean 'build'?"),
        (("1", "work[7]"), "run 1 has no step or item 'work[7]'", "did you mean 'work[0]'?"),
        (("1", "xyz"), "run 1 has no step or item 'xyz'", "`resile status 1` lists its steps"),
    ],
)
def test_what_there_is_not(flows: ExplainFlows, words: tuple[str, ...], error: str, hint: str) -> None:
    """An unknown run, step or item is refused, with what may have been meant."""
    flows.run("name: x\nsteps:\n  build: {shell: ./step b}\n  work: {map: {input: [1], steps: [{shell: echo}]}}\n")
    done = flows.program.call("explain", *words, code=2)
    assert (done.stdout, done.stderr) == ("", f"resile: error: {error}\n  hint: {hint}\n")


def test_secrets_stay_secret(flows: ExplainFlows) -> None:
    """What a step said of a secret is shown as the log has it: not at all."""
    flows.program.env["TOKEN"] = "hunter2hunter2"
    flows.run(
        "name: leak\nsecrets: [TOKEN]\nsteps:\n- {id: a, shell: 'echo \"bad: $TOKEN\" >&2; exit 1', retry: {max: 1}}\n",
        1,
    )
    for words in ((), ("a",), ("a", "--json"), ("--json",)):
        said = flows.explain(*words)
        assert "bad: ***" in said
        assert "hunter2" not in said


def test_for_programs(flows: ExplainFlows) -> None:
    """The document has the verdict and, for each step, its attempts, with the rules and the events' numbers."""
    flows.run("name: json\nsteps:\n  a: {shell: ./step a 1, retry: {max: 2}}\n  b: {shell: ./step b, when: false}\n")
    document = flows.program.json("explain", "1")
    skipped, retried = document.pop("steps")
    assert document == {
        "version": 1,
        "run": 1,
        "workflow": "json",
        "status": "completed",
        "exit_code": 0,
        "epoch": 1,
        "resumed": 0,
        "because": "",
        "failures": 1,
        "canceled": None,
        "omitted": 0,
        "inputs": {},
    }
    place = {"scope": "root", "where": "flow.yaml:5:3", "status": "skipped"}
    assert skipped == {"job": 2, "step": "b", **place, "why": "`when` is false: false (flow.yaml:5:30)"}
    failure, passed = retried.pop("attempts")
    assert retried == {"job": 1, "step": "a", "scope": "root", "where": "flow.yaml:4:3", "status": "completed"}
    events = flows.program.call("events", "list", "1", "--type", "attempt_failed", code=0).stdout
    assert failure.pop("seq") == int(events.split()[0])
    assert len(failure.pop("signature")) == 16
    place = {"file": "flow.yaml", "line": 4, "column": 26, "text": "retry 2"}
    rule = {"rule": place, "then": "retry", "decision": "applied", "used": 1, "limit": 2}
    assert failure == {
        "event": "failed",
        "attempt": 1,
        "kind": "exit",
        "exit_code": 1,
        "message": "exit code 1: a is broken",
        "rules": [rule | {"next_attempt": 2}],
        "result": "retry",
        "then": "attempt 2",
    }
    assert (passed["event"], passed["attempt"]) == ("passed", 2)
