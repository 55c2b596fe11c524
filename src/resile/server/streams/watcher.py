"""Watches the store for all streams and all requests that wait for an answer: none of them holds a thread or polls.

    seen = watcher.version
    ... read the store ...
    await watcher.wait_beyond(seen, seconds)       returns at once where something was committed since `seen`

It looks at the store only while something waits.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from resile.errors import StoreError
from resile.store.contract import Store
from resile.store.open import open_store

LOOK_SECONDS = 0.05
LOOK_AGAIN_SECONDS = 1.0


class Watcher:
    """Notices that something was committed to the store."""

    def __init__(self, db: str | None) -> None:
        self._db = db
        self._store: Store | None = None
        self._thread = ThreadPoolExecutor(1, "watch")
        self._changed = asyncio.Event()
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.version = 0

    async def wait_beyond(self, version: int, seconds: float) -> None:
        """Wait for a newer version than this one, until the time is over or the watcher is closed."""
        if self.version > version or self._is_closed:
            return
        self._waiting += 1
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while self.version <= version and not self._is_closed:
                        await self._changed.wait()
        finally:
            self._waiting -= 1

    def ring(self) -> None:
        """Note a change, and wake everything that waits."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def _watch(self) -> None:
        """Look at the store until nothing waits any more."""
        try:
            while self._waiting and not self._is_closed:
                wait = LOOK_SECONDS
                try:
                    if await asyncio.get_running_loop().run_in_executor(self._thread, self._look):
                        self.ring()
                except StoreError:
                    wait = LOOK_AGAIN_SECONDS
                await asyncio.sleep(wait)
        finally:
            self._task = None

    def _look(self) -> bool:
        """Has anything been committed since the last look?"""
        if self._store is None:
            self._store = open_store(self._db, readonly=True)
        return self._store.has_changed()

    def close(self) -> None:
        """Wake everything that waits, for the last time."""
        self._is_closed = True
        self.ring()
        threading.Thread(target=self._close_store).start()

    def _close_store(self) -> None:
        """Wait for the end of a running look, then close the connection."""
        self._thread.shutdown(wait=True)
        if self._store is not None:
            self._store.close()
