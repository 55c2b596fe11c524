"""One slot of the launcher: two pipes, two segment files, a thread, and the attempt that runs in it.

    attempt --stdout--> pipe --> [redact] --> FOLDER/TOKEN-SLOT-N.o
            --stderr--> pipe --> [redact] --> FOLDER/TOKEN-SLOT-N.e

Only the launcher writes segments. An attempt that held the file itself could destroy what earlier attempts of
the slot wrote: `tee /dev/stderr` opens the file behind it and truncates it. With a pipe that name means the
pipe. Pipes and files are opened once and serve one attempt after the other; what a short attempt wrote is
taken from the pipe when it ends, a longer one is listened to.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
import select
from _thread import allocate_lock
from errno import EINVAL

from resile.executors.local.launcher.spawner import Actions
from resile.executors.local.redaction import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType

READ_BYTES = 64 * 1024
DRAIN_READS_MAX = 64
SEGMENT_BYTES_MAX = 64 * 1024 * 1024
_SEGMENT_FLAGS = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_APPEND | posix.O_CLOEXEC


class Pipe:
    """One output stream of a slot: the pipe, the segment file it goes to, and the running attempt's range in it."""

    __slots__ = ("errno", "file", "reader", "redactor", "size", "start", "writer")

    def __init__(self) -> None:
        self.reader, self.writer = make_pipe()
        self.file = -1
        self.size = 0
        self.start = 0
        self.errno = 0
        self.redactor: Stream | None = None

    def begin(self, secrets: tuple[bytes, ...]) -> None:
        """An attempt starts to write."""
        self.start = self.size
        self.errno = 0
        self.redactor = Stream(secrets) if secrets else None
        # The last attempt may have made the pipe non-blocking (node does), which would be this one's surprise.
        posix.set_blocking(self.writer, True)

    def pump(self) -> bool:
        """Move what is in the pipe now, one read's worth; False where there was nothing."""
        try:
            data = posix.read(self.reader, READ_BYTES)
        except OSError:
            return False
        self.write(self.redactor.feed(data) if self.redactor else data)
        return bool(data)

    def finish(self) -> None:
        """The attempt is over: take what it left in the pipe, at most what a pipe can hold."""
        for _ in range(DRAIN_READS_MAX):
            if not self.pump():
                break
        if self.redactor:
            self.write(self.redactor.finish())

    def write(self, data: bytes) -> None:
        """Append to the segment; a disk that takes no more is remembered for the attempt's report."""
        while data and not self.errno:
            try:
                written = posix.write(self.file, data)
            except OSError as error:
                self.errno = error.errno or EINVAL
                return
            self.size += written
            data = data[written:]

    def renew(self, fresh: tuple[int, int]) -> int:
        """Somebody may still hold this pipe: take a fresh one; the old one's reading end."""
        old = self.reader
        posix.close(self.writer)
        self.reader, self.writer = fresh
        return old

    def close(self) -> None:
        """Close everything."""
        for descriptor in (self.reader, self.writer, self.file):
            if descriptor >= 0:
                posix.close(descriptor)


def make_pipe() -> tuple[int, int]:
    """A pipe whose reading end never blocks."""
    reader, writer = posix.pipe2(posix.O_CLOEXEC)
    posix.set_blocking(reader, False)
    return reader, writer


class Slot:
    """A place where one attempt at a time runs."""

    __slots__ = (
        "actions",
        "closed",
        "cut",
        "deadline",
        "err",
        "folder",
        "frame",
        "given",
        "grace_seconds",
        "has_started",
        "key",
        "known",
        "line",
        "number",
        "out",
        "pid",
        "readable",
        "reaped",
        "rolls",
        "segment",
        "started",
        "started_at",
        "suspect",
        "token",
        "turn",
        "usage",
        "watched",
    )

    def __init__(self, number: int, folder: bytes, token: bytes) -> None:
        # Open when its thread has something to do: an attempt, or to end.
        self.given = allocate_lock()
        self.given.acquire()
        self.closed = False
        # Open once its attempt has started, and that of the slot whose attempt goes before its own.
        self.has_started = allocate_lock()
        self.turn: LockType | None = None
        self.number = number
        self.folder = folder
        self.token = token
        self.rolls = -1
        self.out = Pipe()
        try:
            self.err = Pipe()
        except OSError:
            self.out.close()
            raise
        try:
            self.roll()
        except OSError:
            self.close()
            raise
        self.rewire()
        self.reset()

    def reset(self) -> None:
        """No attempt is here."""
        self.key = self.line = self.cut = b""
        self.frame: list[bytes] | None = None
        self.pid = 0
        self.started = self.started_at = self.deadline = self.grace_seconds = 0.0
        self.watched = self.suspect = self.reaped = False
        self.usage: tuple[int, float, int] = (0, 0.0, 0)
        self.known: dict[int, int] = {}

    def rewire(self) -> None:
        """The pipes are new: what a child does with them, and how to ask whether they hold anything."""
        self.actions = Actions(self.out.writer, self.err.writer)
        self.readable = select.poll()
        self.readable.register(self.out.reader, select.POLLIN)
        self.readable.register(self.err.reader, select.POLLIN)

    def roll(self) -> None:
        """Open the next pair of segments."""
        self.rolls += 1
        self.segment = b"%s-%d-%d" % (self.token, self.number, self.rolls)
        for pipe, ending in ((self.out, b".o"), (self.err, b".e")):
            file = posix.open(self.folder + b"/" + self.segment + ending, _SEGMENT_FLAGS, 0o600)
            if pipe.file >= 0:
                posix.close(pipe.file)
            pipe.file = file
            pipe.size = pipe.start = 0

    def wrote(self) -> bool:
        """Is there output that is not in the segments yet?"""
        return bool(self.readable.poll(0) or self.out.redactor)

    def drain(self) -> None:
        """The attempt is over: everything it wrote belongs to the segments."""
        self.out.finish()
        self.err.finish()

    def renew(self) -> tuple[int, int]:
        """Take fresh pipes because somebody may still write to these; the reading ends of the old ones."""
        first = make_pipe()
        try:
            second = make_pipe()
        except OSError:
            posix.close(first[0])
            posix.close(first[1])
            raise
        old = (self.out.renew(first), self.err.renew(second))
        self.rewire()
        return old

    def full(self) -> bool:
        """Is it time for the next pair of segments?"""
        return self.out.size > SEGMENT_BYTES_MAX or self.err.size > SEGMENT_BYTES_MAX

    def close(self) -> None:
        """Close everything, and let its thread end."""
        self.out.close()
        self.err.close()
        self.closed = True
        if self.given.locked():
            self.given.release()
