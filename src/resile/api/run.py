"""Runs from a program: `run`, `resume`, `load`, and what a run came to.

    resile.run(flow).status          resile.run("flow.yaml", inputs={"name": "x"}).exit_code
    run.result(x)                    the very object that the function of this step returned

The verbs are those of the command line; every run is durable, and `resile resume` or `resume` goes on with one that
was broken off.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeVar, overload

from resile.api.workflow import Result, Workflow
from resile.commands import run as drive
from resile.errors import ResileError
from resile.languages.python.modules import is_loading
from resile.languages.python.values import mentions_pickle, revive
from resile.model import workflow as model
from resile.model.limits import PARALLEL_MAX
from resile.model.status import RunStatus, Status

if TYPE_CHECKING:
    from resile.core.actions import Note
    from resile.core.state import State
    from resile.engine.loop import Interrupt


T = TypeVar("T")


class NullListener:
    """Nobody looks on."""

    debug: Callable[[str], None] | None = None

    def started(self, run: int, state: State, interrupt: Interrupt) -> None:
        """The run has an id and an engine."""

    def notes(self, state: State, notes: list[Note]) -> None:
        """These events are on disk now."""


class Run:
    """How a run stands: its number, its status, and the document that `resile run --json` prints."""

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
        """What `resile run --json` prints."""
        return self._finished.document

    @overload
    def result(self, step: Result[T]) -> T:
        """Of a step by what its call gave."""

    @overload
    def result(self, step: str) -> Any:
        """Of a step by its name."""

    def result(self, step: Result[Any] | str) -> Any:
        """What a step gave; of a map, the list of what its items gave. Raises ResileError where it gave nothing."""
        from resile.engine.actions.function import home_of
        from resile.engine.evaluation.values import Values
        from resile.engine.replay import folded, row_of
        from resile.store.open import open_store

        name = step.name if isinstance(step, Result) else step
        store = open_store(self._db, readonly=True)
        try:
            row = row_of(store, self.id)
            if self._state is None:
                self._state = folded(store, row)
            job = self._state.job_named(name)
            if job is None:
                raise ResileError("no-step", f"run {self.id} has no step {name!r}")
            if job.status is not Status.completed and not job.dependents_go_on:
                failures = [tried.failure.message for tried in store.attempts(self.id, job.id) if tried.failure]
                why = f" ({failures[-1]})" if failures else ""
                message = f"step {name!r} of run {self.id} is {job.status.name}: it gave nothing{why}"
                raise ResileError("no-result", message)
            value = Values(store, row.id, row.output, self._state, {}).output(job)
        finally:
            store.close()
        if not mentions_pickle(value):
            return value
        return revive(value, home_of(self._state.workflow))


def load(path: str | PathLike[str]) -> model.Workflow:
    """The workflow in a file of any kind, compiled; raises ResileError with every finding where it is wrong."""
    from resile.commands.load import compiled

    return compiled(fspath(path))


def run(
    workflow: Workflow | model.Workflow | str | PathLike[str],
    *,
    db: str | None = None,
    output: str | None = None,
    inputs: dict[str, Any] | None = None,
    max_parallel: int | None = None,
) -> Run:
    """Run a workflow to its end: one built in Python, a loaded one, or a file."""
    if is_loading():
        raise ResileError(
            "bad-call",
            "the file runs its workflow while it is being loaded",
            hint='put the call under `if __name__ == "__main__":`',
        )
    path, compiled = _given(workflow)
    call = drive.RunCall(
        path=path,
        db=db,
        output=output,
        inputs=[f"{name}={_text(name, value)}" for name, value in (inputs or {}).items()],
        limits=_limits(max_parallel),
        workflow=compiled,
    )
    return Run(drive.run(call, NullListener()), db)


def resume(run: int, *, db: str | None = None, max_parallel: int | None = None) -> Run:
    """Go on with a run that was interrupted or is parked; of one that has ended this only tells how."""
    return Run(drive.resume(run, db=db, limits=_limits(max_parallel), listener=NullListener()), db)


def _given(workflow: Workflow | model.Workflow | str | PathLike[str]) -> tuple[str, model.Workflow | None]:
    """The file of a workflow, and the workflow itself where it is compiled already."""
    match workflow:
        case Workflow():
            return workflow.file, workflow.compiled()
        case model.Workflow():
            return workflow.file, workflow
        case str() | PathLike():
            return fspath(workflow), None
    raise TypeError(f"run() takes a Workflow, a loaded one or the path of a file, not {workflow!r}")


def _limits(max_parallel: int | None) -> drive.ResourceLimits:
    """What the caller lets a run use."""
    if max_parallel is not None and (type(max_parallel) is not int or not 1 <= max_parallel <= PARALLEL_MAX):
        raise ResileError("bad-call", f"max_parallel is a whole number from 1 to {PARALLEL_MAX}, not {max_parallel!r}")
    return drive.ResourceLimits(max_parallel=max_parallel)


def _text(name: str, value: Any) -> str:
    """An input as the command line takes it."""
    if isinstance(value, str):
        return value
    from resile.store.sqlite.rows import to_json

    try:
        return to_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ResileError("input-malformed", f"input {name!r} is nothing that JSON holds: {error}") from error
