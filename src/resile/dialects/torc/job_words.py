"""A job in the words of Torc: its status, and the number of the attempt that it is at."""

from __future__ import annotations

# Statuses that Torc does not have.
_WORDS = {"recovering": "ready", "skipped": "disabled"}
_RESERVED = ("ready", "pending")


def status_in_torc(status: str) -> str:
    """The word of Torc for the status of a job."""
    return _WORDS.get(status, status)


def attempt_in_torc(status: str, attempts: int) -> int:
    """The number of the attempt of a job that has had so many: Torc counts a retry as soon as it is reserved."""
    return attempts + 1 if status_in_torc(status) in _RESERVED else max(1, attempts)
