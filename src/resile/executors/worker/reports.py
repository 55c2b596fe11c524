"""Collects what a worker reports to its server: starts, new output, and ends.

A batch has the end of an attempt only if it, or an earlier one, has all of the attempt's output. If an attempt ended
before the worker reported its start, the worker reports the end alone: that contains the start.
"""

from __future__ import annotations

from errno import EIO
from typing import get_args

from msgspec.structs import replace

from resile.executors.contract import OutputLost, Stream
from resile.executors.local.segments import SegmentReader
from resile.executors.worker.book import Book, Entry
from resile.executors.worker.messages import Chunk, Reports
from resile.executors.worker.runner import ATTEMPT

BATCH_BYTES_MAX = 4 * 2**20
BATCH_ENTRIES_MAX = 1000
# If the server has not recorded an end after this time, the worker reports it again.
AGAIN_SECONDS = 5.0
_STREAMS: tuple[Stream, ...] = get_args(Stream)


def gather(book: Book, now: float) -> Reports:
    """Collect starts, output and ends that the worker has not sent yet, up to the limits of one batch."""
    told = Reports([], [], [])
    room = BATCH_BYTES_MAX
    for entry in list(book.entries.values()):
        if room <= 0 or len(told.ends) + len(told.starts) >= BATCH_ENTRIES_MAX:
            break
        if entry.is_gone or (entry.end_sent_at and now - entry.end_sent_at < AGAIN_SECONDS):
            continue
        # An end contains the start.
        if entry.start is not None and entry.end is None and not entry.is_start_sent:
            told.starts.append(entry.start)
        is_whole = True
        if entry.log is not None and (entry.start is not None or entry.end is not None) and not _is_shared(entry):
            chunks, is_whole = _output(book, entry, room)
            told.output.extend(chunks)
            room -= sum(len(chunk.data) for chunk in chunks)
        if entry.end is not None and is_whole:
            told.ends.append(entry.end)
    return told


def note_sent(book: Book, told: Reports, now: float) -> None:
    """Note in the book that the server has received this batch."""
    for start in told.starts:
        if start.token in book.entries:
            book.entries[start.token].is_start_sent = True
    for chunk in told.output:
        if chunk.token in book.entries:
            book.entries[chunk.token].sent[chunk.stream] = chunk.offset + len(chunk.data)
    for end in told.ends:
        if end.token in book.entries:
            book.entries[end.token].end_sent_at = now


def _is_shared(entry: Entry) -> bool:
    """Does the server read the output of this attempt from the shared folder?"""
    told = entry.end or entry.start
    return told is not None and bool(told.segment)


def _output(book: Book, entry: Entry, room: int) -> tuple[list[Chunk], bool]:
    """New output of an attempt, and whether the server then has all of it."""
    assert entry.log is not None
    reader = SegmentReader(book.output_folder(entry))
    chunks: list[Chunk] = []
    is_whole = True
    for stream in _STREAMS:
        offset = entry.sent.get(stream, 0)
        data = _read(reader, entry, stream, offset, room)
        if data:
            chunks.append(Chunk(entry.token, stream, offset, data))
            room -= len(data)
        if entry.end is not None and entry.end.kind == "ended":
            size = entry.end.out_length if stream == "out" else entry.end.err_length
            is_whole = is_whole and offset + len(data) >= size
    return chunks, is_whole


def _read(reader: SegmentReader, entry: Entry, stream: Stream, offset: int, room: int) -> bytes:
    """Read output from an offset on.

    If part of it is missing on this disk, shorten the attempt's output to what is there and note the error in its end.
    """
    assert entry.log is not None
    if room <= 0:
        return b""
    if entry.end is None or entry.end.kind != "ended":
        return reader.follow_output(entry.log, stream, offset, room, job=entry.number, attempt=ATTEMPT)
    try:
        return reader.read_output(entry.log, stream, offset, room)
    except OutputLost as lost:
        size = offset + len(lost.data)
        lengths = {"out_length": size} if stream == "out" else {"err_length": size}
        entry.end = replace(entry.end, spawn_error=EIO, spawn_stage="output", **lengths)
        own = {"out_length": size} if stream == "out" else {"err_length": size}
        entry.log = replace(entry.log, **own)
        return lost.data
