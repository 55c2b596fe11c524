"""How an item of a map ended, by its jobs and its dead letter."""

from __future__ import annotations

import pytest

from resile.engine.evaluation.map_statistics import end_of_item, seconds_of
from resile.model.items import ItemFailure
from resile.model.status import COMPLETED, FAILED, SKIPPED, Status
from resile.store.contract import JobRow, LetterRow


def jobs(*statuses: Status) -> list[JobRow]:
    """The jobs of an item, numbered from 1."""
    return [JobRow(number, "s", "map[0]", status) for number, status in enumerate(statuses, 1)]


def letter(*messages: str) -> LetterRow:
    """A dead letter with these failures, oldest first."""
    history = tuple(ItemFailure(number, 0.0, "s", "exit", message) for number, message in enumerate(messages, 1))
    return LetterRow(1, "map", 0, "map", "s", 1, 0, "stopped", "", len(history), 0.0, 0.0, True, None, history)


@pytest.mark.parametrize(
    ("statuses", "left", "is_dropped", "expected"),
    [
        ((COMPLETED, SKIPPED), None, False, ("success", None)),
        ((COMPLETED, FAILED), None, False, ("failed", "message of 2")),
        ((FAILED,), None, True, ("skipped", "message of 1")),
        ((COMPLETED,), letter("first", "last"), False, ("failed", "last")),
        ((), letter(), False, ("stopped", None)),
        ((FAILED,), letter(), False, ("failed", "message of 1")),
    ],
)
def test_an_item_ends_as_its_last_execution_did(
    statuses: tuple[Status, ...], left: LetterRow | None, is_dropped: bool, expected: tuple[str, str | None]
) -> None:
    """Its letter says why it failed, or why it never ran; without one the job that failed does."""
    assert end_of_item(jobs(*statuses), left, lambda job: f"message of {job}", is_dropped=is_dropped) == expected


def test_an_item_takes_the_time_from_its_first_start_to_its_last_end() -> None:
    """None where nothing of it has begun or ended, or where the clock was set back in between."""
    first = JobRow(1, "s", "map[0]", COMPLETED, started_at=10.0, ended_at=11.0)
    second = JobRow(2, "t", "map[0]", COMPLETED, started_at=12.0, ended_at=14.12345)
    begun, done = JobRow(3, "u", "map[0]", FAILED, started_at=9.0), JobRow(4, "v", "map[0]", SKIPPED, ended_at=8.0)
    cases = ([first, second], [begun, first], [begun], [done], [], [begun, done])
    assert [seconds_of(case) for case in cases] == [4.123, 2.0, 0.0, 0.0, 0.0, 0.0]
