"""Attempts that wait for others (`after`): they may start when all of those have ended with exit 0.

    add --all have succeeded--> start now
        --one failed, or is unknown--> withdraw
        --else--> waits; `end` of an attempt returns the waiting ones that may start, and those to withdraw

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from resile.executors.local.wire import Start

# An engine learns of an end within milliseconds; older ends count as unknown.
REMEMBERED_MAX = 1024


class WaitingStarts:
    """Which attempts wait for which, by their keys, and whether the last attempts succeeded."""

    def __init__(self) -> None:
        self.missing: dict[bytes, set[bytes]] = {}
        self.starts: dict[bytes, Start] = {}
        self.followers: dict[bytes, list[bytes]] = {}
        self.succeeded: dict[bytes, bool] = {}

    def forget_end(self, key: bytes) -> None:
        """Forget how an attempt ended: the engine may start a withdrawn one again."""
        self.succeeded.pop(key, None)

    def add(self, start: Start, queue: Container[bytes], running: Container[bytes]) -> bool | None:
        """Add a waiting attempt; return True if it may start now, False if it never may, else None."""
        missing = set()
        for other in start.after:
            succeeded = self.succeeded.get(other)
            if succeeded is None and not (other in queue or other in running or other in self.missing):
                succeeded = False
            if succeeded is False:
                return False
            if succeeded is None:
                missing.add(other)
        if not missing:
            return True
        self.missing[start.key] = missing
        self.starts[start.key] = start
        for other in missing:
            self.followers.setdefault(other, []).append(start.key)
        return None

    def end(self, key: bytes, succeeded: bool) -> tuple[list[Start], list[bytes]]:
        """Note the end of an attempt; return the attempts that may start now, and the keys of those that never may."""
        self.succeeded[key] = succeeded
        if len(self.succeeded) > REMEMBERED_MAX:
            del self.succeeded[next(iter(self.succeeded))]
        if key not in self.followers:
            return [], []
        freed: list[Start] = []
        doomed: list[bytes] = []
        for follower in self.followers.pop(key):
            missing = self.missing.get(follower)
            if missing is None:
                continue
            missing.discard(key)
            if not succeeded:
                self.forget(follower)
                doomed.append(follower)
            elif not missing:
                freed.append(self.forget(follower))
        return freed, doomed

    def forget(self, key: bytes) -> Start:
        """Remove a waiting attempt."""
        del self.missing[key]
        return self.starts.pop(key)
