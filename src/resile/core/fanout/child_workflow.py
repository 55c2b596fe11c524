"""Child workflows: another definition run as one step, in a scope of its own, with its own `end`.

    attempt (its inputs) --> begin_child --> its steps --> its `end` --> verdict --> the parent's ladder, or success
                                                  where the step looks at values: --> AnswerValue --> child_judged

The parent waits and inherits the verdict. All of it is in the parent's log, so a crash finds the child where it was.
"""

from __future__ import annotations

from typing import Any

from resile.core.actions import Action, AnswerValue, SetTimer
from resile.core.event_log import note_job
from resile.core.recovery.ladder import climb
from resile.core.recovery.repair import succeeded
from resile.core.scheduling.dependencies import settle, stopping, wake
from resile.core.scheduling.finish import execution
from resile.core.scheduling.goto import drop_stale
from resile.core.scheduling.reservations import rest, stir
from resile.core.scheduling.scopes import close_scope, open_scope, start_scope, stop_scope
from resile.core.state import Error, Failed, Job, Scope, State
from resile.model.failure import Failure, Kind, Outcome
from resile.model.items import ItemFailure
from resile.model.status import TERMINAL, Status
from resile.model.workflow import Child


def begin_child(state: State, out: list[Action], at: float, job: Job, inputs: dict[str, Any], began: float) -> None:
    """The inputs are known: open the child's scope; the time of the attempt, which began then, goes on."""
    job.hosting = True
    job.exit_code = None
    job.status = Status.running
    rest(state, job)
    step = state.step_of(job)
    if step.timeout_seconds is not None:
        job.timer_at = began + step.timeout_seconds
        out.append(SetTimer(job.id, job.attempt, job.timer_at, job.last_event_seq))
    scope = open_scope(state, job, "child", step.name, inputs=inputs, started_at=at)
    start_scope(state, out, scope, job.last_event_seq)
    if not scope.open:
        begin_end(state, out, scope)


def begin_end(state: State, out: list[Action], scope: Scope) -> None:
    """Everything else of a child is terminal: its `end` runs, once."""
    scope.ending = True
    wake(state, out, end_of(state, scope), state.seq)


def end_of(state: State, scope: Scope) -> Job:
    """The `end` of a child."""
    return state.jobs[scope.first + state.plan_of(scope.id).end]


def expire_child(state: State, out: list[Action], at: float, job: Job) -> None:
    """A child took too long: kill what it runs; its `end` still runs, and then it has failed."""
    scope = next(found for found in state.scopes.values() if found.owner == job.id and found.kind == "child")
    limit = state.step_of(job).timeout_seconds or 0.0
    scope.first_failure = ItemFailure(0, at, "", Kind.TIMEOUT, f"timed out after {limit:g}s")
    stop_scope(state, out, at, scope, job.last_event_seq)


def child_over(state: State, out: list[Action], at: float, scope: Scope) -> None:
    """A child's `end` is done: its verdict is that of the step that called it."""
    end = end_of(state, scope)
    if end.status not in TERMINAL:
        return
    job = state.jobs[scope.owner]
    job.hosting = False
    job.timer_at = 0.0
    before = execution(state, scope.id)
    failed = list(before["failed_steps"])
    verdict = (
        "failed" if scope.first_failure is not None and scope.first_failure.kind == Kind.TIMEOUT else before["status"]
    )
    if end.status is Status.completed and scope.override:
        verdict = scope.override
    elif end.status in (Status.failed, Status.terminated):
        verdict = "failed"
        failed.append(state.step_of(end).name)
    frame = state.frame_of(job.scope)
    frame.outputs = {**frame.outputs, state.step_of(job).name: scope.values}
    close_scope(state, out, scope)
    data = {"child": state.workflow_of(scope.id).name, "verdict": verdict, "failed_steps": failed}
    if drop_stale(state, out, at, job):
        return
    if stopping(state, job):
        note_job(state, out, at, "attempt_failed", job, data)
        settle(state, out, at, job, Status.terminated, {})
        return
    failure = None if verdict == "completed" else _failure(scope, failed)
    if state.step_of(job).transform is None:
        _concluded(state, out, at, job, failure, data)
        return
    if failure is not None:
        job.error = Error(at, job.attempt, state.step_of(job).name, failure, tuple(failed))
    stir(state, job)
    job.pending_question = "value"
    out.append(AnswerValue(job.id, job.attempt, job.last_event_seq))


def child_judged(state: State, out: list[Action], at: float, job: Job, outcome: Outcome) -> None:
    """What a child gave is the step's value; where that is not as it must be, the step has failed."""
    step = state.step_of(job)
    assert isinstance(step.action, Child)
    rest(state, job)
    frame = state.frame_of(job.scope)
    frame.values = {**frame.values, **outcome.values}
    state.memory = {**state.memory, **outcome.memory}
    failure = outcome.failure
    verdict = "completed" if job.error is None else "failed"
    inside = list(job.error.inside) if job.error is not None else []
    data: dict[str, Any] = {"child": step.action.workflow.name, "verdict": verdict, "failed_steps": inside}
    if outcome.remarks:
        data["remarks"] = list(outcome.remarks)
    if failure is not None and state.first_failure is None:
        state.first_failure = Failed(step.name, job.attempt, failure.kind, failure.exit_code, failure.message)
    _concluded(state, out, at, job, failure, data)


def _concluded(
    state: State, out: list[Action], at: float, job: Job, failure: Failure | None, data: dict[str, Any]
) -> None:
    """The step that ran a child has succeeded, or its rules answer its failure."""
    if failure is None:
        job.exit_code = 0
        note_job(state, out, at, "attempt_succeeded", job, data)
        succeeded(state, out, at, job)
        return
    job.exit_code = 1
    note_job(state, out, at, "attempt_failed", job, data | {"kind": failure.kind, "message": failure.message})
    job.error = Error(at, job.attempt, state.step_of(job).name, failure)
    climb(state, out, at, job, failure)


def _failure(scope: Scope, failed: list[str]) -> Failure:
    """Why a child failed, as its parent's rules see it."""
    broken = scope.first_failure
    if broken is not None and broken.kind == Kind.TIMEOUT and not broken.step:
        return Failure(Kind.TIMEOUT, broken.message, 1, signature="timeout: child")
    message = scope.aborted or f"failed: {', '.join(failed) or scope.name}"
    if broken is not None and broken.step:
        message = f"{broken.step} failed: {broken.message}"
    signature = broken.signature if broken is not None else ""
    return Failure(Kind.EXIT, message, 1, stderr=broken.stderr if broken is not None else "", signature=signature)
