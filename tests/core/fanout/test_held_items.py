"""Items that wait: for a circuit, for a slot, for a judgement; and how long a map may take."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from resile.core.events import AttemptEnded, CancelRequested
from resile.core.fanout.fanout import counts
from resile.model.fanout import Breaker
from resile.model.workflow import Child, Condition, Rule, Step
from tests.core.items import Items, fan, step
from tests.core.world import OK, failed, flow


def crowded(**keys: object) -> Items:
    """A map that may run two at a time and a step that holds one of the two slots; item 0 has opened the circuit."""
    breaker = Breaker(failure_threshold=1, success_threshold=1, timeout_seconds=30.0, half_open_requests=1)
    bad = lambda name, index, _number: failed() if (name, index) == ("work", 0) else OK  # noqa: E731
    first = fan(step("work", **keys), max_parallel=2, breaker=breaker, item_timeout_seconds=20.0)
    world = Items(flow(step("long"), first), total=4, item=bad, parallel=2)
    world.stuck = lambda name, _index: name == "long"
    world.start()
    while world.types("circuit_opened") == []:
        world.perform()
    return world


@pytest.mark.parametrize("when", [None, Condition("true")])
def test_items_that_others_kept_from_beginning_wait_for_the_circuit(when: Condition | None) -> None:
    """What the map had opened when its circuit opened begins with the test, in order, and its time begins there."""
    world = crowded(when=when)
    opened = next(note.at for note in world.notes if note.type == "circuit_opened")
    assert len(world.fan.gated) == 1
    world.feed(AttemptEnded(world.clock, 1, 1, OK))
    world.until_end()
    begun = [(note.at, note.scope) for note in world.notes if note.type == "step_started" and note.step == "work"]
    assert [scope for _, scope in begun] == [f"map[{index}]" for index in range(4)]
    assert all(at >= opened + 30.0 for at, _ in begun[1:])
    assert world.types("circuit_opened", "circuit_half_opened", "circuit_closed") == [
        "circuit_opened", "circuit_half_opened", "circuit_closed",
    ]  # fmt: skip
    assert list(world.letters) == ["map[0]"]
    assert world.fan.gated == []


def test_what_waits_for_a_circuit_is_held_when_the_run_is_canceled() -> None:
    """Nothing of it had begun, so it is no failure."""
    world = crowded()
    world.feed(CancelRequested(world.clock, "me"))
    world.feed(AttemptEnded(world.clock, 1, 1, OK))
    world.until_end()
    kept = [(letter.reason, len(letter.item.history)) for letter in world.letters.values()]
    assert kept == [("failed", 1), *[("circuit_open", 0)] * 3]
    assert world.fan.gated == []


def test_items_that_may_be_held_back_are_not_reserved_ahead_of_a_slot() -> None:
    """What waits in an executor can't be taken back unseen, so a map with a limit has none there."""
    for policy, ahead in (({}, 2), ({"failures_max": 3}, 0), ({"on_item_failure": "stop"}, 0)):
        world = Items(flow(fan(name="first", max_parallel=3, **policy), step("long")), total=6, parallel=2)  # type: ignore[arg-type]
        world.capacity = replace(world.capacity, ahead=2)
        world.stuck = lambda name, _index: name in ("work", "long")
        world.start()
        while world.orders:
            world.perform()
        assert world.state.in_flight == 2 + ahead


def test_a_canceled_item_that_never_began_is_held() -> None:
    """Items are opened ahead of their turn; the cancel finds them without an attempt, and they are no failures."""
    world = Items(flow(fan(max_parallel=4)), total=4, stuck=lambda name, index: (name, index) == ("work", 0))
    world.start()
    while world.orders:
        world.perform()
    world.feed(CancelRequested(world.clock, "me"))
    world.until_end()
    assert {letter.item.index: (letter.reason, len(letter.item.history)) for letter in world.letters.values()} == {
        0: ("canceled", 1), 1: ("not_started", 0), 2: ("not_started", 0), 3: ("not_started", 0),
    }  # fmt: skip
    assert (world.fan.failed, world.fan.held) == (0, 4)


def test_the_time_of_a_map_or_a_child_begins_with_each_attempt() -> None:
    """The second attempt has all of its time, whatever the first one took."""
    again = (Rule(then="retry", text="retry"),)
    child = Step(name="sub", action=Child("c", flow(step("work"))), timeout_seconds=10.0, rules=again)
    for workflow in (flow(fan(timeout_seconds=10.0, rules=again)), flow(child)):
        seen: list[str] = []
        world = Items(workflow, total=2)

        def stuck(name: str, _index: int, seen: list[str] = seen) -> bool:
            """The first work never ends by itself."""
            seen.append(name)
            return name == "work" and seen.count("work") == 1

        world.stuck = stuck
        assert world.until_end().ended == "completed"


def test_an_item_that_waits_for_a_judgement_holds_no_place() -> None:
    """The others run, one at a time; then only the parked ones are left."""
    parks = step("work", rules=(Rule(then="park", text="park"),))
    for steps in ((parks,), (Step(name="sub", action=Child("c", flow(parks))),)):
        turns = iter((OK, failed(), failed(), OK, OK, OK))
        world = Items(flow(fan(*steps, max_parallel=1)), total=6)
        world.item = lambda name, _index, _number, turns=turns: next(turns) if name == "work" else OK
        world.until_end()
        ran = [run for run in world.runs if run.endswith("/work")]
        assert (world.ended, len(ran)) == ("parked", 6)
        assert (world.fan.successful, len(world.fan.active)) == (4, 2)


def test_a_share_of_failures_is_judged_when_there_are_enough_items() -> None:
    """Nine failures are too few to tell; the tenth item passes, and nine of ten are too many."""
    bad = lambda name, index, _number: failed() if name == "work" and index < 9 else OK  # noqa: E731
    world = Items(flow(fan(max_parallel=1, failure_threshold=0.2)), total=40, item=bad).until_end()
    assert (world.ended, len([run for run in world.runs if "work" in run])) == ("failed", 10)
    note = next(note for note in world.notes if note.type == "threshold_reached")
    assert note.data["message"] == "9 of 10 items failed (failure_threshold 0.2)"


def test_what_an_open_circuit_holds_is_told() -> None:
    """The numbers of a map name the items that wait for the circuit; when it is closed they wait for nothing."""
    world = crowded()
    assert counts(world.fan)["held"] == 3
    world.feed(AttemptEnded(world.clock, 1, 1, OK))
    world.until_end()
    assert counts(world.fan)["held"] == 0


def test_a_map_that_was_canceled_has_no_exit_code() -> None:
    """That its items were listed well is not how it ended."""
    world = Items(flow(fan()), total=2, stuck=lambda name, _index: name == "work")
    world.start()
    while world.orders:
        world.perform()
    assert world.state.jobs[1].exit_code is None
    world.feed(CancelRequested(world.clock, "me"))
    world.until_end()
    assert (world.statuses()["map"], world.state.jobs[1].exit_code) == ("terminated", None)
