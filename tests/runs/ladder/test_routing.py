"""Failure routing: each acceptance line of its design, with executions, events, routes and exit codes."""

from __future__ import annotations

import pytest

from tests.cli.program import rule_text
from tests.runs.ladder.flows import Flows
from tests.runs.ladder.test_routing_cases import flow


def test_goto(flows: Flows) -> None:
    """A failing step with `goto: setup-env` jumps there, proceeds, and runs again."""
    ran = flows.run(
        "steps:\n  setup-env: {shell: ./step setup-env}\n"
        "  unit-tests: {shell: ./step unit-tests 1, needs: [setup-env], on_fail: {goto: setup-env}}\n"
        "  summary: {shell: ./step summary, needs: [unit-tests]}\n"
    )
    assert ran.order == ["setup-env", "unit-tests", "setup-env", "unit-tests", "summary"]
    assert ran.routes() == [("unit-tests", "goto", "setup-env")]
    assert ran.told("unit-tests") == [
        "step_started",
        "attempt_started",
        "attempt_failed",
        "route_taken",
        "step_started",
        "attempt_started",
        "attempt_succeeded",
        "step.exit",
        "step_completed",
    ]


def test_remediation(flows: Flows) -> None:
    """`run: [lint-fix]` that succeeds gives one more try; one that fails stops the run with a clear message."""
    steps = "steps:\n  build: {{shell: ./step build {0}, on_fail: {{run: [lint-fix]}}}}\n"
    steps += "  lint-fix: {{shell: ./step fix {1}}}\n"
    ran = flows.run(steps.format(1, 0))
    assert (ran.order, ran.status["build"]) == (["build", "fix", "build"], "recovered")
    ran = flows.run(steps.format(9, 0), 1)
    assert (ran.order, ran.status["build"]) == (["build", "fix", "build"], "failed")
    ran = flows.run(steps.format(9, 9), 1)
    assert (ran.order, ran.failed) == (["build", "fix"], "remediation step 'lint-fix' failed")


def test_a_remedy_that_is_not_called_for_is_in_no_count(flows: Flows) -> None:
    """It never runs, and the summary does not know it."""
    ran = flows.run(flow("a: on_failure: {run: [fix]}\nfix"))
    assert (ran.order, ran.document["steps"]["total"]) == (["a"], 1)
    assert ran.told("fix") == []


def test_retry(flows: Flows) -> None:
    """Retries wait and are capped; the loop budget ends a ping-pong."""
    ran = flows.run(flow("a.9: on_fail: {retry: {max: 2, backoff: {mode: fixed, delay_ms: 20}}}"), 1)
    assert ran.order == ["a", "a", "a"]
    assert [event["data"]["delay_seconds"] for event in ran.of("retry_scheduled")] == [0.02, 0.02]
    ran = flows.run(flow("routing: {max_loops: 3}\ns\na.9 < s: on_fail: {goto: s, retry: 1}"), 1)
    assert ran.order == ["s", "a", "a", "s", "a", "s", "a", "s", "a"]
    assert ran.failed == "Routing loop budget exceeded (max_loops=3) during on_failure goto"


def test_compatibility(flows: Flows) -> None:
    """A file without `on_fail` behaves as it always did."""
    ran = flows.run(flow("a\nb.9 < a\nc < b\nd"), 1)
    assert (ran.order, ran.routes()) == (["a", "d", "b"], [("b", "fail", None)])
    assert ran.status == {"a": "completed", "b": "failed", "c": "canceled", "d": "completed", "end": "completed"}


def test_observability(flows: Flows) -> None:
    """The trace shows retries and jumps in order, with the place of each rule; exit codes tell the outcome."""
    ran = flows.run(flow("s\na.4 < s: on_failure: {retry: 1, run: [f], goto: s}\nf"))
    assert ran.order == ["s", "a", "f", "a", "s", "a", "s", "a", "s", "a"]
    assert [
        (route["step"], route["attempt"], route["action"], route["target"]) for route in ran.document["routes"]
    ] == [
        ("a", 1, "retry", None),
        ("a", 1, "run", "f"),
        ("a", 2, "goto", "s"),
        ("a", 3, "goto", "s"),
        ("a", 4, "goto", "s"),
    ]
    assert rule_text(ran.document["routes"][0]["rule"]) == "flow.yaml:4:53 retry 1 after run f"
    assert all(route["at"] for route in ran.document["routes"])


def test_dynamic_routing(flows: Flows) -> None:
    """`goto_js` overrides `goto`, `run_js` is added to `run`; a violation is recorded and the static keys apply."""
    ran = flows.run(flow('s\nm < s\na.1 < m: on_failure: {goto: m, goto_js: \'return step.id === "a" ? "s" : null\'}'))
    assert (ran.order, ran.of("expression_rejected")) == (["s", "m", "a", "s", "m", "a"], [])
    ran = flows.run(flow("s\nm < s\na.1 < m: on_failure: {goto: m, goto_js: 'while (true) {}'}"))
    assert ran.order == ["s", "m", "a", "m", "a"]
    assert [event["step"] for event in ran.of("expression_rejected")] == ["a"]


def test_on_success_goto(flows: Flows) -> None:
    """After a success `goto` jumps back; the run converges, or fails when its budget is spent."""
    ran = flows.run(flow("a\nb < a: on_success: {goto_js: 'return loop < 1 ? \"a\" : null'}\nc < b"))
    assert ran.order == ["a", "b", "a", "b", "c"]
    ran = flows.run(flow("routing: {max_loops: 2}\na\nb < a: on_success: {goto: a}\nc < b"), 1)
    assert (ran.order, ran.status["b"], ran.status["c"]) == (["a", "b"] * 3, "failed", "canceled")
    assert ran.failed == "Routing loop budget exceeded (max_loops=2) during on_success goto"


@pytest.mark.parametrize(
    ("words", "order"),
    [
        ((), "s a a a s a s a"),
        (("--retry-max", "1"), "s a a s a s a"),
        (("--max-loops", "1"), "s a a a s a"),
        (("--no-failure-routing",), "s a"),
    ],
)
def test_options_of_a_run(flows: Flows, words: tuple[str, ...], order: str) -> None:
    """A caller caps retries, sets the budget, or turns routing off."""
    ran = flows.run(flow("routing: {max_loops: 2}\ns\na.9 < s: on_failure: {retry: 2, goto: s}"), 1, *words)
    assert " ".join(ran.order) == order


def test_a_cap_on_retries_leaves_the_re_attempt_after_a_remedy(flows: Flows) -> None:
    """`--retry-max` is about `retry`: a step with `run` alone is still tried once more when its remedy has run."""
    ran = flows.run(flow("a.1: on_failure: {run: fix}\nfix"), 0, "--retry-max", "0")
    assert ran.order == ["a", "fix", "a"]
    ran = flows.run(flow("a.1: on_failure: {run: fix, retry: 2}\nfix"), 1, "--retry-max", "0")
    assert ran.order == ["a"]


def test_rules_and_handlers_stay_without_routing(flows: Flows) -> None:
    """`--no-failure-routing` leaves handlers and failure handlers alone."""
    handlers = "failure_handlers: {h: {rules: [{exit_codes: 1, max_retries: 1}]}}\n"
    steps = "steps: {a: {shell: ./step a 9, failure_handler: h, on_failure: {retry: 5, shell: ./step h}}}\n"
    ran = flows.run(handlers + steps, 0, "--no-failure-routing")
    assert (ran.order, ran.status["a"]) == (["a", "a", "h"], "recovered")
