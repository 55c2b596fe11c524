"""The store of a client: opened when a command first uses it, read-only unless the command writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resile.store.open import default_output, exists, open_store

if TYPE_CHECKING:
    from resile.store.server_tables import SharedStore


class StoreHandle:
    """An open store, or the store that `db` names: the handle opens that one, for writing only if a command writes."""

    def __init__(self, db: str | None = None, store: SharedStore | None = None) -> None:
        self._db = db
        self._store = store
        self._is_ours = store is None
        self._is_writable = store is not None

    def exists(self) -> bool:
        """Does the store exist? If not, it has no runs."""
        return self._store is not None or exists(self._db)

    def default_output(self) -> str:
        """The folder for the output of steps."""
        return default_output(self._db)

    def read(self) -> SharedStore:
        """The store, open for reading at least."""
        if self._store is None:
            self._store = open_store(self._db, readonly=True)
        return self._store

    def read_unverified(self) -> SharedStore:
        """The store, open for reading without the check that all its events are there."""
        if self._store is None:
            self._store = open_store(self._db, readonly=True, verify=False)
        return self._store

    def write(self) -> SharedStore:
        """The store, open for writing. A missing store is an error, because it can't have the run of the command."""
        return self._open(readonly=not exists(self._db))

    def create(self) -> SharedStore:
        """The store, open for writing; created if it does not exist."""
        return self._open(readonly=False)

    def _open(self, *, readonly: bool) -> SharedStore:
        """Open the store in this mode, unless it is open for writing already; close one that is open for reading."""
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
