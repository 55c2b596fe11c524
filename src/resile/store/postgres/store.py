"""The store on PostgreSQL: one schema for all runs, shared by any number of processes and machines.

    reading           while a stream is half read, or inside `reading()`, all reads see the same snapshot
    writing           short writes: a new run, leases, requests
    group_commit.py   the log and the tables of a run, on a thread and session of its own
    bell.py           wakes an engine when a request for it is left

Sessions open themselves again when the server was away (session.py). Leases expire by the clock of the database, so the
clocks of the machines that share it may differ; on the machine of its holder by the clock that counts from its boot.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from msgspec import MsgspecError
from msgspec.structs import astuple

from resile.core.actions import Note
from resile.model.codec import content_hash
from resile.model.items import KeptScope
from resile.store import encoding
from resile.store import lease as leases
from resile.store.contract import (
    AttemptRow,
    Entry,
    JobRow,
    Lease,
    LetterCount,
    LetterRow,
    Request,
    RunRow,
    SignatureHistory,
    Snapshot,
    Store,
    known_run,
)
from resile.store.errors import KeyInUse, StoreDamaged, StoreError, run_exists
from resile.store.postgres import deletion, rows, schema
from resile.store.postgres.address import Address
from resile.store.postgres.bell import PostgresBell, ring
from resile.store.postgres.session import NOW, PATIENCE_SECONDS, Connection, Session, value_of

if TYPE_CHECKING:
    from resile.store.postgres.group_commit import PostgresWriter
    from resile.store.postgres.server_tables import PostgresServerTables

COMPILED_MAX = 1_000
ROWS_PER_FETCH = 1_000
_LARGEST = 1 << 62

_INSERT_RUN = (
    f"INSERT INTO runs ({rows.RUN.partition(', ')[2]})"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id"
)
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_SELECT_SCOPES = "SELECT scope, outer_scope, body FROM kept_scopes WHERE run = %s"

T = TypeVar("T")


def _only(row: tuple[Any]) -> Any:
    (value,) = row
    return value


class PostgresStore:
    """One open schema; see the contract for the methods. `patience_seconds` is how long a server may be away."""

    def __init__(
        self,
        address: Address,
        *,
        readonly: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
        migrations: Sequence[str] = schema.MIGRATIONS,
    ) -> None:
        self.path = address.shown
        self._address = address
        self._readonly = readonly
        self._patience_seconds = patience_seconds
        self._writer: PostgresWriter | None = None
        self._seen: int | None = None
        self._reader: Session | None = None
        # How many streams and `reading` contexts share the snapshot of the reading session.
        self._open_reads = 0
        self._names = count(1)
        self._session = Session(address, readonly=readonly, patience_seconds=patience_seconds)
        try:
            (schema.check if readonly else schema.migrate)(self._session, migrations)
        except BaseException:
            self._session.close()
            raise

    def identity(self, run: int | None = None) -> str:
        sql = "SELECT id FROM identity WHERE first_run <= %s ORDER BY first_run DESC LIMIT 1"
        return self._first(_only, sql, _LARGEST if run is None else run) or ""

    def renew_identity(self, run: int) -> str:
        name = os.urandom(8).hex()
        sql = "INSERT INTO identity VALUES (%s, %s) ON CONFLICT (first_run) DO UPDATE SET id = excluded.id"
        self._session.write(lambda db: db.execute(sql, (run, name)))
        return name

    def create_run(
        self, row: RunRow, definition: bytes, jobs: Sequence[JobRow], submit_priority: int | None = None
    ) -> int:
        def create(db: Connection) -> int:
            _keep(db, row.definition, definition)
            values = (*rows.run_values(row), encoding.to_json(row.labels), rows.pack(row.key))
            try:
                run = int(value_of(db, _INSERT_RUN, values))
            except psycopg.errors.UniqueViolation:
                raise KeyInUse("key-in-use", f"another run has the key {row.key}", where=self.path) from None
            if submit_priority is not None:
                queued = (run, submit_priority, row.created_at, row.created_at)
                db.execute("INSERT INTO submissions VALUES (%s, %s, %s, %s)", queued)
            db.execute("INSERT INTO leases (run) VALUES (%s)", (run,))
            rows.write_jobs(db, run, jobs)
            ring(db, run)
            return run

        return self._session.write(create)

    def import_run(self, source: Store, run: int) -> None:
        row, identity = known_run(source, run), self.identity(run + 1)

        def insert(db: Connection) -> None:
            if db.execute("SELECT 1 FROM runs WHERE id = %s", (run,)).fetchone() is not None:
                raise run_exists(run, self.path)
            _keep(db, row.definition, source.definition(row.definition))
            rows.insert_run(db, source, row, identity)

        self._session.write(insert)

    def definition(self, content_hash: str) -> bytes:
        found = self._first(_only, "SELECT body FROM definitions WHERE hash = %s", content_hash)
        if found is None:
            raise StoreError("no-such-definition", f"{self.path} has no definition {content_hash}", where=self.path)
        return bytes(found)

    def cached_definition(self, key: str) -> bytes | None:
        sql = "SELECT body FROM compiled JOIN definitions ON hash = definition WHERE key = %s"
        found = self._first(_only, sql, rows.pack(key))
        return None if found is None else bytes(found)

    def cache_definition(self, key: str, definition: bytes) -> None:
        def cache(db: Connection) -> None:
            name = content_hash(definition)
            _keep(db, name, definition)
            sql = (
                "INSERT INTO compiled (key, definition) VALUES (%s, %s)"
                " ON CONFLICT (key) DO UPDATE SET definition = excluded.definition, id = excluded.id"
            )
            db.execute(sql, (rows.pack(key), name))
            sql = "DELETE FROM compiled WHERE id <= (SELECT max(id) FROM compiled) - %s RETURNING definition"
            old = [name for (name,) in db.execute(sql, (COMPILED_MAX,))]
            if old:
                deletion.delete_unused(db, old)

        self._session.write(cache)

    def latest_snapshot(self, run: int) -> Snapshot | None:
        sql = "SELECT seq, format, state FROM snapshots WHERE run = %s"
        return self._first(lambda row: Snapshot(row[0], row[1], bytes(row[2])), sql, run)

    def entries(self, run: int, after: int = 0) -> Iterator[Entry]:
        sql = "SELECT seq, event, notes FROM log WHERE run = %s AND seq > %s ORDER BY seq"
        return self._all(encoding.to_entry, sql, run, after)

    def notes(self, run: int, after: int = 0) -> Iterator[Note]:
        # The entry that holds `after` may hold later notes as well.
        sql = """SELECT notes FROM log WHERE run = %s AND seq >= coalesce(
            (SELECT max(seq) FROM log WHERE run = %s AND seq <= %s), 0) ORDER BY seq"""
        for notes in self._all(lambda row: encoding.from_json(_only(row), tuple[Note, ...]), sql, run, run, after):
            yield from (note for note in notes if note.seq > after)

    @contextmanager
    def reading(self) -> Iterator[None]:
        session = self._reading_session()
        self._enter(session)
        try:
            yield
        finally:
            self._leave(session)

    def runs(self, limit: int = 100, before: int | None = None) -> list[RunRow]:
        sql = f"{rows.SELECT_RUNS} WHERE id < %s ORDER BY id DESC LIMIT %s"
        return list(self._all(rows.to_run, sql, _LARGEST if before is None else before, limit))

    def run(self, run: int) -> RunRow | None:
        return self._first(rows.to_run, f"{rows.SELECT_RUNS} WHERE id = %s", run)

    def run_with_key(self, key: str) -> RunRow | None:
        return self._first(rows.to_run, f"{rows.SELECT_RUNS} WHERE key = %s AND key != ''", rows.pack(key))

    def count_runs_in(self, directory: str) -> int:
        sql = "SELECT count(*) FROM runs WHERE directory = %s"
        return self._first(lambda row: int(row[0]), sql, rows.pack(directory)) or 0

    def jobs(self, run: int) -> Iterator[JobRow]:
        return self._all(rows.read_job, f"SELECT {encoding.JOB} FROM jobs WHERE run = %s ORDER BY id", run)

    def attempts(self, run: int, job: int | None = None) -> Iterator[AttemptRow]:
        select, order = f"SELECT {encoding.ATTEMPT} FROM attempts WHERE run = %s", "ORDER BY job, epoch, attempt"
        if job is None:
            return self._all(rows.read_attempt, f"{select} {order}", run)
        return self._all(rows.read_attempt, f"{select} AND job = %s {order}", run, job)

    def signature_history(self, signature: str) -> SignatureHistory:
        sql = encoding.signature_history("%s")
        pattern = encoding.signature_pattern(signature)
        found = self._first(lambda row: SignatureHistory(int(row[0]), int(row[1])), sql, pattern)
        return found or SignatureHistory()

    def letters(self, run: int, name: str | None = None, after_index: int = -1) -> Iterator[LetterRow]:
        select, order = f"{rows.SELECT_LETTERS} AND idx > %s", "ORDER BY name, idx"
        if name is None:
            return self._all(rows.read_letter, f"{select} {order}", run, after_index)
        return self._all(rows.read_letter, f"{select} AND name = %s {order}", run, after_index, rows.pack(name))

    def letter(self, run: int, name: str, index: int) -> LetterRow | None:
        sql = f"{rows.SELECT_LETTERS} AND name = %s AND idx = %s"
        return self._first(rows.read_letter, sql, run, rows.pack(name), index)

    def letter_counts(self, run: int) -> list[LetterCount]:
        sql = """SELECT name, min(map), min(step), job, min(scope), count(*) FROM dead_letters WHERE run = %s
            GROUP BY name, job ORDER BY name, job"""
        return list(self._all(rows.to_count, sql, run))

    def kept_scope(self, run: int, scope: int) -> KeptScope | None:
        return self._first(encoding.to_scope, f"{_SELECT_SCOPES} AND scope = %s", run, scope)

    def kept_scopes(self, run: int) -> Iterator[KeptScope]:
        return self._all(encoding.to_scope, f"{_SELECT_SCOPES} ORDER BY scope", run)

    def purge_letters(self, lease: Lease, keys: Sequence[tuple[str, int]] | None = None) -> int:
        def purge(db: Connection) -> int:
            _check_held(db, lease)
            delete = "DELETE FROM dead_letters WHERE run = %s"
            if keys is not None:
                sql = f"{delete} AND (name, idx) IN (SELECT * FROM unnest(%s::text[], %s::bigint[]))"
                names, indexes = [rows.pack(name) for name, _ in keys], [index for _, index in keys]
                return db.execute(sql, (lease.run, names, indexes)).rowcount
            return db.execute(delete, (lease.run,)).rowcount

        return self._session.write(purge)

    def delete_run(self, lease: Lease) -> None:
        def delete(db: Connection) -> None:
            _check_held(db, lease)
            deletion.delete_run(db, lease.run)

        self._session.write(delete)

    def run_bytes(self, run: int) -> int:
        return self._reading_session().read(lambda db: deletion.run_bytes(db, run))

    def size_bytes(self) -> int:
        return self._reading_session().read(deletion.size_bytes)

    def compact(self, now: float) -> str:
        return self._session.read(lambda db: deletion.compact(db, now))

    def writer(self) -> PostgresWriter:
        from resile.store.postgres.group_commit import PostgresWriter

        if self._writer is not None and not self._writer.closed:
            raise StoreError("writer-open", f"{self.path} already has its writer in this process", where=self.path)
        if self._readonly:
            raise StoreError("store-readonly", f"{self.path} is open for reading only", where=self.path)
        self._writer = PostgresWriter(Session(self._address, patience_seconds=self._patience_seconds))
        return self._writer

    def acquire_lease(self, run: int, now: float, seconds: float) -> Lease:
        def acquire(db: Connection) -> Lease:
            self._check_known(db, run)
            sql = f"SELECT {encoding.LEASE}, {NOW} FROM leases WHERE run = %s FOR UPDATE"
            *fields, wall = db.execute(sql, (run,)).fetchall()[0]
            # The statement may have waited for the lock since it began, so read the clock again.
            wall = max(wall, value_of(db, f"SELECT {NOW}"))
            mine = leases.take(run, now, seconds, rows.to_lease(fields), wall, last=fields[-1])
            values = "(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
            db.execute(f"UPDATE leases SET ({encoding.LEASE}) = {values} WHERE run = %s", (*astuple(mine), run))
            return mine

        return self._session.write(acquire)

    def renew_lease(self, lease: Lease, now: float, seconds: float) -> None:
        sql = f"UPDATE leases SET expires_at = {NOW} + %s, expires_boot_seconds = %s WHERE run = %s AND token = %s"

        def renew(db: Connection) -> None:
            if not db.execute(sql, (seconds, now + seconds, lease.run, lease.token)).rowcount:
                _check_held(db, lease)

        self._session.write(renew)

    def release_lease(self, lease: Lease) -> None:
        sql = "UPDATE leases SET token = NULL WHERE run = %s AND token = %s"
        self._session.write(lambda db: db.execute(sql, (lease.run, lease.token)))

    def lease(self, run: int, now: float) -> Lease | None:
        sql = f"SELECT {encoding.LEASE}, {NOW} FROM leases WHERE run = %s"

        def decode(row: tuple[Any, ...]) -> Lease | None:
            *fields, wall = row
            found = rows.to_lease(fields)
            return None if leases.is_free(found, now, wall) else found

        return self._first(decode, sql, run)

    def request(self, run: int, at: float, kind: str, body: dict[str, Any]) -> int:
        def leave(db: Connection) -> int:
            self._check_known(db, run)
            sql = "INSERT INTO requests (run, at, kind, body) VALUES (%s, %s, %s, %s) RETURNING id"
            number = int(value_of(db, sql, (run, at, kind, encoding.to_json(body))))
            # Do this after the insert: a server that hands the run back just now holds the row until it is done.
            db.execute("UPDATE submissions SET due_at = least(due_at, %s) WHERE run = %s", (at, run))
            ring(db, run)
            return number

        return self._session.write(leave)

    def requests(self, run: int, after: int = 0) -> list[Request]:
        # In the writing session, because a half-read stream would show an old snapshot.
        which = "run = %s" if run else "run > %s"
        sql = f"SELECT {encoding.REQUEST} FROM requests WHERE {which} AND NOT taken AND id > %s ORDER BY id"
        found = self._session.read(lambda db: db.execute(sql, (run, after)).fetchall())
        return [encoding.to_request(row) for row in found]

    def result(self, request: int) -> dict[str, Any] | None:
        sql = "SELECT result FROM requests WHERE id = %s AND result IS NOT NULL"
        found = self._session.read(lambda db: db.execute(sql, (request,)).fetchone())
        return None if found is None else encoding.to_result(found)

    def server_tables(self) -> PostgresServerTables:
        from resile.store.postgres.server_tables import PostgresServerTables

        return PostgresServerTables(self._session)

    def bell(self, run: int) -> PostgresBell:
        return PostgresBell(self._address, run)

    def has_changed(self) -> bool:
        sql = "SELECT sum(n)::bigint FROM changes"
        version = self._session.read(lambda db: value_of(db, sql))
        seen, self._seen = self._seen, version
        return bool(version != seen)

    def find_damage(self) -> list[str]:
        found: list[str] = []
        for table in deletion.TABLES:
            sql = f"SELECT DISTINCT run FROM {table} WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = run) ORDER BY run"
            gone = list(self._all(_only, sql))
            found += (f"a row of {table} belongs to run {run}, which is gone" for run in gone)
        sql = "SELECT id FROM runs WHERE NOT EXISTS (SELECT 1 FROM leases WHERE run = id) ORDER BY id"
        found += self._all(lambda row: f"run {_only(row)} has no row in leases, so that it can't be driven", sql)
        return found

    def accept_damage(self) -> None:
        """Do nothing: PostgreSQL loses no acknowledged commit, so there is no damage to accept."""

    def close(self) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            if self._reader is not None:
                self._reader.close()
            self._session.close()

    def _reading_session(self) -> Session:
        if self._reader is None:
            self._reader = Session(self._address, readonly=True, patience_seconds=self._patience_seconds)
        return self._reader

    def _enter(self, session: Session) -> None:
        """Begin to share the snapshot of the reading session; the first one makes it."""
        if not self._open_reads:
            session.read(lambda db: db.execute(_SNAPSHOT))
        self._open_reads += 1

    def _leave(self, session: Session) -> None:
        """End the snapshot when the last one leaves."""
        self._open_reads -= 1
        if not self._open_reads and not session.db.closed:
            session.db.execute("ROLLBACK")

    def _all(self, convert: Callable[[Any], T], sql: str, *values: str | int) -> Iterator[T]:
        """The converted rows of a query, as a stream from one snapshot; raises StoreDamaged for an unreadable row."""
        session = self._reading_session()
        name = f"stream_{next(self._names)}"
        self._enter(session)
        try:
            session.db.execute(f"DECLARE {name} NO SCROLL CURSOR FOR {sql}", values)
            while True:
                part = session.db.execute(f"FETCH {ROWS_PER_FETCH} FROM {name}").fetchall()
                for row in part:
                    yield self._convert(convert, row)
                if len(part) < ROWS_PER_FETCH:
                    break
        except psycopg.Error as error:
            raise session.explain(error) from error
        finally:
            if not session.db.closed and self._open_reads > 1:
                session.db.execute(f"CLOSE {name}")
            self._leave(session)

    def _first(self, convert: Callable[[Any], T], sql: str, *values: str | int) -> T | None:
        """The first row of a query, converted."""
        found = self._reading_session().read(lambda db: db.execute(sql, values).fetchone())
        return None if found is None else self._convert(convert, found)

    def _convert(self, convert: Callable[[Any], T], row: tuple[Any, ...]) -> T:
        """Convert a row; raises StoreDamaged if that is impossible."""
        try:
            return convert(row)
        except (MsgspecError, ValueError, TypeError) as error:
            hint = "`resile db check` says which runs are whole"
            raise StoreDamaged("store-damaged", f"{self.path}: a row can't be read: {error}", hint=hint) from error

    def _check_known(self, db: Connection, run: int) -> None:
        if not 0 < run < _LARGEST or db.execute("SELECT 1 FROM runs WHERE id = %s", (run,)).fetchone() is None:
            raise StoreError("no-such-run", f"there is no run {run} in {self.path}", hint="`resile ls` lists them")


def _keep(db: Connection, name: str, definition: bytes) -> None:
    db.execute("INSERT INTO definitions VALUES (%s, %s) ON CONFLICT (hash) DO NOTHING", (name, definition))


def _check_held(db: Connection, lease: Lease) -> None:
    """Refuse an engine that lost the lease; lock it until the end of the transaction."""
    found = db.execute(f"{rows.SELECT_LEASE} FOR NO KEY UPDATE", (lease.run,)).fetchone()
    leases.check_holder(lease.run, rows.to_lease(found), lease.token)
