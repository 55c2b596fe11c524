"""Fan-outs in the core: order, policies, breaker, dead letters; with a manual clock."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from resile.core.actions import Order, SetTimer
from resile.core.events import AttemptEnded, CancelRequested, Event
from resile.core.fanout.progress import Fan, Pattern, add
from resile.core.state import ROOT, decode, encode
from resile.model.failure import Outcome
from resile.model.fanout import Breaker
from resile.model.rules import Backoff
from resile.model.workflow import Repair, Rule
from tests.core.items import Items, fan, step
from tests.core.world import OK, failed, flow


def test_items_run_in_order_each_in_its_own_scope_and_leave_nothing_behind() -> None:
    """Ten items of two steps: 1, 2, 3 ..., then what follows; no job of an item is left in the state."""
    world = Items(flow(fan(step("a"), step("b", "a")), step("after", "map")), total=10).until_end()
    expected = [f"map[{index}]/{name}" for index in range(10) for name in ("a", "b")]
    assert world.runs == ["map", *expected, "after", "end"]
    assert world.ended == "completed"
    assert (world.fan.successful, world.fan.failed) == (10, 0)
    assert [job.scope for job in world.state.jobs.values() if job.scope != ROOT] == []


def test_no_more_items_are_open_than_the_map_allows() -> None:
    """With max_parallel 2 and 8 slots, at most two items are active at any moment."""
    world = Items(flow(fan(step("a"), step("b", "a"), max_parallel=2)), total=9, parallel=8)
    world.start()
    most = 0
    while world.ended is None:
        world.perform()
        most = max(most, *(len(found.active) for found in world.state.fans.values()), 0)
    assert most == 2


@pytest.mark.parametrize(("total", "expected"), [(3, [1, 2, 3]), (41, [*range(2, 41, 2), 41])])
def test_a_long_map_notes_its_progress_now_and_then(total: int, expected: list[int]) -> None:
    """A short one does after each item, a long one about twenty times, and each after its last item."""
    world = Items(flow(fan()), total=total).run()
    notes = [note.data for note in world.notes if note.type == "map_progress"]
    assert [data["done"] for data in notes] == expected
    assert {data["of"] for data in notes} == {total}


def test_an_empty_list_is_a_map_that_succeeded() -> None:
    """No items: the step after it runs."""
    world = Items(flow(fan(), step("after", "map")), total=0).until_end()
    assert world.runs == ["map", "after", "end"]
    assert world.ended == "completed"


def test_a_failed_item_is_kept_with_its_failing_step_and_the_run_completes() -> None:
    """dlq is the default: the other items go on, dependents run, exit 0; later steps of the item never start."""
    bad = lambda name, index, _number: failed(3) if (name, index) == ("a", 1) else OK  # noqa: E731
    world = Items(flow(fan(step("a"), step("b", "a")), step("after", "map")), total=3, item=bad).until_end()
    assert world.ended == "completed"
    assert world.runs == ["map", "map[0]/a", "map[0]/b", "map[1]/a", "map[2]/a", "map[2]/b", "after", "end"]
    letter = world.letters["map[1]"]
    assert (letter.name, letter.reason, letter.item.value) == ("map", "failed", "v1")
    assert [(entry.step, entry.exit_code, entry.kind) for entry in letter.item.history] == [("a", 3, "exit")]
    assert world.types("item_dead_lettered", "errors_reported") == ["item_dead_lettered", "errors_reported"]


def test_stop_ends_the_map_and_keeps_what_never_started() -> None:
    """The first failure stops: the failed item and all that had no turn are dead letters, the run fails."""
    bad = lambda _name, index, _number: failed() if index == 1 else OK  # noqa: E731
    world = Items(flow(fan(on_item_failure="stop"), step("after", "map")), total=8, item=bad).until_end()
    assert world.ended == "failed"
    assert world.runs == ["map", "map[0]/work", "map[1]/work", "end"]
    assert {letter.item.index: letter.reason for letter in world.letters.values()} == {
        1: "failed", **dict.fromkeys(range(2, 8), "not_started"),
    }  # fmt: skip
    assert (world.fan.successful, world.fan.failed, world.fan.held) == (1, 1, 6)


@pytest.mark.parametrize(
    ("policy", "failures"),
    [
        ({"failures_max": 3}, 3),
        ({"failure_threshold": 0.2}, 10),
        ({"failure_threshold": 0.2, "threshold_items_min": 4}, 4),
        ({"continue_on_failure": False}, 1),
    ],
)
def test_a_map_stops_when_too_much_fails(policy: dict[str, object], failures: int) -> None:
    """max_failures at the Nth; a rate only beyond its minimum sample; continue_on_failure at the first."""
    world = Items(flow(fan(**policy)), total=30, item=lambda name, *_: failed() if name == "work" else OK).until_end()
    assert world.runs == ["map", *(f"map[{index}]/work" for index in range(failures)), "end"]
    assert world.ended == "failed"
    assert (world.fan.failed, world.fan.held) == (failures, 30 - failures)
    assert world.types("threshold_reached") == ["threshold_reached"]
    assert len(world.letters) == 30


def test_a_rate_that_equals_the_threshold_does_not_stop() -> None:
    """Strictly greater: 2 of 10 at 0.2 goes on to the end."""
    bad = lambda _name, index, _number: failed() if index in (3, 6) else OK  # noqa: E731
    world = Items(flow(fan(failure_threshold=0.2)), total=10, item=bad).until_end()
    assert world.ended == "completed"
    assert world.fan.failed == 2


def test_skip_drops_the_item_and_counts_it() -> None:
    """A skipped item is no dead letter."""
    bad = lambda _name, index, _number: failed() if index == 0 else OK  # noqa: E731
    world = Items(flow(fan(on_item_failure="skip")), total=3, item=bad).until_end()
    assert (world.fan.skipped, world.fan.failed, world.letters) == (1, 0, {})


def test_a_retried_item_waits_its_backoff_without_holding_a_place() -> None:
    """Item 0 fails twice: 1 s, then 2 s later it runs again; meanwhile the others go through."""
    bad = lambda _name, index, number: failed() if index == 0 and number < 3 else OK  # noqa: E731
    policy = {"on_item_failure": "retry", "attempts_max": 3, "backoff": Backoff("exponential", 100.0)}
    timers: list[tuple[int, int]] = []

    class Watched(Items):
        """A world that knows the timers that were asked for."""

        def feed(self, event: Event) -> list[Order]:
            """One event, as always."""
            orders = super().feed(event)
            timers.extend((order.item, order.attempt) for order in orders if isinstance(order, SetTimer))
            return orders

    world = Watched(flow(fan(**policy)), total=3, item=bad).until_end()
    assert world.runs == ["map", *(f"map[{index}]/work" for index in (0, 1, 2, 0, 0)), "end"]
    assert timers == [(0, 2), (0, 3)]
    delays = [note.data["delay_seconds"] for note in world.notes if note.type == "retry_scheduled"]
    assert delays == [100.0, 200.0]
    assert (world.fan.successful, world.letters) == (3, {})


def test_an_item_that_is_retried_in_vain_is_kept_with_its_whole_history() -> None:
    """retry, exhausted: never lost."""
    policy = {"on_item_failure": "retry", "attempts_max": 3}
    world = Items(flow(fan(**policy)), total=1, item=lambda name, *_: failed(7) if name == "work" else OK).until_end()
    assert [entry.number for entry in world.letters["map[0]"].item.history] == [1, 2, 3]
    # Without a backoff it begins again at once.
    retries = [note.data for note in world.notes if note.type == "retry_scheduled"]
    assert [(data["delay_seconds"], data["next_attempt"]) for data in retries] == [(0.0, 2), (0.0, 3)]
    assert (world.set, world.ended) == (0, "completed")


def test_fail_lets_all_items_finish_and_then_fails_the_step() -> None:
    """As a fan-out over a step's list does it: dependents are canceled, the run fails."""
    bad = lambda _name, index, _number: failed() if index == 0 else OK  # noqa: E731
    world = Items(flow(fan(on_item_failure="fail"), step("after", "map")), total=3, item=bad).until_end()
    assert world.runs == ["map", "map[0]/work", "map[1]/work", "map[2]/work", "end"]
    assert world.ended == "failed"
    assert world.statuses()["after"] == "canceled"


