"""The store on SQLite: one file for all runs of a user, read and written by any number of processes.

    reading           opened at the first read; while a stream is half read, other reads see the same snapshot
    writing           short writes: a new run, leases, requests
    group_commit.py   the log and the tables of a run, on a thread and connection of its own

Readers see the last commit; readers and writers never wait for each other (WAL), in one process or several.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import apsw
from msgspec.structs import astuple

from resile.core.actions import Note
from resile.model.codec import content_hash
from resile.model.items import KeptScope
from resile.store import lease as leases
from resile.store.contract import AttemptRow, Entry, JobRow, Lease, LetterCount, LetterRow, Request, RunRow, Snapshot
from resile.store.errors import StoreError
from resile.store.sqlite import rows, schema
from resile.store.sqlite.connection import connect, explain, write_refused, writing

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from resile.store.sqlite.group_commit import SqliteWriter

COMPILED_MAX = 1_000
JOBS_PER_INSERT = 1_024

_INSERT_RUN = f"INSERT INTO runs ({rows.RUN.partition(', ')[2]}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class SqliteStore:
    """One open database; see the contract for the methods.

    `pages_max` bounds its size in pages of 4 KB, for tests of a full disk.
    """

    def __init__(
        self,
        path: str,
        *,
        readonly: bool = False,
        pages_max: int | None = None,
        migrations: Sequence[str] = schema.MIGRATIONS,
    ) -> None:
        self.path = path
        self._pages_max = pages_max
        self._writer: SqliteWriter | None = None
        self._seen: tuple[int, ...] | None = None
        self._db = connect(path, readonly=readonly)
        self._reader: apsw.Connection | None = self._db if readonly else None
        try:
            (schema.check if readonly else schema.migrate)(self._db, path, migrations)
        except apsw.Error as error:
            self._db.close()
            raise explain(error, path) from error
        except StoreError:
            self._db.close()
            raise

    def identity(self, run: int | None = None) -> str:
        if self._db.pragma("user_version") < schema.WITH_IDENTITY:
            return ""
        sql = "SELECT id FROM identity WHERE first_run <= ? ORDER BY first_run DESC"
        found = self._first(sql, rows.SEQ_MASK if run is None else run)
        return "" if found is None else str(found[0])

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
        return run

    def definition(self, content_hash: str) -> bytes:
        found = self._first("SELECT body FROM definitions WHERE hash = ?", content_hash)
        if found is None:
            raise StoreError("no-such-definition", f"{self.path} has no definition {content_hash}", where=self.path)
        return rows.to_definition(found[0])

    def cached_definition(self, key: str) -> bytes | None:
        found = self._first("SELECT body FROM compiled JOIN definitions ON hash = definition WHERE key = ?", key)
        return None if found is None else rows.to_definition(found[0])

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
        found = self._first("SELECT seq, format, state FROM snapshots WHERE run = ?", run)
        return None if found is None else Snapshot(*found)

    def entries(self, run: int, after: int = 0) -> Iterator[Entry]:
        sql = f"SELECT place & {rows.SEQ_MASK}, event, notes FROM log WHERE place > ? AND place < ? ORDER BY place"
        return map(rows.to_entry, self._all(sql, rows.place(run, after), rows.place(run + 1, 0)))

    def notes(self, run: int, after: int = 0) -> Iterator[Note]:
        # The entry that holds `after` may hold later notes as well.
        sql = """SELECT notes FROM log WHERE place < ?3 AND place >= ifnull(
            (SELECT max(place) FROM log WHERE place >= ?1 AND place <= ?2), ?1) ORDER BY place"""
        for (text,) in self._all(sql, rows.place(run, 0), rows.place(run, after), rows.place(run + 1, 0)):
            yield from (note for note in rows.from_json(text, tuple[Note, ...]) if note.seq > after)

    def reading(self) -> apsw.Connection:
        if self._reader is None:
            self._reader = connect(self.path, readonly=True)
        return self._reader

    def runs(self, limit: int = 100) -> list[RunRow]:
        return [rows.to_run(row) for row in self._all(f"SELECT {rows.RUN} FROM runs ORDER BY id DESC LIMIT ?", limit)]

    def run(self, run: int) -> RunRow | None:
        found = self._first(f"SELECT {rows.RUN} FROM runs WHERE id = ?", run)
        return None if found is None else rows.to_run(found)

    def jobs(self, run: int) -> Iterator[JobRow]:
        return map(rows.to_job, self._all(f"SELECT {rows.JOB} FROM jobs WHERE run = ? ORDER BY id", run))

    def attempts(self, run: int, job: int | None = None) -> Iterator[AttemptRow]:
        select, order = f"SELECT {rows.ATTEMPT} FROM attempts WHERE run = ?", "ORDER BY job, epoch, attempt"
        if job is None:
            return map(rows.to_attempt, self._all(f"{select} {order}", run))
        return map(rows.to_attempt, self._all(f"{select} AND job = ? {order}", run, job))

    def letters(self, run: int, name: str | None = None, after_index: int = -1) -> Iterator[LetterRow]:
        select, order = f"{rows.SELECT_LETTERS} AND idx > ?", "ORDER BY name, idx"
        if name is None:
            return map(rows.to_letter, self._all(f"{select} {order}", run, after_index))
        return map(rows.to_letter, self._all(f"{select} AND name = ? {order}", run, after_index, name))

    def letter(self, run: int, name: str, index: int) -> LetterRow | None:
        found = self._first(f"{rows.SELECT_LETTERS} AND name = ? AND idx = ?", run, name, index)
        return None if found is None else rows.to_letter(found)

    def letter_counts(self, run: int) -> list[LetterCount]:
        columns = "name, map, step, job, scope, count(*)"
        sql = f"SELECT {columns} FROM dead_letters WHERE run = ? GROUP BY name, job ORDER BY name, job"
        return [LetterCount(*row) for row in self._all(sql, run)]

    def kept_scope(self, run: int, scope: int) -> KeptScope | None:
        sql = "SELECT outer_scope, body FROM kept_scopes WHERE run = ? AND scope = ?"
        found = self._first(sql, run, scope)
        return None if found is None else KeptScope(scope, found[0], rows.from_json(found[1], dict[str, Any]))

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
        self._writer = SqliteWriter(db, self.path)
        return self._writer

    def acquire_lease(self, run: int, now: float, seconds: float) -> Lease:
        with self._writing():
            self._check_known(run)
            mine = leases.take(run, now, seconds, rows.lease_of(self._db, run))
            self._db.execute(f"REPLACE INTO leases ({rows.LEASE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(mine))
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
        found = self._first(rows.SELECT_LEASE, run)
        holder = None if found is None else Lease(*found)
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
        return [rows.to_request(row) for row in self._db.execute(question, (run, after)).fetchall()]

    def has_changed(self) -> bool:
        version = self._first("PRAGMA data_version")
        seen, self._seen = self._seen, version
        return version != seen

    def close(self) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._db.close()
            if self._reader is not None:
                self._reader.close()

    def _writing(self) -> AbstractContextManager[None]:
        return writing(self._db, self.path)

    def _all(self, sql: str, *values: str | int) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, as a stream."""
        try:
            yield from self.reading().execute(sql, values)
        except apsw.Error as error:
            raise explain(error, self.path) from error

    def _first(self, sql: str, *values: str | int) -> tuple[Any, ...] | None:
        return next(self._all(sql, *values), None)

    def _keep(self, name: str, definition: bytes) -> None:
        if self._db.execute("SELECT 1 FROM definitions WHERE hash = ?", (name,)).get is None:
            self._db.execute("INSERT INTO definitions VALUES (?, ?)", (name, rows.definition_value(definition)))

    def _check_known(self, run: int) -> None:
        if self._db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).get is None:
            raise StoreError("no-such-run", f"there is no run {run} in {self.path}", hint="`resile status` lists them")
