"""Series of samples on disk: one file for each epoch of a run, a record for each attempt, appended when it ends.

    record   "RSM1" job attempt interval_ms count length (varints) then `length` bytes, compressed
    sample   ticks since the sample before, less one; change of resident memory in 16 KiB; change of CPU percent

The differences are varints, small ones in one byte; compressed, a sample takes 1 to 3 bytes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence

from msgspec import Struct

FILE = "samples"
MAGIC = b"RSM1"
RSS_UNIT = 16 * 1024
# A file, or a record of one, beyond this is not read: nothing that we write is so large.
FILE_BYTES_MAX = 256 << 20
RECORD_BYTES_MAX = 64 << 20

Sample = tuple[float, int, float]


class Series(Struct, frozen=True):
    """The samples of one attempt: seconds since the first, resident bytes, percent of one CPU."""

    job: int
    attempt: int
    interval_seconds: float
    samples: tuple[Sample, ...]


def encode_series(job: int, attempt: int, interval_seconds: float, samples: Sequence[Sample]) -> bytes:
    """The record of one attempt."""
    body = bytearray()
    last_tick, last_rss, last_cpu = -1, 0, 0
    for seconds, rss_bytes, cpu_percent in samples:
        tick = max(last_tick + 1, round(seconds / interval_seconds))
        rss, cpu = round(rss_bytes / RSS_UNIT), round(cpu_percent)
        _put(body, tick - last_tick - 1)
        _put(body, _zigzag(rss - last_rss))
        _put(body, _zigzag(cpu - last_cpu))
        last_tick, last_rss, last_cpu = tick, rss, cpu
    packed = zlib.compress(bytes(body), 6)
    head = bytearray(MAGIC)
    for number in (job, attempt, round(interval_seconds * 1000), len(samples), len(packed)):
        _put(head, number)
    return bytes(head) + packed


def append_series(folder: str, record: bytes) -> None:
    """Append a record to the file of an epoch; only this user can read it."""
    descriptor = os.open(os.path.join(folder, FILE), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, record)
    finally:
        os.close(descriptor)


def read_series(folder: str) -> Iterator[Series]:
    """The series of an epoch; none where there is no file. A record that was cut off by a crash ends it."""
    try:
        with open(os.path.join(folder, FILE), "rb") as file:
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


def _zigzag(number: int) -> int:
    """A number with a sign as one without: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return number * 2 if number >= 0 else -number * 2 - 1


def _unzigzag(number: int) -> int:
    return number // 2 if number % 2 == 0 else -(number + 1) // 2


def _put(data: bytearray, number: int) -> None:
    """Append a number, 7 bits in each byte."""
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)


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
