"""Tells how far batches are durable: by a ticket number and an error, and for a writer by a descriptor to poll.

Tickets    what every part of a writer counts
Progress   a writer of its own, with the descriptor
Share      the part of one run in a writer that many runs share: an error of one stops no other
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from resile.model.failure import LogRange
from resile.store.contract import Batch, output_of
from resile.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable


class Tickets:
    """How far some batches are durable: the writer's thread advances it, the engine reads it."""

    def __init__(self) -> None:
        self.error: StoreError | None = None
        self.sync_output: Callable[[list[LogRange]], None] | None = None
        self.note_commit: Callable[[float], None] | None = None
        self._durable = 0

    def flush_output(self, logs: list[LogRange]) -> None:
        """Flush the output that the next transaction mentions; raises StoreError."""
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

    @abstractmethod
    def _notify(self) -> None:
        """Wake the engine."""


class Progress(Tickets):
    """The base of writers; see the contract for the methods."""

    def __init__(self) -> None:
        super().__init__()
        self._error_raised = False
        self._notified = False
        self._signal = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.shares = 0
        # The shares that have advanced or stopped since the engines' thread looked.
        self.advanced: deque[Share] = deque()

    @abstractmethod
    def put(self, batch: Batch, tickets: Tickets, *, at_once: bool) -> None:
        """Queue a batch whose progress these tickets count; see `submit` of the contract."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until everything submitted is on disk."""

    def share(self) -> Share:
        self.shares += 1
        return Share(self)

    def take_advanced(self) -> set[Share]:
        self.durable()
        taken: set[Share] = set()
        while self.advanced:
            taken.add(self.advanced.popleft())
        return taken

    def durable(self) -> int:
        # Clear the signal before reading the number: a commit in between sets it again for the next call.
        if self._notified:
            # Read it only then, because reading a descriptor that is not readable would release the GIL for nothing.
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


class Share(Tickets):
    """The part of one run in a writer; see the contract of writers for the methods."""

    def __init__(self, writer: Progress) -> None:
        super().__init__()
        self._writer = writer
        self._submitted = 0

    def submit(self, batch: Batch, *, at_once: bool = False) -> int:
        self._submitted += 1
        # With other runs beside this one, a commit on the engines' thread would make all of them wait.
        self._writer.put(batch, self, at_once=at_once and self._writer.shares == 1)
        return self._submitted

    def durable(self) -> int:
        self.check()
        return self._durable

    def check(self) -> None:
        """Raise the error that stopped this share, or the whole writer."""
        if self.error is not None:
            raise self.error
        self._writer.check()

    def fileno(self) -> int:
        return self._writer.fileno()

    def flush(self) -> None:
        if self._durable < self._submitted and self.error is None:
            self._writer.flush()
        self.check()

    def close(self) -> None:
        self._writer.shares -= 1

    def share(self) -> Share:
        return self._writer.share()

    def take_advanced(self) -> set[Share]:
        return self._writer.take_advanced()

    def _notify(self) -> None:
        self._writer.advanced.append(self)
        self._writer._notify()


def flush_outputs(tasks: list[tuple[Batch, Tickets]]) -> list[tuple[Batch, Tickets]]:
    """Flush the output of the attempts in these batches; leave out the batches of a run whose output can't be kept.

    Raises StoreError if the writer is that run's own.
    """
    by_tickets: dict[Tickets, list[Batch]] = {}
    for batch, tickets in tasks:
        by_tickets.setdefault(tickets, []).append(batch)
    for tickets, batches in by_tickets.items():
        try:
            if tickets.error is None:
                tickets.flush_output(output_of(batches))
        except StoreError as error:
            if not isinstance(tickets, Share):
                raise
            tickets.stop(error)
    return [task for task in tasks if task[1].error is None]
