"""What a worker holds, in its folder, so that it outlives its own restart.

DIR/lock, id, engine-N.fence, launcher/      one worker at a time; its id; its launcher
DIR/mark                                     by what a server knows the folder that the worker shares with it
DIR/claims/TOKEN.json                        an attempt that it holds, from before its start until its end is recorded
DIR/profiles/N/launcher/                     the output of the attempts of one run
DIR/files/TOKEN/                             files of an attempt
DIR/runs/N/                                  where the steps of run N run, if the server made a folder for it
"""

from __future__ import annotations

import fcntl
import os
import shutil
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


class Kept(Struct):
    """What is in the file of an entry."""

    token: str
    profile: int
    number: int
    memory_bytes: int
    log: LogRange | None
    start: Start | None
    end: End | None
    shared: str = ""


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
        for name in os.listdir(os.path.join(self.folder, CLAIMS)):
            if name.endswith(".json"):
                with suppress(msgspec.MsgspecError, FileNotFoundError), open(self._claim(name[:-5]), "rb") as file:
                    kept = msgspec.json.decode(file.read(), type=Kept)
                    self.entries[kept.token] = Entry(**msgspec.structs.asdict(kept))

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

    def keep(self, entry: Entry) -> None:
        """Write an attempt down: before its start, and when it ends."""
        numbers = entry.token, entry.profile, entry.number, entry.memory_bytes
        kept = Kept(*numbers, entry.log, entry.start, entry.end, entry.shared)
        self.entries[entry.token] = entry
        self._write(self._claim(entry.token), msgspec.json.encode(kept))

    def drop(self, entry: Entry) -> None:
        """Forget an attempt: its end is recorded, or it was never the worker's."""
        self.entries.pop(entry.token, None)
        with suppress(FileNotFoundError):
            os.unlink(self._claim(entry.token))
        self.drop_files(entry.token)
        if entry.shared:
            drop_empty(entry.shared)

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
        shutil.rmtree(os.path.join(self.folder, FILES, token), ignore_errors=True)

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
        os.close(self._lock)

    def _claim(self, token: str) -> str:
        if not token.isalnum():
            raise ResileError("bad-answer", "the server gave an attempt a token that is none")
        return os.path.join(self.folder, CLAIMS, f"{token}.json")

    def _write(self, path: str, data: bytes) -> None:
        """Write a file so that a reader sees all of it or none."""
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(f"{path}.new", path)
