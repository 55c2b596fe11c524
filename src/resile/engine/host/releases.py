"""The leases that a host gives back: many in one transaction, every PAUSE_SECONDS if there are always some.

Closing a run with blocks of its own may take seconds, so another thread does it. The host keeps the lease until that
thread is done, so that no engine opens the run while its blocks end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, wait

from resile.store.contract import Lease
from resile.store.server_tables import ServerTables

# The pause between two transactions that release leases.
PAUSE_SECONDS = 0.05


class Releases:
    """Leases to release: those of ended runs, and those of waiting runs with the time when each is due."""

    def __init__(self, tables: ServerTables, wake: Callable[[], None], log: Callable[[str], None]) -> None:
        """The thread that has closed a run calls `wake`."""
        self._tables = tables
        self._wake = wake
        self._log = log
        self._ended: list[Lease] = []
        self._waiting: list[tuple[Lease, float | None]] = []
        self._closing: dict[int, Future[None]] = {}
        self._flushed_at = -math.inf

    def end(self, lease: Lease) -> None:
        """Release the lease of a run that has ended with the next `flush`."""
        self._ended.append(lease)

    def hand_back(self, lease: Lease, due_at: float | None) -> None:
        """Hand back a run that waits with the next `flush`; the store ignores a lease that is lost."""
        self._waiting.append((lease, due_at))

    def note_closing(self, run: int, closing: Future[None] | None) -> None:
        """Keep the lease of a run until its blocks are closed; None means that it has no blocks."""
        if closing is not None:
            self._closing[run] = closing
            closing.add_done_callback(lambda _: self._wake())

    def leases_to_renew(self) -> list[Lease]:
        """The leases of runs that are being closed, which the host renews."""
        leases = [*self._ended, *(lease for lease, _ in self._waiting)]
        return [lease for lease in leases if lease.run in self._closing]

    def look(self, now: float) -> float:
        """Release leases, unless that was done a moment ago; return when to look again."""
        self._note_closed()
        runs = [lease.run for lease in self._ended] + [lease.run for lease, _ in self._waiting]
        if all(run in self._closing for run in runs):
            return math.inf
        again_at = self._flushed_at + PAUSE_SECONDS
        if now < again_at:
            return again_at
        self._flushed_at = now
        self.flush()
        return math.inf

    def flush(self) -> None:
        """Release the leases of all runs whose blocks are closed."""
        self._note_closed()
        ended = [lease for lease in self._ended if lease.run not in self._closing]
        waiting = [entry for entry in self._waiting if entry[0].run not in self._closing]
        if ended or waiting:
            # The store comes first: if it fails, the next `flush` still has the leases.
            self._tables.release_all(ended, waiting)
            self._ended = [lease for lease in self._ended if lease.run in self._closing]
            self._waiting = [entry for entry in self._waiting if entry[0].run in self._closing]

    def _note_closed(self) -> None:
        """Forget the runs whose closing is over; log those whose blocks could not be closed."""
        for run in [run for run, closing in self._closing.items() if closing.done()]:
            error = self._closing.pop(run).exception()
            if error is not None:
                self._log(f"run {run}: its blocks could not be closed: {error}")

    def wait(self, seconds_max: float) -> None:
        """Wait until all runs are closed, at most `seconds_max`, and release their leases; the other leases expire."""
        wait(self._closing.values(), seconds_max)
        self.flush()
