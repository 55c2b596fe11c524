"""Shows the progress of a run on a server: the client reads the run's log and folds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from resile.commands.documents.remote import RunLog
from resile.commands.documents.runs import RunDocument
from resile.commands.run import EngineListener, RunOutcome
from resile.commands.service.follow import follow
from resile.core.react import react
from resile.core.state import State, new_state
from resile.model import codec
from resile.model.status import EXIT_CODES, RunStatus
from resile.store.contract import Entry

if TYPE_CHECKING:
    from resile.commands.remote.connection import Connection

# How long one request waits for entries; short, because Ctrl-C takes effect between requests.
WAIT_SECONDS = 1.0
REST_SECONDS = 0.02


def follow_run(
    connection: Connection,
    run: int,
    listener: EngineListener,
    act: Callable[[], object] | None = None,
    notices: Iterable[str] = (),
) -> RunOutcome:
    """Follow a run until it has ended, waits for judgement, or the caller interrupts the waiting.

    `act` makes the run go on; events before it are folded and not shown.
    """
    source = _RemoteLog(connection, run)
    first = source.page(0)
    state = new_state(codec.decode(first.definition.encode()))
    after = 0
    if act is not None:
        after = source.catch_up(state, first)
        act()
    return follow(source, run, state, after, listener, notices)


def ended_run(connection: Connection, run: int) -> RunOutcome:
    """The outcome of a run that has ended."""
    source = _RemoteLog(connection, run)
    state = new_state(codec.decode(source.page(0).definition.encode()))
    status = connection.get(f"/runs/{run}", RunDocument).status
    return source.outcome(state, status)  # type: ignore[arg-type]


class _RemoteLog:
    """The log of a run, read from its server."""

    def __init__(self, connection: Connection, run: int) -> None:
        self._connection = connection
        self._run = run

    def page(self, after: int, wait_seconds: float = 0.0) -> RunLog:
        """Read one page of the log after an entry."""
        return self._connection.get(f"/runs/{self._run}/log", RunLog, after=after, wait_seconds=wait_seconds)

    def catch_up(self, state: State, page: RunLog) -> int:
        """Fold the log up to its end; return the number of the last entry."""
        after = 0
        while page.entries:
            for entry in _entries(page):
                react(state, entry.event)
                after = entry.seq
            page = self.page(after)
        return after

    def read(self, after: int) -> tuple[list[Entry], RunStatus | None]:
        """Read the next entries; wait for them up to WAIT_SECONDS."""
        page = self._connection.patiently(partial(self.page, after, WAIT_SECONDS))
        return _entries(page), page.left  # type: ignore[return-value]

    def rest(self) -> None:
        """Pause briefly: the server has waited already, but a stopping server answers at once."""
        time.sleep(REST_SECONDS)

    def outcome(self, state: State, status: RunStatus) -> RunOutcome:
        """The outcome of the run, with the server's document."""

        def make() -> RunDocument:
            """Read the document, and set the status that this command saw: after Ctrl-C the run itself goes on."""
            document = self._connection.get(f"/runs/{self._run}", RunDocument)
            return msgspec.structs.replace(document, status=status, exit_code=EXIT_CODES[status])

        return RunOutcome(self._run, status, state.workflow, make)


def _entries(page: RunLog) -> list[Entry]:
    return msgspec.convert(page.entries, list[Entry])
