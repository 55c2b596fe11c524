"""The launcher's spool: it has every line that the launcher sent to an engine and that no engine has recorded yet.

    TOKEN.spool   the lines of wire.py; the first names the launcher and has the length of the file

The engine creates the file, with its first line, before it sends its launcher any frame, so that the next engine knows
the launcher even if the launcher has not started work yet. From then on only the launcher writes.

The lines of a running attempt stay until it ends, even if the engine has acknowledged them. When the engine has
acknowledged enough, the launcher writes a new file and renames it, so that a reader sees the old file or the new one.
After each write the launcher writes the length of the file into its first line. If the file is shorter, it has lost
lines, and the engine does not take an attempt without lines for one that never started.

The file outlives the launcher and the engine. It may not outlive the machine: after another boot only the ends in it
count (recovery.py).

The spool of a node of a cluster is on a shared disk: its header has `CHECKED_VERSION`, each line ends in a checksum.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
from binascii import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SUFFIX = ".spool"
HEADER_WORDS = 8
COMPACT_BYTES = 512 * 1024
HEADER_BYTES_MAX = 4096
INCOMPLETE_MODE = 0o400
# The version in the header of a spool whose lines have checksums.
CHECKED_VERSION = b"2"
# The length in the first line: as many digits, at its end.
LENGTH_DIGITS = 20
_FLAGS = posix.O_RDWR | posix.O_APPEND | posix.O_CLOEXEC


class Spool:
    """The writing side, owned by one launcher."""

    def __init__(self, folder: bytes, token: bytes) -> None:
        self.path = folder + b"/" + token + SUFFIX.encode()
        self.descriptor = posix.open(self.path, _FLAGS)
        self.header = posix.pread(self.descriptor, HEADER_BYTES_MAX, 0)
        self.size = len(self.header)
        # The spool of a node has no length.
        self.length_at = self.size - 1 - LENGTH_DIGITS if len(self.header.split()) == HEADER_WORDS else 0
        # A second descriptor, because the first one always writes at the end.
        self.noting = self.open_noting()
        self.is_checked = self.header.split(b" ", 2)[1:2] == [CHECKED_VERSION]
        # The first engine wrote the header, so the launcher does not send it.
        self.base = self.size
        self.acknowledged = 0
        self.finished = False
        self.pending = b""

    def append(self, lines: bytes) -> bool:
        """Append lines in one write; False if the disk is full: the spool keeps the lines and writes them later.

        While lines are missing, the file has INCOMPLETE_MODE, by which an engine knows that.
        """
        if self.is_checked:
            lines = b"".join([with_checksum(line) for line in lines.splitlines()])
        self.size += len(lines)
        data, was_pending = self.pending + lines, bool(self.pending)
        try:
            self.pending = data[posix.write(self.descriptor, data) :]
        except OSError:
            self.pending = data
        else:
            self.note_length()
        if was_pending != bool(self.pending):
            posix.fchmod(self.descriptor, INCOMPLETE_MODE if self.pending else 0o600)
        return not self.pending

    def open_noting(self) -> int:
        """Open the file once more, to note its length; -1 if it has none."""
        return posix.open(self.path, posix.O_WRONLY | posix.O_CLOEXEC) if self.length_at else -1

    def note_length(self) -> None:
        """Note the length of the file in its first line, after it was written: the length is never too large."""
        if self.length_at:
            try:
                posix.pwrite(self.noting, b"%0*d" % (LENGTH_DIGITS, self.size - len(self.pending)), self.length_at)
            except OSError:
                # Some file systems need room even for that; the length before is still true.
                return

    def greet(self) -> bytes:
        """All lines in the spool: the launcher sends them first to an engine that connects."""
        self.base = self.size
        return posix.pread(self.descriptor, self.size - len(self.pending), 0) + self.pending

    def acknowledge(self, received: int, running: Iterable[bytes], last: bool = False) -> None:
        """Note that the engine has recorded the first `received` bytes since it connected; compact if they are many."""
        self.finished = last
        self.acknowledged = min(self.size, max(self.acknowledged, self.base + received))
        if self.acknowledged >= COMPACT_BYTES and not self.pending:
            self.compact(self.header + b"".join(running))

    def compact(self, head: bytes) -> None:
        """Rewrite the file: the head, which replaces the acknowledged lines that still matter, and the rest."""
        beside = self.path + b".new"
        try:
            data = head + posix.pread(self.descriptor, self.size - self.acknowledged, self.acknowledged)
            if self.length_at:
                data = data[: self.length_at] + b"%0*d" % (LENGTH_DIGITS, len(data)) + data[len(self.header) - 1 :]
            descriptor = posix.open(beside, _FLAGS | posix.O_CREAT | posix.O_TRUNC, 0o600)
        except OSError:
            return
        try:
            if posix.write(descriptor, data) < len(data):
                raise OSError
            posix.rename(beside, self.path)
        except OSError:
            # No room: the longer file works too, and the next acknowledgement tries again.
            posix.close(descriptor)
            return
        posix.close(self.descriptor)
        self.descriptor = descriptor
        if self.length_at:
            posix.close(self.noting)
            self.noting = self.open_noting()
        moved = len(head) - self.acknowledged
        self.base += moved
        self.acknowledged = len(head)
        self.size += moved

    def close(self) -> None:
        """When the launcher exits: remove the spool if an engine has recorded all of it and no attempt is open.

        Else the spool stays, so that the run's next engine can tell attempts that never started from lost records.
        """
        if self.finished and self.acknowledged == self.size:
            posix.unlink(self.path)


def with_checksum(line: bytes) -> bytes:
    """A line of a checked spool, with its end of line."""
    return b"%s #%08x\n" % (line, crc32(line))


def without_checksum(line: bytes) -> bytes | None:
    """The words of a line of a checked spool; None if it is damaged."""
    words, _, checksum = line.rpartition(b" #")
    return words if checksum == b"%08x" % crc32(words) else None
