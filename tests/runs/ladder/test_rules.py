"""Failure handlers: rules by exit code, signal, kind or pattern, with recovery scripts; escalation; parking."""

from __future__ import annotations

import pytest

from tests.runs.ladder.flows import Flows


def handled(rules: str, step: str, more: str = "") -> str:
    """A workflow of one step with a failure handler of these rules."""
    return f"failure_handlers: {{h: {{rules: [{rules}]}}}}\nsteps: {{a: {{shell: {step}, failure_handler: h{more}}}}}\n"


@pytest.mark.parametrize(
    ("rules", "step", "order", "code"),
    [
        ("{exit_codes: [10], recovery_script: ./step r}", "./step a 1 10", "a r a", 0),
        ("{exit_codes: [10], recovery_script: ./step r}", "./step a 1 11", "a", 1),
        ("{exit_codes: [10], recovery_script: ./step r, max_retries: 2}", "./step a 9 10", "a r a r a", 1),
        ("{exit_codes: [10]}", "./step a 9 10", "a a a a", 1),
        ("{match_all_exit_codes: true, recovery_script: ./step all}, {exit_codes: 7, recovery_script: ./step r}",
         "./step a 1 7", "a r a", 0),
        ("{match_all_exit_codes: true, max_retries: 1, recovery_script: ./step all}, {exit_codes: 7, max_retries: 1}",
         "./step a 9 7", "a a all a", 1),
        ("{exit_codes: 10, recovery_script: ./step r 9}", "./step a 1 10", "a r a", 0),
        ("{exit_codes: 10, recovery_script: ./step r 9, on_script_failure: fail}", "./step a 1 10", "a r", 1),
        ("{exit_codes: 10, recovery_script: ./step r; sleep 60, timeout: 300ms}", "./step a 1 10", "a r a", 0),
        ("{pattern: is bro.en, recovery_script: ./step r}", "./step a 1", "a r a", 0),
        ("{pattern: is fine, recovery_script: ./step r}", "./step a 1", "a", 1),
        ("{kinds: [exit], exit_codes: [10], recovery_script: ./step r}", "./step a 1 10", "a r a", 0),
        ("{kinds: [timeout], exit_codes: [10], recovery_script: ./step r}", "./step a 1 10", "a", 1),
        ("{exit_codes: 10, max_retries: 0}", "./step a 9 10", "a", 1),
    ],
)  # fmt: skip
def test_a_rule_answers_its_failures(flows: Flows, rules: str, step: str, order: str, code: int) -> None:
    """Listed failures before all, each rule with its own budget, the script between reservation and retry."""
    assert " ".join(flows.run("grace: 0\n" + handled(rules, step), code).order) == order


def test_the_retry_is_reserved_before_its_script_runs(flows: Flows) -> None:
    """The log says so in this order, and the script sees the attempt that failed in all its variables."""
    (flows.folder / "fix.sh").write_text(
        '[[ -n $BASH ]] && echo "$TORC_JOB_NAME $TORC_ATTEMPT_ID $TORC_RETURN_CODE $RESILE_RETURN_CODE" >> said\n'
        'echo "$TORC_WORKFLOW_ID $TORC_RUN_ID ${TORC_JOB_ID:+job} ${TORC_OUTPUT_DIR:+dir} $TORC_API_URL" >> said\n'
        'cat "$TORC_OUTPUT_DIR/job_stdio/job_wf${TORC_WORKFLOW_ID}_j${TORC_JOB_ID}_r${TORC_RUN_ID}_a1.e" >> said\n'
    )
    ran = flows.run(handled("{exit_codes: [10], recovery_script: ./fix.sh}", "./step a 1 10"))
    assert ran.told("a") == [
        "step_started",
        "attempt_started",
        "attempt_failed",
        "retry_scheduled",
        "repair_started",
        "repair_finished",
        "attempt_started",
        "attempt_succeeded",
        "step.exit",
        "step_recovered",
    ]
    (scheduled,) = ran.of("retry_scheduled")
    assert (scheduled["attempt"], scheduled["data"]["outcome"]) == (2, "Retried")
    run = ran.document["run"]
    assert (flows.folder / "said").read_text() == f"a 1 10 10\n{run} 1 job dir \na is broken\n"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("steps: {a: {shell: ./step a 9}}\n", "NoHandler"),
        (handled("{exit_codes: [10]}", "./step a 9"), "NoMatchingRule"),
        (handled("{exit_codes: [1], max_retries: 1}", "./step a 9"), "MaxRetriesExceeded"),
        ("steps: {a: {shell: exit 3, on_failure: {retry: {max: 1}, commands: ['false'], fail_workflow: true}}}\n",
         "MaxRetriesExceeded"),
        ("steps: {a: {shell: exit 3, on_failure: {commands: ['false'], fail_workflow: true}}}\n", "MaxRetriesExceeded"),
        (handled("{exit_codes: [1], recovery_script: 'exit 1', on_script_failure: fail}", "./step a 9"), "Error"),
    ],
)  # fmt: skip
def test_outcomes_have_the_names_of_the_design(flows: Flows, text: str, outcome: str) -> None:
    """A failure that stands says which of the outcomes it came to."""
    ran = flows.run(text, 1)
    (failed,) = [event for event in ran.of("step_failed") if event["step"] == "a"]
    assert failed["data"]["outcome"] == outcome


