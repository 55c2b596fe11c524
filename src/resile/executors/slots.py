"""One slot of the launcher: two pipes, two segment files, and the attempt that runs in it.

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
from _signal import SIGPIPE, SIGXFSZ
from errno import EACCES, EINVAL, ENOENT, ENOEXEC, ENOTDIR

from resile.executors.processes import MARK
from resile.executors.redact import Stream

READ_BYTES = 64 * 1024
DRAIN_READS_MAX = 64
SEGMENT_BYTES_MAX = 64 * 1024 * 1024
# Python ignores these two, and what is ignored stays ignored across exec.
_DEFAULT_SIGNALS = (SIGPIPE, SIGXFSZ)
_NOT_EXECUTABLE = (ENOENT, EACCES, ENOEXEC, ENOTDIR)
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
        "cut",
        "deadline",
        "err",
        "folder",
        "grace_seconds",
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
        "usage",
        "watched",
    )

    def __init__(self, number: int, folder: bytes, token: bytes) -> None:
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
        self.pid = 0
        self.started = self.started_at = self.deadline = self.grace_seconds = 0.0
        self.watched = self.suspect = self.reaped = False
        self.usage: tuple[int, float, int] = (0, 0.0, 0)
        self.known: dict[int, int] = {}

    def rewire(self) -> None:
        """The pipes are new: what a child does with them, and how to ask whether they hold anything."""
        self.actions = (
            (posix.POSIX_SPAWN_DUP2, self.out.writer, 1),
            (posix.POSIX_SPAWN_DUP2, self.err.writer, 2),
        )
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
        """Close everything."""
        self.out.close()
        self.err.close()


class Spawner:
    """Starts processes with the run's environment, in its directory."""

    __slots__ = ("directory", "environment", "home", "mark", "path")

    def __init__(self) -> None:
        self.environment: dict[bytes, bytes] = {}
        self.directory = b"/"
        self.mark = b""
        self.path = b""
        self.home = -1

    def configure(self, mark: bytes, directory: bytes, pairs: list[bytes]) -> None:
        """What all attempts have in common."""
        self.mark = mark
        self.environment = parse_environment(pairs)
        self.path = self.environment.get(b"PATH", b"/bin:/usr/bin")
        posix.putenv(b"PATH", self.path)
        self.directory = directory
        if self.home >= 0:
            posix.close(self.home)
            self.home = -1
        self.go_home()

    def go_home(self) -> int:
        """Be in the run's directory; an errno where that can't be."""
        try:
            if self.home < 0:
                self.home = posix.open(self.directory, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
            posix.chdir(self.home)
        except OSError as error:
            return error.errno or ENOENT
        return 0

    def spawn(self, slot: Slot, fields: list[bytes]) -> tuple[int, int, bytes]:
        """Start the attempt of a START frame: its pid, or 0 with the errno and the stage that failed."""
        cwd = fields[5]
        if self.home < 0 and (errno := self.go_home()):
            return 0, errno, b"cwd"
        if not cwd:
            return self.execute(slot, fields)
        try:
            posix.chdir(cwd)
        except (OSError, ValueError) as error:
            return 0, getattr(error, "errno", EINVAL) or EINVAL, b"cwd"
        try:
            return self.execute(slot, fields)
        finally:
            self.go_home()

    def execute(self, slot: Slot, fields: list[bytes]) -> tuple[int, int, bytes]:
        """Execute argv, or the fallback where argv's program can't be."""
        first = 9 + int(fields[6])
        second = first + int(fields[7])
        argv, fallback, pairs = fields[9:first], fields[first:second], fields[second:]
        environment = self.environment
        if pairs:
            environment = environment.copy()
            environment.update(parse_environment(pairs))
        environment[MARK] = b"%s:%s:%s" % (self.mark, fields[1], fields[2])
        path = environment.get(b"PATH", self.path)
        if path != self.path:
            # posix_spawnp looks in the path of this process, the attempt means its own.
            posix.putenv(b"PATH", path)
        try:
            pid, errno = try_spawn(argv, environment, slot)
            if errno in _NOT_EXECUTABLE and fallback:
                pid, errno = try_spawn(fallback, environment, slot)
        finally:
            if path != self.path:
                posix.putenv(b"PATH", self.path)
        return pid, errno, b"exec" if errno else b"-"


def try_spawn(argv: list[bytes], environment: dict[bytes, bytes], slot: Slot) -> tuple[int, int]:
    """One posix_spawn in a session of its own: the pid, or an errno."""
    try:
        pid = posix.posix_spawnp(
            argv[0],
            argv,
            environment,
            file_actions=slot.actions,
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
        )
    except OSError as error:
        return 0, error.errno or EINVAL
    except (ValueError, IndexError):
        return 0, EINVAL
    return pid, 0


def parse_environment(pairs: list[bytes]) -> dict[bytes, bytes]:
    """`NAME=value` texts as a dictionary; the last of a name counts."""
    environment = {}
    for pair in pairs:
        name, _, value = pair.partition(b"=")
        if name:
            environment[name] = value
    return environment