def test_the_maps_own_rules_answer_its_failure() -> None:
    """A retry of the map step lists and runs its items again; letters of items that now pass are gone."""
    world = Items(flow(fan(on_item_failure="fail", rules=(Rule(then="retry", text="retry"),))), total=2)
    tries = {"map": 0}

    def bad(name: str, index: int, _number: int) -> Outcome:
        """Item 1 fails in the first go."""
        tries["map"] += name == "map"
        return failed() if index == 1 and tries["map"] == 1 else OK

    world.item = bad
    world.until_end()
    assert world.ended == "completed"
    assert world.runs == ["map", "map[0]/work", "map[1]/work", "map", "map[0]/work", "map[1]/work", "end"]
    assert world.letters == {}


def test_every_transition_of_the_breaker() -> None:
    """Closed, open after 2 in a row, half-open after 30 s, open again at a failed probe, closed after two successes."""
    answers = iter([False, False, False, True, True, True, True])
    breaker = Breaker(failure_threshold=2, success_threshold=2, timeout_seconds=30.0, half_open_requests=2)
    world = Items(
        flow(fan(breaker=breaker)),
        total=7,
        item=lambda name, *_: OK if name in ("map", "end") or next(answers) else failed(),
    )
    world.until_end()
    kinds = ("circuit_opened", "circuit_half_opened", "circuit_closed")
    assert world.types(*kinds) == [
        "circuit_opened", "circuit_half_opened", "circuit_opened", "circuit_half_opened", "circuit_closed",
    ]  # fmt: skip
    opened = [note.at for note in world.notes if note.type == "circuit_opened"]
    halves = [note.at for note in world.notes if note.type == "circuit_half_opened"]
    assert [half - begun for begun, half in zip(opened, halves, strict=True)] == [30.0, 30.0]
    assert (world.fan.successful, world.fan.failed, world.fan.held) == (4, 3, 0)


