"""The contract of a store, whichever database is behind it. One suite (tests/store) runs against all of them.

    engine --Batch--> Writer (group commit) --> log + query tables, in one transaction
    surfaces --------> Store.run, jobs, attempts, letters, events (read only, while a run is going)

The log is the truth; `runs`, `jobs`, `attempts` and `dead_letters` are tables for queries. Each entry of the log is one
event that the core received, together with the canonical notes that it caused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from resile.core.actions import DropLetter, KeepLetter, Note
from resile.core.events import Event
from resile.model.failure import Failure, Kind, LogRange, Usage
from resile.model.items import DeadLetter, ItemFailure, KeptScope, LetterReason
from resile.model.limits import ITEM_HISTORY_MAX
from resile.store.errors import StoreError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Entry(Struct, frozen=True, gc=False):
    """One record of the log; `seq` is that of its first note (an entry without notes takes one number too)."""

    seq: int
    event: Event
    notes: tuple[Note, ...]


class JobRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A job as the surfaces see it."""

    id: int
    step: str
    scope: str
    status: int
    attempts: int = 0
    exit_code: int | None = None
    recovered: bool = False
    tolerated: bool = False
    cause: dict[str, Any] | None = None
    started_at: float | None = None
    ended_at: float | None = None


class AttemptRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """One attempt of a job; rows without `ended_at` are running."""

    job: int
    epoch: int
    attempt: int
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    usage: Usage = Usage()
    log: LogRange | None = None
    failure: Failure | None = None
    pid: int = 0


class SignatureHistory(Struct, frozen=True, gc=False):
    """How many attempts failed with one signature, and how many of their jobs passed on a later attempt."""

    cases: int = 0
    passed: int = 0


