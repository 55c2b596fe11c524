"""A `validate` after a step is a check of its attempt: the rules of the step answer it, and count its attempts."""

from __future__ import annotations

import msgspec
import pytest

from tests.runs.ladder.flows import Flows

NATIVE = """resile: 1
steps:
  a:
    shell: ./step a
    on_success: {validate: ./step check %d}
    on_failure: {max_attempts: 3, shell: ./step fix%s}
"""
PRODIGY = """name: p
commands:
- name: a
  shell: ./step a
  validate: ./step check %d
  on_failure: {max_attempts: 3, shell: ./step fix%s}
"""
ATTEMPT = ["attempt_started", "attempt_succeeded", "repair_started", "repair_finished"]
AGAIN = ["attempt_failed", "retry_scheduled", "repair_started", "repair_finished"]
BOTH = pytest.mark.parametrize("text", [NATIVE, PRODIGY], ids=["native", "prodigy"])


def run(flows: Flows, text: str, failures: int, more: str = "", code: int = 0) -> list[object]:
    """Run a file whose check fails so often: executions, attempts, status and exit code of the step, and its events."""
    flows.program.write(text % (failures, more))
    document = flows.program.json("run", "flow.yaml", "--max-parallel", "1", code=code)
    shown = flows.program.json("status", str(document["run"]), code=0)
    (job,) = [one for one in shown["jobs"] if one["step"] == "a"]
    listed = flows.program.call_warm("events", "list", str(document["run"]), "--json", code=0)
    events = [event for event in map(msgspec.json.decode, listed.stdout.splitlines()) if event["step"] == "a"]
    order = (flows.folder / "trace").read_text().split()
    status = "recovered" if job["recovered"] else "tolerated" if job["tolerated"] else job["status"]
    return [order, job["attempts"], status, [event["type"] for event in events]]


@BOTH
def test_a_check_that_fails_costs_an_attempt_of_its_step(flows: Flows, text: str) -> None:
    """The handler runs, then the command and its check again; the step is recovered, and its attempts are counted."""
    assert run(flows, text, 2) == [
        ["a", "check", "fix", "a", "check", "fix", "a", "check"],
        3,
        "recovered",
        ["step_started", *ATTEMPT, *AGAIN, *ATTEMPT, *AGAIN, *ATTEMPT, "step.exit", "step_recovered"],
    ]


@BOTH
def test_a_check_that_passes_costs_nothing(flows: Flows, text: str) -> None:
    """One attempt, completed."""
    assert run(flows, text, 0)[:3] == [["a", "check"], 1, "completed"]


@pytest.mark.parametrize(
    ("text", "more", "status", "code"),
    [
        (NATIVE, "", "failed", 1),
        (NATIVE, ", fail_workflow: false", "tolerated", 0),
        (PRODIGY, "", "tolerated", 0),
        (PRODIGY, ", fail_workflow: true", "failed", 1),
    ],
    ids=["native", "native-tolerated", "prodigy", "prodigy-fatal"],
)
def test_a_check_that_never_passes_uses_all_attempts(
    flows: Flows, text: str, more: str, status: str, code: int
) -> None:
    """The last thing that runs is the check; what remains is what the file says of a failure that remains."""
    ran = run(flows, text, 9, more, code)
    assert ran[:3] == [["a", "check", "fix", "a", "check", "fix", "a", "check"], 3, status]


@BOTH
def test_explain_shows_the_rule_that_answered_the_check(flows: Flows, text: str) -> None:
    """Each attempt has its failed check and the rule that answered it."""
    run(flows, text, 1)
    (report,) = flows.program.json("explain", "1", code=0)["steps"]
    assert (report["step"], report["recovered"]) == ("a", True)
    first, second = report["attempts"]
    assert (first["event"], first["attempt"], first["kind"]) == ("failed", 1, "check")
    said = {
        NATIVE: "a/on_success-1 failed: exit code 1: check is broken",
        PRODIGY: "a.on_success/complete failed: exit code 1: validation: 0 % complete, 100 % needed",
    }
    assert first["message"] == said[text]
    assert [(rule["decision"], rule["rule"]["text"]) for rule in first["rules"]] == [
        ("applied", "on_failure: max_attempts 3")
    ]
    assert (second["event"], second["attempt"]) == ("passed", 2)


def test_a_retry_answers_a_failed_check_as_well(flows: Flows) -> None:
    """Whatever rule matches the kind `check` answers; other steps of `on_success` still fail the step for good."""
    ran = flows.run("steps: {a: {shell: ./step a, on_success: {validate: ./step check 1}, retry: 1}}")
    assert (ran.order, ran.status["a"]) == (["a", "check", "a", "check"], "completed")
    ran = flows.run("steps: {a: {shell: ./step a, on_success: {shell: ./step after 1}, retry: 1}}", 1)
    assert (ran.order, ran.status["a"]) == (["a", "after"], "failed")
