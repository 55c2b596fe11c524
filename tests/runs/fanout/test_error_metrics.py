"""Error metrics, field by field, and the patterns that are found in failures."""

from __future__ import annotations

import pytest

from tests.runs.fanout.runs import mapped
from tests.runs.ladder.flows import Flows

FIELDS = (
    "total_items", "successful", "failed", "skipped", "held", "failure_rate", "error_types", "failure_patterns",
    "dead_letters", "circuit", "running", "waiting",
)  # fmt: skip


def test_every_field_of_the_metrics(flows: Flows) -> None:
    """Counts, the rate, the types of errors with how often each came, in the run's document and in `metrics`."""
    ran = flows.run(mapped("{}", "case ${item} in b) exit 3;; c|d) exit 4;; esac"))
    numbers = ran.document["maps"]["process"]
    assert tuple(numbers) == FIELDS
    assert (numbers["total_items"], numbers["successful"], numbers["failed"], numbers["skipped"]) == (5, 2, 3, 0)
    assert numbers["failure_rate"] == 0.6
    assert numbers["error_types"] == {"exit:3": 1, "exit:4": 2}
    assert numbers["dead_letters"] == 3
    assert flows.program.json("metrics", "1")["maps"] == {"process": numbers}


def test_the_rate_counts_what_was_processed(flows: Flows) -> None:
    """Of two processed items one failed: held ones do not dilute the rate."""
    ran = flows.run(mapped("{max_failures: 1}", "case ${item} in b) exit 3;; esac"), 1)
    numbers = ran.document["maps"]["process"]
    assert (numbers["failure_rate"], numbers["held"]) == (0.5, 3)


def test_the_rate_has_six_digits(flows: Flows) -> None:
    """One of three items is 0.333333."""
    ran = flows.run(mapped("{}", "test ${item} = a", items="[a, a, b]"))
    assert ran.document["maps"]["process"]["failure_rate"] == 0.333333


def test_metrics_are_accessible_in_the_reduce_phase(flows: Flows) -> None:
    """The two commands of the page, and every other field, by the name `map`."""
    text = (
        "mode: mapreduce\nerror_policy: {continue_on_failure: true}\n"
        "map:\n  input: [1, 2, 3, 4]\n  steps: [{shell: 'test ${item} -ne 3 && echo r${item}'}]\n"
        "reduce:\n"
        "- {id: a, shell: \"echo 'Processed ${map.successful}/${map.total} items'\", capture: a}\n"
        "- {id: b, shell: \"echo 'Failure rate: ${map.failure_rate}'\", capture: b}\n"
        '- {id: c, shell: "echo ${map.failed} ${map.skipped} ${map.held} ${map.dead_letters} ${map.results}",'
        " capture: c}\n"
        '- {id: d, shell: "echo ${map.error_types} ${map.failure_patterns}", capture: d}\n'
    )
    ran = flows.run(text)
    assert ran.document["outputs"] == {
        "a": "Processed 3/4 items",
        "b": "Failure rate: 0.25",
        "c": '1 0 0 1 ["r1","r2","r4"]',
        "d": '{"exit:1":1} []',
    }


def test_metrics_of_a_named_map_are_those_of_its_step(flows: Flows) -> None:
    """`${steps.NAME.successful}` and `.results` for maps that are called otherwise."""
    text = (
        "name: named\nsteps:\n- {id: fetch, map: {input: [1, 2], steps: [{shell: 'echo r${item}'}]}}\n"
        "- {shell: 'echo ${steps.fetch.successful} of ${steps.fetch.total}: ${steps.fetch.results}', capture: told}\n"
    )
    assert flows.run(text).document["outputs"] == {"told": '2 of 2: ["r1","r2"]'}


@pytest.mark.parametrize(
    ("shell", "kind", "suggestion"),
    [
        ("echo request timed out >&2; exit 1", "timeout", "Consider increasing timeout_per_agent"),
        ("echo connection refused >&2; exit 1", "network", "Check network connectivity and retry settings"),
        ("echo permission denied >&2; exit 1", "permission", "Verify file permissions and access rights"),
        ("echo it broke >&2; exit 1", "exit:1", "Review error logs for more details."),
    ],
)
def test_patterns_from_three_occurrences_with_their_suggestions(
    flows: Flows, shell: str, kind: str, suggestion: str
) -> None:
    """Timeouts, network and permission errors have suggestions of their own, all others the general one."""
    ran = flows.run(mapped("{}", shell, "[a, b, c]"))
    (pattern,) = ran.document["maps"]["process"]["failure_patterns"]
    assert (pattern["pattern_type"], pattern["suggested_action"]) == (kind, suggestion)
    assert (pattern["frequency"], pattern["items"]) == (3, ["process[0]", "process[1]", "process[2]"])