def test_only_failures_in_a_row_open_the_circuit() -> None:
    """A success between two failures starts the count anew, from nothing."""
    answers = iter([False, True, False, False, True])
    world = Items(
        flow(fan(breaker=Breaker(failure_threshold=2, success_threshold=1, timeout_seconds=30.0))),
        total=5,
        item=lambda name, *_: OK if name in ("map", "end") or next(answers) else failed(),
    ).until_end()
    assert [note.data["failures"] for note in world.notes if note.type == "circuit_opened"] == [2]


def test_an_item_from_before_the_test_neither_closes_nor_reopens_the_circuit() -> None:
    """Item 1 runs all the time while the circuit opens and half-opens; its end changes nothing."""
    breaker = Breaker(failure_threshold=1, success_threshold=1, timeout_seconds=5.0, half_open_requests=1)
    world = Items(
        flow(fan(breaker=breaker)), total=3, parallel=2,
        item=lambda _name, index, _number: failed() if index == 0 else OK,
        stuck=lambda name, index: name == "work" and index > 0,
    )  # fmt: skip
    world.start()
    while world.orders or world.fan.circuit != "half_open":
        world.perform()
    old = next(job for job in world.state.jobs.values() if job.scope == world.fan.active[1])
    world.feed(AttemptEnded(world.clock, old.id, 1, failed()))
    assert world.fan.circuit == "half_open"
    probe = next(job for job in world.state.jobs.values() if job.scope == world.fan.active[2])
    world.feed(AttemptEnded(world.clock, probe.id, 1, OK))
    assert world.fan.circuit == "closed"


def test_a_half_open_circuit_lets_only_so_many_through() -> None:
    """Two probes run at a time although ten slots are free."""
    breaker = Breaker(failure_threshold=1, success_threshold=2, timeout_seconds=5.0, half_open_requests=2)
    world = Items(
        flow(fan(breaker=breaker)), total=9, parallel=10,
        item=lambda _name, index, _number: failed() if index == 0 else OK,
        stuck=lambda name, index: name == "work" and index > 0,
    )  # fmt: skip
    world.start()
    while world.orders or world.fan.circuit != "half_open":
        world.perform()
    assert len(world.fan.active) <= 10
    assert world.fan.probes <= 2


def test_an_item_that_takes_too_long_is_killed_and_has_failed() -> None:
    """timeout_per_agent: the item's running step is killed, the letter says timeout, the others run."""
    world = Items(
        flow(fan(item_timeout_seconds=60.0)),
        total=3,
        parallel=3,
        stuck=lambda name, index: name == "work" and index == 1,
    ).until_end()
    assert world.ended == "completed"
    history = world.letters["map[1]"].item.history
    assert [(entry.kind, entry.step, entry.message) for entry in history] == [
        ("timeout", "work", "the item timed out after 60s")
    ]


