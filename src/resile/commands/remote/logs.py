"""Reads the output of steps on a server in pieces, attempt by attempt, in the same order as `logs` on a database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from resile.commands.documents.remote import LogAttempt, LogFileAttempt, LogIndex
from resile.commands.inspect import FOLLOW_SECONDS
from resile.commands.logs import (
    CHUNK_BYTES,
    STREAMS,
    AttemptOutput,
    LogFile,
    LogFilter,
    LogPart,
    last_lines,
    lost_error,
    refuse_file,
    write_log_files,
)
from resile.errors import ResileError
from resile.executors.contract import OutputLost, output_size
from resile.model.failure import LogRange
from resile.model.nested import step_name
from resile.store.contract import AttemptRow

if TYPE_CHECKING:
    from resile.commands.documents.answers import LogExport
    from resile.commands.remote.connection import Connection
    from resile.core.actions import Note
    from resile.executors.contract import Stream
    from resile.store.contract import RunRow

_PATHS: dict[str, str] = {"out": "stdout", "err": "stderr"}


def logs(connection: Connection, run: int, wanted: LogFilter, *, follow: bool) -> Iterator[LogPart]:
    """The output of a run's attempts so far; with `follow` until no engine drives the run."""
    readers: dict[tuple[int, int], _Reader] = {}
    lost: list[str] = []
    is_first = True
    while True:
        index = _index(connection, run, wanted, follow=follow)
        for tried in index.attempts:
            key = tried.job, tried.attempt
            reader = readers.get(key)
            if reader is None:
                reader = readers[key] = _Reader(connection, run, tried)
            elif reader.is_done:
                continue
            found = reader.parts(wanted, tried, lost)
            yield from last_lines(found, wanted.tail) if is_first and wanted.tail is not None else found
        is_first = False
        if not follow or not index.is_driven:
            if lost:
                raise lost_error(lost)
            return
        time.sleep(FOLLOW_SECONDS)


def _index(connection: Connection, run: int, wanted: LogFilter, *, follow: bool) -> LogIndex:
    """The attempts whose output is wanted."""
    query = {"step": wanted.step, "attempt": wanted.attempt, "since": wanted.since, "follow": follow}
    ask = partial(connection.get, f"/runs/{run}/outputs", LogIndex, **query)
    return connection.patiently(ask) if follow else ask()


class _Reader:
    """Reads the output of one attempt."""

    def __init__(self, connection: Connection, run: int, tried: LogAttempt) -> None:
        self._connection = connection
        self._path = f"/runs/{run}/jobs/{tried.job}/attempts/{tried.attempt}/"
        self._seen: dict[str, int] = {}
        self.is_done = False

    def parts(self, wanted: LogFilter, tried: LogAttempt, lost: list[str]) -> Iterator[LogPart]:
        """Yield the new output; add a step whose output is lost to `lost`."""
        sizes = {"out": tried.out_bytes, "err": tried.err_bytes}
        for stream in STREAMS[wanted.stream]:
            while not (tried.is_over and self._seen.get(stream, 0) >= sizes[stream]):
                try:
                    data = self._next(stream)
                except ResileError as error:
                    if error.code != "output-lost":
                        raise
                    lost.append(tried.name)
                    break
                if not data:
                    break
                yield LogPart(tried.job, tried.name, tried.attempt, stream, data)
        self.is_done = tried.is_over

    def _next(self, stream: str) -> bytes:
        """The next piece of a stream; empty if there is none yet."""
        start = self._seen.get(stream, 0)
        ask = partial(self._connection.bytes_after, self._path + _PATHS[stream], start, CHUNK_BYTES)
        data = self._connection.patiently(ask)
        self._seen[stream] = start + len(data)
        return data


class _EndedOutput:
    """Reads the output of one attempt that has ended."""

    def __init__(self, connection: Connection, run: int, tried: AttemptRow) -> None:
        self._connection = connection
        self._path = f"/runs/{run}/jobs/{tried.job}/attempts/{tried.attempt}/"
        self._epoch = tried.epoch

    def read_output(self, log: LogRange | None, stream: Stream, start: int = 0, length: int | None = None) -> bytes:
        """The next bytes of a stream, few enough for one answer; never asks for bytes beyond the stream's end."""
        left = output_size(log, stream) - start
        if left <= 0:
            return b""
        wanted = min(left, length or left, CHUNK_BYTES)
        ask = partial(self._connection.bytes_after, self._path + _PATHS[stream], start, wanted, epoch=self._epoch)
        try:
            return self._connection.patiently(ask)
        except ResileError as error:
            if error.code != "output-lost":
                raise
            raise OutputLost(b"") from error


def export_logs(connection: Connection, run: int, folder: str) -> LogExport:
    """Write the output of every attempt of a run to files in a folder of this machine."""
    refuse_file(folder)
    found = [
        LogFile(
            one.step,
            one.begin,
            AttemptRow(one.job, one.epoch, one.attempt, log=LogRange("", 0, one.out_bytes, 0, one.err_bytes)),
        )
        for one in connection.items(f"/runs/{run}/log-files", LogFileAttempt)
    ]
    return write_log_files(run, found, partial(_EndedOutput, connection, run), folder, "")


class RemoteOutput(AttemptOutput, kw_only=True):
    """The output of an attempt that an event names, for a display that follows the run."""

    connection: Connection
    run: int

    def pieces(self, row: RunRow) -> Iterator[tuple[Stream, bytes]]:  # noqa: ARG002
        """The next piece of each stream, if there is one."""
        path = f"/runs/{self.run}/jobs/{self.tried.job}/attempts/{self.tried.attempt}/"
        for stream in STREAMS["both"]:
            start = self.seen.get(stream, 0)
            try:
                data = self.connection.bytes_after(path + _PATHS[stream], start, CHUNK_BYTES)
            except ResileError as error:
                if error.code not in ("output-lost", "no-such-attempt"):
                    raise
                continue
            self.seen[stream] = start + len(data)
            if data:
                yield stream, data


def attempt_output(connection: Connection, run: int, note: Note) -> RemoteOutput:
    """The output of the attempt that an event names."""
    tried = AttemptRow(note.job, 0, note.attempt)
    return RemoteOutput(step_name(note.scope, note.step), tried, {}, connection=connection, run=run)
