"""What the RFC of failure routing says and trying it found missing: each sentence of it as a file that runs."""

# ruff: noqa: E501 - a file reads better with one step in a line
from __future__ import annotations

from pathlib import Path

import pytest

from tests.dialects.visor.flows import VisorFlows, compiled, flow, step_with

LIST = """exec: 'echo "[1,2]"', forEach: true"""


@pytest.fixture
def flows(tmp_path: Path) -> VisorFlows:
    """Visor files in an empty folder."""
    return VisorFlows(tmp_path)


SKETCH = """
version: "2.0"
routing:
  max_loops: 10
  defaults: {on_fail: {retry: {max: 0, backoff: {mode: fixed, delay_ms: 2000}}}}
steps:
  setup-env: {type: command, exec: "echo setup >> trace; [ -f first ] && touch modules; touch first"}
  unit-tests:
    type: command
    depends_on: setup-env
    exec: "echo tests >> trace; [ -f modules ] || { echo 'Error: module not found: x' >&2; echo '    at require (x.js:1)' >&2; exit 1; }"
    on_fail:
      goto_js: |
        // Provided variables: step, attempt, loop, error, foreach, outputs, pr, files
        if (error.message?.includes('module not found')) return 'setup-env';
        return null;
      run_js: |
        const fixes = [];
        if (error.stderr?.includes('lint')) fixes.push('lint-fix');
        return fixes;
  lint-fix: {type: command, exec: "echo lint >> trace"}
"""


def test_the_sketch_jumps(flows: VisorFlows) -> None:
    """`error.message` is what the command wrote to stderr, so the code of the RFC finds its words."""
    ran = flows.run(SKETCH)
    assert ran.order == ["setup", "tests", "setup", "tests"]
    assert ("unit-tests", "goto", "setup-env") in ran.routes()


def test_a_message_begins_with_the_first_line_of_stderr(flows: VisorFlows) -> None:
    """Code and templates see the same text; without stderr it is our own message."""
    loud = "exec: 'echo one >&2; echo two >&2; exit 3', on_fail: {run: [f]}"
    said = (
        """f: exec: "echo {{ error.message }} >> trace", if: 'error.message === "one\\ntwo" && error.exitCode === 3'"""
    )
    assert flows.run(flow(f"a: {loud}\n{said}"), 1).order == ["one", "two"]
    quiet = "exec: 'exit 3', on_fail: {run: [f]}"
    assert flows.run(flow(f"a: {quiet}\nf: exec: 'echo {{{{ error.message }}}} >> trace'"), 1).order == ["exit code 3"]


def test_defaults_are_merged_deeply() -> None:
    """A step's `max` keeps the default backoff, its backoff the default `max`, and a part of a backoff the rest."""
    more = "routing: {defaults: {on_fail: {retry: {max: 3, backoff: {mode: exponential, delay_ms: 2000}}}}}"
    found = []
    for own in ("retry: {max: 1}", "retry: {backoff: {mode: fixed, delay_ms: 10}}", "retry: {backoff: {delay_ms: 50}}"):
        (rule,) = step_with(f"type: noop, on_fail: {{{own}}}", more).rules
        assert rule.wait is not None
        found.append((rule.limit, rule.wait.kind, rule.wait.initial_seconds))
    assert found == [(1, "exponential", 2.0), (3, "fixed", 0.01), (3, "exponential", 0.05)]


def test_a_backoff_without_any_max_is_refused() -> None:
    """Neither the step nor the defaults say how often."""
    text = "version: '1'\nsteps: {a: {type: noop, on_fail: {retry: {backoff: {delay_ms: 5}}}}}"
    assert "error: `retry` needs `max`: how often to try again" in compiled(text)[1]


@pytest.mark.parametrize(
    "text",
    [
        "a: on_success: {run: [f]}\nf",
        "a: on_success: {run_js: \"return ['f']\"}\nf",
        f"a: {LIST}, on_finish: {{run: [f]}}\np < a: exec: 'true'\nf",
    ],
)
def test_what_follows_a_success_costs_nothing(flows: VisorFlows, text: str) -> None:
    """Only jumps, retries and re-attempts after a remedy spend the budget."""
    ran = flows.run(flow(f"routing: {{max_loops: 0}}\n{text}"))
    assert ran.order[-1] == "f"


def test_nothing_starts_after_a_failed_remedy(flows: VisorFlows) -> None:
    """The run stops with the message of the remedy: steps that were ready, or that waited for others, are canceled."""
    ran = flows.run(flow("a.9: on_fail: {run: [fix]}\nb\nc < b\nfix.9"), 1)
    assert ran.order == ["a", "b", "fix"]
    assert ran.status["c"] == "canceled"
    assert ran.failed == "remediation step 'fix' failed"


def test_a_failed_remedy_of_an_item_stops_that_item(flows: VisorFlows) -> None:
    """Each item is a scope of its own: the other one goes on."""
    p = "exec: './step p{{ outputs.l }} {% if outputs.l == 1 %}9{% endif %}', on_fail: {run: [fix]}"
    ran = flows.run(flow(f"l: {LIST}\np < l: {p}\nq < l: exec: './step q{{{{ outputs.l }}}}'\nfix.9"), 1)
    assert "q2" in ran.order
    assert "p2" in ran.order


