"""The surroundings of a job: the scopes whose names it sees, its item, its host step, the failure it handles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from resile.core.state import Job, Scope, State
from resile.languages.references import MISSING
from resile.model.workflow import Child, FanOut


def frames(state: State, job: Job) -> Iterator[Scope]:
    """The scopes whose names a job sees, nearest first, within its workflow."""
    frame: Scope | None = state.frame_of(job.scope)
    while frame is not None:
        yield frame
        around = state.scope_around(frame) if frame.kind == "item" else None
        frame = None if around is None else state.frame_of(around.id)


def workflow_frame(state: State, job: Job) -> Scope:
    """The scope of the workflow that a job is part of: a child's, or the root."""
    *_, last = frames(state, job)
    return last


def scopes_seen(state: State, job: Job) -> list[Scope]:
    """The scopes whose steps a job can name, nearest first."""
    return [state.scopes[job.scope], *frames(state, job)]


def item_scope(state: State, job: Job) -> Scope | None:
    """The scope of the item that a job runs for."""
    return next((frame for frame in frames(state, job) if frame.kind == "item"), None)


def item_name(state: State, scope: Scope) -> str:
    """The name of its own that a map gives to the item of this scope; empty without one."""
    action = state.step_of(state.jobs[scope.owner]).action
    return action.item_name if isinstance(action, FanOut) else ""


def source_item(state: State, name: str, job: Job) -> Any:
    """The item of a job inside a fan-out over this step's list, which replaces the step's output; else MISSING."""
    for frame in frames(state, job):
        if frame.kind == "item" and frame.item is not None:
            action = state.step_of(state.jobs[frame.owner]).action
            if isinstance(action, FanOut) and action.source.step == name:
                return frame.item.value
    return MISSING


def host_of(state: State, job: Job) -> Job | None:
    """The step that a job is part of: the host of a child workflow that shares all names with its parent."""
    frame = workflow_frame(state, job)
    if frame.kind != "child":
        return None
    host = state.jobs[frame.owner]
    action = state.step_of(host).action
    return host if isinstance(action, Child) and action.shares else None


def is_of_end(state: State, job: Job) -> bool:
    """Does a job belong to the `end` of its workflow: is it that step, or inside of it?"""
    while True:
        scope = state.scopes[job.scope]
        owner = state.jobs[scope.owner] if scope.owner else None
        action = state.step_of(owner).action if owner is not None else None
        if owner is None or (scope.kind == "child" and isinstance(action, Child) and not action.shares):
            return state.is_end(job)
        job = owner


def failed_job(state: State, job: Job) -> Job | None:
    """The failed job that this one repairs, if it is part of a repair."""
    if job.callers:
        return state.jobs[job.callers[0]]
    scope = state.scopes.get(job.scope)
    while scope is not None and scope.owner:
        owner = state.jobs[scope.owner]
        if owner.error is not None:
            return owner
        scope = state.scopes.get(owner.scope)
    return None


def error_fields(failed: Job) -> dict[str, Any]:
    """The failure of a job for `${error.*}` and `error` in code; empty if it has not failed."""
    error = failed.error
    if error is None:
        return {}
    failure = error.failure
    return {
        "message": failure.message,
        "exit_code": failure.exit_code,
        "step": error.step,
        "timestamp": utc_time(error.at),
        "stdout": failure.stdout.strip(),
        "stderr": failure.stderr.strip(),
        "kind": failure.kind,
        "attempt": error.attempt,
        "signal": failure.signal,
    }


def utc_time(at: float) -> str:
    """A time in UTC, as in RFC 3339."""
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