def test_a_map_that_takes_too_long_fails_and_keeps_its_items() -> None:
    """`timeout` on the map step: what runs is killed, what never ran is kept."""
    world = Items(
        flow(fan(timeout_seconds=10.0, max_parallel=1)), total=4, stuck=lambda name, _index: name == "work"
    ).until_end()
    assert world.ended == "failed"
    assert sorted(world.letters) == ["map[0]", "map[1]", "map[2]", "map[3]"]


def test_a_canceled_run_keeps_every_item_that_is_not_done() -> None:
    """What ran is canceled, what waited is not_started; `end` runs once and last."""
    world = Items(flow(fan(max_parallel=1)), total=4, stuck=lambda name, index: name == "work" and index == 1)
    world.start()
    while world.orders:
        world.perform()
    world.feed(CancelRequested(world.clock, "me"))
    world.until_end()
    assert world.ended == "canceled"
    assert world.runs[-1] == "end"
    assert {letter.item.index: letter.reason for letter in world.letters.values()} == {
        1: "canceled", 2: "not_started", 3: "not_started",
    }  # fmt: skip


def test_handlers_and_retries_work_inside_an_item() -> None:
    """An item's step with a handler: handler runs in the item's scope, the step is recovered, the item succeeds."""
    rule = Rule(then="recovered", text="on_failure", repair=Repair(steps=(step("fix"),)))
    bad = lambda name, index, _number: failed() if (name, index) == ("work", 0) else OK  # noqa: E731
    world = Items(flow(fan(step("work", rules=(rule,)))), total=2, item=bad).until_end()
    assert world.runs == ["map", "map[0]/work", "map[0]/work.on_failure/fix", "map[1]/work", "end"]
    assert (world.fan.successful, world.letters) == (2, {})


@pytest.mark.parametrize(
    ("edition", "runs", "failed_items"), [(1, ["map", "map[0]/work"], 1), (2, ["map", "map[0]/work", "map[0]/next"], 0)]
)
def test_an_item_goes_on_after_a_tolerated_failure(edition: int, runs: list[str], failed_items: int) -> None:
    """A step of an item that tolerates its failure lets the item go on; definitions of the first edition fail it."""
    rule = Rule(then="tolerate", text="on_failure: true")
    steps = (step("work", rules=(rule,)), step("next", "work"))
    world = Items(flow(fan(*steps), edition=edition), total=1, item=lambda name, *_: failed() if name == "work" else OK)
    world.until_end()
    assert (world.runs, world.fan.failed, world.ended) == ([*runs, "end"], failed_items, "completed")


@pytest.mark.parametrize(
    ("edition", "threshold", "ended"),
    [(1, 0.4, "completed"), (2, 0.4, "failed"), (2, 0.5, "completed"), (2, 1.0, "completed")],
)
def test_the_share_of_failed_items_is_judged_at_the_end_however_few_they_are(
    edition: int, threshold: float, ended: str
) -> None:
    """One of two items failed: more than 0.4 of them, although ten are needed to judge it early."""
    world = Items(
        flow(fan(failure_threshold=threshold), edition=edition),
        total=2,
        item=lambda name, index, _number: failed() if (name, index) == ("work", 0) else OK,
    )
    world.until_end()
    assert (world.runs, world.ended) == (["map", "map[0]/work", "map[1]/work", "end"], ended)
    assert ("threshold_reached" in world.types("threshold_reached")) is (ended == "failed")


@pytest.mark.parametrize(("edition", "waits"), [(1, True), (2, False)])
def test_an_open_circuit_with_nothing_left_to_start_does_not_wait(edition: int, waits: bool) -> None:
    """The last items failed and opened it: the map ends at once."""
    breaker = Breaker(failure_threshold=2, timeout_seconds=30.0)
    world = Items(
        flow(fan(breaker=breaker), edition=edition),
        total=2,
        item=lambda name, *_: failed() if name == "work" else OK,
    )
    world.until_end()
    assert world.types("circuit_opened") == ["circuit_opened"]
    assert (world.clock > 30.0) is waits


