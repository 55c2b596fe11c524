"""Job and run statuses: Torc's by name and number, with two of ours (recovering, skipped)."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal


class Status(IntEnum):
    """Where a job is; the numbers are part of the stored format."""

    uninitialized = 0
    blocked = 1
    ready = 2
    pending = 3
    running = 4
    completed = 5
    failed = 6
    canceled = 7
    terminated = 8
    disabled = 9
    pending_failed = 10
    recovering = 11
    skipped = 12


TERMINAL = frozenset(
    {Status.completed, Status.failed, Status.canceled, Status.terminated, Status.disabled, Status.skipped}
)

RunStatus = Literal["running", "completed", "failed", "canceled", "parked", "interrupted"]
RUN_ENDED = frozenset({"completed", "failed", "canceled"})

EXIT_CODES: dict[RunStatus, int] = {
    "completed": 0,
    "failed": 1,
    "canceled": 3,
    "parked": 4,
    "interrupted": 130,
    "running": 0,
}
