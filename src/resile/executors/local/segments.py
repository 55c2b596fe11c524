"""Reading what attempts wrote: byte ranges of segment files, by the row that the store keeps of each attempt.

read      a whole range, or its first bytes          tail      its last bytes
read_from of a running attempt, what is there       export    the seed's file names
"""

from __future__ import annotations

import os
from typing import Literal

from resile.executors.local import recovery, wire
from resile.executors.local.spool import SUFFIX
from resile.model.failure import LogRange

Stream = Literal["o", "e"]
CHUNK_BYTES = 64 * 1024
EXPORT_FOLDER = "job_stdio"


def place(log: LogRange, stream: Stream) -> tuple[int, int]:
    """Offset and length of one stream."""
    return (log.out_offset, log.out_length) if stream == "o" else (log.err_offset, log.err_length)


def read(folder: str, log: LogRange | None, stream: Stream, limit: int | None = None) -> bytes:
    """What the attempt wrote, at most its first `limit` bytes; nothing where the segment is gone."""
    if log is None:
        return b""
    offset, length = place(log, stream)
    return _read(folder, log, stream, offset, length if limit is None else min(length, limit))


def tail(folder: str, log: LogRange | None, stream: Stream, limit: int) -> bytes:
    """The last bytes of what the attempt wrote."""
    if log is None:
        return b""
    offset, length = place(log, stream)
    taken = min(length, limit)
    return _read(folder, log, stream, offset + length - taken, taken)


def read_from(folder: str, log: LogRange, stream: Stream, skip: int, length: int) -> bytes:
    """At most `length` bytes of an attempt's output behind the first `skip`; of a running one, whatever is there."""
    return _read(folder, log, stream, place(log, stream)[0] + skip, length)


def _read(folder: str, log: LogRange, stream: Stream, offset: int, length: int) -> bytes:
    """Bytes of a segment."""
    if length <= 0:
        return b""
    try:
        with open(os.path.join(folder, f"{log.segment}.{stream}"), "rb") as file:
            file.seek(offset)
            return file.read(length)
    except FileNotFoundError:
        return b""


def spooled_end(folder: str, log: LogRange, job: int, attempt: int) -> LogRange | None:
    """The attempt's final range where its launcher has written it down already."""
    token = os.path.basename(log.segment).partition("-")[0]
    ended = recovery.find_end(os.path.join(folder, wire.FOLDER, token + SUFFIX), job, attempt)
    return None if ended is None else ended.log


def export(
    folder: str, log: LogRange | None, workflow: int, job: int, epoch: int, attempt: int, into: str = ""
) -> None:
    """Write an attempt's output under the seed's names, where there is output."""
    if log is None:
        return
    into = into or os.path.join(folder, EXPORT_FOLDER)
    for stream in ("o", "e"):
        offset, length = place(log, stream)
        if length > 0:
            os.makedirs(into, mode=0o700, exist_ok=True)
            name = os.path.join(into, f"job_wf{workflow}_j{job}_r{epoch}_a{attempt}.{stream}")
            _copy(os.path.join(folder, f"{log.segment}.{stream}"), offset, length, name)


def _copy(source: str, offset: int, length: int, target: str) -> None:
    """Copy a range to a file that appears whole or not at all."""
    beside = f"{target}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(source, "rb") as file, open(os.open(beside, flags, 0o600), "wb") as copy:
        file.seek(offset)
        while length > 0 and (data := file.read(min(length, CHUNK_BYTES))):
            copy.write(data)
            length -= len(data)
    os.rename(beside, target)
