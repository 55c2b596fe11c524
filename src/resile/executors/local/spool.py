"""The launcher's spool: every line that it ever told an engine and that no engine has put on disk yet.

    TOKEN.spool   H version token pid born boot label      the launcher that writes this file
                  B job attempt                           it is about to be started
                  S job attempt at pid born segment out err
                  E job attempt started at status cpu rss segment out outlen err errlen cut errno stage oom
                  W job attempt at

The engine makes the file, with its first line, before it gives its launcher any orders: so whoever comes after that
engine knows of the launcher even if it has not got to work yet. From then on only the launcher writes.

The lines of running attempts stay until they end, whatever has been acknowledged. When enough is acknowledged
the file is written anew beside itself and renamed, so a reader sees the old one or the new one. The file outlives
the launcher and the engine, not the machine: after a power cut no attempt runs any more either.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix

from resile.executors.local.processes import boot_id, process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1
SUFFIX = ".spool"
COMPACT_BYTES = 512 * 1024
HEADER_BYTES_MAX = 4096
_FLAGS = posix.O_RDWR | posix.O_APPEND | posix.O_CLOEXEC


class Spool:
    """The writing side, owned by one launcher."""

    __slots__ = ("acknowledged", "base", "descriptor", "header", "path", "pending", "size")

    def __init__(self, folder: bytes, token: bytes) -> None:
        self.path = folder + b"/" + token + SUFFIX.encode()
        self.descriptor = posix.open(self.path, _FLAGS)
        self.header = posix.pread(self.descriptor, HEADER_BYTES_MAX, 0)
        self.size = len(self.header)
        # The first engine is not told the header.
        self.base = self.size
        self.acknowledged = 0
        self.pending = b""

    def append(self, lines: bytes) -> bool:
        """Add lines in one write; False where the disk takes no more (they are kept and tried again)."""
        self.size += len(lines)
        data = self.pending + lines
        try:
            self.pending = data[posix.write(self.descriptor, data) :]
        except OSError:
            self.pending = data
        return not self.pending

    def connected(self) -> bytes:
        """A new engine listens: all that is kept, which is what it must hear first."""
        self.base = self.size
        return posix.pread(self.descriptor, self.size - len(self.pending), 0) + self.pending

    def acknowledge(self, heard: int, running: Iterable[bytes]) -> None:
        """An engine has recorded the first `heard` bytes that it was told since it connected."""
        self.acknowledged = min(self.size, max(self.acknowledged, self.base + heard))
        if self.acknowledged >= COMPACT_BYTES and not self.pending:
            self.compact(self.header + b"".join(running))

    def compact(self, head: bytes) -> None:
        """Keep the head (which stands for everything acknowledged that still matters) and what follows."""
        beside = self.path + b".new"
        try:
            data = head + posix.pread(self.descriptor, self.size - self.acknowledged, self.acknowledged)
            descriptor = posix.open(beside, _FLAGS | posix.O_CREAT | posix.O_TRUNC, 0o600)
        except OSError:
            return
        try:
            if posix.write(descriptor, data) < len(data):
                raise OSError
            posix.rename(beside, self.path)
        except OSError:
            # No room: the longer file is as good, and the next acknowledgement tries again.
            posix.close(descriptor)
            return
        posix.close(self.descriptor)
        self.descriptor = descriptor
        moved = len(head) - self.acknowledged
        self.base += moved
        self.acknowledged = len(head)
        self.size += moved

    def close(self) -> None:
        """The launcher ends; a spool that has nothing more to say goes with it."""
        if self.acknowledged == self.size:
            posix.unlink(self.path)


def identity(token: str, label: str, pid: int) -> bytes:
    """The first line: who will write this file."""
    launcher = process(pid)
    start_ticks = launcher.start_ticks if launcher else 0
    return b"H %d %s %d %d %s %s\n" % (VERSION, token.encode(), pid, start_ticks, boot_id(), label.encode())