@pytest.mark.parametrize("more", ["", "b2 < b: exec: 'true'\n"], ids=["one", "two"])
@pytest.mark.parametrize("key", ["goto: b", "transitions: [{when: 'true', to: b}]"])
def test_nothing_jumps_into_an_item(flows: VisorFlows, more: str, key: str) -> None:
    """However many steps the items have."""
    text = flow(f"l: {LIST}\nb < l: exec: 'true'\n{more}c < b: fanout: reduce, on_success: {{{key}}}")
    where = "inside the items of `b+b2`" if more else "for each item"
    assert [error.partition("`b` runs ")[2] for error in flows.refused(text)] == [
        f"{where}, and nothing jumps into an item"
    ]


def test_no_code_jumps_into_an_item(flows: VisorFlows) -> None:
    """The answer is dropped and recorded, and the static key, which leads to the list, applies."""
    key = "on_success: {goto_js: \"return attempt === 1 ? 'b' : null\"}"
    ran = flows.run(flow(f"l: {LIST}\nb < l: exec: 'true'\nc < b: fanout: reduce, {key}"))
    assert ran.order == ["c"]
    (rejected,) = ran.of("expression_rejected")
    assert rejected["data"]["problem"] == "goto_js: 'b' is no ancestor of this step"


LONG = "x" * 8200


@pytest.mark.parametrize("code", ["return [", f"/* {LONG} */ return null"], ids=["broken", "long"])
def test_code_that_can_not_run_leaves_the_static_keys(flows: VisorFlows, code: str) -> None:
    """A warning says so, and `goto` jumps."""
    flows.program.write(flow(f's\na.1 < s: on_fail: {{goto: s, goto_js: "{code}"}}'))
    (checked,) = flows.program.json("check", "flow.yaml")["files"]
    (warning,) = [found for found in checked["diagnostics"] if found["severity"] == "warning"]
    assert warning["message"].endswith("the static keys apply")
    assert flows.run(flow(f's\na.1 < s: on_fail: {{goto: s, goto_js: "{code}"}}')).order == ["s", "a", "s", "a"]


@pytest.mark.parametrize("key", ["if: ", "fail_if: ", "on_fail: {transitions: [{to: s, when: "])
def test_code_elsewhere_must_run(flows: VisorFlows, key: str) -> None:
    """Nothing stands behind a condition that can't be evaluated."""
    close = "}]}" if key.startswith("on_fail") else ""
    for code in ("return [", f"/* {LONG} */ true"):
        assert flows.refused(flow(f's\na < s: {key}"{code}"{close}'))


def test_steps_below_an_empty_list_are_skipped(flows: VisorFlows) -> None:
    """They say why; the steps that gather the items run."""
    ran = flows.run(flow("l: exec: 'echo []', forEach: true\nb < l\nb2 < b\nc < b2: fanout: reduce"))
    assert ran.order == ["c"]
    assert ran.status == {"l": "completed", "b+b2": "skipped", "c": "completed", "end": "completed"}
    assert [event["data"]["reason"] for event in ran.of("step_skipped")] == ["'l' gave no items"]


def test_what_gathers_items_waits_for_their_end(flows: VisorFlows) -> None:
    """A step with `fanout: reduce` on the list itself runs after `on_finish`; one that the items wait for does not."""
    ran = flows.run(flow(f"l: {LIST}, on_finish: {{run: [fin]}}\nr < l: fanout: reduce\np < l\nfin"))
    assert ran.order == ["p", "p", "fin", "r"]
    ran = flows.run(flow(f"l: {LIST}, on_finish: {{run: [fin]}}\nr < l: fanout: reduce\np < l, r\nfin"))
    assert ran.order == ["r", "p", "p", "fin"]


def test_routes_show_the_computed_target_and_retries_the_loop(flows: VisorFlows) -> None:
    """The summary names the step that code chose; the event of a retry says how much of the budget is spent."""
    ran = flows.run(flow("s\na.2 < s: on_fail: {retry: {max: 1}, goto_js: \"return 's'\"}"))
    assert ran.order == ["s", "a", "a", "s", "a"]
    assert ("a", "goto", "s") in ran.routes()
    assert [event["data"]["loops"] for event in ran.of("retry_scheduled")] == [1]
    assert [event["data"]["loops"] for event in ran.of("route_taken")] == [2]
    flows.program.env["COLUMNS"] = "200"
    assert "goto s" in flows.program.call("status", str(ran.document["run"]), code=0).stdout


def test_foreach_is_null_outside_an_item(flows: VisorFlows) -> None:
    """Inside one it has the item's place."""
    key = "on_success: {run_js: \"return foreach === null ? ['f'] : ['x']\"}"
    inner = "on_success: {run_js: \"return foreach !== null && foreach.total === 2 ? ['g'] : []\"}"
    ran = flows.run(flow(f"a: {key}\nl < a: {LIST}\nb < l: {inner}\nf\ng\nx"))
    assert ran.order == ["a", "f", "b", "g", "b", "g"]
