"""How far a writer has come, and how its engine hears of it: a number, perhaps an error, and a descriptor to poll."""

from __future__ import annotations

import os
from contextlib import suppress

from resile.store.errors import StoreError


class Progress:
    """Moved by the writing side, asked by the engine; the two may be different threads."""

    def __init__(self) -> None:
        self.error: StoreError | None = None
        self._durable = 0
        self._heard = False
        self._raised = False
        self._signal = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def move(self, tickets: int) -> None:
        """So many more tickets are durable."""
        self._durable += tickets
        self._raise()

    def stop(self, error: StoreError) -> None:
        """Nothing more will become durable."""
        self.error = error
        self._raise()

    def durable(self) -> int:
        """The highest durable ticket; raises the error that stopped the writer."""
        # Lowered before the number is read: a commit in between leaves the signal up for the next call.
        self._lower()
        self.check()
        return self._durable

    def reached(self) -> int:
        """The highest durable ticket, without a question about errors."""
        return self._durable

    def check(self) -> None:
        """Raise the error that stopped the writer, if any did."""
        if self.error is not None:
            self._heard = True
            raise self.error

    def fileno(self) -> int:
        """Readable after `move` and `stop`, until `durable` is asked."""
        return self._signal

    def close(self) -> None:
        """Give the descriptor back; an error that nobody has heard is raised now."""
        os.close(self._signal)
        if not self._heard:
            self.check()

    def _raise(self) -> None:
        """Make the descriptor readable."""
        # Said before, because an engine that wakes up by it must know at once, or it asks again and again; and after,
        # because one that has just lowered it knows no more that it is up.
        self._raised = True
        os.eventfd_write(self._signal, 1)
        self._raised = True

    def _lower(self) -> None:
        """Make the descriptor unreadable; not where it is, because asking gives up the interpreter's lock."""
        if self._raised:
            self._raised = False
            with suppress(BlockingIOError):
                os.eventfd_read(self._signal)
