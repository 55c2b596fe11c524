"""What a worker holds, in its folder, so that it outlives its own restart.

DIR/lock, id, engine-N.fence, launcher/      one worker at a time; its id; its launcher
DIR/mark                                     by what a server knows the folder that the worker shares with it
DIR/claims/journal                           attempts that it holds, from before they start until their end is recorded:
                                             a line for each change; the last line about a token counts
DIR/profiles/N/launcher/                     the output of the attempts of one run
DIR/files/TOKEN/                             files of an attempt
DIR/runs/N/                                  where the steps of run N run, if the server made a folder for it
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from resile.errors import ResileError
from resile.executors.local.shared_records import widen
from resile.executors.worker.messages import End, Start
from resile.executors.worker.shared_folder import drop_empty
from resile.model.failure import LogRange
from resile.model.folders import make_folder

CLAIMS, PROFILES, FILES, RUNS = "claims", "profiles", "files", "runs"
# A journal that is longer begins again with what is held.
JOURNAL_BYTES_MAX = 1024 * 1024


class Entry(Struct):
    """One attempt that the worker holds; `profile` and `number` are those of its job in the launcher."""

    token: str
    profile: int
    number: int
    memory_bytes: int = 0
    log: LogRange | None = None
    start: Start | None = None
    end: End | None = None
    # Its folder in the output that the server sees too; empty where output is sent.
    shared: str = ""
    # What the server has: the start, output up to these offsets, and the end, at this time.
    is_start_sent: bool = False
    sent: dict[str, int] = {}
    end_sent_at: float = 0.0
    # Why the worker ends it: the server wants that, it is the server's no more, or the worker stops.
    is_killed: bool = False
    is_gone: bool = False
    is_stopped: bool = False

    @property
    def job(self) -> int:
        """The number of its job in the launcher."""
        return widen(self.profile, self.number)


class Kept(Struct, tag="kept"):
    """An attempt that the worker holds, in the journal."""

    token: str
    profile: int
    number: int
    memory_bytes: int
    log: LogRange | None
    start: Start | None
    end: End | None
    shared: str = ""


class Dropped(Struct, tag="dropped"):
    """An attempt that the worker holds no more, in the journal."""

    token: str


class Book:
    """The folder of a worker, and what is written in it."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)
        for name in (CLAIMS, PROFILES, FILES, RUNS):
            make_folder(os.path.join(self.folder, name))
        self._lock = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            message = "another worker uses this folder"
            raise ResileError(
                "folder-in-use", message, where=self.folder, hint="name another with --directory"
            ) from None
        self.entries: dict[str, Entry] = {}
        self._journal_path = os.path.join(self.folder, CLAIMS, "journal")
        self._journal, self._journal_bytes = -1, 0
        self._read_journal()
        self._begin_journal()

    def read_id(self) -> str:
        """The id that the worker had before; empty for a new one."""
        return self._read("id")

    def read_mark(self) -> str:
        """By what a server knows the folder that the worker shares with it; the same for all workers in this folder."""
        mark = self._read("mark")
        if not mark:
            mark = os.urandom(16).hex()
            self._write(os.path.join(self.folder, "mark"), mark.encode())
        return mark

    def _read(self, name: str) -> str:
        """A word that an earlier worker kept in this folder; empty where there is none."""
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def write_id(self, number: str) -> None:
        """Keep the id of the worker."""
        self._write(os.path.join(self.folder, "id"), number.encode())

    def keep(self, entries: Sequence[Entry]) -> None:
        """Write attempts down: before they start, and when they end."""
        for entry in entries:
            if not entry.token.isalnum():
                raise ResileError("bad-answer", "the server gave an attempt a token that is none")
            self.entries[entry.token] = entry
        if entries:
            self._append([_line_of(entry) for entry in entries])

    def drop(self, entry: Entry) -> None:
        """Forget an attempt: its end is recorded, or it was never the worker's."""
        if self.entries.pop(entry.token, None) is not None:
            # Without it, on a full disk, the next worker here tells of the end once more.
            with suppress(OSError):
                self._append([Dropped(entry.token)])
        self.drop_files(entry.token)
        if entry.shared:
            drop_empty(entry.shared)

    def _read_journal(self) -> None:
        """Know what an earlier worker in this folder held; a line that was not written whole was not acted on."""
        try:
            with open(self._journal_path, "rb") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            with suppress(msgspec.MsgspecError):
                told = _LINES.decode(line)
                if isinstance(told, Dropped):
                    self.entries.pop(told.token, None)
                else:
                    self.entries[told.token] = Entry(**msgspec.structs.asdict(told))

    def _begin_journal(self) -> None:
        """Begin a journal with what is held now; the one before is there until this one is whole."""
        data = _encode([_line_of(entry) for entry in self.entries.values()])
        self._write(self._journal_path, data)
        if self._journal >= 0:
            os.close(self._journal)
        self._journal = os.open(self._journal_path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._journal_bytes = len(data)

    def _append(self, told: Sequence[Kept | Dropped]) -> None:
        """Write lines to the journal; one that has become long begins again."""
        # Each line begins with its own end of the line before, which the disk may have had no room for.
        data = b"\n" + _encode(told)
        if os.write(self._journal, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._journal_path)
        self._journal_bytes += len(data)
        if self._journal_bytes > JOURNAL_BYTES_MAX:
            self._begin_journal()
            # What is held may be as long.
            self._journal_bytes = min(self._journal_bytes, JOURNAL_BYTES_MAX // 2)

    def write_file(self, token: str, number: int, content: bytes) -> bytes:
        """Write a file of an attempt; its path."""
        folder = os.path.join(self.folder, FILES, token)
        make_folder(folder)
        path = os.path.join(folder, str(number))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        return os.fsencode(path)

    def drop_files(self, token: str) -> None:
        """Remove the files of an attempt: they may hold values."""
        folder = os.path.join(self.folder, FILES, token)
        if os.path.isdir(folder):
            shutil.rmtree(folder, ignore_errors=True)

    def profile_folder(self, profile: int) -> str:
        """The folder of the output of a run's attempts."""
        return os.path.join(self.folder, PROFILES, str(profile))

    def output_folder(self, entry: Entry) -> str:
        """The folder of the output of an attempt."""
        return entry.shared or self.profile_folder(entry.profile)

    def run_folder(self, run: int) -> str:
        """Where the steps of a run run that has no other folder here."""
        folder = os.path.join(self.folder, RUNS, str(run))
        make_folder(folder)
        return folder

    def drop_profiles(self, kept: set[int]) -> None:
        """Remove the output of runs of which the worker holds nothing."""
        for name in os.listdir(os.path.join(self.folder, PROFILES)):
            if name.isdigit() and int(name) not in kept:
                shutil.rmtree(self.profile_folder(int(name)), ignore_errors=True)

    def close(self) -> None:
        """Leave the folder to the next worker."""
        os.close(self._journal)
        os.close(self._lock)

    def _write(self, path: str, data: bytes) -> None:
        """Write a file so that a reader sees all of it or none."""
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(f"{path}.new", path)


_LINES = msgspec.json.Decoder(Kept | Dropped)


def _line_of(entry: Entry) -> Kept:
    """An attempt as the journal has it."""
    numbers = entry.token, entry.profile, entry.number, entry.memory_bytes
    return Kept(*numbers, entry.log, entry.start, entry.end, entry.shared)


def _encode(told: Sequence[Kept | Dropped]) -> bytes:
    """Lines of the journal."""
    return b"".join(msgspec.json.encode(one) + b"\n" for one in told)
