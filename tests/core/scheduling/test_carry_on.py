"""`on_item_failure: carry_on`: the failure of a fan-out counts, and what needs it goes on with what succeeded."""

from __future__ import annotations

import pytest

from resile.model.failure import Outcome
from resile.model.workflow import Rule
from tests.core.items import Items, fan, step
from tests.core.world import OK, failed, flow


@pytest.mark.parametrize(
    ("count", "ended", "words"),
    [
        (0, "completed", ["completed", "completed", "completed"]),
        (1, "failed", ["failed", "completed", "completed"]),
        (2, "failed", ["failed", "completed", "completed"]),
        (3, "failed", ["failed", "canceled", "canceled"]),
    ],
)
def test_what_follows_runs_while_something_succeeded(count: int, ended: str, words: list[str]) -> None:
    """One success is enough; the run has failed for the others, which are kept."""
    bad = lambda name, index, _number: failed() if name == "work" and index < count else OK  # noqa: E731
    steps = fan(on_item_failure="carry_on"), step("after", "map"), step("last", "after")
    world = Items(flow(*steps), total=3, item=bad).until_end()
    statuses = world.statuses()
    assert (world.ended, [statuses[name] for name in ("map", "after", "last")]) == (ended, words)
    assert len(world.letters) == count


def test_a_fan_out_that_is_tried_again_starts_anew() -> None:
    """What succeeded in one attempt does not excuse the next, in which nothing does."""
    again = Rule(then="retry", text="retry")
    world = Items(flow(fan(on_item_failure="carry_on", rules=(again,)), step("after", "map")), total=2)

    def bad(name: str, index: int, _number: int) -> Outcome:
        """The first item fails in the first go, both in the second."""
        return failed() if name == "work" and (index == 0 or world.runs.count("map") == 2) else OK

    world.item = bad
    world.until_end()
    assert world.runs == ["map", "map[0]/work", "map[1]/work", "map", "map[0]/work", "map[1]/work", "end"]
    assert (world.ended, world.statuses()["after"]) == ("failed", "canceled")