def test_two_alike_are_no_pattern_and_different_failures_are_told_apart(flows: Flows) -> None:
    """Patterns are by signature: numbers do not matter, words do, and two are too few."""
    shell = "case ${item} in 9) echo other trouble >&2;; *) echo bad record ${item} >&2;; esac; exit 1"
    two = flows.run(mapped("{}", shell, "[1, 2]"))
    assert two.document["maps"]["process"]["failure_patterns"] == []
    more = flows.run(mapped("{}", shell, "[1, 2, 3, 9]"))
    assert [found["frequency"] for found in more.document["maps"]["process"]["failure_patterns"]] == [3]


def test_an_item_that_times_out_is_a_timeout(flows: Flows) -> None:
    """`timeout_per_agent` kills the whole item, says so in its letter, and counts by that type."""
    text = mapped("{}", "case ${item} in b) sleep 60;; *) ./step ${item};; esac", "[a, b, c]")
    ran = flows.run(text.replace("      error_policy", "      timeout_per_agent: 200ms\n      error_policy"))
    assert ran.order == ["a", "c", "after"]
    assert ran.document["maps"]["process"]["error_types"] == {"timeout": 1}
    letter = flows.program.json("dlq", "show", "1", "process[1]")
    assert letter["failure_history"][0]["error_message"] == "the item timed out after 0.2s"


def results(flows: Flows, inner: str, policy: str = "{continue_on_failure: true}") -> str:
    """What a step after a map of the items 1 to 3 sees as their results."""
    return str(
        flows.run(
            f"name: x\nsteps:\n- id: each\n  map:\n    input: [1, 2, 3]\n    error_policy: {policy}\n"
            f"    steps:\n{inner}"
            "- {shell: 'echo ${steps.each.results}', capture: all}\n"
        ).document["outputs"]["all"]
    )


def test_results_are_those_of_items_that_succeeded(flows: Flows) -> None:
    """An item whose first step fails has none, though its second, which does not need it, printed something."""
    inner = "      a: {shell: 'test ${item} -ne 2'}\n      b: {shell: 'echo b${item}'}\n"
    assert results(flows, inner) == '["b1","b3"]'


def test_results_come_from_the_last_step_that_ran(flows: Flows) -> None:
    """A last step that is skipped, or a remedy that nobody called for, does not hide what the item printed."""
    inner = (
        "    - {id: a, shell: 'echo a${item}', on_failure: {run: [mend]}}\n"
        "    - {id: b, shell: 'echo b${item}', when: '${item} > 1'}\n    - {id: mend, shell: echo mended}\n"
    )
    assert results(flows, inner) == '["a1","b2","b3"]'


def test_results_of_an_item_that_was_tried_again(flows: Flows) -> None:
    """The last execution counts: of one that passed in the end its own output, of one that never did none."""
    inner = (
        "    - {id: a, shell: 'echo x >> n-${item}; echo a${item}-$(wc -l < n-${item})'}\n"
        "    - {id: b, shell: 'n=$(wc -l < n-${item}); echo b${item}-$n; test $n -ge ${item}'}\n"
    )
    policy = "{continue_on_failure: true, retry_config: {max_attempts: 2, backoff: 1ms}}"
    assert results(flows, inner, policy) == '["b1-1","b2-2"]'


def test_outcomes_are_those_of_every_item(flows: Flows) -> None:
    """In the order of the items: how each ended, what its steps printed, why it failed, how long it took."""
    ran = flows.run(
        "name: x\nsteps:\n- id: each\n  map:\n    input: [1, 2, 3]\n    max_parallel: 1\n"
        "    error_policy: {on_item_failure: stop}\n"
        "    steps:\n    - {shell: 'echo a${item}'}\n    - {shell: 'test ${item} -ne 2'}\n"
        "  fail_workflow: false\n"
        "- {shell: 'echo ${steps.each.outcomes}', capture: {all: json}}\n"
    )
    found = ran.document["outputs"]["all"]
    assert all(one.pop("duration") >= 0 for one in found)
    assert found == [
        {"item_id": "each[0]", "status": "success", "output": "a1", "error": None},
        {"item_id": "each[1]", "status": "failed", "output": "a2", "error": "exit code 1"},
        {"item_id": "each[2]", "status": "not_started", "output": "", "error": None},
    ]
