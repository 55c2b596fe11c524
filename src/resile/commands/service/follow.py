"""Follows a run that a server drives, with the same progress and outcome as if an engine in this process drove it.

A `LogSource` gives the new entries of the run's log: from a store, or over HTTP (commands/remote).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from resile.commands.run import EngineListener, RunOutcome, outcome_of
from resile.core.react import react
from resile.core.state import State, new_state
from resile.engine.replay import row_of
from resile.model import codec
from resile.model.status import RUN_ENDED, RunStatus
from resile.store.lease import boot_seconds

if TYPE_CHECKING:
    from resile.store.contract import Entry, RunRow
    from resile.store.server_tables import SharedStore

FOLLOW_SECONDS = 0.1
PATIENCE_SECONDS = 5.0


class LogSource(Protocol):
    """The log of one run."""

    def read(self, after: int) -> tuple[Iterable[Entry], RunStatus | None]:
        """The entries after a number, and the status in which the engine left the run; None while it goes on.

        The source reads the status first, so that no entry is missed: the next call reads those written in between.
        """

    def rest(self) -> None:
        """Wait a little, because there were no new entries."""

    def outcome(self, state: State, status: RunStatus) -> RunOutcome:
        """The outcome of the run."""


def wait(
    store: SharedStore, number: int, listener: EngineListener, act: Callable[[], object] | None = None
) -> RunOutcome:
    """Follow a run until it has ended, waits for judgement, or the caller interrupts the waiting.

    `act` makes the run go on; events before it are folded and not shown.
    """
    source = _StoredLog(store, number)
    state, after = new_state(codec.decode(store.definition(source.row.definition))), 0
    if act is not None:
        for entry in store.entries(number, 0):
            react(state, entry.event)
            after = entry.seq
        act()
    return follow(source, number, state, after, listener)


def follow(
    source: LogSource,
    number: int,
    state: State,
    after: int,
    listener: EngineListener,
    notices: Iterable[str] = (),
) -> RunOutcome:
    """Follow the run of a source. The state already has all entries up to `after`.

    The listener gets the `notices` first.
    """
    interrupts: list[bool] = []

    def interrupt(done: Callable[[], None]) -> None:
        """Stop the waiting; the run goes on."""
        interrupts.append(True)
        done()

    listener.on_start(number, state, interrupt)
    for text in notices:
        listener.warn(text)
    begun, is_patient = time.monotonic(), True
    while True:
        entries, status = source.read(after)
        before = after
        for entry in entries:
            react(state, entry.event)
            after = entry.seq
            if entry.notes:
                listener.notes(state, list(entry.notes))
        if status is not None:
            return source.outcome(state, status)
        if interrupts:
            return source.outcome(state, "interrupted")
        if is_patient and not after and time.monotonic() - begun > PATIENCE_SECONDS:
            is_patient = False
            listener.warn("no server of this database has taken the run yet; `resile server` starts one")
        if after == before:
            source.rest()


class _StoredLog:
    """The log of a run in a store."""

    def __init__(self, store: SharedStore, number: int) -> None:
        self._store = store
        self.row = row_of(store, number)

    def read(self, after: int) -> tuple[Iterable[Entry], RunStatus | None]:
        """Read the status, then the entries after a number."""
        self.row = row_of(self._store, self.row.id)
        status = status_left(self._store, self.row)
        return self._store.entries(self.row.id, after), status

    def rest(self) -> None:
        """Wait a little."""
        time.sleep(FOLLOW_SECONDS)

    def outcome(self, state: State, status: RunStatus) -> RunOutcome:
        """The outcome, made from the folded state."""
        return outcome_of(self._store, self.row, state, status)


def status_left(store: SharedStore, row: RunRow) -> RunStatus | None:
    """The status in which the engine left the run; None while it goes on."""
    if store.lease(row.id, boot_seconds()) is not None:
        return None
    if row.status in RUN_ENDED:
        return row.status  # type: ignore[return-value]
    submission = store.server_tables().submission(row.id)
    is_idle = submission is None or submission.due_at is None
    return "parked" if row.status == "parked" and is_idle else None
