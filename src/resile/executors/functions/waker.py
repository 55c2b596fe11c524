"""Wakes the engine when there are reports, and regularly while calls run, so that it enforces their limits."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from threading import Event, Lock, Thread

TICK_SECONDS = 0.05


class Waker:
    """A descriptor that becomes readable, and a thread that makes it so again and again while calls run."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = Lock()
        self._busy = Event()
        self._closed = Event()
        self._thread: Thread | None = None

    def wake(self) -> None:
        """Make the descriptor readable; any thread may call this, even an abandoned one."""
        with self._lock:
            if self.descriptor >= 0:
                os.eventfd_write(self.descriptor, 1)

    def settle(self) -> None:
        """Make the descriptor unreadable, because the engine is awake."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def start(self) -> None:
        """Begin to wake the engine regularly: there are calls with limits."""
        self._busy.set()
        if self._thread is None:
            thread = Thread(target=self._tick, name="resile ticker", daemon=True)
            try:
                thread.start()
                self._thread = thread
            except RuntimeError:
                # There is no thread for it; `go_on` tries again.
                self.wake()

    def go_on(self) -> None:
        """Make sure that the engine is woken regularly, even if the system has no thread for that."""
        if self._thread is None:
            time.sleep(TICK_SECONDS)
            self.start()
            self.wake()

    def rest(self) -> None:
        """Stop waking the engine regularly: no call runs."""
        self._busy.clear()

    def _tick(self) -> None:
        """Wake the engine regularly while calls run; this is all that the thread does."""
        while self._busy.wait() and not self._closed.wait(TICK_SECONDS):
            self.wake()

    def end(self) -> None:
        """End the thread."""
        self._closed.set()
        self._busy.set()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Close the descriptor; abandoned threads may still call `wake`."""
        with self._lock:
            os.close(self.descriptor)
            self.descriptor = -1
