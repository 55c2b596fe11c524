"""One connection to PostgreSQL, which it opens again after a loss.

    read      one statement, or a part of a snapshot that is kept open
    write     one transaction: retried until it is known to be committed, or known not to be

The server may stop and start at any time. A lost connection is opened again with growing pauses, for as long as a lease
lasts; then the caller gets `store-unreachable`. If the connection is lost during COMMIT, the session asks the server
over a new one whether the transaction was committed, so that nothing is written twice. It refuses a proxy that gives
each transaction another connection, because settings, locks and notifications of a session would get lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.rows import TupleRow

from resile.store.errors import StoreError, StoreFull
from resile.store.postgres.address import Address, wrong_address

# How long to try to open a lost connection again: as long as an engine's lease lasts.
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 1.0
CONNECT_SECONDS_MAX = 10
STATEMENT_SECONDS_MAX = 60
LOCK_SECONDS_MAX = 20
WRITER_IDLE_SECONDS_MAX = 20
READER_IDLE_SECONDS_MAX = 3600
TRIES_MAX = 10
SLOTS = 16
# The clock of the database.
NOW = "extract(epoch FROM clock_timestamp())::double precision"

# The server goes down or comes up: try the next connection.
_AWAY = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.IdleInTransactionSessionTimeout)
# Two transactions conflicted: a second try succeeds.
_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected, errors.ForeignKeyViolation)
# The last statement of a transaction: it gives the transaction a number, and returns it.
_COUNT = "UPDATE changes SET n = n + 1 WHERE slot = %s RETURNING pg_current_xact_id()::text"

Connection = psycopg.Connection[TupleRow]
T = TypeVar("T")


class Session:
    """A connection of one store, for one purpose."""

    def __init__(self, address: Address, *, readonly: bool = False, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.address = address
        self._readonly = readonly
        self._patience_seconds = patience_seconds
        self._slot = 0
        self._away_since: float | None = None
        self._lock = RLock()
        # Do not wait for the first connection: if it fails, most likely the address is wrong.
        try:
            self.db = self._connect()
        except psycopg.Error as error:
            # An error of the server has a code; without one the connection broke while it was set up.
            is_lost = isinstance(error, _AWAY) or error.sqlstate is None
            raise (unreachable if is_lost else explain)(error, self.address.shown) from error

    def read(self, ask: Callable[[Connection], T], *, wait: bool = True) -> T:
        """Run a query that changes nothing; without `wait`, try only once to open a lost connection again."""
        return self.repeat(ask, wait=wait)

    def repeat(self, work: Callable[[Connection], T], *, wait: bool = True) -> T:
        """Execute one statement, in a transaction of its own: one round trip.

        After a lost connection the statement is executed again, although it may have been committed: a repetition must
        change nothing.
        """
        tries = 0
        with self._lock:
            while True:
                try:
                    return work(self._open())
                except psycopg.Error as error:
                    if self._is_lost(error):
                        self._pause(error, wait=wait)
                    elif isinstance(error, _AGAIN) and tries < TRIES_MAX:
                        tries += 1
                    else:
                        raise self.explain(error) from error

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do some work in one transaction that is committed exactly once, even if the connection is lost."""
        tries = 0
        with self._lock:
            while True:
                number: str | None = None
                result: T
                try:
                    db = self._open()
                    db.execute("BEGIN")
                    result = work(db)
                    number = str(value_of(db, _COUNT, (self._slot,)))
                    db.execute("COMMIT")
                    return result
                except psycopg.Error as error:
                    if self._is_lost(error):
                        self._pause(error)
                    elif isinstance(error, _AGAIN) and tries < TRIES_MAX:
                        tries += 1
                        self._roll_back()
                    else:
                        self._roll_back()
                        raise self.explain(error) from error
                except BaseException:
                    self._roll_back()
                    raise
                if number is not None and self._is_committed(number):
                    return result

    def explain(self, error: psycopg.Error) -> StoreError:
        """The StoreError for an error of PostgreSQL."""
        shown = self.address.shown
        return unreachable(error, shown) if self._is_lost(error) else explain(error, shown)

    def close(self) -> None:
        """Close the connection."""
        with suppress(psycopg.Error):
            self.db.close()

    def _open(self) -> Connection:
        """The connection; opens a new one if it is lost."""
        if self.db.closed:
            self.db = self._connect()
        self._away_since = None
        return self.db

    def _connect(self) -> Connection:
        """A new connection with the settings of this session."""
        db = connect(self.address)
        try:
            # Check this before any setting, because a setting would stay with a connection that others share.
            refuse_pool(db, self.address)
            idle = READER_IDLE_SECONDS_MAX if self._readonly else WRITER_IDLE_SECONDS_MAX
            self._slot = set_up(db, self.address, idle, readonly=self._readonly) % SLOTS
        except BaseException:
            db.close()
            raise
        return db

    def _is_lost(self, error: psycopg.Error) -> bool:
        """Is the connection lost, rather than a statement wrong?"""
        return isinstance(error, (*_AWAY, Unreachable)) or self.db.closed

    def _pause(self, error: psycopg.Error, *, wait: bool = True) -> None:
        """Wait before the next connection, longer each time; raises when the patience is over."""
        self.close()
        now = time.monotonic()
        since = self._away_since = self._away_since or now
        if now - since >= self._patience_seconds or not wait:
            raise unreachable(error, self.address.shown) from error
        time.sleep(min(PAUSE_SECONDS_MAX, max(PAUSE_SECONDS_MIN, (now - since) / 2)))

    def _roll_back(self) -> None:
        if not self.db.closed:
            with suppress(psycopg.Error):
                self.db.execute("ROLLBACK")

    def _is_committed(self, number: str) -> bool:
        """Was this transaction committed, although the connection was lost before the server could say so?"""
        while True:
            status = self.read(lambda db: value_of(db, "SELECT pg_xact_status(%s::xid8)", (number,)))
            if status != "in progress":
                return bool(status == "committed")
            time.sleep(PAUSE_SECONDS_MIN)


