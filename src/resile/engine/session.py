"""Assembles an engine for one run and drives it: a new run, a resumed one, or one more epoch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from resile.core.events import Capacity, EpochStarted, Event, RunResumed, RunStarted
from resile.core.state import State, new_state
from resile.core.transitions import refuse_unlisted_transitions
from resile.engine.clock import Clock, clock_of
from resile.engine.evaluation.evaluators import make_evaluators
from resile.engine.journal import Journal
from resile.engine.launch import Performer, Rehearsal, identity
from resile.engine.log_files import LogFiles
from resile.engine.loop import Engine, Host, Listener
from resile.engine.neighbours.lease_keeper import LEASE_SECONDS
from resile.engine.outcomes import Observer
from resile.engine.paths import epoch_folder
from resile.engine.replay import digest
from resile.engine.run_executor import Hosting, make_executor, open_fence, open_monitor, scheduling_of
from resile.engine.secrets import Hidden, surroundings_of
from resile.executors.contract import Executor
from resile.model import codec
from resile.model.status import BLOCKED, DISABLED, READY, RUN_ENDED, RunStatus
from resile.model.workflow import Workflow
from resile.store.contract import AttemptRow, JobRow, Lease, RunRow, Store, Writer
from resile.store.lease import boot_seconds

if TYPE_CHECKING:
    from resile.executors.local.prestart import Prestarted
    from resile.languages.javascript.helpers import Helpers


class ServerAccess(msgspec.Struct, frozen=True):
    """How steps reach the server that drives their run: its address, and a token of theirs."""

    url: str = ""
    token: str = ""


# The variable with the token of a step. Its name is that of a secret, so its value is hidden in all output.
API_TOKEN = "RESILE_API_TOKEN"


def create(
    store: Store,
    workflow: Workflow,
    definition: bytes,
    first: RunStarted,
    *,
    output: str,
    directory: str,
    labels: Mapping[str, str] = {},
    key: str = "",
    submit_priority: int | None = None,
) -> tuple[RunRow, State]:
    """Store a new run with its definition, its jobs and its first event; return its row, and its state before that
    event.

    With a priority the servers of the store drive it. If the engine dies before the first event is durable, a resume
    can still start the run.
    """
    state = new_state(workflow)
    row = RunRow(
        id=0,
        workflow=workflow.name,
        dialect=workflow.dialect,
        definition=codec.content_hash(definition),
        status="running",
        created_at=first.at,
        output=output,
        directory=directory,
        summary={"first": msgspec.to_builtins(first)},
        labels=dict(labels),
        key=key,
    )
    number = store.create_run(row, definition, first_rows(state), submit_priority)
    return msgspec.structs.replace(row, id=number), state


def next_event(row: RunRow, state: State, capacity: Capacity, clock: Clock) -> RunStarted | RunResumed:
    """The first event of an engine that takes over a run: a resume, or the start that no earlier engine recorded."""
    if state.phase != "new":
        return RunResumed(clock.now(), capacity, caller(), clock.machine)
    first = msgspec.convert(row.summary["first"], RunStarted)
    # The engine that took over results may have died before it had their output, so all steps run.
    return msgspec.structs.replace(first, at=clock.now(), capacity=capacity, machine=clock.machine, cached=None)


def first_rows(state: State) -> list[JobRow]:
    """The rows of a run's jobs when it starts: jobs that wait for nothing are ready."""
    plan = state.plan
    rows: list[JobRow] = []
    for number, step in enumerate(plan.steps):
        waits = plan.waiting[number] or number in plan.arc_targets or step.when is not None or number == plan.end
        status = DISABLED if step.called_only else BLOCKED if waits else READY
        rows.append(JobRow(number + 1, step.name, "root", status))
    return rows


class Drive:
    """One engine of a run, with its writer and journal; writes the run's row when the engine begins and leaves."""

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        journal: Journal,
        writer: Writer,
        row: RunRow,
        state: State,
        events: list[Event],
    ) -> None:
        self.engine = engine
        self.executor = executor
        self.journal = journal
        self.writer = writer
        self.row = row
        self.state = state
        self.events = events
        # So the end of the run and its row are in one batch.
        journal.closing = partial(closing_row, row)

    def write_opening_row(self) -> None:
        """Write that the run is being driven."""
        replace = msgspec.structs.replace
        goes_on = isinstance(self.events[0], RunResumed)
        began = self.state.started_at if goes_on else self.events[0].at
        self.journal.write_row(replace(self.row, status="running", started_at=began, ended_at=None))

    def write_closing_row(self, status: RunStatus) -> None:
        """Write the status in which the engine leaves the run, with a snapshot of its state, unless its end did so."""
        if self.journal.is_closed(self.state):
            return
        self.journal.write_row(closing_row(self.row, self.state, status))
        self.journal.submit(self.state, snapshot=True)


