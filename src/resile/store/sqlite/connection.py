"""Connections to a SQLite store: how they are opened, how they write, and what their errors mean.

    PRAGMA synchronous = FULL    acknowledged commits are on disk, even after a power cut; those of leases need not be
    WAL of about 2 MB            reused from its start after each checkpoint; overwriting a file in place is
                                 synced almost twice as fast as growing it
    checkpoint at exit           a store that is closed puts all commits into the file; the last to close it also
                                 removes the `-wal` (store.py)

While a run goes on, and after a kill, a store is the file and its `-wal`: `sqlite3 FILE '.backup COPY'` copies both.
"""

from __future__ import annotations

import os
import time
from _thread import LockType, allocate_lock
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import apsw

from resile.model.folders import make_folder
from resile.store.errors import StoreError, StoreFull, StoreMissing
from resile.store.sqlite.witness import WAL, damage_error

BUSY_MILLISECONDS_MAX = 30_000
BUSY_SECONDS_STEP = 0.001
CHECKPOINT_PAGES = 512
WAL_BYTES_KEPT_MAX = 4 * 1024 * 1024
SPACE_BYTES_MIN = 256 * 1024
SQLITE_VERSION_MIN = (3, 51, 3)
# For each database, the lock of the threads of this process that write to it.
_turns: dict[str, LockType] = {}

_SETTINGS = f"""
PRAGMA busy_timeout = {BUSY_MILLISECONDS_MAX};
PRAGMA synchronous = FULL;
PRAGMA foreign_keys = ON;
PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
PRAGMA journal_size_limit = {WAL_BYTES_KEPT_MAX};
"""


def check_library(version: str) -> None:
    """Refuse a SQLite that can lose committed transactions when two connections checkpoint at once."""
    if tuple(int(part) for part in version.split(".")) < SQLITE_VERSION_MIN:
        wanted = ".".join(map(str, SQLITE_VERSION_MIN))
        raise StoreError(
            "sqlite-too-old",
            f"SQLite {version} has the WAL-reset bug; Resile needs {wanted} or later",
            hint="install a newer apsw",
        )


def connect(path: str, *, readonly: bool) -> apsw.Connection:
    """Open a database; for writing, create it (mode 0600) and its folder (mode 0700) if they are missing."""
    check_library(apsw.sqlite_lib_version())
    if os.path.isdir(path):
        hint = f"name a file, such as {os.path.join(path, 'resile.db')}"
        raise StoreError("store-unopenable", f"{path} is a folder, not a database", where=path, hint=hint)
    if readonly and not os.path.exists(path):
        raise StoreMissing("no-store", f"there is no database {path}", where=path, hint="nothing has run with it yet")
    try:
        if not readonly:
            _make(path)
        try:
            db = _open_with_settings(path, readonly=readonly)
        except apsw.ReadOnlyError:
            if not readonly:
                raise
            _undo_unfinished(path)
            db = _open_with_settings(path, readonly=True)
    except (apsw.Error, OSError) as error:
        raise explain(error, path) from error
    return db


def _open_with_settings(path: str, *, readonly: bool) -> apsw.Connection:
    """Open a database that exists, with our settings."""
    db = _open(path) if readonly else apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        # Fetch all rows: some settings return one, and apsw stops at each row until it is fetched.
        db.execute(_SETTINGS).fetchall()
        if not readonly:
            # Keep the WAL until the store is closed cleanly: SQLite removes it by its name, which may be another file's
            # by then.
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            _use_wal(db)
    except BaseException:
        db.close()
        raise
    return db


def _undo_unfinished(path: str) -> None:
    """Let SQLite undo the changes of a process that was killed while it made the database; a reader can't do that."""
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    finally:
        db.close()


