"""The commands that drive or change a run: run, resume, rerun, reset, cancel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import msgspec

from resile.commands.documents.runs import RunDocument, run_document
from resile.commands.load import remember
from resile.commands.start.call import Given, ResourceLimits, RunCall
from resile.commands.start.notices import cluster_lines, kept_lines, learned_lines, notices_of, warning_lines
from resile.commands.start.prepare import capacity_for, inputs_for, prepare
from resile.commands.store_handle import StoreHandle
from resile.core.actions import Note
from resile.core.events import CancelRequested, Capacity, EpochStarted, Event, Options, RunStarted
from resile.core.react import react
from resile.core.scheduling.finish import execution
from resile.core.state import ROOT, State
from resile.engine.clock import Clock, clock_of
from resile.engine.paths import claim_output, own_folder
from resile.engine.replay import current_definition, dropped_jobs, fold_log, row_of
from resile.engine.resources import refuse_labels, scarce_descriptors
from resile.engine.session import Session, caller, create, hold_lease, next_event
from resile.errors import ResileError
from resile.model.status import COMPLETED, EXIT_CODES, RUN_ENDED, RunStatus
from resile.store.contract import Lease, RunRow, Store
from resile.store.lease import boot_seconds

if TYPE_CHECKING:
    from resile.commands.documents.answers import CancelResult, ResetResult
    from resile.engine.loop import Engine, Interrupt
    from resile.executors.local.prestart import Prestarted
    from resile.model.workflow import Workflow


class RunOutcome:
    """The status of a run when its engine stops; its document is made on first use."""

    def __init__(self, run: int, status: RunStatus, workflow: Workflow, make: Callable[[], RunDocument]) -> None:
        self.run = run
        self.workflow = workflow
        self.status: RunStatus = status
        self.exit_code = EXIT_CODES[status]
        self._make = make

    @cached_property
    def document(self) -> RunDocument:
        """The run as `resile run --json` prints it."""
        return self._make()


class EngineListener(Protocol):
    """Callbacks of an engine while it drives a run, called on the engine's thread.

    `debug`, if set, receives a text for every expression that is evaluated.
    """

    debug: Callable[[str], None] | None

    def on_start(self, run: int, state: State, interrupt: Interrupt) -> None:
        """The run has an id and an engine; Ctrl-C calls `interrupt`."""

    def notes(self, state: State, notes: list[Note]) -> None:
        """These canonical events are now durable."""

    def warn(self, text: str) -> None:
        """Take a warning for the caller; called after `on_start`."""

    def introduce(self, text: str) -> None:
        """Take the name of the system that the file was taken for; called first."""


def run(stores: StoreHandle, call: RunCall, listener: EngineListener, launcher: Prestarted | None = None) -> RunOutcome:
    """Compile a file, start a run of it and drive it to its end.

    `launcher` was started ahead to save time; the caller closes it if no run used it. A missing store is created only
    after the call has been validated.
    """
    before = stores.write() if stores.exists() else None
    loaded, inputs, capacity = prepare(call, before)
    workflow = loaded.workflow
    refuse_labels(workflow)
    if loaded.taken_for:
        listener.introduce(loaded.taken_for)
    options = Options(loops_max=call.loops_max, retry_max=call.retry_max, failure_routing=call.failure_routing)
    output = output_of(workflow, call.output, stores.default_output())
    claim_output(output)
    store = before or stores.create()
    if before is None:
        remember(store, loaded)
    clock = clock_of()
    first = RunStarted(clock.now(), capacity, inputs, options, clock.machine, loaded.source, learned=loaded.learned)
    kept = None
    if call.cached:
        from resile.commands.changed.cached import take_cached

        kept = take_cached(store, call, loaded, inputs, output)
        first = msgspec.structs.replace(first, cached=kept.event)
    folder = os.getcwd()
    row, state = create(
        store, workflow, loaded.definition_of_run, first, output=output, directory=folder, labels=call.labels
    )
    told = [*warning_lines(loaded.warnings, call.path), *learned_lines(loaded.learned)]
    notices = [*told, *cluster_lines(workflow, is_local=call.executor is not None)]
    with hold_lease(store, row.id) as lease:
        row = own_folder(store, row)
        if kept is not None:
            kept.copy_outputs(store, row, state, lease)
        status = drive_engine(store, row, state, lease, [first], capacity, listener, launcher, clock, notices)
    return outcome_of(store, row, state, status)


def output_of(workflow: Workflow, asked: str | None, default: str) -> str:
    """The folder for the output of a run: the caller's, else one that the nodes of its blocks see, else the default."""
    shared = workflow.executor.directory if workflow.executor is not None else None
    return os.path.abspath(asked or shared or default)


