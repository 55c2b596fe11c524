"""How much a writer has made durable, and how its engine learns of it: a number, an error, a descriptor to poll."""

from __future__ import annotations

import os
from contextlib import suppress

from resile.store.errors import StoreError


class Progress:
    """The writer moves it and the engine reads it; the two may be different threads."""

    def __init__(self) -> None:
        self.error: StoreError | None = None
        self._durable = 0
        self._heard = False
        self._raised = False
        self._signal = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def move(self, tickets: int) -> None:
        """Record that so many more tickets are durable."""
        self._durable += tickets
        self._raise()

    def stop(self, error: StoreError) -> None:
        """Record the error that stopped the writer: nothing more will become durable."""
        self.error = error
        self._raise()

    def durable(self) -> int:
        """The highest durable ticket; raises the error that stopped the writer."""
        # Lowered before the number is read: a commit in between leaves the signal up for the next call.
        self._lower()
        self.check()
        return self._durable

    def highest_durable(self) -> int:
        """The highest durable ticket, whether or not the writer has stopped."""
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
        """Close the descriptor; raise the error that stopped the writer if no caller has seen it yet."""
        os.close(self._signal)
        if not self._heard:
            self.check()

    def _raise(self) -> None:
        """Make the descriptor readable."""
        # Set before the write: an engine that the write wakes up must see it, or it polls again at once. Set after it:
        # an engine that lowered the descriptor in between has cleared it.
        self._raised = True
        os.eventfd_write(self._signal, 1)
        self._raised = True

    def _lower(self) -> None:
        """Make the descriptor unreadable if it is readable; a read of it gives up the interpreter's lock."""
        if self._raised:
            self._raised = False
            with suppress(BlockingIOError):
                os.eventfd_read(self._signal)