def _open(path: str) -> apsw.Connection:
    """Open a database for reading.

    If it is complete without a WAL, that works even if SQLite can't make its side files.
    """
    flags = apsw.SQLITE_OPEN_READONLY
    if os.access(os.path.dirname(path) or ".", os.W_OK) or os.path.exists(os.path.realpath(path) + WAL):
        return apsw.Connection(path, flags=flags)
    from urllib.parse import quote

    return apsw.Connection(f"file:{quote(os.path.abspath(path))}?immutable=1", flags=flags | apsw.SQLITE_OPEN_URI)


def _make(path: str) -> None:
    """Create an empty file that only its owner can read; SQLite gives its side files the same mode."""
    folder = os.path.dirname(path)
    if folder:
        make_folder(folder)
    # Never open and close an existing file: closing any descriptor drops all locks that this process has on it.
    with suppress(FileExistsError):
        os.mknod(path, 0o600)


def _use_wal(db: apsw.Connection) -> None:
    """Switch a new file to WAL for good; SQLite does not wait while another process does the same, so retry here."""
    deadline = time.monotonic() + BUSY_MILLISECONDS_MAX / 1000
    while db.pragma("journal_mode") != "wal":
        try:
            db.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(BUSY_SECONDS_STEP)


@contextmanager
def writing(db: apsw.Connection, path: str, *, synced: bool = True) -> Iterator[None]:
    """One transaction that holds the write lock from its start: all of it is written, or nothing.

    A transaction that is not `synced` survives every kill of this process. A power cut may undo it, unless a later
    transaction of any process was synced, because the WAL is one sequence.
    """
    # The threads of one process wait here: SQLite would let each sleep for longer than most transactions take.
    turn = _turn_of(path)
    has_turn = turn.acquire(timeout=BUSY_MILLISECONDS_MAX / 1000)
    try:
        if not synced:
            db.execute("PRAGMA synchronous = NORMAL")
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            # After some errors SQLite has already rolled back by itself.
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
    except apsw.Error as error:
        raise explain(error, path) from error
    finally:
        if not synced:
            db.execute("PRAGMA synchronous = FULL")
        if has_turn:
            turn.release()


def _turn_of(path: str) -> LockType:
    """The lock for the threads of this process that write to one database, by whichever name."""
    turn = _turns.get(path)
    if turn is None:
        turn = _turns[path] = _turns.setdefault(os.path.realpath(path), allocate_lock())
    return turn


def explain(error: apsw.Error | OSError, path: str) -> StoreError:
    """The StoreError for an error of SQLite or the system."""
    if isinstance(error, apsw.FullError) or (isinstance(error, apsw.IOError) and _has_no_space(path)):
        return StoreFull(
            "store-full",
            f"no room is left for {path}; everything recorded before is safe",
            where=path,
            hint="free some space, or name a file on another disk with --db",
        )
    code, message, hint = "store-failed", f"{path}: {error}", ""
    match error:
        case apsw.CorruptError():
            return damage_error(path, str(error).removeprefix("CorruptError: "))
        case apsw.NotADBError():
            code, message = "store-unreadable", f"{path} is not a database, or its first page is damaged"
            hint = "name another file with --db or $RESILE_DB, or put a backup in its place"
        case apsw.BusyError():
            code, message = "store-busy", f"{path} was locked for {BUSY_MILLISECONDS_MAX // 1000} s"
            hint = "another program holds a transaction open on it"
        case apsw.ReadOnlyError():
            return write_refused(path)
        case apsw.CantOpenError() | OSError():
            code, hint = "store-unopenable", "is it a file that you may read and write?"
        case apsw.IOError():
            code, hint = (
                "store-io",
                "check the disk and its quota; `resile db check` says whether the database is whole",
            )
        case _:
            pass
    return StoreError(code, message, where=path, hint=hint)


def write_refused(path: str) -> StoreError:
    """The error for writing to a store that is open for reading only, or that the system protects."""
    hint = "may you write to the file and to its folder? --db or $RESILE_DB name another"
    return StoreError("store-readonly", f"{path} can't be written to", where=path, hint=hint)


def _has_no_space(path: str) -> bool:
    """Is the disk of this file (nearly) full?"""
    try:
        disk = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < SPACE_BYTES_MIN
