"""A store in memory, with fault injection, for simulation and tests.

    MemoryDatabase   the content of the disk; outlives the stores that are opened on it
    MemoryStore      one opening of it, as a process would have
    Faults           called with the name of each operation before it happens; raising makes it fail

A crash is simulated by dropping a store and opening another one on the same database: batches that its writer had not
committed are lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import structs
from msgspec.json import encode

from resile.core.actions import DropLetter, KeepLetter, Note
from resile.model.codec import content_hash
from resile.model.items import KeptScope
from resile.store import lease as leases
from resile.store.contract import (
    AttemptRow,
    Batch,
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
    row_of_letter,
)
from resile.store.errors import KeyInUse, LeaseHeld, StoreError, run_exists
from resile.store.memory_servers import MemoryServerTables, ServerData
from resile.store.progress import Progress, Tickets, flush_outputs
from resile.store.server_tables import Submission

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Faults:
    """Injected faults: `before` may raise; `hold` keeps submitted batches from becoming durable."""

    def __init__(self, before: Callable[[str], None] = lambda _: None) -> None:
        self.before = before
        self.hold = False


class _Run:
    """All data of one run."""

    def __init__(self, row: RunRow, jobs: Sequence[JobRow]) -> None:
        self.row = row
        self.jobs = {job.id: job for job in jobs}
        self.attempts: dict[tuple[int, int, int], AttemptRow] = {}
        self.letters: dict[tuple[str, int], LetterRow] = {}
        self.scopes: dict[int, KeptScope] = {}
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None
        self.lease: Lease | None = None
        self.fence = 0
        self.requests: list[Request] = []
        self.submission: Submission | None = None


_NOTHING = _Run(RunRow(id=0, workflow="", dialect="", definition="", status=""), ())


class MemoryDatabase:
    """The data that the stores opened on it share. `version` counts its commits."""

    def __init__(self, faults: Faults | None = None) -> None:
        from threading import RLock

        self.faults = faults or Faults()
        self.lock = RLock()
        self.version = 0
        self.definitions: dict[str, bytes] = {}
        self.compiled: dict[str, str] = {}
        self.runs: dict[int, _Run] = {}
        self.last_run = 0
        self.requested = 0
        self.results: dict[int, dict[str, Any]] = {}
        self.server = ServerData()
        self.names = {1: os.urandom(8).hex()}

    def commit(self, batches: Sequence[Batch]) -> dict[int, StoreError]:
        """Write some batches; leave out those of engines that lost their lease, and return the reasons by index."""
        refused: dict[int, StoreError] = {}
        with self.lock:
            self.faults.before("commit")
            for index, batch in enumerate(batches):
                try:
                    leases.check_holder(batch.run, self.runs.get(batch.run, _NOTHING).lease, batch.token)
                except LeaseHeld as error:
                    refused[index] = error
                    continue
                kept = self.runs[batch.run]
                kept.entries += batch.entries
                kept.jobs.update(batch.jobs)
                kept.attempts.update(batch.attempts)
                for order in batch.letters:
                    _obey(batch.run, kept.letters, order)
                kept.scopes |= {one.scope: one for one in batch.scopes}
                kept.row = kept.row if batch.row is None else structs.replace(batch.row, id=batch.run)
                kept.snapshot = batch.snapshot or kept.snapshot
                kept.requests = [request for request in kept.requests if request.id not in batch.answered]
                self.results |= {number: result for number, result in batch.answered.items() if result is not None}
                self.server.announce(batch)
            self.version += 1
        return refused


def _obey(run: int, letters: dict[tuple[str, int], LetterRow], order: KeepLetter | DropLetter) -> None:
    """Keep a letter, or drop the letter of the same item."""
    if isinstance(order, KeepLetter):
        key = order.letter.name, order.letter.item.index
        letters[key] = row_of_letter(run, order.letter, letters.get(key) if order.goes_on else None)
    elif (found := letters.get((order.name, order.index))) is not None and found.value == order.value:
        del letters[order.name, order.index]


class MemoryWriter(Progress):
    """Commits as soon as a batch is submitted, unless `Faults.hold` is set; see the contract for the methods."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__()
        self._database = database
        self._waiting: list[tuple[Batch, Tickets]] = []
        self._submitted = 0
        self.closed = False

    def submit(self, batch: Batch, *, at_once: bool = False) -> int:
        self._submitted += 1
        self.put(batch, self, at_once=at_once)
        return self._submitted

    def put(self, batch: Batch, tickets: Tickets, *, at_once: bool) -> None:  # noqa: ARG002
        """Queue a batch, and commit it unless commits are held."""
        self._waiting.append((batch, tickets))
        if not self._database.faults.hold:
            self.commit()

    def commit(self) -> None:
        """Commit all waiting batches in one transaction."""
        waiting, self._waiting = self._waiting, []
        if not waiting or self.error is not None:
            return
        try:
            waiting = flush_outputs(waiting)
            refused = self._database.commit([batch for batch, _ in waiting])
        except StoreError as error:
            self.stop(error)
            return
        for index, (_, tickets) in enumerate(waiting):
            if index in refused:
                tickets.stop(refused[index])
            elif tickets.error is None:
                tickets.move(1)

    def flush(self) -> None:
        self.commit()
        self.check()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.commit()
            super().close()


