"""The leases that a host gives back after each round.

To close a run with blocks of its own may take seconds, so a thread beside the host's does it. The host keeps the lease
until then: no engine opens the run while that thread ends its blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait

from resile.store.contract import Lease
from resile.store.server_tables import ServerTables


class Releases:
    """Leases to release: of runs that have ended, and of those that wait, with the time when they are due."""

    def __init__(self, tables: ServerTables, wake: Callable[[], None], log: Callable[[str], None]) -> None:
        """`wake` is called when a run has been closed, in any thread."""
        self._tables = tables
        self._wake = wake
        self._log = log
        self._ended: list[Lease] = []
        self._waiting: list[tuple[Lease, float | None]] = []
        self._closing: dict[int, Future[None]] = {}

    def end(self, lease: Lease) -> None:
        """A run has ended."""
        self._ended.append(lease)

    def hand_back(self, lease: Lease, due_at: float | None) -> None:
        """A run waits; the store ignores a lease that is lost."""
        self._waiting.append((lease, due_at))

    def note_closing(self, run: int, closing: Future[None] | None) -> None:
        """The blocks of a run are being closed."""
        if closing is not None:
            self._closing[run] = closing
            closing.add_done_callback(lambda _: self._wake())

    def leases_to_renew(self) -> list[Lease]:
        """The leases of runs that are being closed, which the host renews."""
        leases = [*self._ended, *(lease for lease, _ in self._waiting)]
        return [lease for lease in leases if lease.run in self._closing]

    def flush(self) -> None:
        """Release the leases of the runs that are closed."""
        self._note_closed()
        ended = [lease for lease in self._ended if lease.run not in self._closing]
        waiting = [entry for entry in self._waiting if entry[0].run not in self._closing]
        if ended or waiting:
            # First in the store: if that fails, they are still there for the next time.
            self._tables.release_all(ended, waiting)
            self._ended = [lease for lease in self._ended if lease.run in self._closing]
            self._waiting = [entry for entry in self._waiting if entry[0].run in self._closing]

    def _note_closed(self) -> None:
        """Forget the runs that are closed by now; say which could not be."""
        for run in [run for run, closing in self._closing.items() if closing.done()]:
            error = self._closing.pop(run).exception()
            if error is not None:
                self._log(f"run {run}: its blocks could not be closed: {error}")

    def wait(self, seconds_max: float) -> None:
        """Wait until all runs are closed, at most so long, and release their leases; the others expire."""
        wait(self._closing.values(), seconds_max)
        self.flush()
