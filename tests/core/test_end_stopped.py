"""`end` of a run that is stopped: it runs whole; a second cancel stops it, whatever runs for it."""

from __future__ import annotations

import pytest

from resile.core.events import CancelRequested, EpochStarted, RunResumed
from resile.model.rules import Backoff
from resile.model.workflow import Child, Repair, Rule, Step
from tests.core.items import Items, fan, step
from tests.core.world import OK, failed, flow

RETRIED = Rule(then="retry", text="retry 2", limit=2)
REPAIRED = Rule(then="retry", text="repair", limit=1, repair=Repair(steps=(step("fix"),)))
LATER = Backoff(initial_seconds=600.0)
ENDS = {
    "attempt": Step(name="end", action=step("x").action, rules=(RETRIED,)),
    "map": fan(step("work"), name="end", rules=(RETRIED,)),
    "child": Step(name="end", action=Child("c", flow(step("work"), step("more", "work"))), rules=(RETRIED,)),
    "wait": Step(name="end", action=step("x").action, rules=(Rule(then="retry", text="r", limit=2, wait=LATER),)),
    "handler": Step(name="end", action=step("x").action, rules=(REPAIRED,)),
}
STUCK = {"wait": "", "attempt": "end", "map": "work", "child": "work", "handler": "fix"}


def canceled_in_end(form: str) -> Items:
    """A run that was canceled, and whose `end` has begun and does not get on."""
    hangs = {STUCK[form], "a"}
    world = Items(
        flow(step("a"), end=ENDS[form]),
        item=lambda name, _index, _number: failed() if name == "end" and form in ("handler", "wait") else OK,
        stuck=lambda name, _index: name in hangs,
    ).start()
    while world.orders:
        world.perform()
    world.feed(CancelRequested(world.clock, "me"))
    while world.orders or (form == "wait" and not world.timers):
        world.perform()
    assert (world.state.phase, world.ended) == ("ending", None)
    return world


@pytest.mark.parametrize("form", ENDS)
def test_a_second_cancel_stops_end_and_all_that_runs_for_it(form: str) -> None:
    """Nothing new starts after it, not even a retry, and the run ends as canceled."""
    world = canceled_in_end(form)
    before = len(world.runs)
    world.feed(CancelRequested(world.clock, "me"))
    world.until_end()
    assert world.ended == "canceled"
    # The `end` of a child that `end` runs is an `end` too.
    assert world.runs[before:] == (["end/end"] if form == "child" else [])


def test_a_new_epoch_forgets_the_second_cancel() -> None:
    """`rerun` of such a run has an `end` that runs."""
    world = canceled_in_end("map")
    world.feed(CancelRequested(world.clock, "me"))
    world.until_end()
    world.stuck, world.ended, before = lambda _name, _index: False, None, len(world.runs)
    world.feed(EpochStarted(world.clock))
    world.feed(RunResumed(world.clock, world.capacity))
    world.until_end()
    assert (world.ended, world.runs[before:]) == ("completed", ["a", "end", *(f"end[{n}]/work" for n in range(3))])
