"""Child workflows: another definition run as one step, in a scope of its own, with its own `end`.

    attempt (its inputs) --> begin_child --> its steps --> its `end` --> verdict --> the parent's ladder, or success
                                                  if the step has a transform: --> AnswerValue --> take_child_value

The parent's step waits and takes the verdict. The child's events are in the parent's log, so a resumed run continues
the child where it was.
"""

from __future__ import annotations

from typing import Any

from resile.core.actions import AnswerValue, SetTimer
from resile.core.epochs.begin import take_up_scope
from resile.core.fanout.naming import part_name
from resile.core.reaction import Reaction
from resile.core.recovery.ladder import climb
from resile.core.recovery.on_success import attempt_succeeded
from resile.core.scheduling.arcs import settle_or_revisit
from resile.core.scheduling.finish import execution
from resile.core.scheduling.goto import reopen_if_stale
from resile.core.scheduling.reservations import mark_active, mark_idle
from resile.core.scheduling.scopes import close_scope, open_scope, start_scope, stop_scope
from resile.core.state import Error, Job, Scope, State
from resile.core.transitions import set_status
from resile.model.failure import Failure, Kind, Outcome
from resile.model.items import ItemFailure
from resile.model.status import COMPLETED, FAILED, RUNNING, TERMINAL, TERMINATED
from resile.model.workflow import Child


def begin_child(
    reaction: Reaction, job: Job, inputs: dict[str, Any], began: float, kept: dict[str, Any] | None = None
) -> None:
    """Open the child's scope once an attempt has rendered its inputs; the step's timeout counts from `began`.

    A child that failed in an earlier epoch goes on in its scope, which was `kept`.
    """
    state = reaction.state
    job.again = job.child_scope = 0
    job.waits_for = "inner"
    job.exit_code = None
    set_status(job, RUNNING)
    mark_idle(state, job)
    step = state.step_of(job)
    if step.timeout_seconds is not None:
        job.timer_at = began + step.timeout_seconds
        reaction.order(SetTimer(job.id, job.attempt, job.timer_at, job.last_event_seq))
    if kept is not None:
        scope = take_up_scope(state, kept)
        scope.inputs, scope.started_at = inputs, reaction.at
    else:
        scope = open_scope(state, job, "child", part_name(state, step.name), inputs=inputs, started_at=reaction.at)
    start_scope(reaction, scope, job.last_event_seq)
    if not scope.open:
        begin_end(reaction, scope)


def begin_end(reaction: Reaction, scope: Scope) -> None:
    """Run the `end` of a child once, when all its other jobs are terminal."""
    state = reaction.state
    scope.ending = True
    reaction.wake(state.end_of(scope), state.seq)


def expire_child(reaction: Reaction, job: Job) -> None:
    """Kill the attempts of a child that timed out; its `end` still runs, then the child fails."""
    state = reaction.state
    scope = next(found for found in state.scopes.values() if found.owner == job.id and found.kind == "child")
    limit = state.step_of(job).timeout_seconds or 0.0
    scope.first_failure = ItemFailure(0, reaction.at, "", Kind.TIMEOUT, f"timed out after {limit:g}s")
    stop_scope(reaction, scope, job.last_event_seq)


def end_child(reaction: Reaction, scope: Scope) -> None:
    """Conclude a child whose `end` is done: the step that ran the child takes its verdict."""
    state = reaction.state
    end = state.end_of(scope)
    if end.status not in TERMINAL:
        return
    job = state.jobs[scope.owner]
    job.waits_for = ""
    job.timer_at = 0.0
    before = execution(state, scope.id)
    failed = list(before["failed_steps"])
    verdict = (
        "failed" if scope.first_failure is not None and scope.first_failure.kind == Kind.TIMEOUT else before["status"]
    )
    if end.status is COMPLETED and scope.override:
        verdict = scope.override
    elif end.status in (FAILED, TERMINATED):
        verdict = "failed"
        failed.append(state.step_of(end).name)
    frame = state.frame_of(job.scope)
    frame.outputs = {**frame.outputs, state.step_of(job).name: scope.values}
    _note_result(state, job, scope)
    if verdict != "completed":
        job.child_scope = scope.id
    close_scope(reaction, scope, keep=verdict != "completed")
    data = {"child": state.workflow_of(scope.id).name, "verdict": verdict, "failed_steps": failed}
    if reopen_if_stale(reaction, job):
        return
    if state.is_stopping(job):
        reaction.note("attempt_failed", job, data)
        settle_or_revisit(reaction, job, TERMINATED, {})
        return
    failure = None if verdict == "completed" else _failure(scope, failed)
    if state.step_of(job).transform is None:
        _conclude_step(reaction, job, failure, data)
        return
    if failure is not None:
        job.error = Error(reaction.at, job.attempt, state.step_of(job).name, failure, tuple(failed))
    mark_active(state, job)
    job.waits_for = "value"
    reaction.order(AnswerValue(job.id, job.attempt, job.last_event_seq))


def _note_result(state: State, job: Job, scope: Scope) -> None:
    """Note the job whose output is that of the step, where the step names one as its `result`."""
    action = state.step_of(job).action
    assert isinstance(action, Child)
    number = state.plan_of(scope.id).index.get(action.result)
    if number is not None:
        gave = state.jobs[scope.first + number]
        job.output_job = gave.output_job or gave.id


def take_child_value(reaction: Reaction, job: Job, outcome: Outcome) -> None:
    """Take the engine's answer to `AnswerValue`: the value of the step, or its failure."""
    state = reaction.state
    step = state.step_of(job)
    assert isinstance(step.action, Child)
    mark_idle(state, job)
    frame = state.frame_of(job.scope)
    frame.values = {**frame.values, **outcome.values}
    state.memory = {**state.memory, **outcome.memory}
    verdict = "completed" if job.error is None else "failed"
    inside = list(job.error.inside) if job.error is not None else []
    data: dict[str, Any] = {"child": step.action.workflow.name, "verdict": verdict, "failed_steps": inside}
    if outcome.remarks:
        data["remarks"] = list(outcome.remarks)
    _conclude_step(reaction, job, outcome.failure, data)


def _conclude_step(reaction: Reaction, job: Job, failure: Failure | None, data: dict[str, Any]) -> None:
    """End the attempt of the step that ran a child: it succeeds, or climbs its ladder."""
    state = reaction.state
    if failure is None:
        job.exit_code = 0
        reaction.note("attempt_succeeded", job, data)
        attempt_succeeded(reaction, job)
        return
    job.exit_code = 1
    reaction.note("attempt_failed", job, data | {"kind": failure.kind, "message": failure.message})
    job.error = Error(reaction.at, job.attempt, state.step_of(job).name, failure)
    climb(reaction, job, failure)


def _failure(scope: Scope, failed: list[str]) -> Failure:
    """The failure of a child, as the rules of the parent's step see it."""
    broken = scope.first_failure
    if broken is not None and broken.kind == Kind.TIMEOUT and not broken.step:
        return Failure(Kind.TIMEOUT, broken.message, 1, signature="timeout: child")
    message = scope.aborted or f"failed: {', '.join(failed) or scope.name}"
    if broken is not None and broken.step:
        message = f"{broken.step} failed: {broken.message}"
    signature = broken.signature if broken is not None else ""
    return Failure(Kind.EXIT, message, 1, stderr=broken.stderr if broken is not None else "", signature=signature)