def resume(
    store: Store, number: int, limits: ResourceLimits, listener: EngineListener, launcher: Prestarted | None = None
) -> RunOutcome:
    """Continue an interrupted or parked run, or a failed one that a redrive mended; return the outcome of any other."""
    row = row_of(store, number)
    if row.status not in RUN_ENDED:
        return drive_existing(store, row, limits, listener, [], launcher)
    state = fold_log(store, row)
    if not _is_mended(state):
        return outcome_of(store, row, state, state.verdict or "failed")
    return drive_existing(store, row, limits, listener, [EpochStarted(0.0, True, caller())], launcher)


def _is_mended(state: State) -> bool:
    """Did the run fail only because of steps that redrives have completed since?"""
    is_by_end = state.override or state.end_of(state.scopes[ROOT]).status is not COMPLETED
    return state.verdict == "failed" and not is_by_end and execution(state)["status"] == "completed"


def rerun(
    store: Store,
    number: int,
    limits: ResourceLimits,
    listener: EngineListener,
    launcher: Prestarted | None = None,
    *,
    failed_only: bool,
    as_new: bool,
    inputs: Given | None = None,
) -> RunOutcome:
    """Run the same definition again, with the same inputs or others: in the next epoch of this run, or as a new run."""
    if as_new and failed_only:
        raise new_is_whole()
    row = row_of(store, number)
    if as_new:
        return _run_as_new(store, row, limits, listener, launcher, inputs or Given())
    refuse_unfinished(row, "rerun")
    values = None
    if inputs:
        state = fold_log(store, row)
        values = inputs_for(state, inputs)
        for line in kept_lines(state, values, number) if failed_only else ():
            listener.introduce(line)
    again = EpochStarted(0.0, failed_only, caller(), values)
    return drive_existing(store, row, limits, listener, [again], launcher)


def new_is_whole() -> ResileError:
    """The error for a call that wants only the failed steps, but as a new run."""
    return ResileError("bad-call", "--as-new starts from the beginning, so it can't be combined with --failed-only")


def state_with_inputs(store: Store, row: RunRow) -> State:
    """The state of a run. If no engine has begun it yet, the state after the first event, which the run's row holds."""
    state = fold_log(store, row)
    first = row.summary.get("first")
    if state.phase == "new" and first:
        react(state, msgspec.convert(first, RunStarted))
    return state


def _run_as_new(
    store: Store,
    row: RunRow,
    limits: ResourceLimits,
    listener: EngineListener,
    launcher: Prestarted | None,
    inputs: Given,
) -> RunOutcome:
    """Make a new run of the definition of another one."""
    state = state_with_inputs(store, row)
    notices = notices_of(store, row, state)
    capacity = capacity_for(state.workflow, limits)
    definition = current_definition(state)
    clock = clock_of()
    values = inputs_for(state, inputs)
    first = RunStarted(clock.now(), capacity, values, state.options, clock.machine, state.source)
    fresh, state = create(
        store, state.workflow, definition, first, output=row.output, directory=row.directory, labels=row.labels
    )
    with hold_lease(store, fresh.id) as lease:
        fresh = own_folder(store, fresh)
        status = drive_engine(store, fresh, state, lease, [first], capacity, listener, launcher, clock, notices)
    return outcome_of(store, fresh, state, status)


