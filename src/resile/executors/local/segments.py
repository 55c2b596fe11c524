"""Segment files: the output of attempts, each a byte range of the files of its slot or worker.

    FOLDER/SEGMENT.o   stdout of one attempt after the other          FOLDER/SEGMENT.e   stderr

A log range names the segment and an offset and a length for each stream. Only this module opens segments to read.
"""

from __future__ import annotations

import os

from resile.executors.contract import Stream, output_size
from resile.executors.local import recovery, wire
from resile.executors.local.spool import SUFFIX
from resile.model.failure import LogRange

_ENDINGS: dict[Stream, str] = {"out": ".o", "err": ".e"}


class SegmentReader:
    """Reads the segments in the folder of one epoch; see the OutputReader contract for the methods."""

    def __init__(self, folder: str) -> None:
        self._epoch_folder = folder

    def read_output(self, log: LogRange | None, stream: Stream, start: int = 0, length: int | None = None) -> bytes:
        if log is None:
            return b""
        size = output_size(log, stream)
        first = min(start, size) if start >= 0 else max(0, size + start)
        return self._read(log, stream, first, size - first if length is None else min(length, size - first))

    def follow_output(self, log: LogRange, stream: Stream, start: int, length: int, *, job: int, attempt: int) -> bytes:
        """Bytes of one stream of an attempt that may still run.

        While it runs everything after its offset is its own output. The launcher writes its end to the spool before
        another attempt can append to the segment, so this looks up the end after the read, and drops the data behind
        it.
        """
        data = self._read(log, stream, start, length)
        token = os.path.basename(log.segment).partition("-")[0]
        spool = os.path.join(self._epoch_folder, wire.FOLDER, token + SUFFIX)
        ended = recovery.find_end(spool, job, attempt) if data else None
        return data if ended is None else data[: max(0, output_size(ended.log, stream) - start)]

    def _read(self, log: LogRange, stream: Stream, start: int, length: int) -> bytes:
        """Bytes of a segment, from the attempt's offset on; none if the segment is gone."""
        if length <= 0:
            return b""
        try:
            with open(os.path.join(self._epoch_folder, log.segment + _ENDINGS[stream]), "rb") as file:
                file.seek((log.out_offset if stream == "out" else log.err_offset) + start)
                return file.read(length)
        except FileNotFoundError:
            return b""