class Session:
    """Drives one run with one engine, or records single events of it."""

    def __init__(
        self,
        store: Store,
        row: RunRow,
        state: State,
        *,
        env: Mapping[str, str],
        listener: Listener,
        debug: Callable[[str], None] | None = None,
        clock: Clock | None = None,
        executor: Executor | None = None,
        helpers: Helpers | None = None,
        api: ServerAccess | None = None,
    ) -> None:
        """`executor` runs the attempts; the default runs them as processes of this machine.

        `helpers` evaluate code; a process that drives several runs passes the same to each. `api` is the server
        that drives the run.
        """
        self._api = api or ServerAccess()
        self._clock = clock or clock_of(state)
        self._given_executor = executor
        self._helpers = helpers
        self._debug = debug
        self._store = store
        self._row = row
        self._state = state
        self._env = env
        self._listener = listener
        if env.get("RESILE_CHECK") == "1":
            refuse_unlisted_transitions()

    def record(self, lease: Lease, *events: Event, attempts: Callable[[], Iterable[AttemptRow]] | None = None) -> State:
        """Record events in one batch, and perform no orders: `reset`, and judgements while no engine drives the run.

        `attempts` tells, after the events, which rows of attempts to write with them.
        """
        from resile.core.actions import StopEngine
        from resile.core.react import react

        writer = self._store.writer()
        journal = Journal(writer, self._row.id, lease.token)
        status: RunStatus = "running"
        for event in events:
            _, actions = react(self._state, event)
            journal.add(self._state, event, actions, None)
            status = next((action.status for action in actions if isinstance(action, StopEngine)), "running")
        self._row = msgspec.structs.replace(self._row, status=status, epoch=self._state.epoch, ended_at=None)
        if attempts is not None:
            journal.copy_attempts(attempts())
        journal.write_row(self._row)
        journal.submit(self._state)
        writer.flush()
        writer.close()
        return self._state

    def drive(
        self,
        lease: Lease,
        events: list[Event],
        *,
        parallel: int,
        launcher: Prestarted | None,
        ready: Callable[[Engine], None],
        rehearsal: Rehearsal | None = None,
    ) -> RunStatus:
        """Drive the run from these events until it ends, parks or is interrupted; then write the status to its row."""
        drive = self.open(lease, events, self._store.writer(), parallel, launcher=launcher, rehearsal=rehearsal)
        engine, finished = drive.engine, False
        try:
            ready(engine)
            drive.write_opening_row()
            drive.write_closing_row(engine.drive(drive.events))
            drive.writer.flush()
            finished = not self._state.in_flight
            if engine.problem is not None:
                raise engine.problem
            assert engine.outcome is not None
            return engine.outcome
        finally:
            engine.close(finished)

    def open(
        self,
        lease: Lease,
        events: list[Event],
        writer: Writer,
        parallel: int,
        *,
        launcher: Prestarted | None = None,
        rehearsal: Rehearsal | None = None,
        hosting: Hosting | None = None,
        host: Host | None = None,
    ) -> Drive:
        """An engine with all its parts, before its first event; the `host` that drives it keeps its lease."""
        state = self._state
        epoch = state.epoch + sum(isinstance(event, EpochStarted) for event in events)
        journal = Journal(writer, self._row.id, lease.token)
        engine, executor = self._engine(lease, writer, journal, epoch, parallel, launcher, rehearsal, hosting, host)
        writer.sync_output = executor.sync_output
        if state.in_flight and self._are_records_lost(executor):
            replace = msgspec.structs.replace
            events = [replace(one, records_lost=True) if isinstance(one, RunResumed) else one for one in events]
        return Drive(engine, executor, journal, writer, self._row, state, events)

    def _confirm(self, lease: Lease) -> None:
        """Renew the lease; raises the store's error if another engine has it."""
        self._store.renew_lease(lease, boot_seconds(), LEASE_SECONDS)

    def _are_records_lost(self, executor: Executor) -> bool:
        """Are the executor's records of this boot gone, or shorter than what the store knows?"""
        if executor.records != "here":
            # An older Resile, which did not record the machine, removed its records when it closed.
            return executor.records == "former" or self._state.machine is not None
        ended = (row for row in self._store.attempts(self._row.id) if row.epoch == self._state.epoch and row.log)
        last = max(ended, key=lambda row: row.ended_at or 0.0, default=None)
        if last is None or last.ended_at is None or last.log is None:
            return False
        return executor.lacks_end(last.job, last.attempt, last.log)

    def _surroundings(self) -> tuple[Mapping[str, str], dict[str, str], Hidden]:
        """The environment of the steps, the secrets, and the texts to redact: the token of the steps is one."""
        given = {**self._env, API_TOKEN: self._api.token} if self._api.token else self._env
        return surroundings_of(self._state.workflow, given)

    def _engine(
        self,
        lease: Lease,
        writer: Writer,
        journal: Journal,
        epoch: int,
        parallel: int,
        launcher: Prestarted | None,
        rehearsal: Rehearsal | None,
        hosting: Hosting | None,
        host: Host | None,
    ) -> tuple[Engine, Executor]:
        """An engine with all its parts, and its executor."""
        row, state = self._row, self._state
        env, secrets, hidden = self._surroundings()
        output, folder = row.output, epoch_folder(row.output, row.id, epoch)
        run_env = identity(row.id, epoch, output, self._api.url, "" if self._api.url else self._store.path)
        own_env = {**secrets, **{f"RESILE_{name}": value for name, value in run_env.items()}}
        executor = self._given_executor
        if executor is None:
            name, offset = self._store.identity(row.id), self._clock.machine.clock_offset
            fence = open_fence(state, row, epoch, name, lease.number, partial(self._confirm, lease), hosting)
            executor = make_executor(
                state, row, folder, parallel, epoch, name, env, own_env, hidden, launcher, offset, fence, hosting
            )
        evaluators = make_evaluators(
            self._store, row, state, executor, env, secrets, hidden, debug=self._debug, helpers=self._helpers
        )
        values = evaluators.values
        performer = Performer(
            state,
            values,
            run_env=run_env,
            folder=folder,
            directory=row.directory,
            clock=self._clock,
            evaluators=evaluators,
            secrets=hidden,
            rehearsal=rehearsal,
        )
        engine = Engine(
            store=self._store,
            writer=writer,
            lease=lease,
            state=state,
            executor=executor,
            performer=performer,
            observer=Observer(
                state, performer, values, evaluators, output=executor, clock=self._clock, folder=folder, secrets=hidden
            ),
            conditions=evaluators.conditions,
            journal=journal,
            logfiles=LogFiles(executor, output, row.id, state, is_served=bool(self._api.url)),
            listener=self._listener,
            monitor=None if self._given_executor else open_monitor(state, folder, executor),
            scheduling=scheduling_of(state, executor),
            clock=self._clock,
            host=host,
        )
        return engine, executor


def closing_row(row: RunRow, state: State, status: RunStatus) -> RunRow:
    """The run's row when an engine stops driving it."""
    ended = state.ended_at if status in RUN_ENDED else None
    return msgspec.structs.replace(
        row, status=status, epoch=state.epoch, started_at=state.started_at, ended_at=ended, summary=digest(state)
    )


def take(store: Store, run: int, now: float | None = None) -> Lease:
    """Acquire the lease of a run: the right to drive it; `now` counts from the boot."""
    return store.acquire_lease(run, boot_seconds() if now is None else now, LEASE_SECONDS)


@contextmanager
def hold_lease(store: Store, run: int) -> Iterator[Lease]:
    """Hold the lease of a run for the time of a block, and release it even if the block fails."""
    lease = take(store, run)
    try:
        yield lease
    finally:
        store.release_lease(lease)


def caller() -> str:
    """The user, machine and process that act, for the log."""
    user = os.environ.get("USER") or os.environ.get("LOGNAME")
    if not user:
        import pwd

        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = str(os.getuid())
    return f"{user}@{os.uname().nodename}:{os.getpid()}"
