"""The commands that drive or change a run: run, resume, rerun, reset, cancel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from resile.commands.documents.runs import RunDocument, run_document
from resile.commands.load import CompileOptions, load, read_inputs, remember, shown_secrets
from resile.commands.store_handle import StoreHandle
from resile.core.actions import Note
from resile.core.events import CancelRequested, Capacity, EpochStarted, Event, Options, RunStarted
from resile.core.state import ROOT, State
from resile.engine.clock import Clock, clock_of
from resile.engine.env_files import add_credentials, load_env_files
from resile.engine.paths import claim_output, own_folder
from resile.engine.replay import dropped_jobs, fold_log, row_of
from resile.engine.resources import CALLS_AHEAD, measure, refuse_misfits, scarce_descriptors
from resile.engine.run_executor import calls_functions
from resile.engine.secrets import load_secrets, refuse_secret_inputs
from resile.engine.session import Session, caller, create, hold_lease, next_event
from resile.errors import ResileError
from resile.model import codec
from resile.model.nested import steps_with_inner_steps
from resile.model.status import EXIT_CODES, RUN_ENDED, RunStatus
from resile.model.workflow import Child, FanOut, Step, Workflow
from resile.store.contract import Lease, RunRow, Store
from resile.store.lease import boot_seconds

if TYPE_CHECKING:
    from resile.commands.documents.answers import CancelResult, ResetResult
    from resile.engine.loop import Engine, Interrupt
    from resile.executors.local.prestart import Prestarted


class ResourceLimits(Struct, frozen=True):
    """The resources that a caller lets a run use; None means all of the machine's."""

    max_parallel: int | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int | None = None


class RunCall(Struct):
    """The arguments of `resile run`; with a compiled `workflow` the file is not read.

    `objects` are inputs as values of a calling program.
    """

    path: str
    inputs: list[str] = []
    input_files: list[str] = []
    objects: dict[str, Any] = {}
    limits: ResourceLimits = ResourceLimits()
    output: str | None = None
    retry_max: int | None = None
    loops_max: int | None = None
    failure_routing: bool = True
    compile_options: CompileOptions = CompileOptions()
    workflow: Workflow | None = None


class RunOutcome:
    """The status of a run when its engine stops; its document is made on first use."""

    def __init__(self, run: int, status: RunStatus, make: Callable[[], RunDocument]) -> None:
        self.run = run
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
        """The engine does something else than it was asked to; called after `on_start`."""


def run(stores: StoreHandle, call: RunCall, listener: EngineListener, launcher: Prestarted | None = None) -> RunOutcome:
    """Compile a file, start a run of it and drive it to its end.

    `launcher` was started ahead to save time; the caller closes it if no run used it. A missing store is created only
    after the call has been validated.
    """
    before = stores.write() if stores.exists() else None
    if call.workflow is None:
        workflow, definition = load(call.path, before, call.compile_options)
    else:
        workflow, definition = call.workflow, codec.encode(call.workflow)
    inputs = read_inputs(workflow, call.inputs, call.input_files, call.objects)
    capacity = _capacity(workflow, call.limits)
    _refuse_items(workflow)
    env = add_credentials(workflow, {**os.environ, **load_env_files(workflow)})
    refuse_secret_inputs(inputs, load_secrets(workflow, env))
    options = Options(loops_max=call.loops_max, retry_max=call.retry_max, failure_routing=call.failure_routing)
    output = os.path.abspath(call.output or stores.default_output())
    claim_output(output)
    store = before or stores.create()
    if before is None and call.workflow is None:
        remember(call.path, store, workflow, definition, call.compile_options)
    clock = clock_of()
    first = RunStarted(clock.now(), capacity, inputs, options, clock.machine)
    row, state = create(store, workflow, definition, first, output=output, directory=os.getcwd())
    with hold_lease(store, row.id) as lease:
        row = own_folder(store, row)
        status = drive_engine(store, row, state, lease, [first], capacity, listener, launcher, clock)
    return _outcome_of(store, row, state, status)


def resume(
    store: Store, number: int, limits: ResourceLimits, listener: EngineListener, launcher: Prestarted | None = None
) -> RunOutcome:
    """Continue an interrupted or parked run; for an ended run, return its outcome."""
    row = row_of(store, number)
    if row.status in RUN_ENDED:
        state = fold_log(store, row)
        return _outcome_of(store, row, state, state.verdict or "failed")
    return _drive_existing(store, row, limits, listener, [], launcher)


def rerun(
    store: Store,
    number: int,
    limits: ResourceLimits,
    listener: EngineListener,
    launcher: Prestarted | None = None,
    *,
    failed_only: bool,
    as_new: bool,
) -> RunOutcome:
    """Run the same definition and inputs again: in the next epoch of this run, or as a new run."""
    if as_new and failed_only:
        raise ResileError("bad-call", "--as-new starts from the beginning, so it can't be combined with --failed-only")
    row = row_of(store, number)
    if as_new:
        state = fold_log(store, row)
        capacity = _capacity(state.workflow, limits)
        definition = store.definition(row.definition)
        clock = clock_of()
        first = RunStarted(clock.now(), capacity, state.inputs, state.options, clock.machine)
        fresh, state = create(store, state.workflow, definition, first, output=row.output, directory=row.directory)
        with hold_lease(store, fresh.id) as lease:
            fresh = own_folder(store, fresh)
            status = drive_engine(store, fresh, state, lease, [first], capacity, listener, launcher, clock)
        return _outcome_of(store, fresh, state, status)
    _refuse_unfinished(row, "rerun")
    again = EpochStarted(0.0, failed_only, caller())
    return _drive_existing(store, row, limits, listener, [again], launcher)


