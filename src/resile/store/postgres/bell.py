"""Wakes engines and hosts that wait for requests: LISTEN and NOTIFY.

A request rings, and so does a run whose row changes; ordinary commits do not, because PostgreSQL writes commits that
notify one after the other. A thread listens and passes the ring on to a descriptor. While the connection is lost, the
bell is not `live` and its owner polls; the thread connects again with growing pauses.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from threading import Thread

import psycopg

from resile.store.errors import StoreError
from resile.store.postgres.address import Address
from resile.store.postgres.session import PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN, Connection, connect, value_of

_CHANNEL = "'resile_' || left(md5({}), 16)"
_NOTIFY = f"SELECT pg_notify({_CHANNEL.format('current_schema()')}, %s)"


def ring(db: Connection, run: int) -> None:
    """Wake the engines and hosts that wait for this run, once the transaction is committed."""
    db.execute(_NOTIFY, (str(run),))


class PostgresBell:
    """Listens in a thread of its own; see the contract for the methods."""

    def __init__(self, address: Address, run: int) -> None:
        self._address = address
        self._run = str(run).encode()
        self.live = False
        self._rung = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ended = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = Thread(target=self._listen, name="resile-store-bell", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._rung

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._rung)

    def close(self) -> None:
        """End the thread."""
        os.eventfd_write(self._ended, 1)
        self._thread.join()
        os.close(self._rung)
        os.close(self._ended)

    def _listen(self) -> None:
        """Listen until `close`; connect again when the connection is lost."""
        pause = PAUSE_SECONDS_MIN
        while True:
            with suppress(psycopg.Error, StoreError), connect(self._address) as db:
                channel = value_of(db, f"SELECT {_CHANNEL.format('%s')}", (self._address.schema,))
                db.execute(f"LISTEN {channel}")
                self.live, pause = True, PAUSE_SECONDS_MIN
                # Notifications before LISTEN are lost, so ring once.
                os.eventfd_write(self._rung, 1)
                if self._pass_on(db):
                    return
            self.live = False
            if select.select([self._ended], [], [], pause)[0]:
                return
            pause = min(PAUSE_SECONDS_MAX, pause * 2)

    def _pass_on(self, db: Connection) -> bool:
        """Ring for each notification; True after `close`, raises when the connection is lost."""
        while True:
            if self._ended in select.select([db.fileno(), self._ended], [], [])[0]:
                return True
            db.pgconn.consume_input()
            while (heard := db.pgconn.notifies()) is not None:
                _, _, run = heard
                if self._run in (run, b"0"):
                    os.eventfd_write(self._rung, 1)
