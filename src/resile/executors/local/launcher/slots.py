"""One slot of the launcher: two pipes, two segment files, a thread, and the attempt that runs in it.

    attempt --stdout--> pipe --> [redact] --> FOLDER/TOKEN-SLOT-N.o
            --stderr--> pipe --> [redact] --> FOLDER/TOKEN-SLOT-N.e

Only the launcher writes segments. An attempt that held the file itself could destroy the output of earlier attempts of
the slot: `tee /dev/stderr` would open the file and truncate it. With a pipe that name means the pipe. The launcher
opens pipes and files once and uses them for one attempt after the other; it reads the output of a short attempt from
the pipe when the attempt ends, and that of a longer one while it runs.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
import select
from _thread import allocate_lock
from errno import EINVAL

from resile.executors.local.launcher.spawner import Actions
from resile.executors.redaction import Patterns, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType

    from resile.executors.local.launcher.profiles import Profile
    from resile.executors.local.wire import Start

READ_BYTES = 64 * 1024
DRAIN_READS_MAX = 64
SEGMENT_BYTES_MAX = 64 * 1024 * 1024
_SEGMENT_FLAGS = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_APPEND | posix.O_CLOEXEC


class Pipe:
    """One output stream of a slot: the pipe, the segment file it goes to, and the running attempt's range in it."""

    def __init__(self) -> None:
        self.reader, self.writer = make_pipe()
        self.file = -1
        self.path = b""
        self.size = self.start = self.errno = self.lost = 0
        self.redactor: Stream | None = None

    def begin(self, secrets: Patterns) -> None:
        """Prepare for the next attempt: note the offset at which its output begins, and the secrets to redact."""
        self.start = self.size
        self.errno = self.lost = 0
        self.redactor = Stream(secrets) if secrets else None
        # The previous attempt may have made the pipe non-blocking (node does); the next one does not expect that.
        posix.set_blocking(self.writer, True)

    def pump(self) -> bool:
        """Move the data in the pipe to the segment, one read at a time; False if there was none."""
        try:
            data = posix.read(self.reader, READ_BYTES)
        except OSError:
            return False
        self.write(self.redactor.feed(data) if self.redactor else data)
        return bool(data)

    def finish(self) -> None:
        """Move the rest of an ended attempt's output out of the pipe, at most what a pipe can hold."""
        for _ in range(DRAIN_READS_MAX):
            if not self.pump():
                break
        if self.redactor:
            self.write(self.redactor.finish())

    def write(self, data: bytes) -> None:
        """Append to the segment; keep the error of a full disk for the attempt's report, and count what is lost."""
        while data and not self.errno:
            try:
                if self.file < 0:
                    self.open_late()
                written = posix.write(self.file, data)
            except OSError as error:
                self.errno = error.errno or EINVAL
                break
            self.size += written
            data = data[written:]
        self.lost += len(data)

    def use(self, path: bytes) -> None:
        """Write to this file from now on; `open`, or the first output, makes it."""
        if self.file >= 0:
            posix.close(self.file)
            self.file = -1
        self.path = path
        self.size = self.start = 0

    def open(self) -> None:
        """Make the file."""
        self.file = posix.open(self.path, _SEGMENT_FLAGS, 0o600)

    def open_late(self) -> None:
        """Make the file for its first output, and its folder if that is missing."""
        try:
            self.open()
        except FileNotFoundError:
            posix.mkdir(self.path.rpartition(b"/")[0], 0o700)
            self.open()

    def renew(self, fresh: tuple[int, int]) -> int:
        """Use a new pipe, because a process may still hold the old one; return the old one's reading end."""
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
    """A slot runs one attempt at a time."""

    def __init__(self, number: int, folder: bytes, token: bytes) -> None:
        # Released when the thread must run an attempt, or exit.
        self.has_work = allocate_lock()
        self.has_work.acquire()
        self.closed = False
        # Released once the slot's attempt has started. `turn` is the same lock of the slot whose attempt starts first.
        self.has_started = allocate_lock()
        self.turn: LockType | None = None
        # Released when the attempt must not wait any longer for the system to have a free process.
        self.interrupted = allocate_lock()
        # False once the thread has ended.
        self.is_served = True
        self.number = number
        self.folder = folder
        self.token = token
        self.rolls = -1
        # Are its segments in the folder of a profile, so that they are made only when there is output?
        self.moved = False
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
        """Detach the slot from its attempt."""
        self.key = self.line = b""
        # Why the launcher terminates the attempt.
        self.reason = b""
        self.order: Start | None = None
        self.profile: Profile | None = None
        self.pid = 0
        self.started = self.deadline = self.grace_seconds = 0.0
        self.listened = self.has_orphans = self.reaped = False
        self.interrupted.acquire(blocking=False)
        self.usage: tuple[int, float, int, int] = (0, 0.0, 0, 0)
        # The memory limit for all processes of the attempt together (0: none), the measured peak, and its cgroup.
        self.memory_max = self.memory_peak = 0
        self.measured_at = 0.0
        self.cgroup = b""
        self.known: dict[int, int] = {}

    def rewire(self) -> None:
        """Pass the current pipes to the next child, and poll them for output."""
        self.actions = Actions(self.out.writer, self.err.writer)
        self.readable = select.poll()
        self.readable.register(self.out.reader, select.POLLIN)
        self.readable.register(self.err.reader, select.POLLIN)

    def roll(self) -> None:
        """Go on to the next pair of segments; in the folder of a profile, the first output makes them."""
        self.rolls += 1
        self.segment = b"%s-%d-%d" % (self.token, self.number, self.rolls)
        for pipe, ending in ((self.out, b".o"), (self.err, b".e")):
            pipe.use(self.folder + b"/" + self.segment + ending)
            if not self.moved:
                pipe.open()

    def enter(self, folder: bytes) -> None:
        """Write the output of the next attempts to segments in another folder."""
        self.folder = folder
        self.moved = True
        self.roll()

    def release_turn(self) -> None:
        """Let the next slot start its attempt."""
        if self.has_started.locked():
            self.has_started.release()

    def interrupt(self) -> None:
        """Stop the attempt's wait for a free process, now or later."""
        if self.interrupted.locked():
            self.interrupted.release()

    def is_interrupted(self) -> bool:
        """Must the attempt not wait for a free process?"""
        return not self.interrupted.locked()

    def has_output(self) -> bool:
        """Is there output that is not in the segments yet?"""
        return bool(self.readable.poll(0) or self.out.redactor)

    def drain(self) -> None:
        """Move the whole output of the ended attempt to the segments."""
        self.out.finish()
        self.err.finish()

    def renew(self) -> tuple[int, int]:
        """Open new pipes because a process may still write to the old ones; return the reading ends of the old ones."""
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

    def is_full(self) -> bool:
        """Must the slot go on to the next pair of segments, because they are large or have lost output?"""
        if self.out.lost or self.err.lost:
            return True
        return self.out.size > SEGMENT_BYTES_MAX or self.err.size > SEGMENT_BYTES_MAX

    def close(self) -> None:
        """Close everything, and end the slot's thread."""
        self.out.close()
        self.err.close()
        self.closed = True
        if self.has_work.locked():
            self.has_work.release()
