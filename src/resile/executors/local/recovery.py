"""Recovery from a launcher's death: the reading side of the spool (wire.py has its lines).

If a launcher was killed, its spool may end in half a line, which it sent to no engine; the reader ignores that. After a
power cut the spool may be gone or short, or contain damaged lines, which the reader ignores too.
"""

from __future__ import annotations

import os
import stat
import time

from msgspec import Struct
from msgspec.structs import astuple, replace

from resile.executors.contract import Ended, Lost, Started, Withdrawn
from resile.executors.local import processes, wire
from resile.executors.local.spool import HEADER_WORDS, INCOMPLETE_MODE, LENGTH_DIGITS

Key = tuple[int, int]
_HEADER = (wire.HEADER.decode(), str(wire.VERSION))


class Author(Struct, frozen=True):
    """The launcher that writes a spool: its process, identified by start and boot, and the label of its run."""

    token: str
    pid: int
    start_ticks: int
    boot: str
    label: str


class SpooledAttempt(Struct):
    """The lines of a spool about one attempt; `born` is the boot time at which its leader was spawned.

    In the launcher of a server, the job number of the attempt has this `profile` in its upper bits.
    """

    author: Author
    started: Started | None = None
    born: float = 0.0
    end: Ended | Withdrawn | Lost | None = None
    profile: int = 0


def renumber(spooled: SpooledAttempt, job: int, profile: int) -> SpooledAttempt:
    """The records of an attempt in a server's launcher, with the number that its job has in its own run."""
    started = None if spooled.started is None else replace(spooled.started, job=job)
    end = None if spooled.end is None else replace(spooled.end, job=job)
    return SpooledAttempt(spooled.author, started, spooled.born, end, profile)


def header_line(author: Author, more_bytes: int = 0) -> bytes:
    """The first line of a spool with so many bytes after it; the engine writes it."""
    words = " ".join(map(str, (*_HEADER, *astuple(author)))).encode()
    length = len(words) + 1 + LENGTH_DIGITS + 1
    return b"%s %0*d\n" % (words, LENGTH_DIGITS, length + more_bytes)


def decode_author(line: bytes) -> Author | None:
    """The author in the first line of a spool; None if the line is of another version or incomplete."""
    words = line.decode("ascii", "replace").split()
    # The spools of nodes, and of earlier versions, have no length.
    if len(words) not in (HEADER_WORDS - 1, HEADER_WORDS) or tuple(words[:2]) != _HEADER:
        return None
    token, pid, start_ticks, boot, label = words[2 : HEADER_WORDS - 1]
    if not (pid.isdigit() and start_ticks.isdigit()):
        return None
    return Author(token, int(pid), int(start_ticks), boot, label)


def is_alive(author: Author) -> bool:
    """Does the launcher that wrote a spool still run? Another process with its pid does not count."""
    entry = processes.read_process(author.pid) if author.boot == processes.boot_id().decode() else None
    return entry is not None and entry.alive and entry.start_ticks == author.start_ticks


def end(author: Author) -> None:
    """Kill the launcher that wrote a spool, if it still runs, and wait until it is gone."""
    entry = processes.read_process(author.pid)
    if entry is not None and is_alive(author):
        processes.kill_all([entry], time.monotonic() + processes.KILL_SECONDS_MAX)


def tag_of(author: Author, key: Key, profile: int = 0) -> bytes:
    """The tag of an attempt that this launcher started."""
    return processes.attempt_tag(author.token.encode(), wire.key_of(profile << wire.JOB_BITS | key[0], key[1]))


def fold(lines: list[bytes], author: Author, spooled: dict[Key, SpooledAttempt]) -> None:
    """Apply these lines to the known state of each attempt."""
    for line in lines:
        words = line.split()
        if not words or words[0] not in wire.ABOUT_ATTEMPTS:
            continue
        try:
            _fold_line(words, author, spooled)
        except (ValueError, IndexError, TypeError):
            # A part of a line, or old data of the disk.
            continue


def _fold_line(words: list[bytes], author: Author, spooled: dict[Key, SpooledAttempt]) -> None:
    """Apply the words of one line; raises ValueError, IndexError or TypeError if it is damaged."""
    kind, key = words[0], wire.decode_attempt(words)
    if kind == wire.BEGINS:
        spooled[key] = SpooledAttempt(author)
    elif kind == wire.STARTED:
        spooled[key] = SpooledAttempt(author, wire.read_started(words), wire.decode_born(words))
    else:
        end = wire.read_end(words)
        spooled.setdefault(key, SpooledAttempt(author)).end = end


def read_spool(path: str) -> tuple[Author | None, list[bytes]]:
    """The author of a spool and its complete lines; no author if the file is gone or is no spool."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return None, []
    return (decode_author(lines[0]), lines[1:]) if lines else (None, [])


def has_all_lines(path: str, lines: list[bytes]) -> bool:
    """Must this spool have every line of its launcher? Not if the launcher compacted it, or the disk was full."""
    try:
        return wire.COMPACTED not in lines and stat.S_IMODE(os.stat(path).st_mode) != INCOMPLETE_MODE
    except FileNotFoundError:
        return False


def is_cut(path: str) -> bool:
    """Is a spool shorter than its launcher knew it to be?"""
    try:
        with open(path, "rb") as file:
            words = file.readline().split()
            return (
                len(words) == HEADER_WORDS and words[-1].isdigit() and os.fstat(file.fileno()).st_size < int(words[-1])
            )
    except FileNotFoundError:
        return False


def find_end(path: str, job: int, attempt: int) -> Ended | None:
    """The end of an attempt, if the launcher has already written it to this spool."""
    _, lines = read_spool(path)
    beginning = b"%s %s " % (wire.ENDED, wire.key_of(job, attempt))
    # In a checked spool a line ends with a checksum.
    found = (line.partition(b" #")[0] for line in lines if line.startswith(beginning))
    return next((wire.read_ended(line.split()) for line in found), None)
