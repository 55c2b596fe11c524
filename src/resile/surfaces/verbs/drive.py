"""The verbs that move a run: run, resume, rerun, reset-status, cancel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from resile.core.actions import Note
from resile.core.events import CancelRequested, Capacity, EpochStarted, Event, Options, RunStarted
from resile.core.state import ROOT, State
from resile.errors import ResileError
from resile.model.status import EXIT_CODES, RUN_ENDED, RunStatus
from resile.model.workflow import Workflow
from resile.runtime.capacity import measure, refuse_misfits
from resile.runtime.past import folded, row_of
from resile.runtime.secrets import load_secrets, refuse_secret_inputs
from resile.runtime.session import Session, caller, create, next_event, take
from resile.store.contract import Lease, RunRow, Store
from resile.store.open import default_output, exists, open_store
from resile.surfaces.documents import run_document
from resile.surfaces.verbs.load import load, read_inputs, remember

if TYPE_CHECKING:
    from resile.executors.prestart import Prestarted


class Machine(Struct, frozen=True):
    """What the caller lets a run use; None is what the machine has."""

    max_parallel: int | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int | None = None


class RunCall(Struct):
    """Everything that `resile run` can be told."""

    path: str
    db: str | None = None
    inputs: list[str] = []
    input_files: list[str] = []
    machine: Machine = Machine()
    output: str | None = None
    retry_max: int | None = None
    loops_max: int | None = None
    failure_routing: bool = True


class Finished(Struct, frozen=True):
    """How a run stands when its engine leaves it."""

    run: int
    status: RunStatus
    exit_code: int
    document: dict[str, Any]


class Watcher(Protocol):
    """Somebody who looks on while a run goes; called on the engine's thread."""

    def started(self, run: int, state: State, interrupt: Callable[[], None]) -> None:
        """The run has an id and an engine; `interrupt` is what Ctrl-C does."""

    def notes(self, state: State, notes: list[Note]) -> None:
        """These canonical events are on disk now."""


def run(
    call: RunCall, watcher: Watcher, launcher: Prestarted | None = None, debug: Callable[[str], None] | None = None
) -> Finished:
    """Compile a file, start a run of it and drive it to its end.

    `launcher` was started ahead to save time; the caller puts it down where no run took it. `debug` is told of
    every expression that is evaluated.
    """
    before = open_store(call.db) if exists(call.db) else None
    workflow, definition = load(call.path, before)
    inputs = read_inputs(workflow, call.inputs, call.input_files)
    capacity = _capacity(workflow, call.machine)
    refuse_misfits(workflow, capacity)
    refuse_secret_inputs(inputs, load_secrets(workflow, os.environ))
    options = Options(loops_max=call.loops_max, retry_max=call.retry_max, failure_routing=call.failure_routing)
    output = os.path.abspath(call.output or default_output(call.db))
    _make_folder(output)
    store = before or open_store(call.db)
    try:
        if before is None:
            remember(call.path, store, definition)
        first = RunStarted(time.time(), capacity, inputs, options)
        row, state = create(store, workflow, definition, first, output=output, directory=os.getcwd())
        lease = take(store, row.id)
        return _drive(store, row, state, lease, [first], capacity, watcher, launcher, debug)
    finally:
        store.close()


def open_again(db: str | None) -> Store:
    """A store that is there already: none is made for the sake of a run that can't be in it."""
    return open_store(db, readonly=not exists(db))


def _make_folder(output: str) -> None:
    """The output folder; one that can't be made is an error before anything is stored."""
    try:
        os.makedirs(output, mode=0o700, exist_ok=True)
    except OSError as error:
        raise ResileError(
            "output-unusable",
            f"can't make the output folder: {error.strerror}",
            where=output,
            hint="name another with --output",
        ) from error


def resume(
    number: int, *, db: str | None, machine: Machine, watcher: Watcher, launcher: Prestarted | None = None
) -> Finished:
    """Take an interrupted or parked run up again; one that has ended only tells how."""
    store = open_again(db)
    try:
        row = row_of(store, number)
        if row.status in RUN_ENDED:
            return _told(row, folded(store, row))
        lease = take(store, number)
        return _resumed(store, row, folded(store, row), lease, machine, watcher, [], launcher)
    finally:
        store.close()


