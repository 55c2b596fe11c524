"""One run that a host drives: its engine, its lease, and when it wants its next turn."""

from __future__ import annotations

import time
from collections.abc import Callable

from resile.core.events import Redriven
from resile.engine.clock import Clock
from resile.engine.items.listing import items_path, remove_letters
from resile.engine.loop import NEVER
from resile.engine.paths import epoch_folder
from resile.engine.session import Drive
from resile.model.status import RUN_ENDED
from resile.store.contract import Lease, RunRow
from resile.store.errors import LeaseHeld
from resile.store.lease import boot_seconds

# How many seconds a run that only waits stays in memory. It also stays if its timer comes sooner than that. A run with
# blocks of its own stays as long as the blocks may be idle.
IDLE_SECONDS = 5.0


class Lost(LeaseHeld):
    """Another server drives this run, or this server was stopped for longer than its leases last."""


class DrivenRun:
    """A run that is being driven; the engine sees it as its host (see loop.py)."""

    next_renewal = NEVER

    def __init__(
        self, lease: Lease, clock: Clock, is_held: Callable[[Lease], bool], wake: Callable[[int], None]
    ) -> None:
        self.lease = lease
        self.run = lease.run
        self.clock = clock
        self.drive: Drive | None = None
        self.requests_seen: set[int] = set()
        self.wakes_at = 0.0
        self.ends = False
        self._is_held = is_held
        self._wake = wake
        self._idle_since: float | None = None
        self._idle_seconds = IDLE_SECONDS
        # The items file of the redrive that the run is in; empty outside of a redrive.
        self._letters = ""

    # --- what the engine calls

    def keep(self) -> None:
        """Make sure that the lease is held; the host renews it."""
        if not self._is_held(self.lease):
            raise Lost("lease-lost", f"this server no longer drives run {self.run}")

    def wake(self) -> None:
        """Let the engine turn; safe in any thread."""
        self._wake(self.run)

    # --- what the host calls

    def turn(self, has_reports: bool) -> None:
        """Let the engine do what it can do now."""
        assert self.drive is not None
        engine = self.drive.engine
        while engine.turn(has_reports):
            has_reports = False
        if engine.outcome is not None and not self.ends:
            self.ends = True
            self.drive.write_closing_row(engine.outcome)

    def is_over(self) -> bool:
        """Has the engine left the run, and are all its decisions durable?"""
        if not self.ends or self.drive is None:
            return False
        self.drive.journal.take_durable()
        return not self.drive.journal.is_unfinished()

    def look_ahead(self, now: float) -> bool:
        """Set `wakes_at` to the time of the run's next turn; return True if the run has only waited for a while.

        `now` and `wakes_at` count from the boot.
        """
        assert self.drive is not None
        offset = self.clock.machine.clock_offset
        self.wakes_at = self.drive.engine.deadline() - offset
        until = None if self.ends else self.drive.engine.waits_until()
        if until is None or until - offset < now + self._idle_seconds:
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = now
        self.wakes_at = min(self.wakes_at, self._idle_since + self._idle_seconds)
        return now >= self._idle_since + self._idle_seconds

    def begin(self, row: RunRow) -> None:
        """Let the engine begin. If a redrive begins or goes on, note the path of the file with its dead letters."""
        assert self.drive is not None
        state = self.drive.state
        if state.workflow.executor is not None:
            # The blocks of a run end with its engine: keep the run in memory as long as they may be idle.
            self._idle_seconds = max(IDLE_SECONDS, state.workflow.executor.idle_seconds)
        labels = [event.label for event in self.drive.events if isinstance(event, Redriven)]
        if state.phase == "redriving" and state.redrive is not None:
            labels.append(state.redrive.label)
        if labels:
            self._letters = items_path(epoch_folder(row.output, row.id, state.epoch), labels[0])
        self.drive.engine.begin(self.drive.events)

    def drop_letters(self) -> None:
        """Remove the file of a redrive that is over."""
        if self._letters:
            remove_letters(self._letters)

    def due_at(self) -> float | None:
        """When a host must drive this waiting run again, by the wall clock; None if only a request can wake it."""
        assert self.drive is not None
        until = self.drive.engine.waits_until()
        if until is None or until == NEVER:
            return None
        return time.time() + until - self.clock.machine.clock_offset - boot_seconds()

    def has_blocks_at_work(self) -> bool:
        """Do steps of the run run on blocks of its own?"""
        if self.drive is None or self.drive.state.workflow.executor is None:
            return False
        return bool(self.drive.state.in_flight)

    def has_ended(self) -> bool:
        """Has this epoch of the run ended?"""
        assert self.drive is not None
        return self.drive.engine.outcome in RUN_ENDED
