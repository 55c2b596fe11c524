"""Timers of items, with a clock that the test moves."""

from __future__ import annotations

from resile.core.events import TimerFired
from resile.model.rules import Backoff
from tests.core.items import Items, fan
from tests.core.world import OK, failed, flow


def test_the_end_of_a_backoff_is_not_the_end_of_an_items_time() -> None:
    """Two items whose waits end together: the second timer finds its item at work already and leaves it alone."""
    world = Items(
        flow(fan(max_parallel=2, on_item_failure="retry", attempts_max=2, backoff=Backoff("fixed", 100.0))),
        total=2,
        parallel=2,
        item=lambda name, _index, number: failed() if name == "work" and number == 1 else OK,
    )
    world.start()
    while not world.state.fans or len(world.fan.waiting) < 2 or world.orders:
        world.perform()
    timers, world.timers, world.clock = [timer for _, _, timer in sorted(world.timers)], [], 500.0
    for timer in timers:
        world.feed(TimerFired(500.0, timer.job, timer.attempt, item=timer.item))
    assert sorted(world.fan.active) == [0, 1]
    world.until_end()
    assert (world.fan.successful, world.fan.failed, world.letters) == (2, 0, {})


def test_a_retried_item_has_its_whole_time_again() -> None:
    """The time of the first execution does not end the second, which is stuck and fails by its own."""
    world = Items(
        flow(fan(item_timeout_seconds=60.0, on_item_failure="retry", attempts_max=2, backoff=Backoff("fixed", 100.0))),
        total=1,
        stuck=lambda name, _index: name == "work",
    ).until_end()
    history = world.letters["map[0]"].item.history
    assert [(entry.kind, entry.seconds >= 60.0) for entry in history] == [("timeout", True), ("timeout", True)]
