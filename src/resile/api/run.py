"""Runs from a program: `run`, `resume`, `load`, and `Run`, the outcome of a run.

    resile.run(flow).status          resile.run("flow.yaml", inputs={"name": "x"}).exit_code
    run.result(x)                    the object that the function of this step returned

These are the commands of the command line. Every run is durable: `resume` or `resile resume` continues one that was
interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from resile.api.build import Result
from resile.api.workflow import Workflow
from resile.commands import run as drive
from resile.commands.client import Client
from resile.commands.start.call import Given, ResourceLimits, RunCall
from resile.errors import ResileError, RunFailed, StepFailed
from resile.languages.python.modules import is_loading
from resile.languages.python.values import mentions_pickle, revive
from resile.model.limits import PARALLEL_MAX
from resile.model.status import RunStatus, Status, status_clause
from resile.store.open import default_output

if TYPE_CHECKING:
    from resile.core.actions import Note
    from resile.core.state import State
    from resile.engine.loop import Interrupt
    from resile.model import workflow as model


T = TypeVar("T")
OnEvent = Callable[[dict[str, Any]], None]
"""Called with each event of a run, as `resile events list --json` prints it."""


class RunSettings(NamedTuple):
    """Defaults for the runs of this program; `prepare` changes each definition before it runs."""

    db: str
    output: str
    prepare: Callable[[model.Workflow], model.Workflow]


run_settings: ContextVar[RunSettings | None] = ContextVar("run_settings", default=None)


def database_for(db: str | None) -> str | None:
    """The database that a caller names, else that of the settings, else None for the user's own."""
    settings = run_settings.get()
    return db or (settings.db if settings is not None else None)


def is_server(place: str | None) -> bool:
    """Is this the URL of a server?"""
    return place is not None and place.startswith(("http://", "https://"))


def commands_at(place: str | None, token: str | None = None) -> Client:
    """The commands on a database, or on a server."""
    if place is None or not is_server(place):
        return Client.at(place)
    from resile.commands.remote.client import RemoteClient
    from resile.commands.remote.connection import token_of_environment

    return RemoteClient(place, token_of_environment() if token is None else token)


def call_of(path: str, inputs: dict[str, Any] | None, max_parallel: int | None) -> RunCall:
    """The call that runs a file."""
    return RunCall(path=path, inputs=Given(objects=inputs or {}), limits=limits_of(max_parallel))


class EventListener:
    """Hands each event to a callback of the program, as soon as it is on disk."""

    debug: Callable[[str], None] | None = None

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event
        self._run = 0

    def on_start(self, run: int, state: State, interrupt: Interrupt) -> None:  # noqa: ARG002
        """The run has a number and an engine."""
        self._run = run

    def warn(self, text: str) -> None:
        """Pass on a warning of the engine."""
        import warnings

        warnings.warn(text, RuntimeWarning, stacklevel=2)

    introduce = warn

    def notes(self, state: State, notes: list[Note]) -> None:  # noqa: ARG002
        """These events are on disk now."""
        if self._on_event is None:
            return
        from msgspec import to_builtins

        from resile.commands.documents.runs import event_of

        for note in notes:
            self._on_event(to_builtins(event_of(self._run, note)))


