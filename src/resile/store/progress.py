"""How far a writer's batches are durable: a ticket number, an error, and a descriptor that the engine polls."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from resile.model.failure import LogRange
from resile.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable


class Progress:
    """The base of writers: a writer advances it and the engine reads it, from another thread; see the contract."""

    def __init__(self) -> None:
        self.error: StoreError | None = None
        self.sync_output: Callable[[list[LogRange]], None] | None = None
        self._durable = 0
        self._error_raised = False
        self._notified = False
        self._signal = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def flush_output(self, logs: list[LogRange]) -> None:
        """Have the output flushed that the next transaction speaks of; raises StoreError."""
        if not logs or self.sync_output is None:
            return
        try:
            self.sync_output(logs)
        except OSError as error:
            hint = "make sure that the disk works and has room, then resume the run"
            raise StoreError("output-disk", f"can't keep the output of steps: {error.strerror}", hint=hint) from None

    def move(self, tickets: int) -> None:
        """Record that this many more tickets are durable."""
        self._durable += tickets
        self._notify()

    def stop(self, error: StoreError) -> None:
        """Record the error that stopped the writer: nothing more will become durable."""
        self.error = error
        self._notify()

    def durable(self) -> int:
        # Clear the signal before reading the number: a commit in between sets it again for the next call.
        if self._notified:
            # Only then: reading a descriptor that is not readable would release the GIL for nothing.
            self._notified = False
            with suppress(BlockingIOError):
                os.eventfd_read(self._signal)
        self.check()
        return self._durable

    def check(self) -> None:
        """Raise the error that stopped the writer, if there is one."""
        if self.error is not None:
            self._error_raised = True
            raise self.error

    def fileno(self) -> int:
        return self._signal

    def close(self) -> None:
        os.close(self._signal)
        if not self._error_raised:
            self.check()

    def _notify(self) -> None:
        # Set before the write, so that an engine woken by the write sees it; otherwise it would poll again at once. Set
        # again after the write, because an engine that read the descriptor in between has cleared it.
        self._notified = True
        os.eventfd_write(self._signal, 1)
        self._notified = True
