"""The one store of a client: opened when a command first needs it, and no further than the command needs."""

from __future__ import annotations

from resile.store.contract import Store
from resile.store.open import default_output, exists, open_store


class StoreHandle:
    """An open store, or the one that `db` names: read at first, opened for writing when a command writes."""

    def __init__(self, db: str | None = None, store: Store | None = None) -> None:
        self._db = db
        self._store = store
        self._is_ours = store is None
        self._is_writable = store is not None

    def exists(self) -> bool:
        """Is there a store, so that there may be runs?"""
        return self._store is not None or exists(self._db)

    def default_output(self) -> str:
        """The folder for the output of steps."""
        return default_output(self._db)

    def read(self) -> Store:
        """The store, at least for reading."""
        if self._store is None:
            self._store = open_store(self._db, readonly=True)
        return self._store

    def write(self) -> Store:
        """The store for writing; none is created for the sake of a run that can't be in it."""
        return self._open(readonly=not exists(self._db))

    def create(self) -> Store:
        """The store for writing, created where it does not exist."""
        return self._open(readonly=False)

    def _open(self, *, readonly: bool) -> Store:
        """The store in this mode, in place of one that can only be read."""
        if self._store is None or not self._is_writable:
            self.close()
            self._store = open_store(self._db, readonly=readonly)
            self._is_writable = not readonly
        return self._store

    def close(self) -> None:
        """Close the store, unless its opener does."""
        if self._is_ours and self._store is not None:
            self._store.close()
            self._store = None
