"""Encodes and decodes the messages between the engine and its launcher, and the lines of the launcher's spool.

Engine to launcher: frames. A frame is a length of four bytes, big-endian, and fields separated by NULs, which neither
arguments nor environment can contain:

    C number fence token folder slots offset directory nsecrets secret-in-hex... NAME=value...
                       settings that all attempts share; the first frame of every connection
    P profile fence folder directory nsecrets secret-in-hex... NAME=value...
                       settings that the attempts of one run share, in a launcher of many runs (launcher/profiles.py)
    Q profile          forget these settings
    S job attempt timeout[ memory] grace cwd nargv nfallback after argv... fallback... NAME=value...
    K job attempt [grace]  end it: SIGTERM, grace, SIGKILL; a queued one is withdrawn
    D                  withdraw everything queued
    A bytes last       the engine has recorded this many bytes of the lines of this connection; 1: nothing more is open
    T                  kill everything and exit

The launcher serves the engine with the greatest `number`, and looks at its `fence` before each start (fence.py).
`after` names attempts as `job attempt,job attempt`: this one waits for all of them (start_after.py). The upper bits of
an attempt's job number are its profile; profile 0 has the settings of the first frame.

Launcher to engine, and launcher to spool: lines of words.

    H version token pid born boot label     the launcher that writes the spool; the first line (recovery.py)
    B job attempt                           it is about to start
    S job attempt at pid born segment out err
    E job attempt started at status cpu rss segment out outlen err errlen reason errno stage oom
    W job attempt at                        it never starts
    L job attempt at                        it had begun, and how it ended is unknown
    C                                       lines before this one were dropped, because an engine has recorded them
    R                                       end of the greeting: an engine that connects first receives the whole spool

`-` is an empty word. Inside the launcher the key of an attempt, the words `job attempt`, identifies it.

Runs inside the launcher, so only built-in modules are imported at the top.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from resile.executors.contract import Ended, Launch, Lost, Started, Withdrawn
    from resile.model.failure import LogRange

VERSION = 1
LENGTH_BYTES = 4
FRAME_BYTES_MAX = 64 * 1024 * 1024
# The folder for the launcher's files in the folder of an epoch; the names of segments in log ranges begin with it.
FOLDER = "launcher"

CONFIGURE, START, KILL, DRAIN, ACKNOWLEDGE, TERMINATE = b"C", b"S", b"K", b"D", b"A", b"T"
DEFINE, FORGET = b"P", b"Q"
# A job's number in the launcher: this many lower bits are its number in its own run, the upper bits its profile.
JOB_BITS = 32
HEADER, BEGINS, STARTED, ENDED, WITHDRAWN, LOST, GREETING_ENDS = b"H", b"B", b"S", b"E", b"W", b"L", b"R"
GREETING_END = GREETING_ENDS + b"\n"
COMPACTED = b"C"
ABOUT_ATTEMPTS = frozenset((BEGINS, STARTED, ENDED, WITHDRAWN, LOST))
_NONE = b"-"
# The words in an E line of an old launcher, which did not count the bytes that attempts read and wrote.
_ENDED_WORDS = 17
_OF_STARTS = (BEGINS + b" ", STARTED + b" ")


def key_of(job: int, attempt: int) -> bytes:
    """The key of an attempt."""
    return b"%d %d" % (job, attempt)


class Start:
    """One attempt that the launcher must start, from the fields of a START frame.

    `env` holds `NAME=value`, `after` holds keys.
    """

    __slots__ = (
        "after",
        "argv",
        "cwd",
        "env",
        "fallback",
        "grace_seconds",
        "key",
        "memory_bytes",
        "profile",
        "timeout_seconds",
    )

    def __init__(self, fields: list[bytes]) -> None:
        _, job, attempt, timeout, grace, self.cwd, argv_count, fallback_count, after, *rest = fields
        first = int(argv_count)
        second = first + int(fallback_count)
        number = int(job)
        self.key = key_of(number, int(attempt))
        self.profile = number >> JOB_BITS
        timeout, _, memory = timeout.partition(b" ")
        self.timeout_seconds = float(timeout)
        self.memory_bytes = int(memory or 0)
        self.grace_seconds = float(grace)
        self.after = after.split(b",") if after else []
        self.argv, self.fallback, self.env = rest[:first], rest[first:second], rest[second:]


# --- frames, written by the engine


def frame(*fields: bytes) -> bytes:
    """One frame: its length and its fields."""
    body = b"\0".join(fields)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def configure_frame(
    number: int,
    fence: bytes,
    token: bytes,
    folder: bytes,
    slots: int,
    offset: float,
    directory: bytes,
    secrets: Iterable[bytes],
    env: list[bytes],
) -> bytes:
    """The first frame of a connection; a launcher takes `token` and `folder` from its first engine only."""
    hidden = [secret.hex().encode() for secret in secrets]
    own = (b"%d" % number, fence, token, folder, b"%d" % slots, b"%.6f" % offset, directory)
    return frame(CONFIGURE, *own, b"%d" % len(hidden), *hidden, *env)


def profile_frame(
    profile: int, fence: bytes, folder: bytes, directory: bytes, secrets: Iterable[bytes], env: list[bytes]
) -> bytes:
    """The frame that defines a profile; `folder` is the folder of its segments."""
    hidden = [secret.hex().encode() for secret in secrets]
    return frame(DEFINE, b"%d" % profile, fence, folder, directory, b"%d" % len(hidden), *hidden, *env)


def forget_frame(profile: int) -> bytes:
    """The frame after which no attempt with this profile starts."""
    return frame(FORGET, b"%d" % profile)


def start_frame(launch: Launch) -> bytes | None:
    """The frame that starts an attempt; None if a field holds a NUL, which would split it in two."""
    limits = b"%.6f" % launch.timeout_seconds
    if launch.memory_bytes:
        limits += b" %d" % launch.memory_bytes
    fields = [
        START,
        b"%d" % launch.job,
        b"%d" % launch.attempt,
        limits,
        b"%.6f" % launch.grace_seconds,
        launch.cwd,
        b"%d" % len(launch.argv),
        b"%d" % len(launch.fallback),
        b",".join([key_of(*other) for other in launch.after]),
        *launch.argv,
        *launch.fallback,
    ]
    if launch.env:
        fields += [name + b"=" + value for name, value in launch.env]
    whole = frame(*fields)
    return whole if whole.count(b"\0", LENGTH_BYTES) == len(fields) - 1 else None


def kill_frame(job: int, attempt: int, grace_seconds: float | None = None) -> bytes:
    """The frame that ends or withdraws an attempt; `grace_seconds` replaces the attempt's own grace."""
    grace = [] if grace_seconds is None else [b"%.6f" % grace_seconds]
    return frame(KILL, b"%d" % job, b"%d" % attempt, *grace)