def test_a_loop_budget_spent_in_an_item_fails_that_item_only() -> None:
    """Each item has a budget of its own."""
    goto = Rule(then="goto", text="goto", target="a", limit=1000, cost=1)
    bad = lambda name, index, _number: failed() if (name, index) == ("b", 0) else OK  # noqa: E731
    world = Items(flow(fan(step("a"), step("b", "a", rules=(goto,))), loops_max=2), total=2, item=bad).until_end()
    assert world.runs == ["map", *["map[0]/a", "map[0]/b"] * 3, "map[1]/a", "map[1]/b", "end"]
    assert "max_loops=2" in world.letters["map[0]"].item.history[0].message
    assert world.ended == "completed"


def test_a_step_in_order_waits_for_the_items_before_its_own() -> None:
    """Item 0 is retried last; the merges still happen as 0, 1, 2, though 1 and 2 had done their work long before."""
    bad = lambda name, index, number: failed() if (name, index, number) == ("work", 0, 1) else OK  # noqa: E731
    policy = {"on_item_failure": "retry", "attempts_max": 2, "backoff": Backoff("fixed", 50.0)}
    steps = (step("work"), step("merge", "work", in_order=True))
    world = Items(flow(fan(*steps, **policy)), total=5, parallel=2, item=bad).until_end()
    assert [run for run in world.runs if "merge" in run] == [f"map[{index}]/merge" for index in range(5)]
    assert (world.fan.successful, world.ended) == (5, "completed")


def test_a_failed_item_does_not_hold_up_those_that_wait_for_its_turn() -> None:
    """Item 0 fails for good: 1 and 2 merge in order."""
    bad = lambda name, index, _number: failed() if (name, index) == ("work", 0) else OK  # noqa: E731
    steps = (step("work"), step("merge", "work", in_order=True))
    world = Items(flow(fan(*steps)), total=3, parallel=3, item=bad).until_end()
    assert [run for run in world.runs if "merge" in run] == ["map[1]/merge", "map[2]/merge"]


def test_a_fan_out_inside_an_item() -> None:
    """Nested: the scopes carry both names, and the outer item waits for the inner ones."""
    inner = fan(step("leaf"), name="inner")
    world = Items(flow(fan(inner)), total=2).until_end()
    leaves = [f"map[{outer}]/inner[{index}]/leaf" for outer in range(2) for index in range(2)]
    assert [run for run in world.runs if "leaf" in run] == leaves
    assert world.ended == "completed"


@pytest.mark.parametrize("step_name", ["map", "work"])
def test_a_map_that_is_tried_again_counts_its_items_once(step_name: str) -> None:
    """Whether its list failed or one of its items: their number decides whether a run lists all of them."""
    broken = lambda name, _, number: failed() if (name, number) == (step_name, 1) else OK  # noqa: E731
    again = fan(step("work"), rules=(Rule(then="retry", text="retry"),), on_item_failure="stop")
    world = Items(flow(again), total=3, item=broken).until_end()
    assert (world.runs.count("map"), world.state.items) == (2, 3)


def test_dead_letters_run_again_and_leave_when_they_pass() -> None:
    """A redrive changes counts and letters, never the verdict; what fails again stays with a longer history."""
    world = Items(flow(fan(), step("after", "map")), total=3, item=lambda name, *_: failed() if name == "work" else OK)
    world.until_end()
    assert sorted(world.letters) == ["map[0]", "map[1]", "map[2]"]
    before = len(world.runs)
    world.item = lambda _name, index, _number: failed() if index == 2 else OK
    world.redrive("map[0]", "map[2]")
    assert world.runs[before:] == ["map[0]/work", "map[2]/work"]
    assert sorted(world.letters) == ["map[1]", "map[2]"]
    assert len(world.letters["map[2]"].item.history) == 2
    assert (world.fan.successful, world.fan.failed, world.ended) == (1, 2, "completed")


