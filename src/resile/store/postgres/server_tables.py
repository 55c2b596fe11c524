"""The tables that servers share, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import astuple

from resile.core.actions import Note
from resile.model.status import Status
from resile.store import lease as leases
from resile.store.call_holder import call_of, holder_text
from resile.store.contract import Lease
from resile.store.encoding import LEASE, from_json
from resile.store.errors import LeaseHeld, StoreError
from resile.store.postgres import rows
from resile.store.postgres.bell import ring
from resile.store.postgres.session import NOW, Connection, Session
from resile.store.server_tables import CALL_SECONDS_MAX, Announcement, Call, Census, Claim, ClaimKey, Submission, Token

_SUBMISSION = "run, priority, due_at, since"
_CLAIM = "run, epoch, job, attempt, worker, token, at, memory_bytes"
_IS_DRIVEN = """EXISTS (SELECT 1 FROM leases
    WHERE leases.run = submissions.run AND token IS NOT NULL AND leases.expires_at > %s)"""
_IS_AWAITED = "EXISTS (SELECT 1 FROM requests WHERE requests.run = %(run)s AND NOT taken)"
_PARKED = f"""FROM jobs JOIN runs ON runs.id = jobs.run
    WHERE jobs.status = {Status.pending_failed.value} AND runs.status NOT IN ('completed', 'failed', 'canceled')"""


_HAND_BACK = f"UPDATE submissions SET due_at = CASE WHEN {_IS_AWAITED} THEN 0 ELSE %(due)s END WHERE run = %(run)s"
_DEQUEUE: tuple[str, ...] = (
    f"UPDATE submissions SET due_at = 0 WHERE run = %(run)s AND {_IS_AWAITED}",
    f"DELETE FROM submissions WHERE run = %(run)s AND NOT {_IS_AWAITED}",
)


class PostgresServerTables:
    """These tables of one open store, in its writing session; see the contract for the methods."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def enqueue(self, run: int, at: float, priority: int | None = None) -> None:
        def add(db: Connection) -> None:
            if db.execute("SELECT 1 FROM runs WHERE id = %s", (run,)).fetchone() is None:
                raise StoreError("no-such-run", f"there is no run {run} in {self._session.address.shown}")
            db.execute(
                "INSERT INTO submissions VALUES (%(run)s, coalesce(%(priority)s::bigint, 0), %(at)s, %(at)s)"
                " ON CONFLICT (run) DO UPDATE SET due_at = least(submissions.due_at, excluded.due_at),"
                " priority = coalesce(%(priority)s::bigint, submissions.priority)",
                {"run": run, "priority": priority, "at": at},
            )
            ring(db, run)

        self._session.write(add)

    def submission(self, run: int) -> Submission | None:
        found = self._rows(f"SELECT {_SUBMISSION} FROM submissions WHERE run = %s", run)
        return Submission(*found[0]) if found else None

    def due_runs(self, at: float, now: float, limit: int = 100) -> list[Submission]:
        held = ", ".join(f"leases.{name}" for name in LEASE.split(", "))
        due = ", ".join(f"submissions.{name}" for name in _SUBMISSION.split(", "))
        sql = f"""SELECT {due}, {NOW}, {held} FROM submissions JOIN leases USING (run) WHERE due_at <= %s
            ORDER BY priority DESC, due_at, submissions.run"""
        free = (
            Submission(*row[:4]) for row in self._rows(sql, at) if leases.is_free(rows.to_lease(row[5:]), now, row[4])
        )
        return [one for one, _ in zip(free, range(limit), strict=False)]

    def take_due(self, at: float, now: float, seconds: float, limit: int) -> list[tuple[Submission, Lease]]:
        due = {one.run: one for one in self.due_runs(at, now, limit)}
        select = f"""SELECT {NOW}, {LEASE} FROM leases WHERE run = ANY(%s) ORDER BY run FOR UPDATE SKIP LOCKED"""
        update = f"UPDATE leases SET ({LEASE}) = (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) WHERE run = %s"

        def take(db: Connection) -> list[Lease]:
            mine: list[Lease] = []
            for wall, *fields in db.execute(select, (list(due),)).fetchall():
                held = rows.to_lease(fields)
                if leases.is_free(held, now, wall):
                    mine.append(leases.take(fields[0], now, seconds, held, wall, last=fields[-1]))
            if mine:
                with db.cursor() as cursor:
                    cursor.executemany(update, [(*astuple(lease), lease.run) for lease in mine])
            return mine

        taken = {lease.run: lease for lease in self._session.write(take)} if due else {}
        return [(one, taken[run]) for run, one in due.items() if run in taken]

    def next_due(self) -> float | None:
        found: float | None = self._rows("SELECT min(due_at) FROM submissions")[0][0]
        return found

    def hand_back(self, lease: Lease, due_at: float | None) -> None:
        self._session.write(lambda db: _let_go(db, lease, (_HAND_BACK,), due_at))

    def dequeue(self, lease: Lease) -> None:
        self._session.write(lambda db: _let_go(db, lease, _DEQUEUE))

    def release_all(self, ended: Sequence[Lease], waiting: Sequence[tuple[Lease, float | None]]) -> None:
        def release(db: Connection) -> None:
            tasks: list[tuple[Lease, tuple[str, ...], float | None]] = [(lease, _DEQUEUE, None) for lease in ended]
            tasks += [(lease, (_HAND_BACK,), due_at) for lease, due_at in waiting]
            # Locks leases in the order of their runs, like all other code that locks several.
            for lease, statements, due_at in sorted(tasks, key=lambda task: task[0].run):
                with suppress(LeaseHeld):
                    _let_go(db, lease, statements, due_at)

        self._session.write(release)

    def renew_leases(self, leases_: Sequence[Lease], now: float, seconds: float) -> list[Lease]:
        sql = f"""UPDATE leases SET expires_at = {NOW} + %s, expires_boot_seconds = %s
            FROM unnest(%s::bigint[], %s::text[]) AS mine (run, token)
            WHERE leases.run = mine.run AND leases.token = mine.token RETURNING leases.run"""
        mine = [lease.run for lease in leases_], [lease.token for lease in leases_]
        kept = self._session.write(
            lambda db: {row[0] for row in db.execute(sql, (seconds, now + seconds, *mine)).fetchall()}
        )
        return [lease for lease in leases_ if lease.run not in kept]

    def census(self, at: float) -> Census:
        runs = dict(self._rows("SELECT status, count(*) FROM runs GROUP BY status"))
        parked = self._rows(f"SELECT count(*) {_PARKED}")[0][0]
        letters = self._rows("SELECT count(*) FROM dead_letters")[0][0]
        due = self._rows(f"SELECT count(*) FROM submissions WHERE due_at <= %s AND NOT {_IS_DRIVEN}", at, at)[0][0]
        return Census(runs, parked, letters, due)

    def parked_jobs(self) -> list[tuple[int, int]]:
        found = self._rows(f"SELECT jobs.run, jobs.id {_PARKED} ORDER BY jobs.run DESC, jobs.id")
        return [(run, job) for run, job in found]

    def announcements(self, after: int, limit: int = 1000) -> list[Announcement]:
        sql = "SELECT position, run, note FROM announcements WHERE position > %s ORDER BY position LIMIT %s"
        return [Announcement(row[0], row[1], from_json(row[2], Note)) for row in self._rows(sql, after, limit)]

    def last_position(self) -> int:
        return int(self._rows("SELECT coalesce(max(position), 0) FROM announcements")[0][0])

    def tokens(self) -> list[Token]:
        sql = "SELECT name, role, digest, created_at, expires_at FROM tokens ORDER BY name"
        return [Token(*row) for row in self._rows(sql)]

    def add_token(self, token: Token) -> None:
        sql = "INSERT INTO tokens VALUES (%s, %s, %s, %s, %s) ON CONFLICT (name) DO NOTHING"
        if not self._session.write(lambda db: db.execute(sql, astuple(token)).rowcount):
            raise StoreError("token-exists", f"there is a token named {token.name} already")

    def revoke_token(self, name: str) -> bool:
        return bool(self._session.write(lambda db: db.execute("DELETE FROM tokens WHERE name = %s", (name,)).rowcount))

    def begin_call(self, key: str, digest: str, at: float, now: float) -> Call | None:
        def begin(db: Connection) -> Call | None:
            db.execute("DELETE FROM calls WHERE at < %s", (at - CALL_SECONDS_MAX,))
            sql = "INSERT INTO calls VALUES (%s, %s, %s, NULL, %s) ON CONFLICT (key) DO NOTHING"
            if db.execute(sql, (key, digest, at, holder_text(now))).rowcount:
                return None
            # Locks the row, so that only one of several callers that find an orphan gets it.
            sql = "SELECT digest, answer, at, holder FROM calls WHERE key = %s FOR UPDATE"
            found, answer, since, holder = db.execute(sql, (key,)).fetchall()[0]
            call = call_of(found, None if answer is None else bytes(answer), since, holder, now)
            if call.is_orphaned and call.digest == digest:
                db.execute("UPDATE calls SET holder = %s WHERE key = %s", (holder_text(now), key))
            return call

        return self._session.write(begin)

    def renew_call(self, key: str, now: float) -> None:
        sql = "UPDATE calls SET holder = %s WHERE key = %s"
        self._session.write(lambda db: db.execute(sql, (holder_text(now), key)))

    def release_call(self, key: str) -> None:
        self._session.write(lambda db: db.execute("UPDATE calls SET holder = '' WHERE key = %s", (key,)))

    def request_of_call(self, run: int, call: str) -> int | None:
        sql = "SELECT id FROM requests WHERE run = %s AND body::json ->> 'call' = %s ORDER BY id LIMIT 1"
        found = self._rows(sql, run, call)
        return found[0][0] if found else None

    def finish_call(self, key: str, answer: bytes) -> None:
        self._session.write(lambda db: db.execute("UPDATE calls SET answer = %s WHERE key = %s", (answer, key)))

    def forget_call(self, key: str) -> None:
        self._session.write(lambda db: db.execute("DELETE FROM calls WHERE key = %s", (key,)))

    def add_claims(self, claims: Sequence[Claim]) -> None:
        names = _CLAIM.split(", ")
        kinds = ("bigint",) * 4 + ("text", "text", "double precision", "bigint")
        sql = f"""INSERT INTO claims ({_CLAIM}) SELECT * FROM unnest({", ".join(f"%s::{kind}[]" for kind in kinds)})
            ON CONFLICT (run, epoch, job, attempt)
            DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in names[4:])}"""
        columns = [[getattr(one, name) for one in claims] for name in names]
        # The same claims again leave the same rows.
        self._session.repeat(lambda db: db.execute(sql, columns))

    def claims(self, run: int | None = None, worker: str | None = None) -> list[Claim]:
        sql = f"""SELECT {_CLAIM} FROM claims WHERE (%s::bigint IS NULL OR run = %s)
            AND (%s::text IS NULL OR worker = %s) ORDER BY run, epoch, job, attempt"""
        return [Claim(*row) for row in self._rows(sql, run, run, worker, worker)]

    def drop_claims(self, keys: Sequence[ClaimKey]) -> None:
        sql = """DELETE FROM claims WHERE (run, epoch, job, attempt) IN
            (SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[]))"""
        columns = [[key[index] for key in keys] for index in range(4)]
        self._session.write(lambda db: db.execute(sql, columns))

    def _rows(self, sql: str, *values: str | int | float | None) -> list[tuple[Any, ...]]:
        return self._session.read(lambda db: db.execute(sql, values).fetchall())


def _let_go(db: Connection, lease: Lease, statements: Sequence[str], due_at: float | None = None) -> None:
    """Execute these statements about the submission of a run, and release its lease."""
    held = db.execute(f"{rows.SELECT_LEASE} FOR NO KEY UPDATE", (lease.run,)).fetchone()
    leases.check_holder(lease.run, rows.to_lease(held), lease.token)
    # A request that comes now waits for this row, and makes the run due after this transaction.
    db.execute("SELECT 1 FROM submissions WHERE run = %s FOR UPDATE", (lease.run,))
    for sql in statements:
        db.execute(sql, {"run": lease.run, "due": due_at})
    db.execute("UPDATE leases SET token = NULL WHERE run = %s AND token = %s", (lease.run, lease.token))
