"""Samples memory and CPU of running attempts, on a thread of its own: nothing waits for it.

    engine's notes --begin, end--> Monitor --every interval--> /proc, read once for all attempts
                                      |
                                      +-- an attempt ended --> a record in the epoch's file (series.py)

The monitor samples only attempts of this machine, because a pid of another machine is some other process here. The
agents of nodes sample their own. The thread ends by itself when nothing has run for a while, and with its engine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable

from resile.core.actions import Note
from resile.executors.samples import Watched, append_series, encode_series, sample_sessions

IDLE_TICKS = 3
_ENDS = frozenset(("attempt_succeeded", "attempt_failed", "attempt_lost"))


class Monitor:
    """Samples the attempts of one run that its notes say are running; `sampled` is set after each time."""

    def __init__(self, folder: str, interval_seconds: float, is_here: Callable[[int, int], bool]) -> None:
        """`is_here` says whether a job's running attempt runs on this machine."""
        self._folder = folder
        self._interval = interval_seconds
        self._is_here = is_here
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._watched: dict[int, tuple[int, int, Watched]] = {}
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
            self._watched[pid] = (job, attempt, Watched(self._interval))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="resile-monitor", daemon=True)
                self._thread.start()

    def _end(self, job: int, attempt: int) -> None:
        """Store the series of an attempt, if it was ever sampled."""
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
