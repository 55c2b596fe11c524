"""What other threads want done in the thread of the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Errands:
    """Functions that wait for the thread of the host; any thread adds some."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` makes the host run them soon."""
        self._wake = wake
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_over = False

    def add(self, function: Callable[[], T]) -> Future[T]:
        """Let the host call a function; the future has its result."""
        future: Future[T] = Future()

        def run() -> None:
            """Call it; what it raises is the caller's."""
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        self._waiting.append(run)
        self._wake()
        if self._is_over:
            self.run()
        return future

    def run(self) -> None:
        """Call the functions that wait."""
        with suppress(IndexError):
            while True:
                self._waiting.popleft()()

    def close(self) -> None:
        """The host ends: from now on the thread that adds a function calls it."""
        self._is_over = True
        self.run()
