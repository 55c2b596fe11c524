"""A user's retry of one job: it runs again, and what was canceled because of it waits for it again.

running              its attempt is ended first; the job is ready again when that is over
failed, terminated   ready again at once; in a run that has ended, the run goes on in the same epoch and ends again

The same holds for a job inside an item, a child workflow or a repair, while that goes on. What is over has been counted
in the step around it, as a dead letter for example: that step, or the letter, can be retried.
"""

from __future__ import annotations

from resile.core.actions import KillAttempt
from resile.core.events import RetryRequested
from resile.core.reaction import Reaction
from resile.core.scheduling.dependencies import recount, reopen
from resile.core.state import ROOT, Job, State
from resile.model.status import CANCELED, FAILED, RUNNING, TERMINATED


def retry_problem(state: State, number: int) -> str:
    """Why a job can't be retried; empty if it can."""
    job = state.jobs.get(number)
    if job is None:
        return "the item, the child workflow or the repair that it was in is over"
    if state.is_end(job):
        return "`end` follows the other steps"
    if job.status not in (RUNNING, FAILED, TERMINATED):
        return f"it is {job.status.name}, not running, failed or terminated"
    if job.hosting or job.repair_scope or job.calls:
        return "its items, its child workflow or its repair still runs"
    if state.phase == "ended":
        return "" if job.scope == ROOT else "the run has ended, and with it the step around it"
    if state.phase != "running" or state.is_stopping(job) or _is_over(state, job):
        return "the run, or the step around it, is about to end"
    return ""


def _is_over(state: State, job: Job) -> bool:
    """Is there nothing left to wait for in the item, child workflow or repair around a job?"""
    scope = state.scopes[job.scope]
    return scope.owner != 0 and (not scope.open or scope.ending or scope.expired or bool(scope.aborted))


def retry(reaction: Reaction, event: RetryRequested) -> None:
    """Run a job again on the request of a user."""
    state = reaction.state
    if retry_problem(state, event.job):
        return
    job = state.jobs[event.job]
    if state.phase == "ended":
        _open_run(reaction, event)
    reaction.note("step_judged", job, {"verdict": "retry", "by": event.by, "reason": event.reason})
    reaction.summarize_route(job, "judge", "retry", None, event.reason or "retry")
    if job.status is RUNNING:
        # What it ends with counts no more.
        job.stale = True
        reaction.order(KillAttempt(job.id, job.attempt, job.last_event_seq))
        return
    job.memory_bytes = event.grant.memory_bytes or job.memory_bytes
    job.runtime_seconds = event.grant.runtime_seconds or job.runtime_seconds
    scope = state.scopes[job.scope]
    again = [job, *(other for other in state.jobs_in(scope) if _waited_for(other, job))]
    for other in again:
        reopen(state, other)
        other.dependents_notified = False
        state.touched.append(other.id)
    if scope.owner and scope.first_failure is not None and scope.first_failure.job == job.id:
        scope.first_failure = None
    elif state.first_failure is not None and state.first_failure.step == state.step_of(job).name:
        state.first_failure = None
    plan = state.plan_of(scope.id)
    below = {number for other in again for number in plan.dependents[other.step]}
    if job.step in plan.arc_targets:
        job.tokens = 1
    recount(reaction, scope, sorted({other.step for other in again} | below))


def _waited_for(other: Job, job: Job) -> bool:
    """Was this job canceled because of that one?"""
    return other.status is CANCELED and other.cause is not None and other.cause.job == job.id


def _open_run(reaction: Reaction, event: RetryRequested) -> None:
    """Let a run that has ended go on: `end` runs again after everything else."""
    state = reaction.state
    scope = state.scopes[ROOT]
    end = state.end_of(scope)
    reopen(state, end)
    # `end` is not counted among the open jobs.
    scope.open -= 1
    state.touched.append(end.id)
    state.phase = "running"
    state.verdict = state.aborted = state.override = ""
    state.canceled = state.end_canceled = scope.stopped = False
    state.ended_at = None
    reaction.note_run("run_resumed", "running", state.seq, by=event.by)
