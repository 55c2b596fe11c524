"""Counts the signals that ask a process to stop: at the second request it ends what runs.

`timeout` and similar programs send their signal to the process and then to its group, so the process gets it twice
within a moment. That is one request; people and supervisors leave more time between two requests.
"""

from __future__ import annotations

from time import monotonic

SAME_SECONDS = 0.1


class StopSignals:
    """Tells a new request to stop from the repetition of the last one."""

    def __init__(self) -> None:
        self._last = 0
        self._at = 0.0

    def add(self, number: int) -> bool:
        """Note a signal; False if it repeats the last one within SAME_SECONDS."""
        now = monotonic()
        if number == self._last and now - self._at < SAME_SECONDS:
            return False
        self._last, self._at = number, now
        return True
