"""Server-sent events: those of one run, or the announcements of all runs.

    id: 17                  the seq of the event, or its position among those of all runs
    event: attempt_failed
    data: {"seq": 17, …}

A stream that breaks is resumed after the last `id`. A stream holds no thread: it waits for the server's watcher of the
store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response, StreamingResponse

from resile.commands.documents.runs import Event, event_of
from resile.commands.inspect import standing
from resile.engine.replay import row_of
from resile.model.status import RUN_ENDED
from resile.server.declarations import EVENTS
from resile.server.stores import Connection

if TYPE_CHECKING:
    from resile.server.context import ServerContext

EVENTS_AT_ONCE = 500
QUIET_SECONDS = 15.0
_KEEP_ALIVE = b": still here\n\n"
# A comment that tells the client that the stream is still open.
_END = b": end\n\n"

# Reads the next events after a place; the flag says that no more will come.
Reader = Callable[[Connection, int], tuple[list[tuple[int, Event]], bool]]


def events_of_run(run: int, *, until_idle: bool = False) -> Reader:
    """A reader of the events of one run, up to its end; with `until_idle` up to the time when no engine drives it."""

    def read(connection: Connection, after: int) -> tuple[list[tuple[int, Event]], bool]:
        """Read the status first, so that no event is missed: the next call reads those written in between."""
        row = row_of(connection.store, run)
        has_ended = standing(connection.store, row) != "running" if until_idle else row.status in RUN_ENDED
        notes = list(islice(connection.store.notes(run, after), EVENTS_AT_ONCE))
        return [(note.seq, event_of(run, note)) for note in notes], has_ended and len(notes) < EVENTS_AT_ONCE

    return read


def announcements(connection: Connection, after: int) -> tuple[list[tuple[int, Event]], bool]:
    """Reads the announcements of all runs; there may always be more."""
    found = connection.tables.announcements(after, EVENTS_AT_ONCE)
    return [(one.position, event_of(one.run, one.note)) for one in found], False


def stream(server: ServerContext, read: Reader, after: int, types: frozenset[str] = frozenset()) -> Response:
    """The events after a place as they come, of these types or of all."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(server, read, after, types), 200, headers, media_type=EVENTS)


async def _events(server: ServerContext, read: Reader, after: int, types: frozenset[str]) -> AsyncIterator[bytes]:
    """The frames of a stream, until its reader says that no more will come or the server stops."""
    yield _KEEP_ALIVE
    while not server.is_stopping:
        version = server.watcher.version
        found, is_last = await server.stores.read(partial(_read, read, after))
        text = b"".join(_frame(place, event) for place, event in found if not types or event.type in types)
        if text:
            yield text
        if is_last:
            yield _END
            return
        if found:
            after = found[-1][0]
        else:
            await server.watcher.wait_beyond(version, QUIET_SECONDS)
            if server.watcher.version == version:
                yield _KEEP_ALIVE


def _read(read: Reader, after: int, connection: Connection) -> tuple[list[tuple[int, Event]], bool]:
    return read(connection, after)


def _frame(place: int, event: Event) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (place, event.type.encode(), msgspec.json.encode(event))