class RunRow(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A run as the surfaces see it; `summary` is the part of its JSON document that the job rows lack.

    `key` is a unique name that the caller gave to the run; most runs have none.
    """

    id: int
    workflow: str
    dialect: str
    definition: str
    status: str
    epoch: int = 1
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    output: str = ""
    directory: str = ""
    summary: dict[str, Any] = {}
    labels: dict[str, str] = {}
    key: str = ""


class LetterRow(Struct, frozen=True, gc=False):
    """A dead letter as the surfaces see it; `signature` is that of the last failure, or the reason if nothing failed.

    `name` is the unique name of its fan-out in the run, `map` that name without item indexes.
    """

    run: int
    name: str
    index: int
    map: str
    step: str
    job: int
    scope: int
    reason: LetterReason
    signature: str
    failure_count: int
    first_at: float
    last_at: float
    eligible: bool
    value: Any
    history: tuple[ItemFailure, ...] = ()

    @property
    def item_id(self) -> str:
        """The name of the item in its run."""
        return f"{self.name}[{self.index}]"

    @property
    def correlation_id(self) -> str:
        """A name of the item that stays the same in every epoch of its run, to correlate traces."""
        return f"{self.run}:{self.item_id}"


def row_of_letter(run: int, letter: DeadLetter, before: LetterRow | None = None) -> LetterRow:
    """Make the row of a dead letter, for every store; the history of the item's earlier letter, `before`, comes first.

    An item is eligible for redrive unless its last attempt was lost: its steps may take the machine down, so a user
    should look at it first.
    """
    history = letter.item.history
    if before is not None and before.value == letter.item.value:
        history = (*before.history, *history)[-ITEM_HISTORY_MAX:]
    last = history[-1] if history else None
    return LetterRow(
        run=run,
        name=letter.name,
        index=letter.item.index,
        map=letter.map,
        step=letter.step,
        job=letter.job,
        scope=letter.scope,
        reason=letter.reason,
        signature=letter.reason if last is None else last.signature or f"{last.kind}: {last.step}",
        failure_count=len(history),
        first_at=history[0].at if history else letter.at,
        last_at=letter.at if last is None else last.at,
        eligible=last is None or last.kind != Kind.LOST,
        value=letter.item.value,
        history=history,
    )


class LetterCount(Struct, frozen=True, gc=False):
    """The number of dead letters of one fan-out; a fan-out that ran twice may have letters of both jobs."""

    name: str
    map: str
    step: str
    job: int
    scope: int
    count: int


class Snapshot(Struct, frozen=True, gc=False):
    """The folded state after the entry numbered `seq`; a state of another `format` is refused."""

    seq: int
    format: int
    state: bytes


class Batch(Struct, gc=False):
    """The rows that one group commit writes for one run; a later row replaces an earlier one with the same key.

    `token` is that of the lease: the store refuses a batch of an engine that lost its lease. `answered` are the
    requests that became events here, with their results: they are finished only when the events are durable. `letters`
    are kept (a later one of the same item replaces an earlier) or dropped, each item once. `scopes` are kept for the
    redrive of letters inside them.
    """

    run: int
    token: str
    entries: list[Entry]
    jobs: dict[int, JobRow]
    attempts: dict[tuple[int, int, int], AttemptRow]
    row: RunRow | None = None
    snapshot: Snapshot | None = None
    answered: dict[int, dict[str, Any] | None] = {}
    letters: tuple[KeepLetter | DropLetter, ...] = ()
    scopes: tuple[KeptScope, ...] = ()


def output_of(batches: Iterable[Batch]) -> list[LogRange]:
    """The places of the output of all attempts in these batches that have output."""
    logs = (row.log for batch in batches for row in batch.attempts.values())
    return [log for log in logs if log is not None and (log.out_length or log.err_length)]


class Lease(Struct, frozen=True, gc=False):
    """The process that drives a run. Another process may take over when the holder is dead or the lease has expired.

    `boot` names one boot of one machine and its pid namespace: only there can the process `pid` be looked up.
    `pid_started` tells the holder from a later process with the same number. On the same boot the lease expires at
    `expires_boot_seconds`, by the clock that counts from the boot and can't be set; elsewhere at `expires_at`.
    `number` is greater than that of every earlier lease of the run.
    """

    run: int
    token: str
    host: str
    boot: str
    pid: int
    pid_started: str
    since: float
    expires_at: float
    expires_boot_seconds: float = 0.0
    number: int = 0


class Request(Struct, frozen=True, gc=False):
    """A request from a surface to the engine that drives a run."""

    id: int
    run: int
    at: float
    kind: str
    body: dict[str, Any]


class Writer(Protocol):
    """Group commit: a thread that writes all waiting batches in one transaction.

    A transaction that fails leaves nothing behind and stops the writer for good; later batches in the queue are
    dropped, so that the log never has a gap. A batch belongs to the writer once it is submitted.

    Many runs may share a writer, each with a `share` that has tickets and an error of its own: a lost lease stops that
    share only, an error of the database all of them.

    Before each transaction the writer calls `sync_output` to flush the output of its attempts, so that the log never
    mentions output that is not on disk. Its thread passes the seconds of each transaction to `note_commit`.
    """

    sync_output: Callable[[list[LogRange]], None] | None
    note_commit: Callable[[float], None] | None

    def submit(self, batch: Batch, *, at_once: bool = False) -> int:
        """Queue a batch; return its ticket. Batches become durable in order.

        With `at_once` the caller would only wait for the batch: an idle writer may then write it on the caller's own
        thread, which saves the hand-over.
        """

    def durable(self) -> int:
        """The highest ticket that is on disk; raises the StoreError that stopped the writer."""

    def fileno(self) -> int:
        """A descriptor that is readable when `durable` has advanced or the writer has stopped; `durable` resets it."""

    def flush(self) -> None:
        """Wait until everything submitted is on disk; raises like `durable`."""

    def close(self) -> None:
        """Flush and end the thread; raises the StoreError that stopped the writer if no call has raised it yet."""

    def share(self) -> Writer:
        """A part of this writer for one run, on the writer's descriptor; closing it leaves the writer open."""

    def take_advanced(self) -> AbstractSet[Writer]:
        """The shares that have advanced or stopped since the last call; until then the descriptor is readable.

        Raises like `durable`.
        """


class Bell(Protocol):
    """Rings when another process has left a request for a run; while it is not `live`, its owner polls."""

    @property
    def live(self) -> bool:
        """Will the bell ring?"""

    def fileno(self) -> int:
        """A descriptor that is readable from a ring until `clear`."""

    def clear(self) -> None:
        """Wait for the next ring."""

    def close(self) -> None:
        """Listen no more."""


class Store(Protocol):
    """One database; safe to open from several processes at once. `path` is its address without a password."""

    path: str

    def identity(self, run: int | None = None) -> str:
        """The random name of this database, 16 hex digits; with a run, the name at the time when that run was made.

        It is empty for runs of a version that gave no names.
        """

    def renew_identity(self, run: int) -> str:
        """Rename this database from this run on; return the new name.

        Its copy or its original has used the present name for a run with the same number.
        """

    def create_run(
        self, row: RunRow, definition: bytes, jobs: Sequence[JobRow], submit_priority: int | None = None
    ) -> int:
        """Store the definition under its hash and a new run with its jobs; return the run's id (row.id is ignored).

        With a priority the run is submitted to the servers of this store, in the same transaction. Raises KeyInUse if
        another run has its key.
        """

    def import_run(self, source: Store, run: int) -> None:
        """Add a run of another store, with its number, in one transaction; raises StoreError if that number is taken.

        From then on `identity` of this run is the name of the other database, which its folders and its launcher use.
        """

    def definition(self, content_hash: str) -> bytes:
        """The canonical JSON stored under this hash."""

    def cached_definition(self, key: str) -> bytes | None:
        """The definition that was compiled from a source with this key, if it is still cached."""

    def cache_definition(self, key: str, definition: bytes) -> None:
        """Cache the definition that a source compiled to; beyond a limit the oldest keys are dropped."""

    def latest_snapshot(self, run: int) -> Snapshot | None:
        """The newest snapshot of a run."""

    def entries(self, run: int, after: int = 0) -> Iterator[Entry]:
        """The log after the entry numbered `after`, in order, as a stream."""

    def notes(self, run: int, after: int = 0) -> Iterator[Note]:
        """The canonical events with a seq above `after`, in order, as a stream."""

    def reading(self) -> AbstractContextManager[object]:
        """A context in which all reads see one snapshot of the database, without later commits."""

    def runs(self, limit: int = 100, before: int | None = None) -> list[RunRow]:
        """The newest runs first; with `before` those whose id is lower."""

    def run(self, run: int) -> RunRow | None:
        """One run."""

    def run_with_key(self, key: str) -> RunRow | None:
        """The run that has this key."""

    def count_runs_in(self, directory: str) -> int:
        """How many runs have this directory."""

    def jobs(self, run: int) -> Iterator[JobRow]:
        """The jobs of a run by id, as a stream."""

    def attempts(self, run: int, job: int | None = None) -> Iterator[AttemptRow]:
        """The attempts of a run (or of one job) by job, epoch and number, as a stream."""

    def signature_history(self, signature: str) -> SignatureHistory:
        """How many failures in all runs have this signature, and how many passed later; reads every attempt."""

    def letters(self, run: int, name: str | None = None, after_index: int = -1) -> Iterator[LetterRow]:
        """The dead letters of a run (or of one fan-out) with an index above this, by name and index, streamed."""

    def letter(self, run: int, name: str, index: int) -> LetterRow | None:
        """The dead letter of one item."""

    def letter_counts(self, run: int) -> list[LetterCount]:
        """The number of dead letters of each fan-out of a run that has any, by name and job."""

    def kept_scope(self, run: int, scope: int) -> KeptScope | None:
        """A closed scope that had dead letters inside, or that failed; the store keeps it as long as its run."""

    def kept_scopes(self, run: int) -> Iterator[KeptScope]:
        """All closed scopes of a run that had dead letters inside, as a stream."""

    def purge_letters(self, lease: Lease, keys: Sequence[tuple[str, int]] | None = None) -> int:
        """Delete all dead letters of the lease's run, or these (name of fan-out, index); return how many there were.

        Raises LeaseHeld if the caller has lost the lease: only the process that drives a run changes its letters.
        """

    def delete_run(self, lease: Lease) -> None:
        """Delete the lease's run for good: its row, log, jobs, attempts, letters, requests and the lease itself.

        Its number is not used again. Raises LeaseHeld if the caller has lost the lease.
        """

    def run_bytes(self, run: int) -> int:
        """About how many bytes the rows of a run have."""

    def size_bytes(self) -> int:
        """How many bytes the database has on disk."""

    def compact(self, now: float) -> str:
        """Give the space of deleted runs back to the system; if that is not possible now, return why.

        While an engine drives a run this does nothing, because the engine would have to wait. `now` counts from the
        boot.
        """

    def writer(self) -> Writer:
        """The writer of this store; at most one is open at a time."""

    def acquire_lease(self, run: int, now: float, seconds: float) -> Lease:
        """Acquire the lease of a run, or raise LeaseHeld that names the holder; `now` counts from the boot."""

    def renew_lease(self, lease: Lease, now: float, seconds: float) -> None:
        """Extend the lease; raises LeaseHeld if another engine has taken over."""

    def release_lease(self, lease: Lease) -> None:
        """Release the lease."""

    def lease(self, run: int, now: float) -> Lease | None:
        """The current lease of a run; None if there is none, or if its holder on this machine is dead."""

    def request(self, run: int, at: float, kind: str, body: dict[str, Any]) -> int:
        """Leave a request for the engine of a run; return its id. A run that servers drive is due with it."""

    def requests(self, run: int, after: int = 0) -> list[Request]:
        """Requests that no batch has answered yet, with an id above `after`, oldest first; run 0 is all runs."""

    def result(self, request: int) -> dict[str, Any] | None:
        """The result of a request; None while it waits, or if the engine gave no result."""

    def bell(self, run: int) -> Bell | None:
        """A bell for the requests of this run, which the caller closes; run 0 is all runs.

        None if the store finds requests only by polling.
        """

    def has_changed(self) -> bool:
        """Has anything been committed since the last call? True on the first call; cheap enough to call often."""

    def find_damage(self) -> list[str]:
        """The problems of the database itself, a sentence for each; reads the whole database."""

    def accept_damage(self) -> None:
        """Take a database that lost events as it is from now on; steps whose outcome is lost may run again."""

    def close(self) -> None:
        """Close the database."""


def known_run(store: Store, run: int) -> RunRow:
    """The row of a run; raises StoreError where there is none."""
    row = store.run(run)
    if row is None:
        raise StoreError("no-such-run", f"there is no run {run}", hint="`resile ls` lists them")
    return row
