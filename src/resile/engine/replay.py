"""Reads a run from its log: the folded state, and counts over it; commands that only read use it too."""

from __future__ import annotations

from typing import Any

import msgspec

from resile.core.react import fold
from resile.core.state import FORMAT, ROOT, State, decode, new_state
from resile.errors import ResileError
from resile.model import codec
from resile.model.status import CANCELED, COMPLETED, DISABLED, FAILED, PENDING_FAILED, SKIPPED, TERMINATED
from resile.model.workflow import Workflow
from resile.store.contract import JobRow, RunRow, Store
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
    """Fold the log of a run into its state."""
    try:
        workflow = codec.decode(store.definition(row.definition))
        snapshot = store.latest_snapshot(row.id)
        if snapshot is None or snapshot.format != FORMAT:
            return fold(new_state(workflow), (entry.event for entry in store.entries(row.id)))
        state = decode(snapshot.state, workflow)
        return fold(state, (entry.event for entry in store.entries(row.id, snapshot.seq)))
    except ResileError:
        raise
    except Exception as error:
        # The engine folded each of these events before it stored them.
        problem = f"the log of run {row.id} is damaged: {type(error).__name__}: {error}"
        hint = "`resile db check` says which runs are whole; put a backup of the database in its place"
        raise StoreDamaged("store-damaged", problem, hint=hint) from error


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
    """What the row of a run says of its state, for the list of runs: the counts of its steps, and its first failure."""
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
    """Does a job that the state has dropped belong to this epoch: was it made in it, or did it go on in it?"""
    return row.id > state.jobs_before or (row.ended_at is not None and row.ended_at >= state.started_at)


def row_of(store: Store, run: int) -> RunRow:
    """The row of a run; raises ResileError if the run does not exist."""
    row = store.run(run)
    if row is None:
        raise ResileError("no-such-run", f"there is no run {run}", hint="`resile status` lists the runs")
    return row
