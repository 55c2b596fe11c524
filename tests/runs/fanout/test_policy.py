"""Error policies of whole maps, sentence by sentence: what a failed item means for itself and for the others."""

from __future__ import annotations

import pytest

from tests.runs.fanout.runs import counts, letters, mapped, reported, types, waits
from tests.runs.ladder.flows import Flows

# `./step x 9` fails nine times; only b and d are called so.
SOME = "case ${item} in b|d) ./step ${item} 9;; *) ./step ${item};; esac"


def test_dlq_is_the_default_and_keeps_failed_items_for_later(flows: Flows) -> None:
    """A map whose failed items may fail goes on, keeps what failed, completes, and the steps after it run."""
    ran = flows.run(mapped("{}", SOME))
    assert ran.order == ["a", "b", "c", "d", "e", "after"]
    assert ran.document["exit_code"] == 0
    assert counts(ran) == (5, 3, 2, 0, 0)
    assert letters(flows) == [("process[1]", "failed", 1), ("process[3]", "failed", 1)]
    assert ran.status == {"process": "completed", "after": "completed", "end": "completed"}
    same = flows.run(mapped("{on_item_failure: dlq}", SOME))
    assert (same.order, counts(same)) == (ran.order, counts(ran))


def test_retry_runs_the_item_again_with_backoff_if_retry_config_is_set(flows: Flows) -> None:
    """An item that passes at its third execution is a success; one that never does is kept with its history."""
    policy = "{on_item_failure: retry, retry_config: {max_attempts: 3, backoff: 10ms}}"
    ran = flows.run(mapped(policy, "case ${item} in b) ./step b 2;; d) ./step d 9;; *) ./step ${item};; esac"))
    assert ran.order.count("b") == 3
    assert ran.order.count("d") == 3
    assert ran.order[-1] == "after"
    assert counts(ran) == (5, 4, 1, 0, 0)
    assert letters(flows) == [("process[3]", "failed", 3)]
    assert sorted(waits(ran)) == [("process[1]", 0.01)] * 2 + [("process[3]", 0.01)] * 2


def test_skip_drops_the_failed_item_and_goes_on(flows: Flows) -> None:
    """A skipped item is counted, and nothing of it is kept."""
    ran = flows.run(mapped("{on_item_failure: skip}", SOME))
    assert ran.order == ["a", "b", "c", "d", "e", "after"]
    assert counts(ran) == (5, 3, 0, 2, 0)
    assert letters(flows) == []


def test_stop_ends_the_whole_workflow_at_the_first_failure(flows: Flows) -> None:
    """Nothing starts after the failed item, the run fails, and what never started is kept too."""
    ran = flows.run(mapped("{on_item_failure: stop}", SOME), 1)
    assert ran.order == ["a", "b"]
    assert counts(ran) == (5, 1, 1, 0, 3)
    assert letters(flows) == [
        ("process[1]", "failed", 1),
        ("process[2]", "not_started", 0),
        ("process[3]", "not_started", 0),
        ("process[4]", "not_started", 0),
    ]
    assert ran.status == {"process": "failed", "after": "canceled", "end": "completed"}
    assert ran.failed == "stopped at the first failed item (of 5)"


def test_custom_names_a_list_of_steps_as_failure_handler(flows: Flows) -> None:
    """The handler runs once for each failed item, knows what failed, and the item is recovered."""
    text = (
        "handlers:\n  mend:\n  - shell: './step mend-${item}; echo ${error.exit_code} ${error.step} >> seen'\n"
        + mapped("{on_item_failure: 'custom:mend'}", SOME)
    )
    ran = flows.run(text)
    assert ran.order == ["a", "b", "mend-b", "c", "d", "mend-d", "e", "after"]
    assert (flows.folder / "seen").read_text() == "1 work\n1 work\n"
    assert counts(ran) == (5, 5, 0, 0, 0)
    assert types(ran, "step_recovered") == ["step_recovered"] * 2


def test_custom_names_a_failure_handler_with_rules(flows: Flows) -> None:
    """Rules by exit code answer inside each item; what they do not answer is kept."""
    text = (
        "failure_handlers: {codes: {rules: [{exit_codes: [7], recovery_script: ./step fix, max_retries: 1}]}}\n"
        + mapped(
            "{on_item_failure: 'custom:codes'}",
            "case ${item} in b) ./step b 1 7;; d) ./step d 9 8;; *) ./step ${item};; esac",
        )
    )
    ran = flows.run(text)
    assert ran.order == ["a", "b", "fix", "b", "c", "d", "e", "after"]
    assert counts(ran) == (5, 4, 1, 0, 0)
    assert letters(flows) == [("process[3]", "failed", 1)]


@pytest.mark.parametrize(("policy", "code", "order"), [
    ("{continue_on_failure: true}", 0, ["a", "b", "c", "d", "e", "after"]),
    ("{continue_on_failure: false}", 1, ["a", "b"]),
])  # fmt: skip
def test_continue_on_failure_goes_on_after_failures(flows: Flows, policy: str, code: int, order: list[str]) -> None:
    """`true` processes the other items, `false` ends the map at the first failed one."""
    assert flows.run(mapped(policy, SOME), code).order == order


def test_max_failures_stops_after_this_many_failures(flows: Flows) -> None:
    """With two allowed failures the second one ends the map; what is left is held."""
    ran = flows.run(mapped("{max_failures: 2}", SOME), 1)
    assert ran.order == ["a", "b", "c", "d"]
    assert counts(ran) == (5, 2, 2, 0, 1)
    assert ran.failed == "2 items failed (max_failures 2)"
    assert types(ran, "threshold_reached", "item_dead_lettered") == [
        "item_dead_lettered", "item_dead_lettered", "threshold_reached", "item_dead_lettered"
    ]  # fmt: skip


