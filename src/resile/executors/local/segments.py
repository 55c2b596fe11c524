"""Reads segment files: the output of an attempt is a byte range in the files of its slot or worker.

    FOLDER/SEGMENT.o   stdout of one attempt after the other          FOLDER/SEGMENT.e   stderr

A log range names the segment, and has an offset and a length for each stream. Only this module opens segments to read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import BinaryIO

from resile.executors.contract import OutputLost, Stream, output_size
from resile.executors.local import recovery, shared_records, wire
from resile.executors.local.spool import SUFFIX
from resile.model.failure import LogRange
from resile.model.folders import create_file

_ENDINGS: dict[Stream, str] = {"out": ".o", "err": ".e"}


# The names of workers' segments begin with this letter, those of launchers' segments with a hexadecimal digit.
_WORKER = "w"


def segment_of_worker(token: str, name: str) -> str:
    """The segment with the output of an attempt on the worker of this name."""
    return f"{wire.FOLDER}/{_WORKER}{token}-{name}"


def worker_of(log: LogRange | None) -> str | None:
    """The name of the worker that wrote this output; None for an attempt that did not run on a worker."""
    token, _, name = os.path.basename(log.segment if log is not None else "").partition("-")
    return name if token.startswith(_WORKER) else None


class SegmentReader:
    """Reads the segments in the folder of one epoch; see the OutputReader contract for the methods."""

    def __init__(self, folder: str) -> None:
        self._epoch_folder = folder
        self._synced: set[str] = set()

    def read_output(self, log: LogRange | None, stream: Stream, start: int = 0, length: int | None = None) -> bytes:
        if log is None:
            return b""
        size = output_size(log, stream)
        first = min(start, size) if start >= 0 else max(0, size + start)
        wanted = size - first if length is None else min(length, size - first)
        data = self._read(log, stream, first, wanted)
        if len(data) < wanted:
            raise OutputLost(data)
        return data

    def is_whole(self, log: LogRange) -> bool:
        """Are the files of a range long enough to contain it?"""
        ends = {"out": log.out_offset + log.out_length, "err": log.err_offset + log.err_length}
        try:
            return all(
                not output_size(log, stream) or os.path.getsize(self._path(log.segment, stream)) >= ends[stream]
                for stream in _ENDINGS
            )
        except OSError:
            return False

    def sync_output(self, logs: Iterable[LogRange]) -> None:
        """Flush the files of these ranges; for a new file also flush the folders that lead to it.

        It ignores missing files: a step that needs their output will fail.
        """
        paths = {self._path(log.segment, stream) for log in logs for stream in _ENDINGS if output_size(log, stream)}
        folders: dict[str, None] = {}
        for path in paths:
            if sync(path, os.fdatasync) and path not in self._synced:
                self._synced.add(path)
                folders |= dict.fromkeys(self._folders_of(path))
        for folder in folders:
            sync(folder, os.fsync)

    def _folders_of(self, path: str) -> list[str]:
        """The folder of a segment; for the first segment also the folders around it, which may be new too."""
        folder = os.path.dirname(path)
        if len(self._synced) > 1:
            return [folder]
        around = os.path.abspath(self._epoch_folder)
        return [folder, *(os.path.normpath(os.path.join(around, *[os.pardir] * up)) for up in range(4))]

    def follow_output(self, log: LogRange, stream: Stream, start: int, length: int, *, job: int, attempt: int) -> bytes:
        """Bytes of one stream of an attempt that may still run.

        While the attempt runs, everything after its offset is its own output. The launcher writes the attempt's end to
        the spool before another attempt can append to the segment. So this method first reads, then looks for the end
        in the spool, and drops data beyond it.
        """
        data = self._read(log, stream, start, length)
        folder, name = os.path.split(log.segment)
        token = name.partition("-")[0]
        spool = os.path.join(self._epoch_folder, folder, token + SUFFIX)
        ended = None
        if data:
            ended = recovery.find_end(spool, job, attempt) or shared_records.find_end(
                self._epoch_folder, token, job, attempt
            )
        return data if ended is None else data[: max(0, output_size(ended.log, stream) - start)]

    def _read(self, log: LogRange, stream: Stream, start: int, length: int) -> bytes:
        """Read bytes of an attempt's range; `start` counts from its offset. Empty if the segment is gone."""
        if length <= 0:
            return b""
        try:
            with _open(self._path(log.segment, stream)) as file:
                file.seek((log.out_offset if stream == "out" else log.err_offset) + start)
                return file.read(length)
        except FileNotFoundError:
            return b""

    def _path(self, segment: str, stream: Stream) -> str:
        return os.path.join(self._epoch_folder, segment + _ENDINGS[stream])


def _open(path: str) -> BinaryIO:
    """Open a segment; if it is a worker's link into a shared folder, refuse a link that leads through other links."""
    file = open(path, "rb")  # noqa: SIM115
    if not os.path.basename(path).startswith(_WORKER) or not os.path.islink(path):
        return file
    if os.readlink(f"/proc/self/fd/{file.fileno()}") != os.readlink(path):
        file.close()
        raise FileNotFoundError(path)
    return file


def _copy(source: str, there: str) -> None:
    """Copy a segment."""
    from shutil import copyfileobj

    with _open(source) as file, create_file(there) as out:
        copyfileobj(file, out)


def link_output(folder: str, log: LogRange, target: str, prefix: str) -> LogRange:
    """Give another epoch the output of an attempt: hard-link its segments, or copy them; return the range there."""
    segment = f"{prefix}_{log.segment.replace(os.sep, '_')}"
    for ending in _ENDINGS.values():
        source, there = os.path.join(folder, log.segment + ending), os.path.join(target, segment + ending)
        if os.path.exists(source) and not os.path.exists(there):
            try:
                if os.path.islink(source):
                    raise OSError("a link to a link would be trusted later")
                os.link(source, there)
            except OSError:
                # The target is on another file system, or has no hard links, or the source is a worker's link.
                _copy(source, there)
    return LogRange(segment, log.out_offset, log.out_length, log.err_offset, log.err_length)


def sync(path: str, flush: Callable[[int], None]) -> bool:
    """Flush one file or folder to the disk; False if it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)
    return True
