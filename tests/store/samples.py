"""Rows, events and batches that the tests of all stores share, and how to wait for a writer."""

from __future__ import annotations

import select

from resile.core.actions import Note
from resile.core.events import (
    ArcsAnswered,
    AttemptAdopted,
    AttemptEnded,
    AttemptStarted,
    AttemptWithdrawn,
    BlockEnded,
    BlockSubmitted,
    CancelRequested,
    Capacity,
    ConditionAnswered,
    EpochStarted,
    Event,
    Grant,
    GroupsRead,
    ItemsRead,
    Judged,
    Options,
    Redriven,
    Remedy,
    RetryRequested,
    RouteAnswered,
    RunResumed,
    RunStarted,
    TimerFired,
    ValueAnswered,
    WorkerStarted,
)
from resile.model.codec import content_hash
from resile.model.failure import Failure, LogRange, Outcome, Usage
from resile.model.items import DeadLetter, Item, ItemFailure, LetterGroup, LetterReason
from resile.store.contract import AttemptRow, Batch, Entry, JobRow, Lease, RunRow, Store, Writer

DEFINITION = b'{"name":"nightly","steps":[]}'
WAIT_SECONDS_MAX = 20.0

FAILURE = Failure(
    kind="signal", message="killed by SIGSEGV", exit_code=139, signal=11, stdout="out", stderr="e\n\x00", signature="s"
)
OUTCOME = Outcome(
    exit_code=139, failure=FAILURE, usage=Usage(1.5, 0.25, 4096), log=LogRange("slot-1", 1, 2, 3, 4), values={"a": [1]}
)
BROKEN = ItemFailure(1, 50.25, "test", "exit", "exit code 3: no", 3, "é\n\x00", "5ca1ab1e", 1.5, 12, 2, 1)

EVENTS: tuple[Event, ...] = (
    RunStarted(1.0, Capacity(4, 2, 1.5, 1 << 40, 1), {"target": "é\u2028", "n": None}, Options(5, 2, False)),
    RunResumed(2.0, Capacity(1), "host 7"),
    AttemptStarted(3.25, 1, 1, 4711),
    AttemptEnded(4.0, 1, 1, OUTCOME, True),
    AttemptAdopted(5.0, 1, 2, 4712),
    AttemptWithdrawn(6.0, 1, 2, True),
    ConditionAnswered(7.0, 2, False, "broken"),
    ArcsAnswered(8.0, 2, (True, False), ""),
    RouteAnswered(8.5, 2, "calls", ("fix", "lint"), "", True, ("too slow",)),
    ValueAnswered(8.75, 2, 1, OUTCOME),
    TimerFired(9.0, 2, 3, True),
    Judged(9.5, 2, "skip", "ann", "known", {"n": [1, None]}, 1 << 33, 60.0),
    RetryRequested(9.75, 2, "ann", "fixed", True),
    CancelRequested(10.0, "ann", "enough"),
    EpochStarted(11.0, True, "bob"),
    EpochStarted(11.5, True, "bob", None, (Remedy(1, "a", "oom", Grant(1 << 33, 2.5), True, FAILURE),)),
    ItemsRead(12.0, 2, "wf1_j2", (Item(7, {"path": "é"}), Item(9, None, (BROKEN,))), 4096, True),
    Redriven(13.0, "map", 5, "redrive-1", 4, "ann"),
    BlockSubmitted(13.6, 1, "17"),
    WorkerStarted(13.7, 1, "n1"),
    BlockEnded(13.8, 1, "it was idle"),
    GroupsRead(13.5, "redrive-1", (LetterGroup("a[1]/map", 7, 5, 0, ({"scope": {"id": 3}},)),), 80, True),
)


def run_row(workflow: str = "nightly") -> RunRow:
    """A new run of DEFINITION."""
    return RunRow(
        id=0,
        workflow=workflow,
        dialect="native",
        definition=content_hash(DEFINITION),
        status="running",
        created_at=100.5,
        output="output",
        directory="somewhere",
    )


def job(number: int, status: int = 1, attempts: int = 0) -> JobRow:
    """A job called after its number."""
    return JobRow(number, f"step-{number}", "root", status, attempts)


def new_run(store: Store, jobs: int = 2) -> tuple[int, Lease]:
    """A run with some blocked jobs, and the lease to drive it."""
    run = store.create_run(run_row(), DEFINITION, [job(number) for number in range(1, jobs + 1)])
    return run, store.acquire_lease(run, now=100.0, seconds=60.0)


def entry(seq: int, notes: int = 2, event: Event | None = None) -> Entry:
    """An entry whose notes are numbered from `seq`."""
    texts = tuple(
        Note(seq + index, 1.0, "step_started", "root", "step-1", 1, 1, "running", seq, {"n": index})
        for index in range(notes)
    )
    return Entry(seq, event or AttemptStarted(float(seq), 1, 1, 9), texts)


def batch(lease: Lease, *entries: Entry, jobs: tuple[JobRow, ...] = (), attempts: tuple[AttemptRow, ...] = ()) -> Batch:
    """What an engine with this lease writes."""
    return Batch(
        run=lease.run,
        token=lease.token,
        entries=list(entries),
        jobs={row.id: row for row in jobs},
        attempts={(row.job, row.epoch, row.attempt): row for row in attempts},
    )


def letter(
    index: int, *history: ItemFailure, job: int = 2, value: object = None, reason: LetterReason = "failed"
) -> DeadLetter:
    """An item of the fan-out `map`, or of another job, that was kept at 60.0."""
    step = "map" if job == 2 else f"map-{job}"
    return DeadLetter(step, step, step, job, 1, Item(index, value, history), reason, 60.0)


def is_readable(writer: Writer) -> bool:
    """Does the writer's descriptor say that something has happened?"""
    return bool(select.select([writer.fileno()], [], [], 0)[0])


def wait_for(writer: Writer, ticket: int) -> None:
    """Wait on the writer's descriptor until a ticket is durable, as an engine does."""
    while writer.durable() < ticket:
        assert select.select([writer.fileno()], [], [], WAIT_SECONDS_MAX)[0], f"ticket {ticket} never became durable"