def acknowledge_frame(count: int, last: bool = False) -> bytes:
    """The frame that lets the launcher drop the first `count` bytes of this connection's lines.

    After the `last` one the launcher removes its spool: the log has no open attempt.
    """
    return frame(ACKNOWLEDGE, b"%d" % count, b"%d" % last)


# --- frames, read by the launcher; the functions raise ValueError or IndexError if a frame is malformed


def take_frames(inbox: bytearray) -> Iterator[list[bytes]]:
    """Take the fields of every complete frame out of the inbox, which keeps the rest."""
    at = 0
    while len(inbox) - at >= LENGTH_BYTES:
        body = at + LENGTH_BYTES
        length = int.from_bytes(inbox[at:body], "big")
        if length > FRAME_BYTES_MAX:
            raise ValueError
        if len(inbox) < body + length:
            break
        at = body + length
        yield bytes(inbox[body:at]).split(b"\0")
    del inbox[:at]


class Configuration:
    """The arguments of `configure_frame`, from the fields of a CONFIGURE frame."""

    __slots__ = ("directory", "env", "fence", "folder", "number", "offset", "secrets", "slots", "token")

    def __init__(self, fields: list[bytes]) -> None:
        kind, number, self.fence, self.token, self.folder, slots, offset, self.directory, count, *rest = fields
        if kind != CONFIGURE:
            raise ValueError
        self.number = int(number)
        self.slots = int(slots)
        self.offset = float(offset)
        self.secrets = [bytes.fromhex(field.decode()) for field in rest[: int(count)]]
        self.env = rest[int(count) :]


class ProfileFields:
    """The arguments of `profile_frame`, from the fields of a DEFINE frame."""

    __slots__ = ("directory", "env", "fence", "folder", "profile", "secrets")

    def __init__(self, fields: list[bytes]) -> None:
        _, profile, self.fence, self.folder, self.directory, count, *rest = fields
        self.profile = int(profile)
        self.secrets = [bytes.fromhex(field.decode()) for field in rest[: int(count)]]
        self.env = rest[int(count) :]


def decode_key(fields: list[bytes]) -> bytes:
    """The attempt that a KILL frame names."""
    return key_of(int(fields[1]), int(fields[2]))


def decode_grace(fields: list[bytes]) -> float | None:
    """The grace in a KILL frame, if it has one."""
    return float(fields[3]) if len(fields) > 3 else None


def decode_acknowledgement(fields: list[bytes]) -> tuple[int, bool]:
    """The bytes that an ACKNOWLEDGE frame counts, and whether it is the last one."""
    return int(fields[1]), fields[2:] == [b"1"]


