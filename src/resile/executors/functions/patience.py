"""When to try again to start a worker for which the system had no process, thread or memory."""

from __future__ import annotations

from errno import EAGAIN, ENOMEM

AGAIN_SECONDS = 0.05
AGAIN_SECONDS_MAX = 5.0
SECONDS_MAX = 60.0
NEVER = float("inf")


def is_passing(error: OSError | RuntimeError) -> bool:
    """May the start of a worker succeed in a moment? Threads say by a RuntimeError that there is none."""
    return isinstance(error, RuntimeError) or error.errno in (EAGAIN, ENOMEM)


class Patience:
    """The pauses between starts that failed: each twice as long as the one before."""

    def __init__(self) -> None:
        self.has_started()

    def has_started(self) -> None:
        """Forget earlier failures: a worker has started."""
        self._pause = AGAIN_SECONDS
        self._again_at = 0.0
        self._ends_at = NEVER

    def has_failed(self, now: float) -> None:
        """Wait before the next start."""
        self._again_at = now + self._pause
        self._pause = min(2 * self._pause, AGAIN_SECONDS_MAX)
        self._ends_at = min(self._ends_at, now + SECONDS_MAX)

    def is_needed(self) -> bool:
        """Has the last start failed?"""
        return self._again_at > 0.0

    def may_try(self, now: float) -> bool:
        """Is it time for the next start?"""
        return now >= self._again_at

    def is_over(self, now: float) -> bool:
        """Has no worker started for a minute?"""
        return now >= self._ends_at
