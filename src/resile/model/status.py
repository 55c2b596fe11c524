"""Job and run statuses: Torc's names and numbers, plus `recovering` and `skipped`."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal


class Status(IntEnum):
    """The status of a job; the numbers are part of the stored format."""

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


# Constants for code that runs at every event: a lookup of an Enum member goes through its metaclass and takes several
# times as long as a plain name.
BLOCKED = Status.blocked
READY = Status.ready
PENDING = Status.pending
RUNNING = Status.running
COMPLETED = Status.completed
FAILED = Status.failed
CANCELED = Status.canceled
TERMINATED = Status.terminated
DISABLED = Status.disabled
PENDING_FAILED = Status.pending_failed
RECOVERING = Status.recovering
SKIPPED = Status.skipped

# By number: looking up `name` of an Enum member takes several times as long.
STATUS_NAMES: dict[int, str] = {status.value: status.name for status in Status}
# How statuses read for people; the others read as they are named.
STATUS_WORDS = {
    "pending_failed": "parked",
    "uninitialized": "waiting",
    "blocked": "waiting",
    "ready": "waiting",
    "pending": "waiting",
}
# How statuses read after a name: `load failed`, `load was canceled`.
_STATUS_CLAUSES = {
    "completed": "completed",
    "failed": "failed",
    "canceled": "was canceled",
    "terminated": "was terminated",
    "skipped": "was skipped",
}
TERMINAL = frozenset({COMPLETED, FAILED, CANCELED, TERMINATED, DISABLED, SKIPPED})

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


def status_clause(status: str) -> str:
    """The status of a step or run as the rest of a sentence that begins with its name."""
    return _STATUS_CLAUSES.get(status) or f"is {STATUS_WORDS.get(status, status)}"
