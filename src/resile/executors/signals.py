"""The signals that ask a process to stop: at the second one it ends what runs.

`timeout` and its kin send their signal to the process and then to its group, so the process gets it twice at once. That
is one request; people and supervisors leave more time between two.
"""

from __future__ import annotations

from time import monotonic

SAME_SECONDS = 0.1


class StopSignals:
    """Tells requests to stop from their repetitions."""

    def __init__(self) -> None:
        self._last = 0
        self._at = 0.0

    def add(self, number: int) -> bool:
        """Note a signal; False where it repeats the last one at once."""
        now = monotonic()
        if number == self._last and now - self._at < SAME_SECONDS:
            return False
        self._last, self._at = number, now
        return True
