"""Calls functions of other threads in the thread of the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Errands:
    """Functions that the thread of the host will call; any thread may add one."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` makes the host call `run` soon."""
        self._wake = wake
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_over = False

    def add(self, function: Callable[[], T]) -> Future[T]:
        """Let the host call a function; return a future with the function's result."""
        future: Future[T] = Future()

        def run() -> None:
            """Call the function; the future takes its result or its exception."""
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
        """Call all waiting functions, in the thread of the host."""
        with suppress(IndexError):
            while True:
                self._waiting.popleft()()

    def close(self) -> None:
        """Call all waiting functions because the host ends. From now on `add` calls each function at once."""
        self._is_over = True
        self.run()