def reset(store: Store, number: int, *, failed_only: bool, by: str = "") -> ResetResult:
    """Reset jobs so that `resume` runs them again; nothing runs now. `by` is who asks, if not the caller."""
    from resile.commands.documents.answers import ResetResult

    row = row_of(store, number)
    refuse_unfinished(row, "reset")
    with hold_lease(store, number) as lease:
        state = fold_log(store, row)
        finished = _count_started(state)
        session = Session(store, row, state, env=os.environ, listener=lambda _state, _notes: None)
        session.record(lease, EpochStarted(clock_of(state).now(), failed_only, by or caller()))
    kept = _count_started(state)
    return ResetResult(run=number, epoch=state.epoch, reset=finished - kept, kept=kept)


def cancel(store: Store, number: int, reason: str, listener: EngineListener) -> CancelResult:
    """Ask the engine that drives a run to cancel it; without an engine, drive the run to its `end` here."""
    from resile.commands.documents.answers import CancelResult

    row = row_of(store, number)
    if row.status in RUN_ENDED:
        return CancelResult(run=number, status=row.status, requested=False)
    if store.lease(number, boot_seconds()) is not None:
        store.request(number, time.time(), "cancel", {"by": caller(), "reason": reason})
        return CancelResult(run=number, status="running", requested=True)
    asked = CancelRequested(0.0, caller(), reason, offline=True)
    finished = drive_existing(store, row, ResourceLimits(), listener, [asked])
    return CancelResult(run=number, status=finished.status, requested=False)


def _count_started(state: State) -> int:
    return sum(job.attempt > 0 for job in state.jobs.values() if job.scope == ROOT and not state.is_end(job))


def refuse_unfinished(row: RunRow, verb: str) -> None:
    """Refuse an unfinished run: its steps may still be running and must end first."""
    if row.status not in RUN_ENDED and row.status != "parked":
        hint = f"`resile resume {row.id}` or `resile cancel {row.id}` first"
        raise ResileError("run-unfinished", f"run {row.id} has not ended, so {verb} can't start it over", hint=hint)


def drive_existing(
    store: Store,
    row: RunRow,
    limits: ResourceLimits,
    listener: EngineListener,
    before: Sequence[Event],
    launcher: Prestarted | None = None,
) -> RunOutcome:
    """Take over an existing run, record the events `before` with the present time, and drive the run on."""
    with hold_lease(store, row.id) as lease:
        state = fold_log(store, row)
        if state.phase == "new":
            row = own_folder(store, row)
        capacity = capacity_for(state.workflow, limits)
        notices = notices_of(store, row, state)
        clock = clock_of(state)
        events: list[Event] = [msgspec.structs.replace(event, at=clock.now()) for event in before]
        events.append(next_event(row, state, capacity, clock))
        status = drive_engine(store, row, state, lease, events, capacity, listener, launcher, clock, notices)
    return outcome_of(store, row, state, status)


def drive_engine(
    store: Store,
    row: RunRow,
    state: State,
    lease: Lease,
    events: list[Event],
    capacity: Capacity,
    listener: EngineListener,
    launcher: Prestarted | None = None,
    clock: Clock | None = None,
    notices: Sequence[str] = (),
) -> RunStatus:
    """Let an engine drive a run under its lease, from these events on; return the status in which it leaves the run.

    The listener gets the `notices` when the run has begun.
    """
    refuse_labels(state.workflow)
    session = Session(store, row, state, env=os.environ, listener=listener.notes, debug=listener.debug, clock=clock)
    scarce = scarce_descriptors(capacity.parallel)

    def ready(engine: Engine) -> None:
        """Announce the run."""
        listener.on_start(row.id, state, engine.interrupt)
        if scarce:
            listener.warn(scarce)
        for text in notices:
            listener.warn(text)

    return session.drive(
        lease,
        events,
        parallel=capacity.parallel,
        launcher=launcher,
        ready=ready,
    )


def outcome_of(store: Store, row: RunRow, state: State, status: RunStatus) -> RunOutcome:
    """The outcome of a run that an engine has left in this status."""
    now, gone, letters = clock_of(state).now(), dropped_jobs(store, row.id, state), store.letter_counts(row.id)
    return RunOutcome(row.id, status, state.workflow, lambda: run_document(row, state, status, now, gone, letters))