def reset(store: Store, number: int, *, failed_only: bool) -> ResetResult:
    """Reset jobs so that `resume` runs them again; nothing runs now."""
    from resile.commands.documents.answers import ResetResult

    row = row_of(store, number)
    _refuse_unfinished(row, "reset")
    with hold_lease(store, number) as lease:
        state = fold_log(store, row)
        finished = _count_started(state)
        session = Session(store, row, state, env=os.environ, listener=lambda _state, _notes: None)
        session.record(lease, EpochStarted(clock_of(state).now(), failed_only, caller()))
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
    finished = _drive_existing(store, row, ResourceLimits(), listener, [asked])
    return CancelResult(run=number, status=finished.status, requested=False)


def _count_started(state: State) -> int:
    return sum(job.attempt > 0 for job in state.jobs.values() if job.scope == ROOT and not state.is_end(job))


def _capacity(workflow: Workflow, limits: ResourceLimits) -> Capacity:
    """The capacity of the engine: as the caller says, else the file, else the machine.

    A workflow with a step that does not fit is refused.
    """
    parallel = limits.max_parallel if limits.max_parallel is not None else workflow.max_parallel
    capacity = measure(parallel, limits.cpus, limits.memory_bytes, limits.gpus)
    if calls_functions(workflow):
        capacity = msgspec.structs.replace(capacity, ahead=CALLS_AHEAD)
    if parallel is None:
        # A fan-out that asks for more slots gets them, unless the caller or the file sets a limit.
        slots = max(capacity.parallel, *_item_slots(workflow.steps), 0)
        capacity = msgspec.structs.replace(capacity, parallel=slots)
    refuse_misfits(workflow, capacity)
    return capacity


def _item_slots(steps: Iterable[Step]) -> Iterator[int]:
    """How many items at a time the fan-outs among these steps ask for, including inner ones."""
    for step in steps_with_inner_steps(steps):
        if isinstance(step.action, FanOut):
            yield step.action.max_parallel or 0
            yield from _item_slots(step.action.steps)
        elif isinstance(step.action, Child):
            yield from _item_slots(step.action.workflow.steps)


def _refuse_items(workflow: Workflow) -> None:
    """Check the items of maps without needs, which are read at once, before anything runs."""
    maps = steps_with_inner_steps(workflow.steps)
    targets = {arc.step for step in workflow.steps for arc in step.arcs} if maps else set()
    for step in maps:
        waits = step.needs or step.when is not None or step.called_only or step.name in targets
        if waits or not isinstance(step.action, FanOut):
            continue
        from resile.engine.actions.items import check_input

        where = f"{workflow.file}:{step.origin.line}:{step.origin.column}"
        folder = os.path.join(os.getcwd(), step.working_dir)
        problem = check_input(step.action.source, workflow.folder, folder)
        if problem:
            raise ResileError("input", f"the items of {step.name!r}: {problem}", where=where)
        if step.action.isolation == "worktree" and not _is_in_git(folder):
            hint = "run it in one, or leave `isolation` out"
            raise ResileError("isolation", "`isolation: worktree` needs a git repository", where=where, hint=hint)


def _is_in_git(folder: str) -> bool:
    """Is a folder inside a git repository?"""
    while not os.path.exists(os.path.join(folder, ".git")):
        outer = os.path.dirname(folder)
        if outer == folder:
            return "GIT_DIR" in os.environ
        folder = outer
    return True


def _refuse_unfinished(row: RunRow, verb: str) -> None:
    """Refuse an unfinished run: its steps may still be running and must end first."""
    if row.status not in RUN_ENDED and row.status != "parked":
        hint = f"`resile resume {row.id}` or `resile cancel {row.id}` first"
        raise ResileError("run-unfinished", f"run {row.id} has not ended, so {verb} can't start it over", hint=hint)


def _drive_existing(
    store: Store,
    row: RunRow,
    limits: ResourceLimits,
    listener: EngineListener,
    before: list[EpochStarted | CancelRequested],
    launcher: Prestarted | None = None,
) -> RunOutcome:
    """Take over a run that exists already, and drive it on after the events `before`, which happen now."""
    with hold_lease(store, row.id) as lease:
        state = fold_log(store, row)
        if state.phase == "new":
            row = own_folder(store, row)
        capacity = _capacity(state.workflow, limits)
        clock = clock_of(state)
        events: list[Event] = [msgspec.structs.replace(event, at=clock.now()) for event in before]
        events.append(next_event(row, state, capacity, clock))
        status = drive_engine(store, row, state, lease, events, capacity, listener, launcher, clock)
    return _outcome_of(store, row, state, status)


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
) -> RunStatus:
    """Let an engine drive a run under its lease, from these events on; return the status in which it leaves the run."""
    session = Session(store, row, state, env=os.environ, listener=listener.notes, debug=listener.debug, clock=clock)
    scarce = scarce_descriptors(capacity.parallel)

    def ready(engine: Engine) -> None:
        """Announce the run."""
        listener.on_start(row.id, state, engine.interrupt)
        if scarce:
            listener.warn(scarce)
        for finding in shown_secrets(state.workflow):
            listener.warn(f"{finding.where}: {finding.message}; {finding.hint}")

    return session.drive(
        lease,
        events,
        parallel=capacity.parallel,
        launcher=launcher,
        ready=ready,
    )


def _outcome_of(store: Store, row: RunRow, state: State, status: RunStatus) -> RunOutcome:
    now, gone, letters = clock_of(state).now(), dropped_jobs(store, row.id, state), store.letter_counts(row.id)
    return RunOutcome(row.id, status, lambda: run_document(row, state, status, now, gone, letters))
