"""Knows facts about a database from outside of its file: that it is still the same file, and which events it must hold.

    user.resile.0    an extended attribute of the file: it has been a database
    user.resile.7    the number of the last event of run 7 that became durable, until a clean exit

If the WAL is missing, cut or damaged, SQLite shows an earlier state without an error. Then the attributes name later
events than the database has, so opening it fails, and no step runs again. They cost no sync: each is written after its
commit is on disk, so it never promises more than the disk has. They stay with the file if others checkpoint or move it;
copies and backups have none. A file system without attributes has no witness.

The WAL is one sequence: if a part of it is missing, so is everything after that part. So attributes of the runs that
were written last are enough; a file system may have room for only about a hundred.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from resile.store.errors import StoreDamaged, StoreGone

_PREFIX = "user.resile."
WAL = "-wal"
JOURNAL = "-journal"
PAGE_BYTES_MIN = 512
RECENT_SECONDS_MAX = 60.0
RUNS_MAX = 48
# For each file the runs that this process has noted, the latest last: all its connections write the same attributes.
_noted: dict[str, dict[int, None]] = {}


class Witness:
    """Watches one database file. A process makes one when it opens the database."""

    def __init__(self, path: str) -> None:
        self.path = path
        # SQLite resolves links before it names its other files.
        self._wal = os.path.realpath(path) + WAL
        self._opened: tuple[tuple[int, int] | None, ...] = ()

    def begin(self) -> None:
        """Remember which files are open; SQLite opens both at the first read."""
        self._opened = (_file(self.path), _file(self._wal))

    def check(self) -> None:
        """Refuse to go on if the database or its WAL was deleted or replaced since `begin`."""
        if not self._opened:
            return
        for name, before, now in zip((self.path, self._wal), self._opened, self._files(), strict=True):
            if before is not None and before != now:
                happened = "deleted" if now is None else "replaced"
                raise StoreGone(
                    "store-gone",
                    f"{name} was {happened} while it was in use, so nothing more can be recorded",
                    where=self.path,
                    hint="steps that run go on; put the file back as it was, or start a new run",
                )

    def is_same(self) -> bool:
        """Are the files still those that were opened?"""
        return bool(self._opened) and self._opened == self._files()

    def _files(self) -> tuple[tuple[int, int] | None, ...]:
        return (_file(self.path), _file(self._wal))

    def is_empty(self) -> bool:
        """Is the file too short to be a database? Even one whose content is still in the WAL has a first page."""
        return os.path.getsize(self.path) < PAGE_BYTES_MIN

    def may_be_in_creation(self) -> bool:
        """May another process be creating the tables: has the file a side file, or was it written to lately?"""
        path = os.path.realpath(self.path)
        return _is_recent(path) or any(os.path.exists(path + ending) for ending in (WAL, JOURNAL))

    def known_events(self) -> dict[int, int]:
        """For each run that was driven since the last clean exit the number of its last durable event; run 0 is the
        database itself.
        """
        found: dict[int, int] = {}
        with suppress(OSError, ValueError):
            for name in os.listxattr(self.path):
                if name.startswith(_PREFIX):
                    found[int(name[len(_PREFIX) :])] = int(os.getxattr(self.path, name))
        return found

    def remember(self, run: int, seq: int) -> None:
        """Note that all events up to this one are durable."""
        try:
            self._note(run, seq)
        except OSError:
            with suppress(OSError):
                # There is no room left, because killed engines left their attributes behind.
                self._make_room()
                self._note(run, seq)

    def _note(self, run: int, seq: int) -> None:
        """Write the attribute of a run; if there are too many, remove the oldest one."""
        os.setxattr(self.path, f"{_PREFIX}{run}", b"%d" % seq)
        if not run:
            return
        noted = _noted.setdefault(self.path, {})
        noted.pop(run, None)
        noted[run] = None
        if len(noted) > RUNS_MAX:
            # Several threads of a server note runs; each step here is one operation on the dictionary.
            oldest = next(iter(list(noted)))
            noted.pop(oldest, None)
            self._remove(oldest)

    def _make_room(self) -> None:
        """Remove the attributes of runs that another process has noted, except the newest."""
        others = sorted(run for run in self.known_events() if run and run not in _noted.get(self.path, {}))
        for run in others[:-RUNS_MAX]:
            self._remove(run)

    def _remove(self, run: int) -> None:
        """Remove the attribute of a run, if it has one."""
        with suppress(OSError):
            os.removexattr(self.path, f"{_PREFIX}{run}")

    def forget(self, only: int | None = None) -> None:
        """Remove the attributes of these runs: the database file holds them without its WAL, or the run is deleted."""
        for run in self.known_events():
            if run and only in (None, run):
                self._remove(run)


def _is_recent(path: str) -> bool:
    """Was a file written to lately?"""
    try:
        return abs(time.time() - os.stat(path).st_mtime) < RECENT_SECONDS_MAX
    except OSError:
        return False


def _file(path: str) -> tuple[int, int] | None:
    """Device and number of a file; None if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def damage_error(path: str, what: str, way_out: str = "or name another with --db") -> StoreDamaged:
    """The error for a database that can't be trusted."""
    hint = (
        "`resile db check` says which runs are whole; move the file and its `-wal` away and put a backup in its place"
    )
    return StoreDamaged("store-damaged", f"{path} is damaged: {what}", where=path, hint=f"{hint}, {way_out}")
