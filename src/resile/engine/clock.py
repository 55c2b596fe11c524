"""The clock of an engine: the system's, or one that a test moves by hand."""

from __future__ import annotations

import select
import time
from typing import Protocol


class Clock(Protocol):
    """Gives every time that the engine records or compares, and waits for it."""

    def now(self) -> float:
        """Seconds since 1970."""

    def wait(self, poll: select.poll, until: float) -> list[int]:
        """Wait until a descriptor is ready, or until that time; return the descriptors that are ready."""


class SystemClock:
    """The clock of this machine."""

    now = staticmethod(time.time)

    def wait(self, poll: select.poll, until: float) -> list[int]:
        """Wait until a descriptor is ready, or until that time; return the descriptors that are ready."""
        milliseconds = max(0, int((until - time.time()) * 1000) + 1)
        return [descriptor for descriptor, _ in poll.poll(milliseconds)]
