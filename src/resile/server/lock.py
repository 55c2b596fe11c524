"""Lets only one server of a machine serve a SQLite database: the server locks a file beside the database.

The file has the pid of the server. The system frees the lock in any case when the process ends. Servers that share a
PostgreSQL database need no lock.
"""

from __future__ import annotations

import fcntl
import os

from resile.errors import ResileError

_ENDING = ".server"


class ServerLock:
    """The lock of one database file, held until this object is closed."""

    def __init__(self, database: str) -> None:
        """Take the lock; raises ResileError that names the process that has it."""
        path = os.path.realpath(database) + _ENDING
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            message = f"another server, process {pid}, serves {database}"
            raise ResileError("already-served", message, hint="use that one, or stop it first") from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Free the lock."""
        os.close(self._descriptor)
