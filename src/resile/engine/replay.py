"""Reads a run from its log: the folded state, and counts over it; commands that only read use it too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from resile.core.events import Event
from resile.core.react import fold
from resile.core.state import FORMAT, ROOT, State, decode, new_state
from resile.errors import ResileError
from resile.model import codec
from resile.model.status import CANCELED, COMPLETED, DISABLED, FAILED, PENDING_FAILED, SKIPPED, TERMINATED
from resile.model.workflow import Workflow
from resile.store.contract import Entry, JobRow, RunRow, Store
from resile.store.errors import StoreDamaged

ITEMS_LISTED_MAX = 1_000
_COUNTED = {
    COMPLETED: "completed",
    FAILED: "failed",
    CANCELED: "canceled",
    TERMINATED: "canceled",
    SKIPPED: "skipped",
    PENDING_FAILED: "parked",
}


def fold_log(store: Store, row: RunRow) -> State:
    """Fold the log of a run into its state; an error of the core passes unless the database shows damage."""
    seq = 0
    try:
        workflow = codec.decode(store.definition(row.definition))
        snapshot = store.latest_snapshot(row.id)
        if snapshot is None or snapshot.format != FORMAT:
            state = new_state(workflow)
        else:
            state, seq = decode(snapshot.state, workflow), snapshot.seq
    except ResileError:
        raise
    except Exception as error:
        raise _damage_error(row, f"{type(error).__name__}: {error}") from error
    try:
        return fold(state, _whole_events(store.entries(row.id, seq), row, seq))
    except ResileError:
        raise
    except Exception as error:
        # The engine folded each of these events before it stored them: one was changed, or the core is wrong.
        found = store.find_damage()
        if not found:
            error.add_note(f"while replaying the log of run {row.id}; its database has no damage")
            raise
        raise _damage_error(row, found[0]) from error


def _whole_events(entries: Iterable[Entry], row: RunRow, seq: int) -> Iterator[Event]:
    """The events behind a number; raises StoreDamaged where one is missing, before what follows it is believed."""
    for entry in entries:
        if entry.seq > seq + 1:
            raise _damage_error(row, missing(seq + 1, entry.seq))
        seq = last_seq(entry)
        yield entry.event


def _damage_error(row: RunRow, what: str) -> StoreDamaged:
    """The error for a run whose log can't be read."""
    hint = "`resile db check` says which runs are whole; put a backup of the database in its place"
    return StoreDamaged("store-damaged", f"the log of run {row.id} is damaged: {what}", hint=hint)


def missing(first: int, after: int) -> str:
    """The words for the events that are missing before an event."""
    return f"events {first} to {after - 1} are missing"


def last_seq(entry: Entry) -> int:
    """The last number in the log that belongs to an entry."""
    return entry.seq + max(1, len(entry.notes)) - 1


def current_workflow(store: Store, row: RunRow) -> Workflow:
    """The definition that a run follows; a later epoch may follow another one than the first."""
    return codec.decode(store.definition(row.definition)) if row.epoch == 1 else fold_log(store, row).workflow


def current_definition(state: State) -> bytes:
    """The canonical JSON of the definition that a run follows; that of its row is the one of its first epoch."""
    return codec.encode(state.workflow)


def count_steps(state: State) -> dict[str, int]:
    """How many steps have each status; `end` and steps that were never called are not counted."""
    words = ("total", "completed", "recovered", "tolerated", "failed", "canceled", "skipped", "parked")
    found = dict.fromkeys(words, 0)
    end = state.plan.end
    for job in state.jobs.values():
        status = job.status
        if job.scope != ROOT or job.step == end or status is DISABLED:
            continue
        found["total"] += 1
        word = _COUNTED.get(status)
        if word is not None:
            found["tolerated" if job.tolerated and status is FAILED else word] += 1
            found["recovered"] += job.recovered
    return found


def digest(state: State) -> dict[str, Any]:
    """The part of a run's row for the list of runs: the counts of its steps, and its first failure."""
    return {**count_steps(state), "first_failure": msgspec.to_builtins(state.first_failure)}


class GoneJobs:
    """Jobs that the state of a run has dropped because their item or child workflow ended; `omitted` are left out."""

    def __init__(self) -> None:
        self.rows: list[JobRow] = []
        self.omitted = 0

    def add(self, scope: list[JobRow], many: bool) -> None:
        """Add the jobs of one scope; if there are many scopes, omit those in which every job succeeded."""
        if many and all(row.status in (COMPLETED, SKIPPED, DISABLED) for row in scope):
            self.omitted += sum(row.status != DISABLED for row in scope)
        else:
            self.rows += scope


def dropped_jobs(store: Store, run: int, state: State) -> GoneJobs:
    """Find the jobs that the state of a run has dropped."""
    gone = GoneJobs()
    if state.last_scope == ROOT:
        return gone
    many = state.items > ITEMS_LISTED_MAX
    scope: list[JobRow] = []
    for row in store.jobs(run):
        if row.id in state.jobs or not is_current(state, row):
            continue
        if scope and scope[0].scope != row.scope:
            gone.add(scope, many)
            scope = []
        scope.append(row)
    gone.add(scope, many)
    return gone


def is_current(state: State, row: JobRow) -> bool:
    """Was a job that the state has dropped made or continued in this epoch?"""
    return row.id > state.jobs_before or (row.ended_at is not None and row.ended_at >= state.started_at)


def row_of(store: Store, run: int) -> RunRow:
    """The row of a run; raises ResileError if the run does not exist."""
    row = store.run(run)
    if row is None:
        raise ResileError("no-such-run", f"there is no run {run}", hint="`resile ls` lists the runs")
    return row
