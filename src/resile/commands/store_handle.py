"""The store of a client: opened on first use, read-only unless a command writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resile.store.open import default_output, exists, open_store

if TYPE_CHECKING:
    from resile.store.server_tables import SharedStore


class StoreHandle:
    """An open store, or the store that `db` names: opened for reading first, and for writing when a command writes."""

    def __init__(self, db: str | None = None, store: SharedStore | None = None) -> None:
        self._db = db
        self._store = store
        self._is_ours = store is None
        self._is_writable = store is not None

    def exists(self) -> bool:
        """Does the store exist, so that it may have runs?"""
        return self._store is not None or exists(self._db)

    def default_output(self) -> str:
        """The folder for the output of steps."""
        return default_output(self._db)

    def read(self) -> SharedStore:
        """The store, open for reading at least."""
        if self._store is None:
            self._store = open_store(self._db, readonly=True)
        return self._store

    def doubt(self) -> SharedStore:
        """The store, open for reading, even if events of it are lost."""
        if self._store is None:
            self._store = open_store(self._db, readonly=True, verify=False)
        return self._store

    def write(self) -> SharedStore:
        """The store, open for writing; a missing one is not created, because the run can't be in it."""
        return self._open(readonly=not exists(self._db))

    def create(self) -> SharedStore:
        """The store, open for writing; created if it does not exist."""
        return self._open(readonly=False)

    def _open(self, *, readonly: bool) -> SharedStore:
        """Open the store in this mode, replacing a read-only one."""
        if self._store is None or not self._is_writable:
            self.close()
            self._store = open_store(self._db, readonly=readonly)
            self._is_writable = not readonly
        return self._store

    def close(self) -> None:
        """Close the store if this handle opened it."""
        if self._is_ours and self._store is not None:
            self._store.close()
            self._store = None