class Run:
    """The outcome of a run: its number, its status, and the document that `resile run --json` prints."""

    def __init__(self, finished: drive.RunOutcome, db: str | None) -> None:
        self.id: int = finished.run
        self.status: RunStatus = finished.status
        self.exit_code: int = finished.exit_code
        self._finished = finished
        self._db = db
        self._state: State | None = None

    def __repr__(self) -> str:
        return f"<run {self.id}: {self.status}>"

    @property
    def document(self) -> dict[str, Any]:
        """The document that `resile run --json` prints."""
        from msgspec import to_builtins

        document: dict[str, Any] = to_builtins(self._finished.document)
        return document

    def raise_for_status(self) -> Run:
        """Return this run if it completed; raise RunFailed, which names the step that failed, if it did not."""
        if self.status == "completed":
            return self
        hint = f"resile explain {self.id}"
        raise RunFailed(
            f"run {self.id} {status_clause(self.status)}{self._why()}", run=self.id, status=self.status, hint=hint
        )

    def _why(self) -> str:
        """The first step whose failure stands, with its last failure; not one that passed when it was tried again."""
        last = {job.step: job for job in self._finished.document.jobs if job.scope == "root"}
        failed = (job for job in last.values() if job.status in ("failed", "pending_failed") and not job.tolerated)
        job = next(failed, None)
        if job is None:
            return ""
        first = self._finished.document.first_failure
        message = first.message if first is not None and first.step == job.step else ""
        # A store in memory has lost the run, and a file or a server may be gone.
        with suppress(ResileError), commands_at(self._db) as client:
            failure = client.last_failures(self.id, [job.id]).get(job.id)
            message = (failure.message if failure is not None else "") or message
        said = f": {message}" if message else ""
        return f": step {job.step!r} {'failed' if job.status == 'failed' else 'is parked'}{said}"

    @overload
    def result(self, step: Result[T]) -> T:
        """Name the step by its Result."""

    @overload
    def result(self, step: str) -> Any:
        """Name the step by its name."""

    def result(self, step: Result[Any] | str) -> Any:
        """The return value of a step, or the list of those of a map's items; raises StepFailed if there is none."""
        from resile.engine.actions.function import home_of
        from resile.engine.evaluation.values import Values
        from resile.engine.replay import fold_log, row_of
        from resile.store.open import open_store

        name = step.name if isinstance(step, Result) else step
        if is_server(self._db):
            hint = "print it there, or give it to a step of the run; `document` has the run's outputs"
            raise ResileError("not-on-server", f"a server does not give out the result of step {name!r}", hint=hint)
        store = open_store(self._db, readonly=True)
        try:
            row = row_of(store, self.id)
            if self._state is None:
                self._state = fold_log(store, row)
            job = self._state.job_named(name)
            if job is None:
                raise ResileError("no-step", f"run {self.id} has no step {name!r}")
            if job.status is not Status.completed and job.accepted not in ("partial", "judged", "empty"):
                failures = [tried.failure.message for tried in store.attempts(self.id, job.id) if tried.failure]
                why = f" ({failures[-1]})" if failures else ""
                message = f"step {name!r} of run {self.id} {status_clause(job.status.name)}: it gave nothing{why}"
                raise StepFailed(message, step=name)
            value = Values(store, row, self._state, {}).output(job)
        finally:
            store.close()
        if not mentions_pickle(value):
            return value
        return revive(value, home_of(self._state.workflow))


def load(path: str | PathLike[str]) -> Workflow:
    """The workflow in a file of any kind, compiled; raises WorkflowError with every finding where it is wrong."""
    return Workflow.load(path)


def run(
    workflow: Workflow | str | PathLike[str],
    *,
    db: str | None = None,
    output: str | None = None,
    inputs: dict[str, Any] | None = None,
    max_parallel: int | None = None,
    executor: str | None = None,
    on_event: OnEvent | None = None,
) -> Run:
    """Run a workflow to its end: one built in Python, a loaded one, or a file.

    Inputs pass as values. `executor` is as `--executor`: a file that says where steps run, or `local`. `on_event` is
    called on the thread that called `run`; if it raises, the run stops there and can be resumed.
    """
    if is_loading():
        hint = 'put the call under `if __name__ == "__main__":`'
        raise ResileError("bad-call", "the file runs its workflow while it is being loaded", hint=hint)
    if isinstance(workflow, Workflow):
        path, definition = workflow.file, workflow.compile()
    elif isinstance(workflow, str | PathLike):
        path, definition = fspath(workflow), None
    else:
        raise TypeError(f"run() takes a Workflow, a loaded one or the path of a file, not {type(workflow).__name__}")
    settings = run_settings.get()
    if settings is not None:
        definition = settings.prepare(definition or Workflow.load(path).compile())
        output = output or settings.output
    db = database_for(db)
    call = RunCall(
        path=path,
        output=output,
        inputs=Given(objects=inputs or {}),
        limits=limits_of(max_parallel),
        workflow=definition,
        executor=executor,
        cluster_folder=output or default_output(db),
    )
    with Client.at(db) as client:
        return Run(client.run(call, EventListener(on_event)), db)


def resume(run: int, *, db: str | None = None, max_parallel: int | None = None, on_event: OnEvent | None = None) -> Run:
    """Continue a run that was interrupted or is parked; for an ended run, return its outcome."""
    db = database_for(db)
    with Client.at(db) as client:
        return Run(client.resume(run, limits_of(max_parallel), EventListener(on_event)), db)


def limits_of(max_parallel: int | None) -> ResourceLimits:
    """The limits that a program gives; refuses a number that is none."""
    if max_parallel is not None and (type(max_parallel) is not int or not 1 <= max_parallel <= PARALLEL_MAX):
        raise ResileError("bad-call", f"max_parallel is a whole number from 1 to {PARALLEL_MAX}, not {max_parallel!r}")
    return ResourceLimits(max_parallel=max_parallel)