POLICIES = st.fixed_dictionaries(
    {
        "on_item_failure": st.sampled_from(["dlq", "retry", "skip", "stop", "fail"]),
        "continue_on_failure": st.booleans(),
        "failures_max": st.integers(0, 4),
        "failure_threshold": st.sampled_from([0.1, 0.5, 1.0]),
        "threshold_items_min": st.integers(1, 5),
        "collection": st.sampled_from(["aggregate", "immediate", "batched"]),
        "batch_size": st.integers(1, 4),
        "attempts_max": st.integers(1, 3),
        "backoff": st.sampled_from([None, Backoff("fixed", 3.0)]),
        "breaker": st.one_of(
            st.none(), st.builds(Breaker, st.integers(1, 3), st.integers(1, 3), st.just(5.0), st.integers(1, 3))
        ),
        "max_parallel": st.sampled_from([None, 1, 3]),
        "item_timeout_seconds": st.sampled_from([None, 50.0]),
    }
)


@settings(max_examples=300, deadline=None)
@given(POLICIES, st.lists(st.booleans(), max_size=60), st.integers(0, 12), st.integers(1, 4), st.booleans())
def test_for_any_policy_and_any_outcomes_no_item_vanishes(
    policy: dict[str, object], answers: list[bool], total: int, parallel: int, cancel: bool
) -> None:
    """successful + failed + skipped + held = total; every failed or held item is a dead letter; the run ends."""
    policy = {key: value for key, value in policy.items() if value is not None}
    left = iter(answers)
    world = Items(
        flow(fan(step("a"), step("b", "a"), **policy)), total=total, parallel=parallel,
        item=lambda name, *_: OK if name in ("map", "end") or next(left, True) else failed(),
    )  # fmt: skip
    world.start()
    if cancel:
        for _ in range(len(answers) // 2):
            if world.orders:
                world.perform()
        world.feed(CancelRequested(world.clock, "me"))
    world.until_end()
    if not world.state.fans:
        return
    fan_out = world.fan
    assert fan_out.successful + fan_out.failed + fan_out.skipped + fan_out.held == total
    assert len(world.letters) == fan_out.failed + fan_out.held
    reported = [entry["item"] for note in world.notes if note.type == "errors_reported" for entry in note.data["items"]]
    assert len(reported) == len(set(reported))
    again = decode(encode(world.state), world.state.workflow)
    assert structs.asdict(again) == structs.asdict(world.state)


@pytest.mark.parametrize("policy", [{"on_item_failure": "stop"}, {"failures_max": 1}])
def test_what_has_not_begun_does_not_start_when_the_map_stops(policy: dict[str, object]) -> None:
    """Also where the map may open more items than the run has room for, and where another step takes that room."""
    bad = lambda name, index, _number: failed() if (name, index) == ("work", 0) else OK  # noqa: E731
    world = Items(flow(fan(max_parallel=4, **policy)), total=6, item=bad).until_end()
    assert world.runs == ["map", "map[0]/work", "end"]
    assert [letter.reason for letter in world.letters.values()] == ["failed", *["not_started"] * 5]
    crowded = Items(flow(fan(max_parallel=2, **policy), step("long")), total=6, item=bad, parallel=2)
    crowded.stuck = lambda name, _index: name == "long"
    crowded.start()
    while crowded.orders:
        crowded.perform()
    assert [run for run in crowded.runs if "work" in run] == ["map[0]/work"]
    assert [letter.reason for letter in crowded.letters.values()] == ["failed", *["not_started"] * 5]


def test_nothing_is_open_behind_a_circuit() -> None:
    """With room for one at a time the item after a failure waits for the test, though the map may run four."""
    breaker = Breaker(failure_threshold=1, success_threshold=1, timeout_seconds=30.0, half_open_requests=1)
    bad = lambda name, index, _number: failed() if (name, index) == ("work", 0) else OK  # noqa: E731
    world = Items(flow(fan(max_parallel=4, breaker=breaker)), total=3, item=bad).until_end()
    begun = [(note.at, note.scope) for note in world.notes if note.type == "step_started" and note.step == "work"]
    assert begun[1][0] - begun[0][0] >= 30.0


def test_totals_know_so_many_kinds_of_failures_and_no_more() -> None:
    """The 1,000 that came first are counted; one that is known already is counted still."""
    total = Fan(0, "")
    for number in (*range(1_001), 0):
        add(total, Fan(1, "", failed=1, patterns={f"s{number}": Pattern("exit", "m", 1, [f"map[{number}]"])}))
    assert (total.total, total.failed, len(total.patterns)) == (1_002, 1_002, 1_000)
    assert (total.patterns["s0"].count, total.patterns["s999"].count) == (2, 1)
