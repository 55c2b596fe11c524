"""Computes the SHA-256 of files and folders; a cache has the digests of unchanged files.

    Digests(folder).of(paths) --stat--> known under this size, times and inode? --no--> read and hash the file

The cache is a database file of its own, which may be deleted at any time. It has one row for each folder, with the
digests of its files. A file is unchanged if its size, its inode and the times of its last change in nanoseconds are the
same. A file that changed a moment ago is not cached: it may change again within one tick of its file system's clock.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING

import msgspec

from resile.errors import ResileError

if TYPE_CHECKING:
    import sqlite3

FILE = "digests.db"
FILES_MAX = 1_000_000
_PIECE_BYTES = 1 << 20
_SETTLED_NANOSECONDS = 2_000_000_000
_BUSY_SECONDS = 10.0
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_TABLE = "CREATE TABLE IF NOT EXISTS digests (folder BLOB PRIMARY KEY, files BLOB NOT NULL)"

# How a file looks without reading it: inode, size, and the times of its last change.
Look = tuple[int, int, int, int]
_LOOK = struct.Struct("<Qqqq")
# By name, in one byte string, which is the fastest to read: how a file looked when it was hashed, then its digest.
Known = dict[str, bytes]


class Digests:
    """Computes digests; the cache is in a folder."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILE)
        self._known: dict[str, Known] = {}

    def of(self, paths: Iterable[str]) -> dict[str, str]:
        """The digest of each path, as hex; empty if the file or folder does not exist or can't be read."""
        wanted = list(paths)
        found = self._digests_of(wanted)
        if len(found) < len(wanted):
            for path in wanted:
                if path not in found and os.path.isdir(path):
                    files = _files_below(path)
                    found[path] = _digest_of_folder(path, files, self._digests_of(files))
            found |= {path: "" for path in wanted if path not in found}
        return found

    def _digests_of(self, paths: Sequence[str]) -> dict[str, str]:
        """The digests of those paths that are regular files, from the cache where they look as they did."""
        parts = [path.rpartition("/") for path in paths]
        self._ask_cache({folder for folder, _, _ in parts})
        known, look_at, pack, size = self._known, os.stat, _LOOK.pack, _LOOK.size
        found: dict[str, str] = {}
        others: dict[str, Look] = {}
        for path, (folder, _, name) in zip(paths, parts, strict=True):
            try:
                look = look_at(path)
            except OSError:
                continue
            before = known[folder].get(name, b"")
            if before[:size] == pack(look.st_ino, look.st_size, look.st_mtime_ns, look.st_ctime_ns):
                found[path] = before[size:].hex()
            elif S_ISREG(look.st_mode):
                others[path] = (look.st_ino, look.st_size, look.st_mtime_ns, look.st_ctime_ns)
        if others:
            found |= self._hash_files(others)
        return found

    def _hash_files(self, looks: dict[str, Look]) -> dict[str, str]:
        """Read and hash files, and cache the digests of those that do not change meanwhile."""
        found: dict[str, str] = {}
        fresh: dict[str, Known] = {}
        settled = time.time_ns() - _SETTLED_NANOSECONDS
        for path, look in looks.items():
            with suppress(OSError):
                digest, after = _hash_file(path, look[1])
                found[path] = digest
                if after == look and max(look[2:]) < settled:
                    folder, _, name = path.rpartition("/")
                    fresh.setdefault(folder, {})[name] = _LOOK.pack(*look) + bytes.fromhex(digest)
        for folder, files in fresh.items():
            self._known[folder] |= files
        self._keep(fresh)
        return found

    def _ask_cache(self, folders: set[str]) -> None:
        """Read what the cache knows of these folders."""
        unknown = sorted(folders - self._known.keys())
        self._known |= {folder: {} for folder in unknown}
        if not unknown or not os.path.exists(self._path):
            return

        def read(db: sqlite3.Connection) -> None:
            for folder in unknown:
                self._known[folder] = _files_of(db, folder)

        self._use(read)

    def _keep(self, fresh: dict[str, Known]) -> None:
        """Write digests to the cache."""

        def write(db: sqlite3.Connection) -> None:
            db.execute(_TABLE)
            db.execute("BEGIN IMMEDIATE")
            for folder, files in fresh.items():
                known = msgspec.msgpack.encode(_files_of(db, folder) | files)
                db.execute("INSERT OR REPLACE INTO digests VALUES (?, ?)", (os.fsencode(folder), known))
            db.execute("COMMIT")

        if fresh:
            self._use(write)

    def _use(self, act: Callable[[sqlite3.Connection], None]) -> None:
        """Use the cache. Delete the database if it is damaged; do without the cache if it can't be used."""
        import sqlite3

        try:
            if not os.path.exists(self._path):
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            db = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                # A lost digest can be computed again, so never wait for the disk.
                db.execute("PRAGMA synchronous = OFF")
                act(db)
            finally:
                db.close()
        except (sqlite3.OperationalError, OSError):
            return
        except (sqlite3.DatabaseError, msgspec.MsgspecError):
            with suppress(OSError):
                os.unlink(self._path)


def _files_of(db: sqlite3.Connection, folder: str) -> Known:
    """What the cache knows of the files in a folder."""
    row = db.execute("SELECT files FROM digests WHERE folder = ?", (os.fsencode(folder),)).fetchone()
    return {} if row is None else msgspec.msgpack.decode(row[0], type=Known)


def _hash_file(path: str, size: int) -> tuple[str, Look]:
    """The SHA-256 of a file's contents, and how the file looks afterwards."""
    from hashlib import sha256

    file = os.open(path, _OPEN)
    try:
        piece = min(size + 1, _PIECE_BYTES)
        data = os.read(file, piece)
        digest = sha256(data)
        while len(data) == piece:
            data = os.read(file, piece)
            digest.update(data)
        look = os.fstat(file)
        return digest.hexdigest(), (look.st_ino, look.st_size, look.st_mtime_ns, look.st_ctime_ns)
    finally:
        os.close(file)


def _files_below(folder: str) -> list[str]:
    """The files in a folder and in those below it, sorted; links to folders are not followed."""
    found: list[str] = []
    for where, _, files in os.walk(folder):
        found += (os.path.join(where, name) for name in files)
        if len(found) > FILES_MAX:
            hint = "name the files or smaller folders"
            raise ResileError("reads", f"the folder {folder!r} has more than {FILES_MAX} files", hint=hint)
    return sorted(found)


def _digest_of_folder(folder: str, files: Sequence[str], digests: dict[str, str]) -> str:
    """The digest of a folder: that of the names and the digests of all files in it."""
    from hashlib import sha256

    digest = sha256()
    for file in files:
        if file in digests:
            digest.update(os.fsencode(os.path.relpath(file, folder)) + b"\0" + digests[file].encode())
    return digest.hexdigest()


def look_of(path: str) -> Look | tuple[tuple[str, Look | None], ...] | None:
    """How a file, or a folder with all its files, looks without reading it; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    if not S_ISDIR(found.st_mode):
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return tuple((file, None if (look := look_of(file)) is None else look) for file in _files_below(path))  # type: ignore[misc]
