"""Reads pipes in the launcher: those of longer attempts while they run, and those that leftover processes still hold.

    listen --(attempt ends)--> unlisten --(a process that it left may still write)--> abandon: discard the rest

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from resile.executors.local.launcher.slots import Slot

DISCARD_BYTES = 256 * 1024
ABANDONED_MAX = 256


class Output:
    """The pipes that epoll watches, by the descriptor of their reading ends."""

    def __init__(self, epoll: select.epoll) -> None:
        self.epoll = epoll
        self.listened: dict[int, Slot] = {}
        self.abandoned: dict[int, None] = {}
        self.abandoned_max = ABANDONED_MAX

    def read(self, descriptor: int) -> bool:
        """Read from a pipe that has data; False if the descriptor is not one of these pipes."""
        if descriptor in self.listened:
            slot = self.listened[descriptor]
            (slot.out if descriptor == slot.out.reader else slot.err).pump()
        elif descriptor in self.abandoned:
            self.discard(descriptor)
        else:
            return False
        return True

    def listen(self, slot: Slot) -> None:
        """Begin to read the attempt's output while it runs."""
        slot.listened = True
        for pipe in (slot.out, slot.err):
            self.listened[pipe.reader] = slot
            self.epoll.register(pipe.reader, select.EPOLLIN)

    def unlisten(self, slot: Slot) -> None:
        """Stop reading the output: the attempt is over."""
        if slot.listened:
            slot.listened = False
            for pipe in (slot.out, slot.err):
                del self.listened[pipe.reader]
                self.epoll.unregister(pipe.reader)

    def abandon(self, descriptors: tuple[int, ...]) -> None:
        """Discard what leftover processes write to these pipes from now on; close the oldest pipes beyond the limit."""
        for descriptor in descriptors:
            self.abandoned[descriptor] = None
            self.epoll.register(descriptor, select.EPOLLIN)
        while len(self.abandoned) > self.abandoned_max:
            self.discard(next(iter(self.abandoned)), close=True)

    def discard(self, descriptor: int, close: bool = False) -> None:
        """Discard the output of leftover processes; forget the pipe when the last of them has closed it."""
        try:
            close = close or not posix.read(descriptor, DISCARD_BYTES)
        except BlockingIOError:
            return
        if close:
            del self.abandoned[descriptor]
            posix.close(descriptor)

    def discard_all(self) -> None:
        """Close the pipes of all leftover processes."""
        for descriptor in list(self.abandoned):
            self.discard(descriptor, close=True)