def rerun(
    number: int,
    *,
    failed_only: bool,
    as_new: bool,
    db: str | None,
    machine: Machine,
    watcher: Watcher,
    launcher: Prestarted | None = None,
) -> Finished:
    """Run the same definition and inputs again: in the next epoch of this run, or as a new run."""
    if as_new and failed_only:
        raise ResileError("bad-call", "--as-new starts from the beginning, so it can't be combined with --failed-only")
    store = open_again(db)
    try:
        row = row_of(store, number)
        state = folded(store, row)
        if as_new:
            capacity = _capacity(state.workflow, machine)
            definition = store.definition(row.definition)
            first = RunStarted(time.time(), capacity, state.inputs, state.options)
            fresh, state = create(store, state.workflow, definition, first, output=row.output, directory=row.directory)
            lease = take(store, fresh.id)
            return _drive(store, fresh, state, lease, [first], capacity, watcher, launcher)
        _refuse_unfinished(row, "rerun")
        lease = take(store, number)
        again = EpochStarted(time.time(), failed_only, caller())
        return _resumed(store, row, state, lease, machine, watcher, [again], launcher)
    finally:
        store.close()


def reset_status(number: int, *, failed_only: bool, db: str | None) -> dict[str, Any]:
    """Set jobs back so that `resume` runs them again; nothing runs now."""
    store = open_again(db)
    try:
        row = row_of(store, number)
        _refuse_unfinished(row, "reset-status")
        lease = take(store, number)
        state = folded(store, row)
        finished = _begun(state)
        session = Session(store, row, state, env=os.environ, listener=lambda _state, _notes: None)
        session.record(lease, EpochStarted(time.time(), failed_only, caller()))
        store.release_lease(lease)
        kept = _begun(state)
        return {"run": number, "epoch": state.epoch, "reset": finished - kept, "kept": kept}
    finally:
        store.close()


def cancel(number: int, *, db: str | None, reason: str, watcher: Watcher) -> dict[str, Any]:
    """Ask the engine that drives a run to cancel it; where none does, take the run to its `end` here."""
    store = open_again(db)
    try:
        row = row_of(store, number)
        if row.status in RUN_ENDED:
            return {"run": number, "status": row.status, "requested": False}
        now = time.time()
        if store.lease(number, now) is not None:
            store.request(number, now, "cancel", {"by": caller(), "reason": reason})
            return {"run": number, "status": "running", "requested": True}
        lease = take(store, number)
        asked = CancelRequested(now, caller(), reason)
        finished = _resumed(store, row, folded(store, row), lease, Machine(), watcher, [asked])
        return {"run": number, "status": finished.status, "requested": False}
    finally:
        store.close()


def _begun(state: State) -> int:
    """How many steps have been tried."""
    return sum(job.attempt > 0 for job in state.jobs.values() if job.scope == ROOT and not state.is_end(job))


def _capacity(workflow: Workflow, machine: Machine) -> Capacity:
    """What the engine may use: the caller's word, then the file's, then the machine's."""
    parallel = machine.max_parallel if machine.max_parallel is not None else workflow.max_parallel
    return measure(parallel, machine.cpus, machine.memory_bytes, machine.gpus)


def _refuse_unfinished(row: RunRow, verb: str) -> None:
    """Steps of an unfinished run may still be running; they must come to an end first."""
    if row.status not in RUN_ENDED and row.status != "parked":
        raise ResileError(
            "run-unfinished",
            f"run {row.id} has not ended, so {verb} can't start it over",
            hint=f"`resile resume {row.id}` or `resile cancel {row.id}` first",
        )


def _resumed(
    store: Store,
    row: RunRow,
    state: State,
    lease: Lease,
    machine: Machine,
    watcher: Watcher,
    before: list[Event],
    launcher: Prestarted | None = None,
) -> Finished:
    """Drive a run that exists already."""
    capacity = _capacity(state.workflow, machine)
    refuse_misfits(state.workflow, capacity)
    events = [*before, next_event(row, state, capacity, time.time())]
    return _drive(store, row, state, lease, events, capacity, watcher, launcher)


def _drive(
    store: Store,
    row: RunRow,
    state: State,
    lease: Lease,
    events: list[Event],
    capacity: Capacity,
    watcher: Watcher,
    launcher: Prestarted | None = None,
    debug: Callable[[str], None] | None = None,
) -> Finished:
    """Hand the run to an engine and tell how it stands afterwards."""
    session = Session(store, row, state, env=os.environ, listener=watcher.notes, debug=debug)
    try:
        status = session.drive(
            lease,
            events,
            parallel=capacity.parallel,
            launcher=launcher,
            ready=lambda engine: watcher.started(row.id, state, engine.interrupt),
        )
    finally:
        store.release_lease(lease)
    return _finished(row, state, status)


def _told(row: RunRow, state: State) -> Finished:
    """A run that had ended before."""
    return _finished(row, state, state.verdict or "failed")


def _finished(row: RunRow, state: State, status: RunStatus) -> Finished:
    """The result of a verb that drove a run."""
    return Finished(row.id, status, EXIT_CODES[status], run_document(row, state, status, time.time()))
