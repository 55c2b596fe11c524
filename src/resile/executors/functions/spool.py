"""The spool of a worker: the calls it began and their results, until an engine has recorded them.

    functions/TOKEN-K.lock       `pid kind boot` of the worker, which holds a lock on it as long as it lives
    functions/TOKEN-K.N.calls    its records: length (4 bytes, little-endian), record, length, record ... 0

The worker writes records to a mapped file: no system call, so a thread that writes one keeps the interpreter's lock.
They outlive the process, not the machine: records of another boot are ignored, because parts may be missing. It writes
the length after its record, so a worker that is killed in between leaves a whole record or none. After a full file it
opens the next one; an engine that has recorded something of file N needs no earlier one. If a function forks, its
children release the locks of their parent.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import Struct

from resile.executors.fence import OPEN
from resile.executors.functions.calls import Record, decode_record
from resile.executors.local.processes import boot_id

FOLDER = "functions"
LOCK_ENDING = ".lock"
CALLS_ENDING = ".calls"
SPOOL_BYTES = 1024 * 1024
_LENGTH = Struct("<I")
_LENGTH_BYTES, _write_length = _LENGTH.size, _LENGTH.pack_into
_locks: set[int] = set()


def _release_locks() -> None:
    """Close the locks in a forked child: they are its parent's."""
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_release_locks)


class Spool:
    """The writing side, owned by one worker."""

    def __init__(self, base: str, kind: str) -> None:
        self._base = base
        self.number = 0
        self._lock = os.open(base + LOCK_ENDING, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(self._lock, f"{os.getpid()} {kind} {boot_id().decode()}\n".encode())
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        _locks.add(self._lock)
        try:
            self._open(SPOOL_BYTES)
        except OSError:
            self.close()
            raise

    def _open(self, size: int) -> None:
        """Open the next file; allocate its space now, because a mapped file can't report that the disk is full."""
        path = f"{self._base}.{self.number + 1}{CALLS_ENDING}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self.number += 1
        self._size = size
        self._place = 0

    def reserve(self, length: int) -> None:
        """Make sure that a record of this length fits into the open file."""
        # A length of zero after the last record ends the file.
        if self._place + length + 2 * _LENGTH_BYTES > self._size:
            self._open(max(SPOOL_BYTES, length + 2 * _LENGTH_BYTES))

    def add(self, record: bytes) -> None:
        """Write one record."""
        length = len(record)
        self.reserve(length)
        start = self._place + _LENGTH_BYTES
        end = start + length
        self._map[start:end] = record
        _write_length(self._map, self._place, length)
        self._place = end

    def close(self) -> None:
        """Release the lock, because the worker ends."""
        if self._lock in _locks:
            _locks.remove(self._lock)
            os.close(self._lock)


def fence_reader(path: str) -> Callable[[], bool]:
    """A function that says whether a newer engine has closed the fence of ours: no system call, as for records."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return lambda: True
    try:
        page = mmap.mmap(descriptor, 1, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    return lambda: page[:] != OPEN


def is_alive(base: str) -> bool:
    """Is the worker with these files alive?"""
    try:
        descriptor = os.open(base + LOCK_ENDING, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def writer_of(base: str) -> tuple[int, str]:
    """The pid and the kind of the worker with these files."""
    words = _lock_words(base)
    return (int(words[0]), words[1]) if len(words) > 1 else (0, "")


def _lock_words(base: str) -> list[str]:
    """The words in the lock of a worker; an older Resile wrote no boot."""
    try:
        with open(base + LOCK_ENDING, encoding="ascii", errors="replace") as file:
            return file.read().split()
    except FileNotFoundError:
        return []


def workers_in(folder: str) -> list[str]:
    """The workers that left files in this folder, by the base of their file names."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name.removesuffix(LOCK_ENDING)) for name in names if name.endswith(LOCK_ENDING)]


def files_of(base: str) -> list[tuple[int, str]]:
    """The spool files of one worker, by number."""
    folder, stem = os.path.split(base)
    found: list[tuple[int, str]] = []
    for name in os.listdir(folder):
        if name.startswith(stem + ".") and name.endswith(CALLS_ENDING):
            number = name[len(stem) + 1 : -len(CALLS_ENDING)]
            found.append((int(number), os.path.join(folder, name)))
    return sorted(found)


def records_of(base: str) -> Iterator[Record]:
    """All records of one worker of this boot, in order."""
    words = _lock_words(base)
    if len(words) < 2 or words[2:] not in ([], [boot_id().decode()]):
        return
    for _, path in files_of(base):
        with open(path, "rb") as file:
            data = file.read()
        place = 0
        while place + _LENGTH.size <= len(data):
            (length,) = _LENGTH.unpack_from(data, place)
            if not length:
                break
            place += _LENGTH.size
            yield decode_record(data[place : place + length])
            place += length


def forget(base: str, below: int | None = None) -> None:
    """Remove the files numbered below `below`; without it all of them, the lock and empty output files."""
    for number, path in files_of(base):
        if below is None or number < below:
            _unlink(path)
    if below is None:
        _unlink(base + LOCK_ENDING)
        for ending in (".o", ".e"):
            if os.path.exists(base + ending) and not os.path.getsize(base + ending):
                _unlink(base + ending)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data."""
    while data:
        data = data[os.write(descriptor, data) :]


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
