"""The tables that servers share, in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import apsw
from msgspec.structs import astuple

from resile.core.actions import Note
from resile.model.status import Status
from resile.store import lease as leases
from resile.store.call_holder import call_of, holder_text
from resile.store.contract import Lease
from resile.store.encoding import LEASE, from_json
from resile.store.errors import StoreError
from resile.store.server_tables import CALL_SECONDS_MAX, Announcement, Call, Census, Claim, ClaimKey, Submission, Token
from resile.store.sqlite import rows, schema
from resile.store.sqlite.connection import explain, writing
from resile.store.sqlite.witness import Witness

_SUBMISSION = "run, priority, due_at, since"
_CLAIM = "run, epoch, job, attempt, worker, token, at, memory_bytes"
_IS_DRIVEN = "EXISTS (SELECT 1 FROM leases WHERE leases.run = submissions.run AND leases.expires_at > ?1)"
_IS_AWAITED = "EXISTS (SELECT 1 FROM requests WHERE requests.run = ?1 AND NOT taken)"

_PARKED = f"""FROM jobs JOIN runs ON runs.id = jobs.run
    WHERE jobs.status = {Status.pending_failed.value} AND runs.status NOT IN ('completed', 'failed', 'canceled')"""

T = TypeVar("T")


class SqliteServerTables:
    """These tables of one open store, on its writing connection; see the contract for the methods."""

    def __init__(self, db: apsw.Connection, witness: Witness) -> None:
        self._db = db
        self._witness = witness
        self._has_tables = False

    def enqueue(self, run: int, at: float, priority: int | None = None) -> None:
        with self._writing() as db:
            if db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).get is None:
                raise StoreError("no-such-run", f"there is no run {run} in {self._witness.path}")
            db.execute(
                "INSERT INTO submissions VALUES (?1, ifnull(?2, 0), ?3, ?3) ON CONFLICT (run) DO UPDATE SET"
                " due_at = min(ifnull(due_at, ?3), ?3), priority = ifnull(?2, priority)",
                (run, priority, at),
            )

    def submission(self, run: int) -> Submission | None:
        return next(iter(self._read(_to_submission, f"SELECT {_SUBMISSION} FROM submissions WHERE run = ?", run)), None)

    def due_runs(self, at: float, now: float, limit: int = 100) -> list[Submission]:
        due = ", ".join(f"submissions.{name}" for name in _SUBMISSION.split(", "))
        held = ", ".join(f"leases.{name}" for name in LEASE.split(", "))
        # Leave out the runs that this process drives itself: a busy server drives most of the due ones.
        sql = f"""SELECT {due}, {held} FROM submissions LEFT JOIN leases USING (run) WHERE due_at <= ?
            AND (leases.run IS NULL OR (leases.boot, leases.pid, leases.pid_started) != (?, ?, ?)
                OR expires_boot_seconds <= ?)
            ORDER BY priority DESC, due_at, submissions.run"""
        found = self._rows(sql, at, *leases.own_process(), now)
        free = (_to_submission(row[:4]) for row in found if row[4] is None or leases.is_free(Lease(*row[4:]), now))
        return list(islice(free, limit))

    def take_due(self, at: float, now: float, seconds: float, limit: int) -> list[tuple[Submission, Lease]]:
        due = self.due_runs(at, now, limit)
        taken: list[tuple[Submission, Lease]] = []
        if not due:
            return taken
        with self._writing(synced=False) as db:
            for one in due:
                held = rows.lease_of(db, one.run)
                if not leases.is_free(held, now):
                    continue
                last = db.execute("SELECT fence FROM runs WHERE id = ?", (one.run,)).get
                mine = leases.take(one.run, now, seconds, held, last=last)
                db.execute(f"REPLACE INTO leases ({LEASE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(mine))
                db.execute("UPDATE runs SET fence = ? WHERE id = ?", (mine.number, one.run))
                taken.append((one, mine))
        return taken

    def next_due(self) -> float | None:
        found: float | None = self._read(_only, "SELECT min(due_at) FROM submissions")[0]
        return found

    def hand_back(self, lease: Lease, due_at: float | None) -> None:
        with self._writing() as db:
            self._check_held(lease)
            _hand_back(db, lease, due_at)

    def dequeue(self, lease: Lease) -> None:
        with self._writing() as db:
            self._check_held(lease)
            _dequeue(db, lease)

    def release_all(self, ended: Sequence[Lease], waiting: Sequence[tuple[Lease, float | None]]) -> None:
        with self._writing(synced=False) as db:
            for lease in ended:
                if rows.holds(db, lease):
                    _dequeue(db, lease)
            for lease, due_at in waiting:
                if rows.holds(db, lease):
                    _hand_back(db, lease, due_at)

    def renew_leases(self, leases_: Sequence[Lease], now: float, seconds: float) -> list[Lease]:
        sql = "UPDATE leases SET expires_at = ?, expires_boot_seconds = ? WHERE run = ? AND token = ?"
        expiry = leases.expiry(now, seconds).values()
        lost: list[Lease] = []
        with self._writing(synced=False) as db:
            for lease in leases_:
                db.execute(sql, (*expiry, lease.run, lease.token))
                if not db.changes():
                    lost.append(lease)
        return lost

    def census(self, at: float) -> Census:
        runs = dict(self._read(tuple, "SELECT status, count(*) FROM runs GROUP BY status"))
        parked = self._read(_only, f"SELECT count(*) {_PARKED}")[0]
        letters = self._read(_only, "SELECT count(*) FROM dead_letters")[0]
        due = self._read(_only, f"SELECT count(*) FROM submissions WHERE due_at <= ?1 AND NOT {_IS_DRIVEN}", at)[0]
        return Census(runs, parked, letters, due)

    def parked_jobs(self) -> list[tuple[int, int]]:
        sql = f"SELECT jobs.run, jobs.id {_PARKED} ORDER BY jobs.run DESC, jobs.id"
        return self._read(lambda row: (row[0], row[1]), sql)

    def announcements(self, after: int, limit: int = 1000) -> list[Announcement]:
        sql = "SELECT position, run, note FROM announcements WHERE position > ? ORDER BY position LIMIT ?"
        return self._read(lambda row: Announcement(row[0], row[1], from_json(row[2], Note)), sql, after, limit)

    def last_position(self) -> int:
        return int(self._read(_only, "SELECT ifnull(max(position), 0) FROM announcements")[0])

    def tokens(self) -> list[Token]:
        sql = "SELECT name, role, digest, created_at, expires_at FROM tokens ORDER BY name"
        return self._read(lambda row: Token(*row), sql)

    def add_token(self, token: Token) -> None:
        with self._writing() as db:
            if db.execute("SELECT 1 FROM tokens WHERE name = ?", (token.name,)).get is not None:
                raise StoreError("token-exists", f"there is a token named {token.name} already")
            db.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?)", astuple(token))

    def revoke_token(self, name: str) -> bool:
        with self._writing() as db:
            db.execute("DELETE FROM tokens WHERE name = ?", (name,))
            return bool(db.changes())

    def begin_call(self, key: str, digest: str, at: float, now: float) -> Call | None:
        with self._writing() as db:
            db.execute("DELETE FROM calls WHERE at < ?", (at - CALL_SECONDS_MAX,))
            found = db.execute("SELECT digest, answer, at, holder FROM calls WHERE key = ?", (key,)).get
            if found is not None:
                call = call_of(found[0], found[1], found[2], found[3], now)
                if call.is_orphaned and call.digest == digest:
                    db.execute("UPDATE calls SET holder = ? WHERE key = ?", (holder_text(now), key))
                return call
            db.execute("INSERT INTO calls VALUES (?, ?, ?, NULL, ?)", (key, digest, at, holder_text(now)))
        return None

    def renew_call(self, key: str, now: float) -> None:
        with self._writing() as db:
            db.execute("UPDATE calls SET holder = ? WHERE key = ?", (holder_text(now), key))

    def release_call(self, key: str) -> None:
        with self._writing() as db:
            db.execute("UPDATE calls SET holder = '' WHERE key = ?", (key,))

    def request_of_call(self, run: int, call: str) -> int | None:
        sql = "SELECT id FROM requests WHERE run = ? AND json_extract(body, '$.call') = ? ORDER BY id"
        return next(iter(self._read(lambda row: int(row[0]), sql, run, call)), None)

    def finish_call(self, key: str, answer: bytes) -> None:
        with self._writing() as db:
            db.execute("UPDATE calls SET answer = ? WHERE key = ?", (answer, key))

    def forget_call(self, key: str) -> None:
        with self._writing() as db:
            db.execute("DELETE FROM calls WHERE key = ?", (key,))

    def add_claims(self, claims: Sequence[Claim]) -> None:
        with self._writing() as db:
            db.executemany("REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [astuple(one) for one in claims])

    def claims(self, run: int | None = None, worker: str | None = None) -> list[Claim]:
        sql = f"""SELECT {_CLAIM} FROM claims WHERE (?1 IS NULL OR run = ?1) AND (?2 IS NULL OR worker = ?2)
            ORDER BY run, epoch, job, attempt"""
        return self._read(lambda row: Claim(*row), sql, run, worker)

    def drop_claims(self, keys: Sequence[ClaimKey]) -> None:
        with self._writing() as db:
            db.executemany("DELETE FROM claims WHERE run = ? AND epoch = ? AND job = ? AND attempt = ?", keys)

    @contextmanager
    def _writing(self, *, synced: bool = True) -> Iterator[apsw.Connection]:
        """One transaction.

        Leases are not `synced`: after a power cut the leases of the earlier boot are free anyway.
        """
        self._witness.check()
        with writing(self._db, self._witness.path, synced=synced):
            yield self._db

    def _read(self, convert: Callable[[Any], T], sql: str, *values: str | int | float | None) -> list[T]:
        """The converted rows of a query."""
        return [convert(row) for row in self._rows(sql, *values)]

    def _rows(self, sql: str, *values: str | int | float | None) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, as a stream; none if the database has a version without these tables."""
        self._witness.check()
        try:
            if not self._has_tables:
                self._has_tables = self._db.pragma("user_version") >= schema.WITH_SERVERS
            yield from self._db.execute(sql, values) if self._has_tables else ()
        except apsw.Error as error:
            raise explain(error, self._witness.path) from error

    def _check_held(self, lease: Lease) -> None:
        leases.check_holder(lease.run, rows.lease_of(self._db, lease.run), lease.token)


def _hand_back(db: apsw.Connection, lease: Lease, due_at: float | None) -> None:
    sql = f"UPDATE submissions SET due_at = iif({_IS_AWAITED}, 0.0, ?2) WHERE run = ?1"
    db.execute(sql, (lease.run, due_at))
    _release(db, lease)


def _dequeue(db: apsw.Connection, lease: Lease) -> None:
    db.execute(f"UPDATE submissions SET due_at = 0.0 WHERE run = ?1 AND {_IS_AWAITED}", (lease.run,))
    db.execute(f"DELETE FROM submissions WHERE run = ?1 AND NOT {_IS_AWAITED}", (lease.run,))
    _release(db, lease)


def _release(db: apsw.Connection, lease: Lease) -> None:
    db.execute("DELETE FROM leases WHERE run = ? AND token = ?", (lease.run, lease.token))


def _to_submission(row: Sequence[Any]) -> Submission:
    return Submission(*row)


def _only(row: Sequence[Any]) -> Any:
    return row[0]
