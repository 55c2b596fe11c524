"""`rerun --changed`: the steps that changed since they ran, and all below them, in a new epoch of the same run.

    file as it is now --> changes (compare.py) --> EpochStarted(again, definition), durable --> an engine drives it

The epoch is recorded before the engine starts: after a crash `resume` goes on with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from resile.commands.changed.compare import Change, Now, document_of, find_changes
from resile.commands.changed.earlier import Earlier, read_earlier
from resile.commands.documents.changes import Changes
from resile.commands.load import STDIN_NAME, CompileOptions, Loaded, load
from resile.commands.run import RunOutcome, drive_engine, outcome_of, refuse_unfinished
from resile.commands.start.call import Given, ResourceLimits, RunCall
from resile.commands.start.notices import learned_lines, warning_lines
from resile.commands.start.prepare import prepare_loaded
from resile.core.events import Capacity, EpochStarted
from resile.core.state import ROOT, State
from resile.engine.clock import clock_of
from resile.engine.replay import row_of
from resile.engine.session import Session, caller, hold_lease, next_event
from resile.errors import ResileError
from resile.model import codec
from resile.store.contract import AttemptRow, RunRow, Store

if TYPE_CHECKING:
    from resile.commands.run import EngineListener
    from resile.executors.local.prestart import Prestarted


class _Plan:
    """The changed steps of a rerun, and the workflow, inputs and capacity with which they run."""

    def __init__(self, store: Store, row: RunRow, limits: ResourceLimits, given: Given, *, force: bool) -> None:
        self.earlier: Earlier = read_earlier(store, row)
        loaded = _with_executor(_load(row, self.earlier.state), self.earlier.state)
        call = RunCall(loaded.workflow.file, given, limits, directory=row.directory, force=force)
        self.loaded: Loaded
        self.inputs: dict[str, Any]
        self.capacity: Capacity
        self.loaded, self.inputs, self.capacity = prepare_loaded(call, loaded, store, self.earlier.state.inputs)
        now = Now(self.loaded.workflow, self.inputs, self.loaded.source, row.directory, os.environ)
        self.changes: list[Change] = find_changes(self.earlier, now, row.output)


def preview_rerun(store: Store, number: int, given: Given, *, force: bool = False) -> Changes:
    """The steps that `rerun --changed` would run; nothing is written but the cache of digests."""
    row = row_of(store, number)
    refuse_unfinished(row, "rerun")
    return document_of(_Plan(store, row, ResourceLimits(), given, force=force).changes)


def rerun_changed(
    store: Store,
    number: int,
    limits: ResourceLimits,
    listener: EngineListener,
    launcher: Prestarted | None,
    given: Given,
    *,
    force: bool = False,
) -> RunOutcome | None:
    """Run the changed steps in a new epoch; if nothing changed, begin no epoch and return None."""
    refuse_unfinished(row_of(store, number), "rerun")
    with hold_lease(store, number) as lease:
        row = row_of(store, number)
        plan = _Plan(store, row, limits, given, force=force)
        if not plan.changes:
            return None
        state = plan.earlier.state
        clock = clock_of(state)
        session = Session(store, row, state, env=os.environ, listener=lambda _state, _notes: None, clock=clock)
        before = _numbers(state)
        event = _epoch(plan, state, clock.now())
        session.record(lease, event, attempts=lambda: _moved_attempts(store, row, before, state))
        row = replace(row, status="running", epoch=state.epoch, ended_at=None)
        loaded = plan.loaded
        notices = [*warning_lines(loaded.warnings, loaded.workflow.file), *learned_lines(loaded.learned)]
        events = [next_event(row, state, plan.capacity, clock)]
        status = drive_engine(store, row, state, lease, [*events], plan.capacity, listener, launcher, clock, notices)
    return outcome_of(store, row, state, status)


def _load(row: RunRow, state: State) -> Loaded:
    """The file of a run as it is now."""
    workflow = state.workflow
    if workflow.file == STDIN_NAME or not state.source:
        message = f"run {row.id} has no file that could be compared with it"
        raise ResileError("bad-call", message, hint="--changed takes the file as it is on disk now")
    path = os.path.normpath(os.path.join(row.directory, workflow.file))
    file = workflow.file if row.directory == os.getcwd() else path
    if not os.path.exists(path):
        raise ResileError("file", f"the file of run {row.id} is gone", where=path)
    return load(file, None, CompileOptions(workflow.dialect))


def _with_executor(loaded: Loaded, state: State) -> Loaded:
    """The file of a run, with the run's executor if the file names none."""
    executor = state.workflow.executor
    if executor is None or loaded.workflow.executor is not None:
        return loaded
    return replace(loaded, workflow=replace(loaded.workflow, executor=executor), is_changed=True)


def _epoch(plan: _Plan, state: State, at: float) -> EpochStarted:
    """The event that begins the epoch."""
    again = tuple(change.step for change in plan.changes)
    inputs = plan.inputs if plan.inputs != state.inputs else None
    found = plan.loaded.definition_of_run
    definition = "" if codec.encode(state.workflow) == found else found.decode()
    source, learned = plan.loaded.source, plan.loaded.learned
    return EpochStarted(at, False, caller(), inputs, None, again, definition, source, learned)


def _numbers(state: State) -> dict[str, int]:
    """The number of each step's job."""
    return {state.step_of(job).name: job.id for job in state.jobs.values() if job.scope == ROOT}


def _moved_attempts(store: Store, row: RunRow, before: dict[str, int], state: State) -> Iterator[AttemptRow]:
    """The rows of kept jobs' attempts, renumbered if the job has another number in the new epoch."""
    moved = {before[name]: number for name, number in _numbers(state).items() if before.get(name, number) != number}
    for attempt in store.attempts(row.id) if moved else ():
        if attempt.job in moved and state.jobs[moved[attempt.job]].attempt:
            yield replace(attempt, job=moved[attempt.job])
