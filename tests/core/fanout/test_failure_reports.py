"""Reports of failed items: how they are counted, grouped and bounded."""

from __future__ import annotations

import pytest

from resile.core.fanout.failure_reports import count_and_report_failure, count_failure, uncount
from resile.core.fanout.progress import Fan
from resile.model.items import Item, ItemFailure
from resile.model.limits import PATTERN_ITEMS_MAX, PATTERNS_MAX, REPORTED_ITEMS_MAX
from tests.core.fanout.test_fanout import fan
from tests.core.items import Items
from tests.core.world import OK, failed, flow


def failure(signature: str = "s", kind: str = "timeout", message: str = "slow") -> ItemFailure:
    """A failure of an item."""
    return ItemFailure(1, 0.0, "work", kind, message, signature=signature)


def test_failures_are_counted_by_type_and_by_signature() -> None:
    """Each pattern names its first items, and has the message of the first failure."""
    found = Fan(20, "l")
    for number in range(PATTERN_ITEMS_MAX + 2):
        count_failure(found, f"m[{number}]", failure(message=f"slow {number}"))
    count_failure(found, "m[90]", failure("other", "oom", "large"))
    assert sorted(found.error_types.values()) == [1, PATTERN_ITEMS_MAX + 2]
    first, second = found.patterns["s"], found.patterns["other"]
    assert (first.kind, first.message, first.count) == ("timeout", "slow 0", PATTERN_ITEMS_MAX + 2)
    assert first.items == [f"m[{number}]" for number in range(PATTERN_ITEMS_MAX)]
    assert (second.kind, second.message, second.count, second.items) == ("oom", "large", 1, ["m[90]"])


def test_patterns_and_reports_have_a_size() -> None:
    """A pattern too many is not kept, but counted by type; an item too many is counted in the report."""
    found = Fan(20, "l")
    for number in range(PATTERNS_MAX + 1):
        count_failure(found, f"m[{number}]", failure(f"s{number}"))
    count_failure(found, "m[0]", failure("s0"))
    assert (len(found.patterns), f"s{PATTERNS_MAX}" in found.patterns) == (PATTERNS_MAX, False)
    assert (found.patterns["s0"].count, sum(found.error_types.values())) == (2, PATTERNS_MAX + 2)
    found = Fan(20, "l")
    for number in range(REPORTED_ITEMS_MAX + 2):
        count_and_report_failure(found, f"m[{number}]", failure())
    assert (len(found.unreported), found.unreported_more) == (REPORTED_ITEMS_MAX, 2)
    assert found.unreported[-1] == (f"m[{REPORTED_ITEMS_MAX - 1}]", "slow")


def test_an_item_that_is_driven_again_leaves_the_counts() -> None:
    """Its failure is taken out of the types and the patterns; the last one of a kind takes its entry with it."""
    found = Fan(20, "l", redrive=True, failed=2)
    for number in range(2):
        count_failure(found, f"m[{number}]", failure())
        found.counted[number] = (failure("older"), failure())
    assert uncount(found, "m[0]", Item(0, "v"))
    assert (found.failed, list(found.error_types.values())) == (1, [1])
    assert (found.patterns["s"].count, found.patterns["s"].items) == (1, ["m[1]"])
    assert uncount(found, "m[1]", Item(1, "v"))
    assert (found.failed, found.error_types, found.patterns, found.counted) == (0, {}, {}, {})
    assert not uncount(found, "m[1]", Item(1, "v"))
    assert found.failed == 0


def test_an_item_that_was_held_leaves_the_count_of_those() -> None:
    """It never began, or was cancelled; outside of a redrive nothing is taken out."""
    found = Fan(20, "l", redrive=True, failed=1, held=2, counted={0: (), 1: (failure(kind="canceled"),)})
    assert (uncount(found, "m[0]", Item(0, "v")), uncount(found, "m[1]", Item(1, "v"))) == (True, True)
    assert (found.held, found.failed) == (0, 1)
    assert uncount(Fan(20, "l", failed=1), "m[0]", Item(0, "v"))


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [
        ({"collection": "aggregate"}, [5]),
        ({"collection": "immediate"}, [1] * 5),
        ({"collection": "batched", "batch_size": 2}, [2, 2, 1]),
    ],
)
def test_reports_come_at_once_in_batches_or_at_the_end(policy: dict[str, object], sizes: list[int]) -> None:
    """Each failed item is in one of them, and they are numbered."""
    world = Items(flow(fan(**policy)), total=5, item=lambda name, *_: failed() if name == "work" else OK).until_end()
    reports = [note.data for note in world.notes if note.type == "errors_reported"]
    assert [len(report["items"]) for report in reports] == sizes
    assert [report["batch"] for report in reports] == list(range(1, len(sizes) + 1))
    assert [one["item"] for report in reports for one in report["items"]] == [f"map[{number}]" for number in range(5)]
    assert all("more" not in report for report in reports)