class Unreachable(psycopg.OperationalError):
    """No connection could be made."""


def connect(address: Address) -> Connection:
    """A connection in autocommit mode; raises Unreachable."""
    try:
        return psycopg.connect(
            address.conninfo,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS_MAX,
            client_encoding="utf8",
            application_name="resile",
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=20_000,
        )
    except psycopg.ProgrammingError:
        # Its text may show the password.
        raise wrong_address("psycopg can't read it, or does not know one of its options") from None
    except psycopg.Error as error:
        raise Unreachable(str(error)) from error


def refuse_pool(db: Connection, address: Address) -> None:
    """Refuse a proxy that gives each transaction another connection.

    A proxy invents the process number that it sends at the start. If it pools by transaction, it gives the connection
    that this session has just used to the next client that asks, or gives each client both connections in turn.
    """
    served_by = {_server_pid(db)}
    if served_by == {db.info.backend_pid}:
        return
    with connect(address) as other:
        try:
            other.execute("BEGIN")
            others = {_server_pid(other)}
            served_by.add(_server_pid(db))
            other.execute("ROLLBACK")
            others |= {_server_pid(other), _server_pid(other)}
            moved = len(served_by) != 1 or len(others) != 1 or served_by == others
        except errors.ProtocolViolation:
            # A proxy that pools by statement has no transactions.
            moved = True
    if moved:
        raise StoreError(
            "store-pooled",
            f"{address.shown} is a proxy that gives each transaction another connection",
            where=address.shown,
            hint="name the server itself, or have the proxy pool by session (PgBouncer: pool_mode = session)",
        )


def _server_pid(db: Connection) -> int:
    """The process of the server that answers."""
    return int(value_of(db, "SELECT pg_backend_pid()"))


def set_up(db: Connection, address: Address, idle_seconds: int, *, readonly: bool) -> int:
    """Set the limits of a connection and its schema; return the process that serves it."""
    # An acknowledged commit is on disk, whatever the database's own setting is.
    sync = "CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'"
    sync += " ELSE current_setting('synchronous_commit') END"
    sql = f"""SELECT pg_backend_pid(), set_config('search_path', quote_ident(%s), false),
        set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),
        set_config('idle_in_transaction_session_timeout', %s, false), set_config('synchronous_commit', {sync}, false),
        set_config('default_transaction_read_only', %s, false), current_setting('server_encoding')"""
    times = [f"{seconds}s" for seconds in (STATEMENT_SECONDS_MAX, LOCK_SECONDS_MAX, idle_seconds)]
    found = db.execute(sql, (address.schema, *times, "on" if readonly else "off")).fetchone()
    assert found is not None
    if found[-1] != "UTF8":
        hint = "make the database with ENCODING 'UTF8'"
        raise StoreError("store-encoding", f"{address.shown} has the encoding {found[-1]}, not UTF8", hint=hint)
    return int(found[0])


def explain(error: psycopg.Error, shown: str) -> StoreError:
    """The StoreError for an error of PostgreSQL."""
    code, message, hint = "store-failed", f"{shown}: {_first_line(error)}", ""
    match error:
        case Unreachable():
            return unreachable(error, shown)
        case errors.DiskFull():
            message = f"no room is left for {shown}; everything recorded before is safe"
            return StoreFull("store-full", message, where=shown, hint="free some space on the server of the database")
        case errors.LockNotAvailable() | errors.QueryCanceled():
            code, message = "store-busy", f"{shown} did not answer in time: {_first_line(error)}"
            hint = "another session holds a lock, or the server is overloaded"
        case errors.ReadOnlySqlTransaction() | errors.InsufficientPrivilege():
            code, message = "store-readonly", f"{shown} can't be written to: {_first_line(error)}"
            hint = "may this user write to the schema, and is the server not a standby?"
        case _:
            pass
    return StoreError(code, message, where=shown, hint=hint)


def unreachable(error: psycopg.Error, shown: str) -> StoreError:
    """The error for a server that can't be reached."""
    hint = "is the server up, and are host, port, user and password right? Steps that run go on; `resile resume` then"
    return StoreError("store-unreachable", f"{shown} can't be reached: {_first_line(error)}", where=shown, hint=hint)


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def value_of(db: Connection, sql: str, values: tuple[Any, ...] = ()) -> Any:
    """The value that a statement returns: one row with one column."""
    ((value,),) = db.execute(sql, values).fetchall()
    return value
