"""The store on SQLite: one file for all runs of a user, read and written by any number of processes.

It has up to three connections:

    for reading       opened by the first read; while a caller has read half of a stream, all reads see one snapshot
    for short writes  new runs, leases, requests
    group_commit.py   the log and the tables of a run, on a thread of its own

Readers see the last commit; readers and writers never wait for each other (WAL), in one process or several.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import apsw
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
from resile.store.errors import KeyInUse, StoreError, StoreGone, StoreMissing, run_exists
from resile.store.sqlite import deletion, rows, schema
from resile.store.sqlite.connection import connect, explain, write_refused, writing
from resile.store.sqlite.witness import Witness, damage_error

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from resile.store.sqlite.group_commit import SqliteWriter
    from resile.store.sqlite.server_tables import SqliteServerTables

COMPILED_MAX = 1_000
JOBS_PER_INSERT = 1_024
# How long a reader waits for the process that creates the database.
CREATION_SECONDS_MAX = 10.0
CREATION_SECONDS_STEP = 0.02

_INSERT_RUN = f"INSERT INTO runs ({rows.RUN.partition(', ')[2]}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

_SELECT_SCOPES = "SELECT scope, outer_scope, body FROM kept_scopes WHERE run = ?"

T = TypeVar("T")


def _only_column(row: tuple[Any]) -> Any:
    (value,) = row
    return value


def _definition(row: tuple[Any]) -> bytes:
    return rows.to_definition(_only_column(row))


class SqliteStore:
    """One open database; see the contract for the methods.

    With `verify=False` it opens a database even if events are missing from it. `pages_max` bounds the size of the
    database in pages of 4 KB, for tests of a full disk.
    """

    def __init__(
        self,
        path: str,
        *,
        readonly: bool = False,
        verify: bool = True,
        pages_max: int | None = None,
        migrations: Sequence[str] = schema.MIGRATIONS,
    ) -> None:
        self.path = path
        self._pages_max = pages_max
        self._writer: SqliteWriter | None = None
        self._seen_version: int | None = None
        self._has_identity = False
        self._witness = Witness(path)
        known = self._witness.known_events()
        if known and self._witness.is_empty():
            raise damage_error(path, "it has been a database and is empty now")
        self._db = self._connect(migrations) if readonly else connect(path, readonly=False)
        self._reader: apsw.Connection | None = self._db if readonly else None
        try:
            if not readonly:
                schema.migrate(self._db, path, migrations)
                self._witness.begin()
                if not known:
                    self._witness.remember(0, 0)
            for lost in self._lost_events(known) if verify else ():
                raise damage_error(path, lost, "or go on without them after `resile db check --accept`")
        except apsw.Error as error:
            self._db.close()
            raise explain(error, path) from error
        except StoreError:
            self._db.close()
            raise

    def _connect(self, migrations: Sequence[str]) -> apsw.Connection:
        """Open a database for reading; if another process is creating it, wait until its tables exist."""
        deadline = time.monotonic() + CREATION_SECONDS_MAX
        # Ask before connecting: a connection makes side files, which look like those of another process.
        may_appear = self._witness.may_be_in_creation()
        while True:
            # Ask before reading: another process may complete the database a moment later.
            was_complete = bool(self._witness.known_events())
            db = connect(self.path, readonly=True)
            try:
                schema.check(db, self.path, migrations)
                return db
            except StoreMissing:
                db.close()
                if was_complete:
                    what = f"its runs are gone, because {self.path}-wal is missing, cut or damaged"
                    raise damage_error(self.path, what) from None
                if time.monotonic() > deadline or not may_appear:
                    raise
                time.sleep(CREATION_SECONDS_STEP)
            except apsw.Error as error:
                db.close()
                raise explain(error, self.path) from error
            except StoreError:
                db.close()
                raise

    def identity(self, run: int | None = None) -> str:
        if not self._has_identity:
            self._has_identity = (self._first(_only_column, "PRAGMA user_version") or 0) >= schema.WITH_IDENTITY
        if not self._has_identity:
            return ""
        sql = "SELECT id FROM identity WHERE first_run <= ? ORDER BY first_run DESC"
        return self._first(_only_column, sql, rows.SEQ_MASK if run is None else run) or ""

    def renew_identity(self, run: int) -> str:
        name = os.urandom(8).hex()
        with self._writing():
            self._db.execute("REPLACE INTO identity VALUES (?, ?)", (run, name))
        return name

    def create_run(
        self, row: RunRow, definition: bytes, jobs: Sequence[JobRow], submit_priority: int | None = None
    ) -> int:
        with self._writing():
            if row.key and self._db.execute("SELECT 1 FROM runs WHERE key = ?", (row.key,)).get is not None:
                raise KeyInUse("key-in-use", f"another run has the key {row.key}", where=self.path)
            self._insert_definition(row.definition, definition)
            self._db.execute(_INSERT_RUN, rows.run_values(row))
            run = self._db.last_insert_rowid()
            if row.labels or row.key:
                labels = encoding.to_json(row.labels)
                self._db.execute("UPDATE runs SET labels = ?, key = ? WHERE id = ?", (labels, row.key, run))
            if submit_priority is not None:
                values = (run, submit_priority, row.created_at, row.created_at)
                self._db.execute("INSERT INTO submissions VALUES (?, ?, ?, ?)", values)
            waiting = iter(jobs)
            while some := list(islice(waiting, JOBS_PER_INSERT)):
                rows.REPLACE_JOBS.into(self._db, encoding.job_values(run, some))
        self._witness.remember(run, 0)
        return run

    def import_run(self, source: Store, run: int) -> None:
        from resile.store.sqlite.transfer import insert_run

        row, identity = known_run(source, run), self.identity(run + 1)
        with self._writing():
            if self._db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).get is not None:
                raise run_exists(run, self.path)
            self._insert_definition(row.definition, source.definition(row.definition))
            insert_run(self._db, source, row, identity)

    def definition(self, content_hash: str) -> bytes:
        found = self._first(_definition, "SELECT body FROM definitions WHERE hash = ?", content_hash)
        if found is None:
            raise StoreError("no-such-definition", f"{self.path} has no definition {content_hash}", where=self.path)
        return found

    def cached_definition(self, key: str) -> bytes | None:
        sql = "SELECT body FROM compiled JOIN definitions ON hash = definition WHERE key = ?"
        return self._first(_definition, sql, key)

    def cache_definition(self, key: str, definition: bytes) -> None:
        with self._writing():
            name = content_hash(definition)
            self._insert_definition(name, definition)
            self._db.execute("REPLACE INTO compiled (key, definition) VALUES (?, ?)", (key, name))
            old = self._db.execute(
                "DELETE FROM compiled WHERE id <= (SELECT max(id) FROM compiled) - ? RETURNING definition",
                (COMPILED_MAX,),
            ).fetchall()
            deletion.delete_unused(self._db, old)

    def latest_snapshot(self, run: int) -> Snapshot | None:
        return self._first(lambda row: Snapshot(*row), "SELECT seq, format, state FROM snapshots WHERE run = ?", run)

    def entries(self, run: int, after: int = 0) -> Iterator[Entry]:
        sql = f"SELECT place & {rows.SEQ_MASK}, event, notes FROM log WHERE place > ? AND place < ? ORDER BY place"
        return self._all(encoding.to_entry, sql, rows.place(run, after), rows.place(run + 1, 0))

    def notes(self, run: int, after: int = 0) -> Iterator[Note]:
        # The entry that holds `after` may hold later notes as well.
        sql = """SELECT notes FROM log WHERE place < ?3 AND place >= ifnull(
            (SELECT max(place) FROM log WHERE place >= ?1 AND place <= ?2), ?1) ORDER BY place"""
        places = (rows.place(run, 0), rows.place(run, after), rows.place(run + 1, 0))
        for notes in self._all(lambda row: encoding.from_json(_only_column(row), tuple[Note, ...]), sql, *places):
            yield from (note for note in notes if note.seq > after)

    @contextmanager
    def reading(self) -> Iterator[None]:
        try:
            with self._reading_connection():
                yield
        except apsw.Error as error:
            raise explain(error, self.path) from error

    def runs(self, limit: int = 100, before: int | None = None) -> list[RunRow]:
        sql = f"{rows.SELECT_RUNS} WHERE id < ? ORDER BY id DESC LIMIT ?"
        return list(self._all(rows.to_run, sql, rows.SEQ_MASK if before is None else before, limit))

    def run(self, run: int) -> RunRow | None:
        return self._first(rows.to_run, f"{rows.SELECT_RUNS} WHERE id = ?", run)

    def run_with_key(self, key: str) -> RunRow | None:
        return self._first(rows.to_run, f"{rows.SELECT_RUNS} WHERE key = ? AND key != ''", key)

    def count_runs_in(self, directory: str) -> int:
        sql = "SELECT count(*) FROM runs WHERE directory = ?"
        return self._first(lambda row: int(row[0]), sql, rows.text_value(directory)) or 0

    def jobs(self, run: int) -> Iterator[JobRow]:
        return self._all(encoding.to_job, f"SELECT {encoding.JOB} FROM jobs WHERE run = ? ORDER BY id", run)

    def attempts(self, run: int, job: int | None = None) -> Iterator[AttemptRow]:
        select, order = f"SELECT {encoding.ATTEMPT} FROM attempts WHERE run = ?", "ORDER BY job, epoch, attempt"
        if job is None:
            return self._all(encoding.to_attempt, f"{select} {order}", run)
        return self._all(encoding.to_attempt, f"{select} AND job = ? {order}", run, job)

    def signature_history(self, signature: str) -> SignatureHistory:
        sql = encoding.signature_history("?")
        found = self._first(lambda row: SignatureHistory(*row), sql, encoding.signature_pattern(signature))
        return found or SignatureHistory()

    def letters(self, run: int, name: str | None = None, after_index: int = -1) -> Iterator[LetterRow]:
        select, order = f"{rows.SELECT_LETTERS} AND idx > ?", "ORDER BY name, idx"
        if name is None:
            return self._all(encoding.to_letter, f"{select} {order}", run, after_index)
        return self._all(encoding.to_letter, f"{select} AND name = ? {order}", run, after_index, name)

    def letter(self, run: int, name: str, index: int) -> LetterRow | None:
        return self._first(encoding.to_letter, f"{rows.SELECT_LETTERS} AND name = ? AND idx = ?", run, name, index)

    def letter_counts(self, run: int) -> list[LetterCount]:
        columns = "name, map, step, job, scope, count(*)"
        sql = f"SELECT {columns} FROM dead_letters WHERE run = ? GROUP BY name, job ORDER BY name, job"
        return list(self._all(lambda row: LetterCount(*row), sql, run))

    def kept_scope(self, run: int, scope: int) -> KeptScope | None:
        return self._first(encoding.to_scope, f"{_SELECT_SCOPES} AND scope = ?", run, scope)

    def kept_scopes(self, run: int) -> Iterator[KeptScope]:
        return self._all(encoding.to_scope, f"{_SELECT_SCOPES} ORDER BY scope", run)

    def purge_letters(self, lease: Lease, keys: Sequence[tuple[str, int]] | None = None) -> int:
        with self._writing():
            leases.check_holder(lease.run, rows.lease_of(self._db, lease.run), lease.token)
            before = self._db.total_changes()
            delete = "DELETE FROM dead_letters WHERE run = ?"
            if keys is not None:
                self._db.executemany(f"{delete} AND name = ? AND idx = ?", [(lease.run, *key) for key in keys])
                return self._db.total_changes() - before
            self._db.execute(delete, (lease.run,))
            return self._db.total_changes() - before

    def delete_run(self, lease: Lease) -> None:
        # Forget the run before its rows are deleted: a witness that still has it would report its events as lost.
        self._witness.forget(lease.run)
        with self._writing():
            leases.check_holder(lease.run, rows.lease_of(self._db, lease.run), lease.token)
            deletion.delete_run(self._db, lease.run)

    def run_bytes(self, run: int) -> int:
        return deletion.run_bytes(self._reading_connection(), run)

    def size_bytes(self) -> int:
        return deletion.size_bytes(self.path)

    def compact(self, now: float) -> str:
        self._witness.check()
        try:
            return deletion.compact(self._db, now)
        except apsw.Error as error:
            raise explain(error, self.path) from error

    def writer(self) -> SqliteWriter:
        from resile.store.sqlite.group_commit import SqliteWriter

        if self._writer is not None and not self._writer.closed:
            raise StoreError("writer-open", f"{self.path} already has its writer in this process", where=self.path)
        if self._db.readonly("main"):
            raise write_refused(self.path)
        db = connect(self.path, readonly=False)
        if self._pages_max is not None:
            db.pragma("max_page_count", self._pages_max)
        self._writer = SqliteWriter(db, self._witness)
        return self._writer

    def acquire_lease(self, run: int, now: float, seconds: float) -> Lease:
        with self._writing():
            self._check_known(run)
            last = self._db.execute("SELECT fence FROM runs WHERE id = ?", (run,)).get
            mine = leases.take(run, now, seconds, rows.lease_of(self._db, run), last=last)
            self._db.execute(
                f"REPLACE INTO leases ({encoding.LEASE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(mine)
            )
            self._db.execute("UPDATE runs SET fence = ? WHERE id = ?", (mine.number, run))
        return mine

    def renew_lease(self, lease: Lease, now: float, seconds: float) -> None:
        with self._writing():
            self._db.execute(
                "UPDATE leases SET expires_at = ?, expires_boot_seconds = ? WHERE run = ? AND token = ?",
                (*leases.expiry(now, seconds).values(), lease.run, lease.token),
            )
            if not self._db.changes():
                leases.check_holder(lease.run, rows.lease_of(self._db, lease.run), lease.token)

    def release_lease(self, lease: Lease) -> None:
        with self._writing():
            self._db.execute("DELETE FROM leases WHERE run = ? AND token = ?", (lease.run, lease.token))

    def lease(self, run: int, now: float) -> Lease | None:
        holder = self._first(lambda row: Lease(*row), rows.SELECT_LEASE, run)
        return None if leases.is_free(holder, now) else holder

    def request(self, run: int, at: float, kind: str, body: dict[str, Any]) -> int:
        with self._writing():
            self._check_known(run)
            self._db.execute(
                "INSERT INTO requests (run, at, kind, body) VALUES (?, ?, ?, ?)",
                (run, at, kind, encoding.to_json(body)),
            )
            number = self._db.last_insert_rowid()
            self._db.execute("UPDATE submissions SET due_at = min(ifnull(due_at, ?1), ?1) WHERE run = ?2", (at, run))
            return number

    def requests(self, run: int, after: int = 0) -> list[Request]:
        # Read on the writing connection, because the reading one shows an old snapshot while a stream is half read.
        which = "run = ?" if run else "run > ?"
        question = f"SELECT {encoding.REQUEST} FROM requests WHERE {which} AND NOT taken AND id > ? ORDER BY id"
        self._witness.check()
        return list(self._read(self._db, encoding.to_request, question, (run, after)))

    def result(self, request: int) -> dict[str, Any] | None:
        sql = "SELECT result FROM requests WHERE id = ? AND result IS NOT NULL"
        return next(self._read(self._db, encoding.to_result, sql, (request,)), None)

    def server_tables(self) -> SqliteServerTables:
        from resile.store.sqlite.server_tables import SqliteServerTables

        return SqliteServerTables(self._db, self._witness)

    def bell(self, run: int) -> None:  # noqa: ARG002
        return None

    def has_changed(self) -> bool:
        version = self._first(_only_column, "PRAGMA data_version")
        seen, self._seen_version = self._seen_version, version
        return version != seen

    def find_damage(self) -> list[str]:
        found: list[str] = []
        checks: tuple[tuple[str, Callable[[Any], str]], ...] = (
            ("PRAGMA integrity_check", lambda row: str(_only_column(row)).strip()),
            ("PRAGMA foreign_key_check", lambda row: f"a row of {row[0]} belongs to a row of {row[2]} that is gone"),
        )
        try:
            found += self._lost_events(self._witness.known_events())
            for sql, convert in checks:
                found += (text for text in self._all(convert, sql) if text != "ok")
        except StoreError as error:
            found.append(error.message)
        return found

    def accept_damage(self) -> None:
        self._witness.forget()

    def close(self) -> None:
        try:
            # If the database is gone, the engine has already raised that, perhaps before its writer noticed.
            with suppress(StoreGone):
                if self._writer is not None:
                    self._writer.close()
        finally:
            if self._reader is not None:
                self._reader.close()
            if self._db is not self._reader:
                self._checkpoint()
                self._db.close()

    def _checkpoint(self) -> None:
        """Copy all commits from the WAL into the file, so that the file is complete without it.

        If readers are in the way or the disk is full, some commits stay in the WAL.
        """
        if not self._witness.is_same():
            return
        with suppress(apsw.Error):
            frames, written = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if frames == written:
                self._witness.forget()
                self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)

    def _lost_events(self, known: dict[int, int]) -> Iterator[str]:
        """A message for each run with events that were durable and are gone: the WAL is missing, cut or damaged."""
        sql = f"SELECT max(place) & {rows.SEQ_MASK} FROM log WHERE place > ? AND place < ?"
        for run, seq in known.items():
            found = self._first(_only_column, sql, rows.place(run, 0), rows.place(run + 1, 0)) or 0
            if found < seq or (run and self._first(_only_column, "SELECT 1 FROM runs WHERE id = ?", run) is None):
                what = f"events {found + 1} to {seq} of run {run} are" if seq else f"run {run} is"
                yield f"{what} gone, because {self.path}-wal is missing, cut or damaged"

    def _writing(self) -> AbstractContextManager[None]:
        self._witness.check()
        return writing(self._db, self.path)

    def _all(self, convert: Callable[[Any], T], sql: str, *values: str | bytes | int) -> Iterator[T]:
        """The rows of a query, converted, as a stream."""
        return self._read(self._reading_connection(), convert, sql, values)

    def _reading_connection(self) -> apsw.Connection:
        if self._reader is None:
            self._reader = connect(self.path, readonly=True)
        return self._reader

    def _read(
        self, db: apsw.Connection, convert: Callable[[Any], T], sql: str, values: tuple[str | bytes | int, ...]
    ) -> Iterator[T]:
        """The converted rows of a query on one connection; raises StoreDamaged for a row that can't be converted."""
        try:
            for row in db.execute(sql, values):
                yield convert(row)
        except apsw.Error as error:
            raise explain(error, self.path) from error
        except (MsgspecError, ValueError, TypeError) as error:
            raise damage_error(self.path, f"a row can't be read: {error}") from error

    def _first(self, convert: Callable[[Any], T], sql: str, *values: str | bytes | int) -> T | None:
        return next(self._all(convert, sql, *values), None)

    def _insert_definition(self, name: str, definition: bytes) -> None:
        if self._db.execute("SELECT 1 FROM definitions WHERE hash = ?", (name,)).get is None:
            self._db.execute("INSERT INTO definitions VALUES (?, ?)", (name, rows.definition_value(definition)))

    def _check_known(self, run: int) -> None:
        if self._db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).get is None:
            raise StoreError("no-such-run", f"there is no run {run} in {self.path}", hint="`resile ls` lists them")
