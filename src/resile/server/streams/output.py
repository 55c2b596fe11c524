"""The output of one attempt: whole, a range of its bytes, or followed until the attempt ends.

The reading threads read the bytes in pieces, so that neither a large log nor a slow client holds a thread or the event
loop.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from resile.engine.paths import epoch_folder
from resile.engine.replay import row_of
from resile.executors.contract import OutputLost, Stream, output_size
from resile.executors.output import open_output
from resile.server.declarations import TEXT
from resile.server.problems import Problem
from resile.store.contract import AttemptRow, RunRow, Store

if TYPE_CHECKING:
    from resile.server.context import ServerContext
    from resile.server.stores import Connection

PIECE_BYTES = 256 * 1024
# How long a follower waits at most before it looks at the output again.
FOLLOW_SECONDS = 0.25
_RANGE = re.compile(r"bytes=(\d{1,18})?-(\d{1,18})?")


class _Place(Struct, frozen=True):
    """One stream of one attempt."""

    run: RunRow
    tried: AttemptRow
    stream: Stream

    @property
    def is_over(self) -> bool:
        """Has the attempt ended?"""
        return self.tried.ended_at is not None

    def read(self, start: int, length: int = PIECE_BYTES) -> bytes:
        """A piece of the output so far."""
        log = self.tried.log
        if log is None:
            return b""
        output = open_output(epoch_folder(self.run.output, self.run.id, self.tried.epoch))
        if self.is_over:
            try:
                return output.read_output(log, self.stream, start, length)
            except OutputLost as error:
                raise Problem("output_lost", "the output is not on the disk any more, or not all of it") from error
        job, attempt = self.tried.job, self.tried.attempt
        return output.follow_output(log, self.stream, start, length, job=job, attempt=attempt)

    def size(self) -> int:
        """The number of bytes so far."""
        if self.is_over:
            return output_size(self.tried.log, self.stream)
        size = 0
        while piece := self.read(size):
            size += len(piece)
        return size


class AttemptName(Struct, frozen=True):
    """An attempt of a job; epoch 0 is the last one that has an attempt of this number."""

    run: int
    job: int
    attempt: int
    epoch: int = 0


def _find(store: Store, name: AttemptName, stream: Stream) -> _Place:
    """One stream of an attempt."""
    run, job, attempt = name.run, name.job, name.attempt
    row = row_of(store, run)
    tries = [tried for tried in store.attempts(run, job) if tried.attempt == attempt and name.epoch in (0, tried.epoch)]
    if tries:
        return _Place(row, tries[-1], stream)
    if not any(one.id == job for one in store.jobs(run)):
        raise Problem("no_such_job", f"run {run} has no job {job}")
    raise Problem("no_such_attempt", f"job {job} of run {run} has no attempt {attempt}")


async def send(server: ServerContext, name: AttemptName, stream: Stream, asked: str) -> Response:
    """Send the output so far, or the range of it that the request names."""

    def measure(connection: Connection) -> tuple[_Place, int]:
        """Find the attempt and the size of its output."""
        place = _find(connection.store, name, stream)
        return place, place.size()

    place, size = await server.stores.read(measure)
    found = _range_of(asked, size)
    first, last = found or (0, size - 1)
    headers = {"Accept-Ranges": "bytes", "Content-Length": str(last - first + 1), "X-Content-Type-Options": "nosniff"}
    if found:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    status = 206 if found else 200
    if last - first < PIECE_BYTES:
        data = await server.stores.read(lambda _: place.read(first, last - first + 1))
        return Response(data, status, headers, media_type=TEXT)
    return StreamingResponse(_pieces(server, place, first, last), status, headers, media_type=TEXT)


def _range_of(asked: str, size: int) -> tuple[int, int] | None:
    """The first and the last byte that the header asks for; None for all, also if its form is not supported."""
    found = _RANGE.fullmatch(asked.strip())
    if found is None or found.groups() == (None, None):
        return None
    first, last = (None if part is None else int(part) for part in found.groups())
    if first is None:
        assert last is not None
        first, last = max(0, size - last), size - 1 if last else -1
    elif last is not None and last < first:
        return None
    last = size - 1 if last is None else min(last, size - 1)
    if first > last:
        headers = {"Content-Range": f"bytes */{size}"}
        raise Problem("range_not_satisfiable", f"the output has {size} bytes so far", headers=headers)
    return first, last


async def _pieces(server: ServerContext, place: _Place, first: int, last: int) -> AsyncIterator[bytes]:
    """The bytes of a range, a piece at a time; breaks the connection if some are lost."""
    while first <= last:
        length = min(PIECE_BYTES, last - first + 1)
        piece = await server.stores.read(lambda _, start=first, length=length: place.read(start, length))  # type: ignore[misc]
        first += len(piece)
        yield piece


async def follow(server: ServerContext, name: AttemptName, stream: Stream) -> Response:
    """The output as it comes, until the attempt ends or the server stops."""
    place = await server.stores.read(lambda connection: _find(connection.store, name, stream))
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    return StreamingResponse(_follow(server, place), 200, headers, media_type=TEXT)


async def _follow(server: ServerContext, place: _Place) -> AsyncIterator[bytes]:
    """Pieces of the output of an attempt, until it has ended and all is sent."""
    sent = 0
    while not server.is_stopping:
        version = server.watcher.version
        place, piece = await server.stores.read(partial(_next, place, sent))
        if piece:
            sent += len(piece)
            yield piece
        elif place.is_over:
            return
        else:
            await server.watcher.wait_beyond(version, FOLLOW_SECONDS)


def _next(place: _Place, start: int, connection: Connection) -> tuple[_Place, bytes]:
    """The attempt as it is now, and what it has written beyond the bytes that were sent."""
    store, tried = connection.store, place.tried
    if not place.is_over:
        rows = store.attempts(place.run.id, tried.job)
        tried = next((row for row in rows if (row.epoch, row.attempt) == (tried.epoch, tried.attempt)), tried)
        place = _Place(row_of(store, place.run.id), tried, place.stream)
    return place, place.read(start)