def test_failure_threshold_stops_if_the_rate_exceeds_it(flows: Flows) -> None:
    """A rate that equals the threshold is allowed, one above it ends the map, never before ten items."""
    numbers = "seq 1 20"
    third = "test $(( ${item} % 5 )) -ne 0 && ./step ${item}"
    equal = flows.run(mapped("{failure_threshold: 0.2}", third, numbers))
    assert counts(equal) == (20, 16, 4, 0, 0)
    over = flows.run(mapped("{failure_threshold: 0.19}", third, numbers), 1)
    assert counts(over) == (20, 8, 2, 0, 10)
    assert over.failed == "2 of 10 items failed (failure_threshold 0.19)"
    sooner = flows.run(mapped("{failure_threshold: 0.19, failure_threshold_min_items: 5}", third, numbers), 1)
    assert counts(sooner) == (20, 4, 1, 0, 15)


def test_aggregate_collects_all_errors_and_reports_at_the_end(flows: Flows) -> None:
    """One report, after the last item."""
    ran = flows.run(mapped("{error_collection: aggregate}", SOME))
    assert reported(ran) == [["process[1]", "process[3]"]]
    assert types(ran, "item_dead_lettered", "errors_reported", "step.exit")[-4:-2] == ["errors_reported", "step.exit"]


def test_immediate_reports_errors_as_they_occur(flows: Flows) -> None:
    """Each failure has its own report, before the next item starts."""
    ran = flows.run(mapped("{error_collection: immediate}", SOME))
    assert reported(ran) == [["process[1]"], ["process[3]"]]
    scopes = [event["scope"] for event in ran.events if event["type"] in ("errors_reported", "step_started")]
    assert scopes.index("process[2]") > scopes.index("root", 2)


def test_batched_reports_errors_in_batches_of_n_items(flows: Flows) -> None:
    """Batches of two, and the last one with what is left."""
    ran = flows.run(mapped("{error_collection: {batched: {size: 2}}}", "./step ${item} 9"))
    assert reported(ran) == [["process[0]", "process[1]"], ["process[2]", "process[3]"], ["process[4]"]]
    assert [event["data"]["batch"] for event in ran.of("errors_reported")] == [1, 2, 3]


def test_mode_mapreduce_takes_the_policy_of_the_workflow(flows: Flows) -> None:
    """The basic configuration of the page: setup, map with the policy at top level, reduce."""
    text = (
        "name: process-items\nmode: mapreduce\n"
        "error_policy: {on_item_failure: dlq, continue_on_failure: true, max_failures: 10, failure_threshold: 0.5,\n"
        "  error_collection: aggregate}\n"
        'setup: [{shell: \'printf "%s" "[1, 2, 3]" > items.json; ./step setup\'}]\n'
        "map:\n  input: items.json\n  agent_template: [{shell: 'test ${item} -ne 2 && ./step item-${item}'}]\n"
        "reduce: [{shell: './step reduce-${map.successful}-of-${map.total}'}]\n"
    )
    ran = flows.run(text)
    assert ran.order == ["setup", "item-1", "item-3", "reduce-2-of-3"]
    assert counts(ran, "map") == (3, 2, 1, 0, 0)


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        ("{type: fixed, delay: 10ms}", [0.01, 0.01, 0.01]),
        ("{type: linear, initial: 10ms, increment: 5ms}", [0.015, 0.02, 0.025]),
        ("{type: exponential, initial: 10ms, multiplier: 2}", [0.01, 0.02, 0.04]),
        ("{type: fibonacci, initial: 10ms}", [0.01, 0.01, 0.02]),
        ("10ms", [0.01, 0.01, 0.01]),
    ],
)
def test_the_four_backoffs_wait_as_their_formulas_say(flows: Flows, backoff: str, expected: list[float]) -> None:
    """Fixed waits the same, linear adds, exponential multiplies, fibonacci follows the sequence."""
    policy = f"{{on_item_failure: retry, retry_config: {{max_attempts: 4, backoff: {backoff}}}}}"
    ran = flows.run(mapped(policy, "./step ${item} 9", "[a]"))
    assert [wait for _, wait in waits(ran)] == pytest.approx(expected)
    assert ran.order == ["a", "a", "a", "a", "after"]


def test_max_attempts_counts_all_executions(flows: Flows) -> None:
    """`max_attempts: 1` never runs an item again; a retry without a config runs it three times in all."""
    once = flows.run(mapped("{retry_config: {max_attempts: 1}}", "./step ${item} 9", "[a]"))
    assert once.order == ["a", "after"]
    document = flows.refused(mapped("{retry_config: {max_attempts: 0}}"))
    assert document == ["`0` is out of bounds: expected a whole number from 1 to 1000"]


def test_while_an_item_waits_for_its_backoff_others_run(flows: Flows) -> None:
    """With one slot, the items behind a waiting one go first."""
    policy = "{on_item_failure: retry, retry_config: {max_attempts: 2, backoff: 300ms}}"
    ran = flows.run(mapped(policy, "case ${item} in a) ./step a 1;; *) ./step ${item};; esac", "[a, b, c]"))
    assert ran.order == ["a", "b", "c", "a", "after"]
    assert counts(ran) == (3, 3, 0, 0, 0)