class MemoryStore:
    """One opening of a database in memory; see the contract for the methods."""

    def __init__(self, database: MemoryDatabase | None = None) -> None:
        self.path = "memory:"
        self._database = database or MemoryDatabase()
        self._seen = -1
        self._writer: MemoryWriter | None = None

    def identity(self, run: int | None = None) -> str:
        names = self._database.names
        return names[max(first for first in names if run is None or first <= run)]

    def renew_identity(self, run: int) -> str:
        with self._writing("renew_identity") as database:
            name = database.names[run] = os.urandom(8).hex()
            return name

    def create_run(
        self, row: RunRow, definition: bytes, jobs: Sequence[JobRow], submit_priority: int | None = None
    ) -> int:
        with self._writing("create_run") as database:
            if row.key and self.run_with_key(row.key) is not None:
                raise KeyInUse("key-in-use", f"another run has the key {row.key}")
            database.definitions[content_hash(definition)] = definition
            run = database.last_run = database.last_run + 1
            kept = database.runs[run] = _Run(structs.replace(row, id=run), jobs)
            if submit_priority is not None:
                kept.submission = Submission(run, submit_priority, row.created_at, row.created_at)
            return run

    def import_run(self, source: Store, run: int) -> None:
        row, identity = known_run(source, run), self.identity(run + 1)
        with self._writing("import_run") as database:
            if run in database.runs:
                raise run_exists(run, "this store")
            database.definitions[row.definition] = source.definition(row.definition)
            kept = _Run(row, list(source.jobs(run)))
            kept.entries = list(source.entries(run))
            kept.attempts = {(one.job, one.epoch, one.attempt): one for one in source.attempts(run)}
            kept.letters = {(one.name, one.index): one for one in source.letters(run)}
            kept.scopes = {one.scope: one for one in source.kept_scopes(run)}
            kept.snapshot = source.latest_snapshot(run)
            runs = sorted((database.runs | {run: kept}).items())
            database.runs.clear()
            database.runs.update(runs)
            database.last_run = max(database.last_run, run)
            database.names = {run + 1: identity} | database.names | {run: source.identity(run)}

    def definition(self, content_hash: str) -> bytes:
        found = self._database.definitions.get(content_hash)
        if found is None:
            raise StoreError("no-such-definition", f"this store has no definition {content_hash}")
        return found

    def cached_definition(self, key: str) -> bytes | None:
        name = self._database.compiled.get(key)
        return None if name is None else self._database.definitions[name]

    def cache_definition(self, key: str, definition: bytes) -> None:
        with self._writing("cache_definition") as database:
            name = database.compiled[key] = content_hash(definition)
            database.definitions[name] = definition

    def latest_snapshot(self, run: int) -> Snapshot | None:
        return self._read(run).snapshot

    def entries(self, run: int, after: int = 0) -> Iterator[Entry]:
        return iter([entry for entry in self._read(run).entries if entry.seq > after])

    def notes(self, run: int, after: int = 0) -> Iterator[Note]:
        return (note for entry in self.entries(run) for note in entry.notes if note.seq > after)

    def reading(self) -> AbstractContextManager[object]:
        return self._database.lock

    def runs(self, limit: int = 100, before: int | None = None) -> list[RunRow]:
        rows = (kept.row for kept in reversed(self._database.runs.values()))
        return [row for row in rows if before is None or row.id < before][:limit]

    def run(self, run: int) -> RunRow | None:
        return self._read(run).row if run in self._database.runs else None

    def run_with_key(self, key: str) -> RunRow | None:
        rows = (kept.row for kept in self._database.runs.values())
        return next((row for row in rows if key and row.key == key), None)

    def count_runs_in(self, directory: str) -> int:
        return sum(kept.row.directory == directory for kept in self._database.runs.values())

    def jobs(self, run: int) -> Iterator[JobRow]:
        jobs = self._read(run).jobs
        return iter([jobs[job] for job in sorted(jobs)])

    def attempts(self, run: int, job: int | None = None) -> Iterator[AttemptRow]:
        kept = self._read(run).attempts
        return iter([kept[key] for key in sorted(kept) if job is None or key[0] == job])

    def signature_history(self, signature: str) -> SignatureHistory:
        cases = passed = 0
        for row in self.runs(limit=1 << 30):
            rows = list(self.attempts(row.id))
            for place, tried in enumerate(rows):
                if tried.failure is not None and tried.failure.signature == signature:
                    cases += 1
                    later = [one for one in rows[place + 1 :] if one.job == tried.job]
                    passed += any(one.ended_at is not None and one.failure is None for one in later)
        return SignatureHistory(cases, passed)

    def letters(self, run: int, name: str | None = None, after_index: int = -1) -> Iterator[LetterRow]:
        kept = self._read(run).letters
        return iter([kept[key] for key in sorted(kept) if name in (None, key[0]) and key[1] > after_index])

    def letter(self, run: int, name: str, index: int) -> LetterRow | None:
        return self._read(run).letters.get((name, index))

    def letter_counts(self, run: int) -> list[LetterCount]:
        counts: dict[tuple[str, int], LetterCount] = {}
        for row in self.letters(run):
            before = counts.get((row.name, row.job), LetterCount(row.name, row.map, row.step, row.job, row.scope, 0))
            counts[row.name, row.job] = structs.replace(before, count=before.count + 1)
        return [counts[key] for key in sorted(counts)]

    def kept_scope(self, run: int, scope: int) -> KeptScope | None:
        return self._read(run).scopes.get(scope)

    def kept_scopes(self, run: int) -> Iterator[KeptScope]:
        scopes = self._read(run).scopes
        return iter([scopes[scope] for scope in sorted(scopes)])

    def purge_letters(self, lease: Lease, keys: Sequence[tuple[str, int]] | None = None) -> int:
        with self._writing("purge_letters"):
            kept = self._run_of_lease(lease)
            before = len(kept.letters)
            for key in list(kept.letters) if keys is None else keys:
                kept.letters.pop(key, None)
            return before - len(kept.letters)

    def delete_run(self, lease: Lease) -> None:
        with self._writing("delete_run") as database:
            gone = self._run_of_lease(lease).row.definition
            del database.runs[lease.run]
            server = database.server
            server.claims = {key: claim for key, claim in server.claims.items() if claim.run != lease.run}
            used = {kept.row.definition for kept in database.runs.values()} | set(database.compiled.values())
            if gone not in used:
                database.definitions.pop(gone, None)

    def run_bytes(self, run: int) -> int:
        return sum(len(encode(entry)) for entry in self._read(run).entries)

    def size_bytes(self) -> int:
        return sum(self.run_bytes(run) for run in self._database.runs)

    def compact(self, now: float) -> str:
        for kept in self._database.runs.values():
            if not leases.is_free(kept.lease, now):
                return f"run {kept.row.id} is being driven"
        return ""

    def writer(self) -> MemoryWriter:
        if self._writer is not None and not self._writer.closed:
            raise StoreError("writer-open", "this store already has its writer")
        self._writer = MemoryWriter(self._database)
        return self._writer

    def acquire_lease(self, run: int, now: float, seconds: float) -> Lease:
        with self._writing("acquire_lease"):
            kept = self._run_of(run)
            kept.lease = leases.take(run, now, seconds, kept.lease, last=kept.fence)
            kept.fence = kept.lease.number
            return kept.lease

    def renew_lease(self, lease: Lease, now: float, seconds: float) -> None:
        with self._writing("renew_lease"):
            self._run_of_lease(lease).lease = structs.replace(lease, **leases.expiry(now, seconds))

    def release_lease(self, lease: Lease) -> None:
        with self._writing("release_lease"):
            kept = self._run_of(lease.run)
            if kept.lease is not None and kept.lease.token == lease.token:
                kept.lease = None

    def lease(self, run: int, now: float) -> Lease | None:
        holder = self._read(run).lease
        return None if leases.is_free(holder, now) else holder

    def request(self, run: int, at: float, kind: str, body: dict[str, Any]) -> int:
        with self._writing("request") as database:
            kept = self._run_of(run)
            database.requested += 1
            kept.requests.append(Request(database.requested, run, at, kind, body))
            if "call" in body:
                database.server.requests_of_calls.setdefault((run, body["call"]), database.requested)
            if kept.submission is not None:
                due = at if kept.submission.due_at is None else min(at, kept.submission.due_at)
                kept.submission = structs.replace(kept.submission, due_at=due)
            return database.requested

    def requests(self, run: int, after: int = 0) -> list[Request]:
        runs = [self._read(run)] if run else self._database.runs.values()
        found = [request for kept in runs for request in kept.requests if request.id > after]
        return sorted(found, key=lambda request: request.id)

    def result(self, request: int) -> dict[str, Any] | None:
        return self._database.results.get(request)

    def server_tables(self) -> MemoryServerTables:
        return MemoryServerTables(self._database.server, self._database.runs, self._writing)

    def bell(self, run: int) -> None:  # noqa: ARG002
        return None

    def has_changed(self) -> bool:
        version, seen = self._database.version, self._seen
        self._seen = version
        return version != seen

    def find_damage(self) -> list[str]:
        return []

    def accept_damage(self) -> None:
        pass

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    @contextmanager
    def _writing(self, operation: str) -> Iterator[MemoryDatabase]:
        """One short write, after the fault hook of this operation; it counts as a commit unless it fails."""
        self._database.faults.before(operation)
        with self._database.lock:
            yield self._database
            self._database.version += 1

    def _read(self, run: int) -> _Run:
        return self._database.runs.get(run, _NOTHING)

    def _run_of(self, run: int) -> _Run:
        """A run by its id; raises StoreError where there is none."""
        found = self._database.runs.get(run)
        if found is None:
            raise StoreError("no-such-run", f"there is no run {run} in this store", hint="`resile ls` lists them")
        return found

    def _run_of_lease(self, lease: Lease) -> _Run:
        kept = self._run_of(lease.run)
        leases.check_holder(lease.run, kept.lease, lease.token)
        return kept
