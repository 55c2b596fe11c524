"""The contract of the tables that servers share: the runs to drive, answers to clients, tokens, and claims of workers.

    submissions      runs that servers drive, and when each wants to be driven again
    announcements    starts, ends and parked failures of all runs, in one order
    tokens           who may call a server
    calls            answers to calls with an idempotency key
    claims           which worker has which attempt

A run is due when its time has come or a request for it waits. A server that takes it acquires its lease; while the
lease lives no other server sees the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from resile.core.actions import Note
from resile.store.contract import Lease, Store

CALL_SECONDS_MAX = 24 * 3600.0
# A call counts as at work for this long after its server renewed it; on the server's machine until its process is gone.
CALL_LEASE_SECONDS = 15.0


class Submission(Struct, frozen=True, gc=False):
    """A run that servers drive: from `due_at` on (seconds since 1970); None until a request comes.

    Servers have known of it `since` then; a run with a higher `priority` gets slots first.
    """

    run: int
    priority: int
    due_at: float | None
    since: float


class Announcement(Struct, frozen=True, gc=False):
    """An event that all clients get that watch all runs; positions rise over all runs."""

    position: int
    run: int
    note: Note


class Token(Struct, frozen=True, gc=False):
    """The right to call a server; the store has only the digest of its secret."""

    name: str
    role: str
    digest: str
    created_at: float
    expires_at: float | None = None


class Call(Struct, frozen=True, gc=False):
    """The call that has an idempotency key since `at`: the digest of its request; its answer, None while at work.

    If the server that carried it out is gone, or could not answer, the call `is_orphaned`: then the key passes to the
    process that asks, if its request is the same. That process may have to find out what the first one did.
    """

    digest: str
    answer: bytes | None
    at: float
    is_orphaned: bool = False


class Claim(Struct, frozen=True, gc=False):
    """An attempt that a worker has; only reports with this token count."""

    run: int
    epoch: int
    job: int
    attempt: int
    worker: str
    token: str
    at: float
    memory_bytes: int = 0


class Census(Struct, frozen=True, gc=False):
    """Counts over all runs: by status, parked failures, dead letters, and due runs that no server drives."""

    runs: dict[str, int]
    parked: int
    dead_letters: int
    due: int


ClaimKey = tuple[int, int, int, int]


class ServerTables(Protocol):
    """The tables of one store; each method is one transaction."""

    def enqueue(self, run: int, at: float, priority: int | None = None) -> None:
        """Let servers drive a run from `at` on, or earlier if it is due earlier; None keeps the run's priority."""

    def submission(self, run: int) -> Submission | None:
        """The submission of a run; None if servers do not drive it."""

    def due_runs(self, at: float, now: float, limit: int = 100) -> list[Submission]:
        """Runs that are due at `at` (since 1970) and that no engine drives (by `now`, since the boot).

        By priority, highest first, then by the time at which they were due.
        """

    def take_due(self, at: float, now: float, seconds: float, limit: int) -> list[tuple[Submission, Lease]]:
        """Acquire the leases of due runs, in one transaction; leave out runs that another process takes first."""

    def next_due(self) -> float | None:
        """When the next run is due; a run that is being driven counts as well."""

    def hand_back(self, lease: Lease, due_at: float | None) -> None:
        """Release the lease of a run that only waits; it is due at this time, or at once if a request for it waits."""

    def dequeue(self, lease: Lease) -> None:
        """Release the lease of a run that has ended; servers drive it again after another `enqueue`.

        If a request for it waits, the run is due at once.
        """

    def release_all(self, ended: Sequence[Lease], waiting: Sequence[tuple[Lease, float | None]]) -> None:
        """`dequeue` and `hand_back` for many runs, in one transaction; leases that are lost are left as they are."""

    def renew_leases(self, leases: Sequence[Lease], now: float, seconds: float) -> list[Lease]:
        """Extend these leases; return the lost ones, whose runs another engine has taken over."""

    def census(self, at: float) -> Census:
        """Count what there is at this time (since 1970)."""

    def parked_jobs(self) -> list[tuple[int, int]]:
        """The jobs (run, job) whose failures wait for judgement, those of the newest runs first."""

    def announcements(self, after: int, limit: int = 1000) -> list[Announcement]:
        """Announcements with a position above `after`, in order."""

    def last_position(self) -> int:
        """The position of the last announcement; 0 before the first."""

    def tokens(self) -> list[Token]:
        """All tokens by name, expired ones too."""

    def add_token(self, token: Token) -> None:
        """Store a token; raises StoreError if a token has this name already."""

    def revoke_token(self, name: str) -> bool:
        """Remove a token; False where there was none."""

    def begin_call(self, key: str, digest: str, at: float, now: float) -> Call | None:
        """Reserve an idempotency key for this call, or return the call that has it; keys last a day.

        `at` is since 1970, `now` since the boot. This process holds the key until it frees it or calls `renew_call` too
        late.
        """

    def renew_call(self, key: str, now: float) -> None:
        """Note that this process is still at work on the call with this key."""

    def release_call(self, key: str) -> None:
        """Let another process carry out the call with this key, which has no answer but may have done something."""

    def request_of_call(self, run: int, call: str) -> int | None:
        """The number of the request to a run that has this `call` in its body."""

    def finish_call(self, key: str, answer: bytes) -> None:
        """Keep the answer of the call with this key."""

    def forget_call(self, key: str) -> None:
        """Free a key whose call did nothing."""

    def add_claims(self, claims: Sequence[Claim]) -> None:
        """Store the claims of workers; a later claim of an attempt replaces an earlier one."""

    def claims(self, run: int | None = None, worker: str | None = None) -> list[Claim]:
        """All claims, or those of a run or a worker, in the order of their keys."""

    def drop_claims(self, keys: Sequence[ClaimKey]) -> None:
        """Remove the claims of these attempts (run, epoch, job, attempt)."""


class SharedStore(Store, Protocol):
    """A store with the tables that servers share."""

    def server_tables(self) -> ServerTables:
        """These tables; the store closes them."""
