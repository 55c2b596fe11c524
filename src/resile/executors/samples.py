"""Samples of the memory and CPU that a running attempt uses: takes them from /proc, and writes them as records.

    record   "RSM1" job attempt interval_ms count length (varints) then `length` bytes, compressed
    sample   ticks since the sample before, less one; change of resident memory in 16 KiB; change of CPU percent

The differences are varints, small ones in one byte; compressed, a sample takes 1 to 3 bytes. The leader of an attempt
starts a session, so all its processes have the leader's pid as their session.

Only modules of Python itself are imported, because nodes have nothing else.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence

FILE = "samples"
MAGIC = b"RSM1"
RSS_UNIT = 16 * 1024
# The most samples of one attempt: 27 hours at 5 s. At that number, drop every second one and double the interval.
SAMPLES_MAX = 20_000
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Sample = tuple[float, int, float]


class Watched:
    """One running attempt: its samples so far, and the CPU ticks at the last one."""

    __slots__ = ("began", "cpu_ticks", "interval", "last", "samples")

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.began = self.last = 0.0
        self.cpu_ticks = 0
        self.samples: list[Sample] = []

    def add(self, now: float, rss_bytes: int, cpu_ticks: int) -> None:
        """Add a sample; its CPU percent is the mean since the last sample."""
        if not self.samples:
            self.began = self.last = now
            self.cpu_ticks = cpu_ticks
            self.samples.append((0.0, rss_bytes, 0.0))
            return
        if now - self.last < self.interval * 0.5:
            return
        used = max(0, cpu_ticks - self.cpu_ticks) / _TICKS_PER_SECOND
        self.samples.append((now - self.began, rss_bytes, 100.0 * used / (now - self.last)))
        self.last, self.cpu_ticks = now, max(cpu_ticks, self.cpu_ticks)
        if len(self.samples) >= SAMPLES_MAX:
            self.samples, self.interval = self.samples[::2], self.interval * 2


def sample_sessions(sessions: frozenset[int]) -> dict[int, tuple[int, int]]:
    """The resident bytes and the CPU ticks of these sessions; ticks include those of ended children."""
    found: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            descriptor = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            text = os.read(descriptor, 1024)
        except OSError:
            continue
        finally:
            os.close(descriptor)
        # The name of the program, in parentheses, may contain spaces and parentheses.
        fields = text[text.rfind(b")") + 2 :].split(b" ", 22)
        if len(fields) < 22:
            continue
        session = int(fields[3])
        if session in sessions:
            rss, ticks = found.get(session, (0, 0))
            used = int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
            found[session] = (rss + int(fields[21]) * _PAGE_BYTES, ticks + used)
    return found


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
    """Append a record to the samples file in this folder, which only this user can read."""
    descriptor = os.open(os.path.join(folder, FILE), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, record)
    finally:
        os.close(descriptor)


def _zigzag(number: int) -> int:
    """Map a signed number to an unsigned one: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return number * 2 if number >= 0 else -number * 2 - 1


def _put(data: bytearray, number: int) -> None:
    """Append a number, 7 bits in each byte."""
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