# --- lines, written by the launcher


def begins_line(key: bytes) -> bytes:
    """The line of an attempt that is about to start."""
    return b"B %s\n" % key


def started_line(key: bytes, at: float, pid: int, born: float, segment: bytes, out: int, err: int) -> bytes:
    """The line of an attempt that runs since `at`; `born` is the same moment by the clock that counts from the boot."""
    return b"S %s %.6f %d %.2f %s %d %d\n" % (key, at, pid, born, segment, out, err)


def ended_line(
    key: bytes,
    started_at: float,
    at: float,
    usage: tuple[int, float, int, int],
    log: tuple[bytes, int, int, int, int],
    reason: bytes,
    output_errno: int,
    oom_kills: int,
) -> bytes:
    """The line of an attempt that is over.

    `usage` is wait status, CPU seconds, bytes of memory, bytes read and written. `log` is the segment, then offset and
    length of each stream. `reason` says why the launcher terminated the attempt, `output_errno` why its output could
    not be written.
    """
    stage = b"output" if output_errno else _NONE
    status, cpu_seconds, rss_bytes_max, io_bytes = usage
    measured = (status, cpu_seconds, rss_bytes_max)
    numbers = (*measured, *log, reason or _NONE, output_errno, stage, oom_kills, io_bytes)
    return b"E %s %.6f %.6f %d %.6f %d %s %d %d %d %d %s %d %s %d %d\n" % (key, started_at, at, *numbers)


def refused_line(key: bytes, at: float, errno: int, stage: bytes) -> bytes:
    """The line of an attempt that could not be started."""
    return b"E %s %.6f %.6f 0 0 0 - 0 0 0 0 - %d %s 0\n" % (key, at, at, errno, stage)


def withdrawn_line(key: bytes, at: float) -> bytes:
    """The line of an attempt that never starts."""
    return b"W %s %.6f\n" % (key, at)


def lost_line(key: bytes, at: float) -> bytes:
    """The line of an attempt whose end the launcher could not see."""
    return b"L %s %.6f\n" % (key, at)


def is_of_start(line: bytes) -> bool:
    """Is this a line about the start of an attempt?"""
    return line.startswith(_OF_STARTS)


# --- lines, read by the engine; the launcher must not load the classes of reports, so the functions import them


def decode_attempt(words: list[bytes]) -> tuple[int, int]:
    """Job and attempt number of a line."""
    return int(words[1]), int(words[2])


def decode_pid(words: list[bytes]) -> int:
    """The process of an S line."""
    return int(words[4])


def decode_born(words: list[bytes]) -> float:
    """The time, in seconds since the boot, at which the process of an S line was spawned."""
    return float(words[5])


def read_started(words: list[bytes]) -> Started:
    """The report of an S line."""
    from resile.executors.contract import Started

    _, job, attempt, at, pid, _, segment, out, err = words
    return Started(int(job), int(attempt), float(at), int(pid), _log_range(segment, out, b"0", err, b"0"))


def read_ended(words: list[bytes], pid: int = 0) -> Ended:
    """The report of an E line; `pid` is set if it also covers the start."""
    from resile.executors.contract import Ended

    # An older launcher, which may still run, does not count the bytes read and written.
    words = words if len(words) > _ENDED_WORDS else [*words, b"0"]
    _, job, attempt, started, at, status, cpu, rss, *log, reason, errno, stage, oom, io_bytes = words
    return Ended(
        int(job),
        int(attempt),
        float(started),
        float(at),
        int(status),
        float(cpu),
        int(rss),
        _log_range(*log),
        "" if reason == _NONE else reason.decode(),
        int(errno),
        "" if stage == _NONE else stage.decode(),
        int(oom),
        pid,
        int(io_bytes),
    )


def read_withdrawn(words: list[bytes]) -> Withdrawn:
    """The report of a W line."""
    from resile.executors.contract import Withdrawn

    return Withdrawn(int(words[1]), int(words[2]), float(words[3]))


def read_end(words: list[bytes]) -> Ended | Withdrawn | Lost:
    """The report of a line that is the last one about an attempt."""
    from resile.executors.contract import Lost

    if words[0] == LOST:
        return Lost(int(words[1]), int(words[2]), float(words[3]), "the launcher's thread that watched it died")
    return read_ended(words) if words[0] == ENDED else read_withdrawn(words)


def _log_range(segment: bytes, out: bytes, out_length: bytes, err: bytes, err_length: bytes) -> LogRange:
    """The position of an attempt's output, from the words of a line."""
    from resile.model.failure import LogRange

    place = "" if segment == _NONE else f"{FOLDER}/{segment.decode()}"
    return LogRange(place, int(out), int(out_length), int(err), int(err_length))
