"""Threads that use the store, each with a connection of its own, so that the event loop never waits for the database.

await stores.read(function)     function(connection) in a thread that only reads; a few at a time
await stores.write(function)    the same with a connection that may write
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from msgspec import Struct

from resile.commands.client import Client
from resile.store.errors import StoreGone
from resile.store.open import exists, open_store
from resile.store.server_tables import ServerTables, SharedStore

READERS, WRITERS = 4, 2
T = TypeVar("T")


class Connection(Struct, frozen=True):
    """An open store, the tables that servers share, and the commands on it."""

    store: SharedStore
    tables: ServerTables
    client: Client


class Stores:
    """The connections of a server to its database, apart from the host's."""

    def __init__(self, db: str | None, identity: str) -> None:
        """`identity` is the name of the database; if another database takes its place, these threads refuse it."""
        self.db = db
        self._identity = identity
        self._own = threading.local()
        self._opened: list[SharedStore] = []
        self._readers = ThreadPoolExecutor(READERS, "read")
        self._writers = ThreadPoolExecutor(WRITERS, "write")

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Call a function that reads, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._call, function, True)

    async def write(self, function: Callable[[Connection], T]) -> T:
        """Call a function that may write, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, self._call, function, False)

    def _call(self, function: Callable[[Connection], T], readonly: bool) -> T:
        """Call a function with the connection of this thread."""
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            # Never create a database that is gone.
            store = open_store(self.db, readonly=readonly or not exists(self.db))
            if store.identity() != self._identity:
                store.close()
                raise StoreGone("store-gone", "the database was replaced by another one")
            self._opened.append(store)
            connection = self._own.connection = Connection(store, store.server_tables(), Client(store))
        return function(connection)

    def close(self) -> None:
        """Wait for running calls, and close the connections."""
        for pool in (self._readers, self._writers):
            pool.shutdown(wait=True, cancel_futures=True)
        for store in self._opened:
            store.close()
