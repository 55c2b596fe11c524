"""The store on SQLite: one file for all runs of a user, read and written by any number of processes.

    reading           opened at the first read; while a stream is half read, other reads see the same snapshot
    writing           short writes: a new run, leases, requests
    group_commit.py   the log and the tables of a run, on a thread and connection of its own

Readers see the last commit; readers and writers never wait for each other (WAL), in one process or several.
"""

from __future__ import annotations

import os
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
from resile.store import lease as leases
from resile.store.contract import AttemptRow, Entry, JobRow, Lease, LetterCount, LetterRow, Request, RunRow, Snapshot
from resile.store.errors import StoreError, StoreGone
from resile.store.sqlite import rows, schema
from resile.store.sqlite.connection import connect, explain, write_refused, writing
from resile.store.sqlite.witness import Witness, damage_error

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from resile.store.sqlite.group_commit import SqliteWriter

COMPILED_MAX = 1_000
JOBS_PER_INSERT = 1_024

_INSERT_RUN = f"INSERT INTO runs ({rows.RUN.partition(', ')[2]}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

T = TypeVar("T")


def _only(row: tuple[Any]) -> Any:
    return row[0]


def _definition(row: tuple[Any]) -> bytes:
    return rows.to_definition(row[0])


class SqliteStore:
    """One open database; see the contract for the methods.

    Without `verify` it is opened even if events of it are lost. `pages_max` bounds its size in pages of 4 KB, for tests
    of a full disk.
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
        self._seen: int | None = None
        self._witness = Witness(path)
        known = self._witness.known_events()
        if known and self._witness.is_empty():
            raise damage_error(path, "it has been a database and is empty now")
        self._db = connect(path, readonly=readonly)
        self._reader: apsw.Connection | None = self._db if readonly else None
        try:
            (schema.check if readonly else schema.migrate)(self._db, path, migrations)
            if not readonly:
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

    def identity(self, run: int | None = None) -> str:
        if (self._first(_only, "PRAGMA user_version") or 0) < schema.WITH_IDENTITY:
            return ""
        sql = "SELECT id FROM identity WHERE first_run <= ? ORDER BY first_run DESC"
        return self._first(_only, sql, rows.SEQ_MASK if run is None else run) or ""

    def renew_identity(self, run: int) -> str:
        name = os.urandom(8).hex()
        with self._writing():
            self._db.execute("REPLACE INTO identity VALUES (?, ?)", (run, name))
        return name

    def create_run(self, row: RunRow, definition: bytes, jobs: Sequence[JobRow]) -> int:
        with self._writing():
            self._keep(row.definition, definition)
            self._db.execute(_INSERT_RUN, rows.run_values(row))
            run = self._db.last_insert_rowid()
            waiting = iter(jobs)
            while some := list(islice(waiting, JOBS_PER_INSERT)):
                rows.REPLACE_JOBS.into(self._db, rows.job_values(run, some))
        self._witness.remember(run, 0)
        return run

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
            self._keep(name, definition)
            self._db.execute("REPLACE INTO compiled (key, definition) VALUES (?, ?)", (key, name))
            old = self._db.execute(
                "DELETE FROM compiled WHERE id <= (SELECT max(id) FROM compiled) - ? RETURNING definition",
                (COMPILED_MAX,),
            ).fetchall()
            self._db.executemany(
                "DELETE FROM definitions WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM runs WHERE definition = ?1)"
                " AND NOT EXISTS (SELECT 1 FROM compiled WHERE definition = ?1)",
                old,
            )

    def latest_snapshot(self, run: int) -> Snapshot | None:
        return self._first(lambda row: Snapshot(*row), "SELECT seq, format, state FROM snapshots WHERE run = ?", run)

    def entries(self, run: int, after: int = 0) -> Iterator[Entry]:
        sql = f"SELECT place & {rows.SEQ_MASK}, event, notes FROM log WHERE place > ? AND place < ? ORDER BY place"
        return self._all(rows.to_entry, sql, rows.place(run, after), rows.place(run + 1, 0))

    def notes(self, run: int, after: int = 0) -> Iterator[Note]:
        # The entry that holds `after` may hold later notes as well.
        sql = """SELECT notes FROM log WHERE place < ?3 AND place >= ifnull(
            (SELECT max(place) FROM log WHERE place >= ?1 AND place <= ?2), ?1) ORDER BY place"""
        places = (rows.place(run, 0), rows.place(run, after), rows.place(run + 1, 0))
        for notes in self._all(lambda row: rows.from_json(row[0], tuple[Note, ...]), sql, *places):
            yield from (note for note in notes if note.seq > after)

    @contextmanager
    def reading(self) -> Iterator[None]:
        try:
            with self._reading_connection():
                yield
        except apsw.Error as error:
            raise explain(error, self.path) from error

    def runs(self, limit: int = 100) -> list[RunRow]:
        return list(self._all(rows.to_run, f"SELECT {rows.RUN} FROM runs ORDER BY id DESC LIMIT ?", limit))

    def run(self, run: int) -> RunRow | None:
        return self._first(rows.to_run, f"SELECT {rows.RUN} FROM runs WHERE id = ?", run)

    def jobs(self, run: int) -> Iterator[JobRow]:
        return self._all(rows.to_job, f"SELECT {rows.JOB} FROM jobs WHERE run = ? ORDER BY id", run)

    def attempts(self, run: int, job: int | None = None) -> Iterator[AttemptRow]:
        select, order = f"SELECT {rows.ATTEMPT} FROM attempts WHERE run = ?", "ORDER BY job, epoch, attempt"
        if job is None:
            return self._all(rows.to_attempt, f"{select} {order}", run)
        return self._all(rows.to_attempt, f"{select} AND job = ? {order}", run, job)

    def letters(self, run: int, name: str | None = None, after_index: int = -1) -> Iterator[LetterRow]:
        select, order = f"{rows.SELECT_LETTERS} AND idx > ?", "ORDER BY name, idx"
        if name is None:
            return self._all(rows.to_letter, f"{select} {order}", run, after_index)
        return self._all(rows.to_letter, f"{select} AND name = ? {order}", run, after_index, name)

    def letter(self, run: int, name: str, index: int) -> LetterRow | None:
        return self._first(rows.to_letter, f"{rows.SELECT_LETTERS} AND name = ? AND idx = ?", run, name, index)

    def letter_counts(self, run: int) -> list[LetterCount]:
        columns = "name, map, step, job, scope, count(*)"
        sql = f"SELECT {columns} FROM dead_letters WHERE run = ? GROUP BY name, job ORDER BY name, job"
        return list(self._all(lambda row: LetterCount(*row), sql, run))

    def kept_scope(self, run: int, scope: int) -> KeptScope | None:
        sql = "SELECT outer_scope, body FROM kept_scopes WHERE run = ? AND scope = ?"
        return self._first(
            lambda row: KeptScope(scope, row[0], rows.from_json(row[1], dict[str, Any])), sql, run, scope
        )

    def purge_letters(self, lease: Lease, keys: Sequence[tuple[str, int]] | None = None) -> int:
        with self._writing():
            leases.check_holder(lease.run, rows.lease_of(self._db, lease.run), lease.token)
            before = self._db.total_changes()
            delete = "DELETE FROM dead_letters WHERE run = ?"
            if keys is not None:
                self._db.executemany(f"{delete} AND name = ? AND idx = ?", [(lease.run, *key) for key in keys])
                return self._db.total_changes() - before
            self._db.execute(delete, (lease.run,))
            gone = self._db.total_changes() - before
            self._db.execute("DELETE FROM kept_scopes WHERE run = ?", (lease.run,))
            return gone

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
            self._db.execute(f"REPLACE INTO leases ({rows.LEASE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(mine))
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
                "INSERT INTO requests (run, at, kind, body) VALUES (?, ?, ?, ?)", (run, at, kind, rows.to_json(body))
            )
            return self._db.last_insert_rowid()

    def requests(self, run: int, after: int = 0) -> list[Request]:
        # On the writing connection, because a half-read stream would show an old snapshot.
        question = f"SELECT {rows.REQUEST} FROM requests WHERE run = ? AND NOT taken AND id > ? ORDER BY id"
        self._witness.check()
        return list(self._read(self._db, rows.to_request, question, (run, after)))

    def has_changed(self) -> bool:
        version = self._first(_only, "PRAGMA data_version")
        seen, self._seen = self._seen, version
        return version != seen

    def find_damage(self) -> list[str]:
        found: list[str] = []
        checks: tuple[tuple[str, Callable[[Any], str]], ...] = (
            ("PRAGMA integrity_check", lambda row: str(row[0]).strip()),
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
            # The engine that lost its database has said so already, perhaps before its writer could.
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
        """Write all commits into the file, so that it is complete by itself; where readers hinder that, or the disk is
        full, they stay in the WAL.
        """
        if not self._witness.is_same():
            return
        with suppress(apsw.Error):
            frames, written = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if frames == written:
                self._witness.forget()
                self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)

    def _lost_events(self, known: dict[int, int]) -> Iterator[str]:
        """The events that were durable and are not in the database: its WAL is missing, cut or damaged."""
        sql = f"SELECT max(place) & {rows.SEQ_MASK} FROM log WHERE place > ? AND place < ?"
        for run, seq in known.items():
            found = self._first(_only, sql, rows.place(run, 0), rows.place(run + 1, 0)) or 0
            if found < seq or (run and self._first(_only, "SELECT 1 FROM runs WHERE id = ?", run) is None):
                what = f"events {found + 1} to {seq} of run {run} are" if seq else f"run {run} is"
                yield f"{what} gone, because {self.path}-wal is missing, cut or damaged"

    def _writing(self) -> AbstractContextManager[None]:
        self._witness.check()
        return writing(self._db, self.path)

    def _all(self, convert: Callable[[Any], T], sql: str, *values: str | int) -> Iterator[T]:
        """The rows of a query, converted, as a stream."""
        return self._read(self._reading_connection(), convert, sql, values)

    def _reading_connection(self) -> apsw.Connection:
        if self._reader is None:
            self._reader = connect(self.path, readonly=True)
        return self._reader

    def _read(
        self, db: apsw.Connection, convert: Callable[[Any], T], sql: str, values: tuple[str | int, ...]
    ) -> Iterator[T]:
        """The converted rows of a query on one connection; a row that makes no sense is damage."""
        try:
            for row in db.execute(sql, values):
                yield convert(row)
        except apsw.Error as error:
            raise explain(error, self.path) from error
        except (MsgspecError, ValueError, TypeError) as error:
            raise damage_error(self.path, f"a row can't be read: {error}") from error

    def _first(self, convert: Callable[[Any], T], sql: str, *values: str | int) -> T | None:
        return next(self._all(convert, sql, *values), None)

    def _keep(self, name: str, definition: bytes) -> None:
        if self._db.execute("SELECT 1 FROM definitions WHERE hash = ?", (name,)).get is None:
            self._db.execute("INSERT INTO definitions VALUES (?, ?)", (name, rows.definition_value(definition)))

    def _check_known(self, run: int) -> None:
        if self._db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).get is None:
            raise StoreError("no-such-run", f"there is no run {run} in {self.path}", hint="`resile status` lists them")
