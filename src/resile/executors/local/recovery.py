"""What launchers left behind: the reading side of the spool (spool.py says what its lines are).

A spool may end in half a line when its launcher was killed; that line was never told to anybody and does not
count.
"""

from __future__ import annotations

from msgspec import Struct

from resile.executors.contract import Ended, Started, Withdrawn
from resile.executors.local import processes
from resile.executors.local.spool import VERSION
from resile.model.failure import LogRange

FOLDER = "launcher"
Key = tuple[int, int]


class Author(Struct, frozen=True):
    """The launcher that wrote a spool."""

    token: str
    pid: int
    start_ticks: int
    boot: str
    label: str

    def lives(self) -> bool:
        """Is that very process still there?"""
        entry = processes.process(self.pid) if self.boot == processes.boot_id().decode() else None
        return entry is not None and entry.alive and entry.start_ticks == self.start_ticks

    def mark(self, key: Key) -> bytes:
        """The mark of an attempt that this launcher started."""
        return f"{self.token}:{key[0]}:{key[1]}".encode()


class Past(Struct):
    """What a spool says about one attempt; `born` is the boot time at which its leader was spawned."""

    author: Author
    started: Started | None = None
    born: float = 0.0
    over: Ended | Withdrawn | None = None


def parse_author(line: bytes) -> Author | None:
    """The first line of a spool; nothing where it is of another version or cut off."""
    fields = line.decode().split()
    if len(fields) != 7 or fields[0] != "H" or fields[1] != str(VERSION):
        return None
    return Author(fields[2], int(fields[3]), int(fields[4]), fields[5], fields[6])


def parse_started(fields: list[bytes]) -> Started:
    """`S job attempt at pid born segment out err`."""
    log = LogRange(f"{FOLDER}/{fields[6].decode()}", int(fields[7]), 0, int(fields[8]), 0)
    return Started(int(fields[1]), int(fields[2]), float(fields[3]), int(fields[4]), log)


def parse_ended(fields: list[bytes], pid: int = 0) -> Ended:
    """`E job attempt started at status cpu rss segment out outlen err errlen cut errno stage oom`."""
    _, job, attempt, started, at, status, cpu, rss, segment, out, outlen, err, errlen, cut, errno, stage, oom = fields
    place = "" if segment == b"-" else f"{FOLDER}/{segment.decode()}"
    return Ended(
        int(job),
        int(attempt),
        float(started),
        float(at),
        int(status),
        float(cpu),
        int(rss),
        LogRange(place, int(out), int(outlen), int(err), int(errlen)),
        "" if cut == b"-" else cut.decode(),
        int(errno),
        "" if stage == b"-" else stage.decode(),
        int(oom),
        pid,
    )


def parse_withdrawn(fields: list[bytes]) -> Withdrawn:
    """`W job attempt at`."""
    return Withdrawn(int(fields[1]), int(fields[2]), float(fields[3]))


def fold(lines: list[bytes], author: Author, past: dict[Key, Past]) -> None:
    """Add what these lines say."""
    for line in lines:
        fields = line.split()
        if not fields or fields[0] not in (b"B", b"S", b"E", b"W"):
            continue
        key = (int(fields[1]), int(fields[2]))
        if fields[0] == b"B":
            past[key] = Past(author)
        elif fields[0] == b"S":
            past[key] = Past(author, parse_started(fields), float(fields[5]))
        else:
            entry = past.setdefault(key, Past(author))
            entry.over = parse_ended(fields) if fields[0] == b"E" else parse_withdrawn(fields)


def read_spool(path: str) -> tuple[Author | None, list[bytes]]:
    """A spool's author and its complete lines; no author where the file is gone or is no spool."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return None, []
    return (parse_author(lines[0]), lines[1:]) if lines else (None, [])
