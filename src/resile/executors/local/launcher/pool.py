"""The slots of a launcher: opens them up to a limit, and decides when to try again if the system has no room.

    open --> Slot, with its thread       can_open_later: must the attempts wait until the system has room again?

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

from _thread import start_new_thread
from errno import EAGAIN, EMFILE, ENFILE, ENOMEM

from resile.executors.local.launcher.slots import Slot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN_SECONDS = 0.05
AGAIN_SECONDS_MAX = 5.0
SECONDS_MAX = 60.0
NEVER = float("inf")
# Errors that may pass: the system has no process, thread or memory at the moment.
PASSING = (EAGAIN, ENOMEM)


class SlotPool:
    """The open slots; the thread of each runs `serve`."""

    def __init__(self, serve: Callable[[Slot], None]) -> None:
        self.serve = serve
        self.free: list[Slot] = []
        # The limit of slots, the number of open slots, and the number of slots ever made, which numbers the next one.
        self.count_max = self.opened = self.made = 0
        # Open no other slot before `open_at`. If no slot could be opened by `refuse_at`, the attempts fail.
        self.open_at = 0.0
        self.refuse_at = NEVER

    def can_grow(self) -> bool:
        """Are fewer slots open than the limit?"""
        return self.opened < self.count_max

    def open(self, folder: bytes, token: bytes) -> Slot:
        """Open one more slot, with its thread."""
        self.made += 1
        slot = Slot(self.made - 1, folder, token)
        try:
            start_new_thread(self.serve, (slot,))
        except RuntimeError:
            slot.close()
            raise OSError(EAGAIN, "no more threads") from None
        self.opened += 1
        self.refuse_at = NEVER
        return slot

    def can_open_later(self, errno: int, now: float) -> bool:
        """Must the queued attempts wait after this error? If not, they can't start at all."""
        if errno in (EMFILE, ENFILE) and self.opened:
            self.count_max = self.opened
            return True
        if errno not in PASSING or now >= self.refuse_at:
            return False
        if not self.opened and self.refuse_at == NEVER:
            self.refuse_at = now + SECONDS_MAX
        self.open_at = now + AGAIN_SECONDS
        return True

    def close(self, slot: Slot) -> None:
        """Close a slot, and end its thread."""
        self.opened -= 1
        slot.close()
