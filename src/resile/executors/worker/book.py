"""The folder of a worker: it records the attempts that the worker holds, so that a restarted worker goes on with them.

DIR/lock, id, engine-N.fence, launcher/      the lock lets one worker at a time in; its id; its launcher
DIR/mark                                     identifies the worker's shared output folder to servers
DIR/claims/journal                           the attempts that the worker holds, from before they start until the server
                                             has recorded their end: a line for each change; the last line of a token
                                             counts
DIR/profiles/N/launcher/                     the output of the attempts of one run
DIR/files/TOKEN/                             the files that came with an attempt
DIR/runs/N/                                  the working directory of run N, if the server's is missing on this machine
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
# The worker replaces a longer journal by a new one, which has only the attempts that it still holds.
JOURNAL_BYTES_MAX = 1024 * 1024


class Entry(Struct):
    """One attempt that the worker holds; the launcher knows its job by `profile` and `number`."""

    token: str
    profile: int
    number: int
    memory_bytes: int = 0
    log: LogRange | None = None
    start: Start | None = None
    end: End | None = None
    # Its folder in the shared output; empty if the worker sends the output to the server.
    shared: str = ""
    # What the worker has sent: the start; output up to these offsets; the end, at this time (0: not sent).
    is_start_sent: bool = False
    sent: dict[str, int] = {}
    end_sent_at: float = 0.0
    # Why the worker ends it: the server ordered it, it no longer belongs to this worker, or this worker stops.
    is_killed: bool = False
    is_gone: bool = False
    is_stopped: bool = False

    @property
    def job(self) -> int:
        """The number by which the launcher knows its job."""
        return widen(self.profile, self.number)


class Kept(Struct, tag="kept"):
    """A line of the journal: the worker holds this attempt."""

    token: str
    profile: int
    number: int
    memory_bytes: int
    log: LogRange | None
    start: Start | None
    end: End | None
    shared: str = ""


class Dropped(Struct, tag="dropped"):
    """A line of the journal: the worker no longer holds this attempt."""

    token: str


class Book:
    """Reads and writes the folder of a worker, and locks it."""

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
        """Return the id that the server gave an earlier worker in this folder; empty for a new folder."""
        return self._read("id")

    def read_mark(self) -> str:
        """Return the mark of the worker's shared output, the same for all workers in this folder; make it if needed."""
        mark = self._read("mark")
        if not mark:
            mark = os.urandom(16).hex()
            self._write(os.path.join(self.folder, "mark"), mark.encode())
        return mark

    def _read(self, name: str) -> str:
        """The text of this file; empty if there is no such file."""
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def write_id(self, number: str) -> None:
        """Write the id that the server gave the worker."""
        self._write(os.path.join(self.folder, "id"), number.encode())

    def keep(self, entries: Sequence[Entry]) -> None:
        """Record attempts in the journal: the worker does so before they start, and when they end."""
        for entry in entries:
            if not entry.token.isalnum():
                raise ResileError("bad-answer", "the server gave an attempt a token that is none")
            self.entries[entry.token] = entry
        if entries:
            self._append([_line_of(entry) for entry in entries])

    def drop(self, entry: Entry) -> None:
        """Forget an attempt: the server has recorded its end, or it is not this worker's."""
        if self.entries.pop(entry.token, None) is not None:
            # If the disk is full and the line is missing, the next worker in this folder reports the end once more.
            with suppress(OSError):
                self._append([Dropped(entry.token)])
        self.drop_files(entry.token)
        if entry.shared:
            drop_empty(entry.shared)

    def _read_journal(self) -> None:
        """Load the attempts that an earlier worker in this folder held.

        Incomplete lines are skipped: a worker acts on a line only after it has written all of it.
        """
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
        """Replace the journal by one with only the attempts that the worker holds now; a crash leaves the old one."""
        data = _encode([_line_of(entry) for entry in self.entries.values()])
        self._write(self._journal_path, data)
        if self._journal >= 0:
            os.close(self._journal)
        self._journal = os.open(self._journal_path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._journal_bytes = len(data)

    def _append(self, told: Sequence[Kept | Dropped]) -> None:
        """Write lines to the journal; replace a journal that has become too long."""
        # First a line feed: a full disk may have cut off the last line that was written.
        data = b"\n" + _encode(told)
        if os.write(self._journal, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._journal_path)
        self._journal_bytes += len(data)
        if self._journal_bytes > JOURNAL_BYTES_MAX:
            self._begin_journal()
            # If the held attempts alone fill the limit, let half of it be written before the next replacement.
            self._journal_bytes = min(self._journal_bytes, JOURNAL_BYTES_MAX // 2)

    def write_file(self, token: str, number: int, content: bytes) -> bytes:
        """Write a file of an attempt; return its path."""
        folder = os.path.join(self.folder, FILES, token)
        make_folder(folder)
        path = os.path.join(folder, str(number))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        return os.fsencode(path)

    def drop_files(self, token: str) -> None:
        """Remove the files of an attempt: they may contain values of the run."""
        folder = os.path.join(self.folder, FILES, token)
        if os.path.isdir(folder):
            shutil.rmtree(folder, ignore_errors=True)

    def profile_folder(self, profile: int) -> str:
        """The folder for the output of a run's attempts, by the number of the run's profile in the launcher."""
        return os.path.join(self.folder, PROFILES, str(profile))

    def output_folder(self, entry: Entry) -> str:
        """The folder with the output of an attempt: in the shared output, or that of its profile."""
        return entry.shared or self.profile_folder(entry.profile)

    def run_folder(self, run: int) -> str:
        """Make and return a working directory for a run whose own directory is missing on this machine."""
        folder = os.path.join(self.folder, RUNS, str(run))
        make_folder(folder)
        return folder

    def drop_profiles(self, kept: set[int]) -> None:
        """Remove the output of all profiles but `kept`."""
        for name in os.listdir(os.path.join(self.folder, PROFILES)):
            if name.isdigit() and int(name) not in kept:
                shutil.rmtree(self.profile_folder(int(name)), ignore_errors=True)

    def close(self) -> None:
        """Unlock the folder for the next worker."""
        os.close(self._journal)
        os.close(self._lock)

    def _write(self, path: str, data: bytes) -> None:
        """Replace a file; a reader sees the old or the new content, never a part."""
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(f"{path}.new", path)


_LINES = msgspec.json.Decoder(Kept | Dropped)


def _line_of(entry: Entry) -> Kept:
    """The journal's line for an attempt that the worker holds."""
    numbers = entry.token, entry.profile, entry.number, entry.memory_bytes
    return Kept(*numbers, entry.log, entry.start, entry.end, entry.shared)


def _encode(told: Sequence[Kept | Dropped]) -> bytes:
    """Encode lines of the journal."""
    return b"".join(msgspec.json.encode(one) + b"\n" for one in told)
