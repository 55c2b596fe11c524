"""Attempts of a launcher that come after others: they may start when all of those have ended with exit 0.

    add --all over, all well--> start now
        --one over otherwise, or unknown--> withdraw
        --else--> waits; `over` of what it waits for says which may start, or are withdrawn

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

# An engine hears of an end within milliseconds; whoever names an older one is told that it is unknown.
REMEMBERED_MAX = 1024


class Waiting:
    """Who waits for whom, by the keys `job attempt`, and how the last attempts ended."""

    def __init__(self) -> None:
        self.missing: dict[bytes, set[bytes]] = {}
        self.frames: dict[bytes, list[bytes]] = {}
        self.followers: dict[bytes, list[bytes]] = {}
        self.ended: dict[bytes, bool] = {}

    def begin(self, key: bytes) -> None:
        """An attempt that was taken back before may come again: it is not over any more."""
        self.ended.pop(key, None)

    def add(
        self, key: bytes, fields: list[bytes], after: list[bytes], queue: Container[bytes], running: Container[bytes]
    ) -> bool | None:
        """Have an attempt wait: True where it may start now, False where it never may, else nothing."""
        missing = set()
        for other in after:
            well = self.ended.get(other)
            if well is None and not (other in queue or other in running or other in self.missing):
                well = False
            if well is False:
                return False
            if well is None:
                missing.add(other)
        if not missing:
            return True
        self.missing[key] = missing
        self.frames[key] = fields
        for other in missing:
            self.followers.setdefault(other, []).append(key)
        return None

    def over(self, key: bytes, well: bool) -> tuple[dict[bytes, list[bytes]], list[bytes]]:
        """An attempt is over: the frames of those that may start now, and those that never may."""
        self.ended[key] = well
        if len(self.ended) > REMEMBERED_MAX:
            del self.ended[next(iter(self.ended))]
        if key not in self.followers:
            return {}, []
        freed: dict[bytes, list[bytes]] = {}
        doomed: list[bytes] = []
        for follower in self.followers.pop(key):
            missing = self.missing.get(follower)
            if missing is None:
                continue
            missing.discard(key)
            if not well:
                self.forget(follower)
                doomed.append(follower)
            elif not missing:
                freed[follower] = self.forget(follower)
        return freed, doomed

    def forget(self, key: bytes) -> list[bytes]:
        """Let an attempt wait no longer; its frame."""
        del self.missing[key]
        return self.frames.pop(key)
