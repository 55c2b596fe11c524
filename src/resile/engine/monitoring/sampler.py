"""Samples memory and CPU of running attempts, on a thread of its own: nothing waits for it.

    engine's notes --begin, end--> Monitor --every interval--> /proc, read once for all attempts
                                      |
                                      +-- an attempt ended --> a record in the epoch's file (series.py)

An attempt leads a session of its own, so all its processes have its pid as their session. Only attempts of this machine
are watched: the pid of another is that of some other process here. The thread ends by itself when nothing has run for a
while, and with its engine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable

from resile.core.actions import Note
from resile.engine.monitoring.series import Sample, append_series, encode_series

# Of one attempt; at 5 s these are 27 hours. Beyond that every second sample is dropped, and the interval doubles.
SAMPLES_MAX = 20_000
IDLE_TICKS = 3
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ENDS = frozenset(("attempt_succeeded", "attempt_failed", "attempt_lost"))


class _Watched:
    """One running attempt: its samples so far, and the CPU ticks at the last one."""

    __slots__ = ("began", "cpu_ticks", "interval", "last", "samples")

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.began = self.last = 0.0
        self.cpu_ticks = 0
        self.samples: list[Sample] = []

    def add(self, now: float, rss_bytes: int, cpu_ticks: int) -> None:
        """Add a sample; the CPU percent is that since the last one."""
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


class Monitor:
    """Samples the attempts of one run that its notes say are running; `sampled` is set after each time."""

    def __init__(self, folder: str, interval_seconds: float, is_here: Callable[[int, int], bool]) -> None:
        """`is_here` says of a job's attempt that runs whether it does so on this machine."""
        self._folder = folder
        self._interval = interval_seconds
        self._is_here = is_here
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._watched: dict[int, tuple[int, int, _Watched]] = {}
        self._thread: threading.Thread | None = None
        self.sampled = threading.Event()

    def note(self, notes: Iterable[Note]) -> None:
        """Watch attempts that started, and store the series of those that ended."""
        for note in notes:
            if note.type in ("attempt_started", "attempt_adopted"):
                pid = note.data.get("pid", 0)
                # A function in a thread of this process is no process of its own.
                if pid and pid != os.getpid() and self._is_here(note.job, note.attempt):
                    self._begin(pid, note.job, note.attempt)
            elif note.type in _ENDS:
                self._end(note.job, note.attempt)

    def close(self) -> None:
        """End the thread, and store the series of the attempts that still run: another engine may watch them next."""
        self._closed.set()
        thread = self._thread
        if thread is not None:
            thread.join()
        for job, attempt, _ in list(self._watched.values()):
            self._end(job, attempt)

    def _begin(self, pid: int, job: int, attempt: int) -> None:
        """Watch an attempt, on the thread, which is started where there is none."""
        with self._lock:
            self._watched[pid] = (job, attempt, _Watched(self._interval))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="resile-monitor", daemon=True)
                self._thread.start()

    def _end(self, job: int, attempt: int) -> None:
        """Store the series of an attempt; one that was never seen has none."""
        with self._lock:
            found = [pid for pid, watched in self._watched.items() if watched[:2] == (job, attempt)]
            watched = self._watched.pop(found[0])[2] if found else None
        if watched is not None and watched.samples:
            record = encode_series(job, attempt, watched.interval, watched.samples)
            try:
                append_series(self._folder, record)
            except OSError:
                # A full disk must not keep the run from recording what matters.
                return

    def _run(self) -> None:
        """Take samples until nothing has run for a while, or the monitor is closed."""
        idle = 0
        due = time.monotonic()
        while not self._closed.is_set():
            with self._lock:
                pids = frozenset(self._watched)
                idle = 0 if pids else idle + 1
                if idle > IDLE_TICKS:
                    self._thread = None
                    return
            if pids:
                found = sample_sessions(pids)
                now = time.monotonic()
                with self._lock:
                    for pid, (rss_bytes, cpu_ticks) in found.items():
                        if pid in self._watched:
                            self._watched[pid][2].add(now, rss_bytes, cpu_ticks)
                self.sampled.set()
            due = max(due + self._interval, time.monotonic())
            self._closed.wait(max(0.0, due - time.monotonic()))


def sample_sessions(sessions: frozenset[int]) -> dict[int, tuple[int, int]]:
    """The resident bytes and the CPU ticks of the processes of these sessions, with children that have ended."""
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
        # The name of the program, in parentheses, may hold anything.
        fields = text[text.rfind(b")") + 2 :].split(b" ", 22)
        if len(fields) < 22:
            continue
        session = int(fields[3])
        if session in sessions:
            rss, ticks = found.get(session, (0, 0))
            used = int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
            found[session] = (rss + int(fields[21]) * _PAGE_BYTES, ticks + used)
    return found
