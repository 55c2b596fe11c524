"""Series of samples on disk: one file for each epoch of a run, a record for each attempt, appended when it ends.

Each node of a cluster has a file of its own, beside the records of its launcher.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

from msgspec import Struct

from resile.executors.local import wire
from resile.executors.samples import FILE, MAGIC, RSS_UNIT, Sample

# A file, or a record of one, beyond this is not read: nothing that we write is so large.
FILE_BYTES_MAX = 256 << 20
RECORD_BYTES_MAX = 64 << 20


class Series(Struct, frozen=True):
    """The samples of one attempt: seconds since the first, resident bytes, percent of one CPU."""

    job: int
    attempt: int
    interval_seconds: float
    samples: tuple[Sample, ...]


def read_series(folder: str) -> Iterator[Series]:
    """The series of an epoch, those of its nodes too; none where there is no file."""
    yield from _read_file(os.path.join(folder, FILE))
    nodes = os.path.join(folder, wire.FOLDER)
    for token in sorted(os.listdir(nodes)) if os.path.isdir(nodes) else ():
        yield from _read_file(os.path.join(nodes, token, FILE))


def _read_file(path: str) -> Iterator[Series]:
    """The series of one file. A record that was cut off by a crash ends it."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX)
    except OSError:
        return
    place = 0
    while data[place : place + len(MAGIC)] == MAGIC:
        try:
            numbers: list[int] = []
            place += len(MAGIC)
            for _ in range(5):
                number, place = _take(data, place)
                numbers.append(number)
            job, attempt, interval_ms, count, length = numbers
            packed = data[place : place + length]
            if len(packed) < length:
                return
            place += length
            body = zlib.decompressobj().decompress(packed, RECORD_BYTES_MAX)
            yield Series(job, attempt, interval_ms / 1000, _decode(body, count, interval_ms / 1000))
        except (IndexError, zlib.error):
            return


def _decode(body: bytes, count: int, interval_seconds: float) -> tuple[Sample, ...]:
    """The samples in the body of a record."""
    samples: list[Sample] = []
    place, tick, rss, cpu = 0, -1, 0, 0
    for _ in range(count):
        gap, place = _take(body, place)
        more_rss, place = _take(body, place)
        more_cpu, place = _take(body, place)
        tick += gap + 1
        rss += _unzigzag(more_rss)
        cpu += _unzigzag(more_cpu)
        samples.append((round(tick * interval_seconds, 3), rss * RSS_UNIT, float(cpu)))
    return tuple(samples)


def _unzigzag(number: int) -> int:
    return number // 2 if number % 2 == 0 else -(number + 1) // 2


def _take(data: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and the place after it; raises IndexError at the end of the data."""
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
        shift += 7