def test_a_rule_waits_its_backoff(flows: Flows) -> None:
    """Each retry of a rule is delayed by the rule's own backoff."""
    ran = flows.run(
        handled("{exit_codes: 1, max_retries: 2, backoff: {type: exponential, initial: 20ms}}", "./step a 9"), 1
    )
    assert [event["data"]["delay_seconds"] for event in ran.of("retry_scheduled")] == [0.02, 0.04]


def test_every_rung_in_its_order(flows: Flows) -> None:
    """Rules, retry, handler, goto and park answer one after the other, whatever their order in the file."""
    ran = flows.run(
        "routing: {max_loops: 1}\n"
        "failure_handlers: {h: {rules: [{match_all_exit_codes: true, max_retries: 1, recovery_script: ./step all},"
        " {exit_codes: 7, max_retries: 1, recovery_script: ./step seven}]}}\n"
        "steps:\n  s: {shell: ./step s}\n  a:\n    park: true\n    needs: [s]\n    shell: ./step a 99 7\n"
        "    on_failure: {goto: s, shell: ./step h 9, retry: 1}\n    failure_handler: h\n",
        1,
    )
    assert " ".join(ran.order) == "s a seven a all a a h s a"
    assert ran.failed == "Routing loop budget exceeded (max_loops=1) during on_failure goto"


@pytest.mark.parametrize(
    ("more", "order"),
    [
        ("", "a"),
        (", retry: 1", "a a"),
        (", on_failure: {shell: ./step h 9}", "a h"),
        (", on_failure: {shell: ./step h, strategy: cleanup}", "a h"),
        (", on_failure: {shell: ./step h 9, strategy: cleanup}", "a h"),
    ],
)
def test_park_takes_what_is_left(flows: Flows, more: str, order: str) -> None:
    """The failure waits for judgement: exit 4, dependents blocked."""
    ran = flows.run(f"steps: {{a: {{shell: ./step a 9, park: true{more}}}, b: {{shell: ./step b, needs: [a]}}}}", 4)
    assert (" ".join(ran.order), ran.document["status"]) == (order, "parked")
    assert (ran.status["a"], ran.status["b"]) == ("pending_failed", "blocked")


def test_runtime_escalates_after_a_timeout(flows: Flows) -> None:
    """Each round has more time than the one before, up to the ceiling, and at most so many."""
    ran = flows.run(
        "grace: 0\nsteps:\n  a:\n    shell: echo a >> trace; sleep 30\n"
        "    resources: {runtime: 100ms, escalate: {factor: 2, runtime_max: 300ms, rounds: 5}}\n    retry: 1\n",
        1,
    )
    assert ran.order == ["a"] * 4
    # 100 ms, then 200 and 300 by the rule, which is then at its ceiling; the last one is the plain retry.
    assert [event["data"]["rule"].partition(" ")[2] for event in ran.of("retry_scheduled")] == [
        "escalate x2",
        "escalate x2",
        "retry 1",
    ]
    assert {event["data"]["kind"] for event in ran.of("attempt_failed")} == {"timeout"}
    walls = [event["data"]["wall_seconds"] for event in ran.of("attempt_failed")]
    assert [wall >= limit for wall, limit in zip(walls, (0.1, 0.2, 0.3, 0.3), strict=True)] == [True] * 4
