"""The clock of an engine: the system's, or one that a test moves by hand.

The time of a run is CLOCK_BOOTTIME, which can't jump, plus an offset that makes it seconds since 1970. All engines of
the run on one boot take the same offset: so a wall clock that is set changes no backoff, timeout or duration.
"""

from __future__ import annotations

import select
import time
from typing import Protocol

from resile.core.events import Machine
from resile.core.state import State
from resile.store.lease import boot_id, boot_seconds


class Clock(Protocol):
    """Gives every time that the engine records or compares, and waits for it."""

    machine: Machine

    def now(self) -> float:
        """Seconds since 1970."""

    def wait(self, poll: select.poll, until: float) -> list[int]:
        """Wait until a descriptor is ready, or until that time; return the descriptors that are ready."""


class SystemClock:
    """The clock of a run on this boot of this machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def now(self) -> float:
        """Seconds since 1970; never less than before."""
        return boot_seconds() + self.machine.clock_offset

    def wait(self, poll: select.poll, until: float) -> list[int]:
        """Wait until a descriptor is ready, or until that time; return the descriptors that are ready."""
        milliseconds = max(0, int((until - self.now()) * 1000) + 1)
        return [descriptor for descriptor, _ in poll.poll(milliseconds)]


def clock_of(state: State | None = None) -> SystemClock:
    """The clock of a run, or of a new run. After another boot it never shows a time before the run's last event."""
    known = state.machine if state is not None else None
    if known is not None and known.boot and known.boot == boot_id():
        return SystemClock(known)
    last = state.last_at if state is not None else 0.0
    return SystemClock(Machine(boot_id(), max(time.time(), last) - boot_seconds()))
