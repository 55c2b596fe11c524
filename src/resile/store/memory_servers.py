"""The tables that servers share, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import Protocol

from msgspec.structs import replace

from resile.model.status import PENDING_FAILED, RUN_ENDED
from resile.store import lease as leases
from resile.store.contract import Batch, JobRow, Lease, LetterRow, Request, RunRow
from resile.store.encoding import is_announced
from resile.store.errors import LeaseHeld, StoreError
from resile.store.server_tables import (
    CALL_LEASE_SECONDS,
    CALL_SECONDS_MAX,
    Announcement,
    Call,
    Census,
    Claim,
    ClaimKey,
    Submission,
    Token,
)


class ServerData:
    """The rows that belong to no single run."""

    def __init__(self) -> None:
        self.announcements: list[Announcement] = []
        self.tokens: dict[str, Token] = {}
        self.calls: dict[str, Call] = {}
        self.held_until: dict[str, float] = {}
        self.requests_of_calls: dict[tuple[int, str], int] = {}
        self.claims: dict[ClaimKey, Claim] = {}

    def announce(self, batch: Batch) -> None:
        """Keep the announcements of a batch."""
        for entry in batch.entries:
            for note in filter(is_announced, entry.notes):
                self.announcements.append(Announcement(len(self.announcements) + 1, batch.run, note))


class DrivenRun(Protocol):
    """What these tables need of a run."""

    row: RunRow
    jobs: dict[int, JobRow]
    letters: dict[tuple[str, int], LetterRow]
    lease: Lease | None
    fence: int
    requests: list[Request]
    submission: Submission | None


class MemoryServerTables:
    """These tables of one opening; see the contract for the methods."""

    def __init__(
        self,
        data: ServerData,
        runs: Mapping[int, DrivenRun],
        writing: Callable[[str], AbstractContextManager[object]],
    ) -> None:
        self._data = data
        self._runs = runs
        self._writing = writing

    def enqueue(self, run: int, at: float, priority: int | None = None) -> None:
        with self._writing("enqueue"):
            kept = self._runs.get(run)
            if kept is None:
                raise StoreError("no-such-run", f"there is no run {run} in this store")
            before = kept.submission or Submission(run, 0, at, at)
            due = at if before.due_at is None else min(at, before.due_at)
            kept.submission = replace(before, due_at=due, priority=before.priority if priority is None else priority)

    def submission(self, run: int) -> Submission | None:
        kept = self._runs.get(run)
        return None if kept is None else kept.submission

    def due_runs(self, at: float, now: float, limit: int = 100) -> list[Submission]:
        free = (kept.submission for kept in self._runs.values() if leases.is_free(kept.lease, now))
        due = [(one.due_at, one) for one in free if one is not None and one.due_at is not None and one.due_at <= at]
        due.sort(key=lambda pair: (-pair[1].priority, pair[0], pair[1].run))
        return [one for _, one in islice(due, limit)]

    def take_due(self, at: float, now: float, seconds: float, limit: int) -> list[tuple[Submission, Lease]]:
        taken: list[tuple[Submission, Lease]] = []
        with self._writing("take_due"):
            for one in self.due_runs(at, now, limit):
                kept = self._runs[one.run]
                kept.lease = leases.take(one.run, now, seconds, kept.lease, last=kept.fence)
                kept.fence = kept.lease.number
                taken.append((one, kept.lease))
        return taken

    def next_due(self) -> float | None:
        found = (kept.submission for kept in self._runs.values())
        return min((one.due_at for one in found if one is not None and one.due_at is not None), default=None)

    def hand_back(self, lease: Lease, due_at: float | None) -> None:
        with self._writing("hand_back"):
            kept = self._run_of_lease(lease)
            if kept.submission is not None:
                kept.submission = replace(kept.submission, due_at=0.0 if kept.requests else due_at)
            kept.lease = None

    def dequeue(self, lease: Lease) -> None:
        with self._writing("dequeue"):
            kept = self._run_of_lease(lease)
            awaited = kept.requests and kept.submission is not None
            kept.submission = replace(kept.submission, due_at=0.0) if awaited and kept.submission else None
            kept.lease = None

    def release_all(self, ended: Sequence[Lease], waiting: Sequence[tuple[Lease, float | None]]) -> None:
        for lease in ended:
            with suppress(LeaseHeld):
                self.dequeue(lease)
        for lease, due_at in waiting:
            with suppress(LeaseHeld):
                self.hand_back(lease, due_at)

    def renew_leases(self, leases_: Sequence[Lease], now: float, seconds: float) -> list[Lease]:
        lost: list[Lease] = []
        with self._writing("renew_leases"):
            for lease in leases_:
                kept = self._runs.get(lease.run)
                if kept is None or kept.lease is None or kept.lease.token != lease.token:
                    lost.append(lease)
                else:
                    kept.lease = replace(kept.lease, **leases.expiry(now, seconds))
        return lost

    def census(self, at: float) -> Census:
        kept = list(self._runs.values())
        free = (one for one in kept if one.lease is None or one.lease.expires_at <= at)
        due = (one.submission.due_at for one in free if one.submission is not None)
        return Census(
            dict(Counter(one.row.status for one in kept)),
            len(self.parked_jobs()),
            sum(len(one.letters) for one in kept),
            sum(time is not None and time <= at for time in due),
        )

    def parked_jobs(self) -> list[tuple[int, int]]:
        found = [(run, kept) for run, kept in self._runs.items() if kept.row.status not in RUN_ENDED]
        parked = ((run, job.id) for run, kept in found for job in kept.jobs.values() if job.status == PENDING_FAILED)
        return sorted(parked, key=lambda pair: (-pair[0], pair[1]))

    def announcements(self, after: int, limit: int = 1000) -> list[Announcement]:
        return self._data.announcements[after : after + limit]

    def last_position(self) -> int:
        return len(self._data.announcements)

    def tokens(self) -> list[Token]:
        return [self._data.tokens[name] for name in sorted(self._data.tokens)]

    def add_token(self, token: Token) -> None:
        with self._writing("add_token"):
            if token.name in self._data.tokens:
                raise StoreError("token-exists", f"there is a token named {token.name} already")
            self._data.tokens[token.name] = token

    def revoke_token(self, name: str) -> bool:
        with self._writing("revoke_token"):
            return self._data.tokens.pop(name, None) is not None

    def begin_call(self, key: str, digest: str, at: float, now: float) -> Call | None:
        with self._writing("begin_call"):
            calls = self._data.calls
            for old in [name for name, call in calls.items() if call.at < at - CALL_SECONDS_MAX]:
                del calls[old]
            found = calls.get(key)
            if found is None:
                calls[key] = Call(digest, None, at)
            elif found.answer is None and self._data.held_until[key] <= now:
                found = replace(found, is_orphaned=True)
            if found is None or (found.is_orphaned and found.digest == digest):
                self._data.held_until[key] = now + CALL_LEASE_SECONDS
            return found

    def renew_call(self, key: str, now: float) -> None:
        self._data.held_until[key] = now + CALL_LEASE_SECONDS

    def release_call(self, key: str) -> None:
        self._data.held_until[key] = 0.0

    def finish_call(self, key: str, answer: bytes) -> None:
        with self._writing("finish_call"):
            self._data.calls[key] = replace(self._data.calls[key], answer=answer)

    def forget_call(self, key: str) -> None:
        with self._writing("forget_call"):
            self._data.calls.pop(key, None)

    def request_of_call(self, run: int, call: str) -> int | None:
        return self._data.requests_of_calls.get((run, call))

    def add_claims(self, claims: Sequence[Claim]) -> None:
        with self._writing("add_claims"):
            self._data.claims |= {(one.run, one.epoch, one.job, one.attempt): one for one in claims}

    def claims(self, run: int | None = None, worker: str | None = None) -> list[Claim]:
        kept = self._data.claims
        found = (kept[key] for key in sorted(kept))
        return [one for one in found if run in (None, one.run) and worker in (None, one.worker)]

    def drop_claims(self, keys: Sequence[ClaimKey]) -> None:
        with self._writing("drop_claims"):
            for key in keys:
                self._data.claims.pop(key, None)

    def _run_of_lease(self, lease: Lease) -> DrivenRun:
        """The run of a lease; refused for an engine that has lost it."""
        kept = self._runs.get(lease.run)
        leases.check_holder(lease.run, None if kept is None else kept.lease, lease.token)
        assert kept is not None
        return kept
