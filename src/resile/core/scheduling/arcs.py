"""The end of a job's visit: take its arcs, visit it again, or make its failure final.

Arcs and jumps back spend the loop budget of a scope; an exhausted budget ends the scope.
"""

from __future__ import annotations

from typing import Any

from resile.core.actions import AnswerArcs
from resile.core.reaction import Reaction
from resile.core.scheduling.dependencies import reopen, settle_and_inform, wake_or_join
from resile.core.scheduling.reservations import mark_active
from resile.core.scheduling.scopes import failure_data, keep_first_failure, stop_scope, stop_siblings
from resile.core.state import Failed, Job, Scope, State
from resile.model.failure import Kind
from resile.model.rules import Trigger
from resile.model.status import BLOCKED, COMPLETED, FAILED, SKIPPED, TERMINAL, Status
from resile.model.workflow import FanOut, Step

# An arc to a job in one of these runs it again, each time for 1 of the scope's loops; a canceled job stays canceled.
_REVISITED = (COMPLETED, FAILED, SKIPPED)


def settle_or_revisit(reaction: Reaction, job: Job, status: Status, data: dict[str, Any], because: int = 0) -> None:
    """End a job for this visit, and begin the next visit if an arc was taken to it while it ran.

    A visit that passes does not hide that an earlier one failed; in the first edition the last visit decided.
    """
    state = reaction.state
    if status is FAILED and not job.tolerated and state.workflow.edition > 1:
        job.failed_visit = job.failed_visit or data.get("message") or "failed"
    elif job.failed_visit and status in _REVISITED:
        message = f"an earlier visit failed: {job.failed_visit}"
        job.accepted, status, data = "", FAILED, failure_data(state.step_of(job), message)
    settle_and_inform(reaction, job, status, data, because)
    if not job.tokens or state.is_end(job) or state.is_stopping(job):
        return
    if job.status not in _REVISITED:
        job.tokens = 0
    elif spend(reaction, job, 1, "next", "goto"):
        _reopen_for_visit(state, job)
        reaction.wake(job, job.last_event_seq)


def _reopen_for_visit(state: State, job: Job) -> None:
    """Reopen a job for another visit, which knows that an earlier one failed."""
    failed_visit = job.failed_visit
    reopen(state, job)
    job.failed_visit = failed_visit


def fail(reaction: Reaction, job: Job, message: str, **more: Any) -> None:
    """Make a failure final: the path leads to `end`, and a critical step stops its siblings."""
    keep_first_failure(reaction, job, message)
    step = reaction.state.step_of(job)
    if step.critical and reaction.state.workflow.edition > 1:
        # It stops its own further visits as well.
        job.tokens = 0
    settle_or_revisit(reaction, job, FAILED, failure_data(step, message) | more)
    if step.critical:
        stop_siblings(reaction, job)


def succeed(reaction: Reaction, job: Job) -> None:
    """Follow the arcs of a job that is done or whose failure is tolerated, then settle it."""
    state = reaction.state
    arcs = state.step_of(job).arcs
    if arcs and not state.is_stopping(job):
        if any(arc.when is not None or arc.args for arc in arcs):
            mark_active(state, job)
            job.waits_for = "arcs"
            reaction.order(AnswerArcs(job.id, job.last_event_seq))
            return
        if not take_arcs(reaction, job, (True,) * len(arcs)):
            return
    settle_done(reaction, job)


def settle_done(reaction: Reaction, job: Job) -> None:
    """Settle a job that is done or whose failure is tolerated."""
    if job.tolerated:
        message = job.error.failure.message if job.error is not None else ""
        settle_or_revisit(reaction, job, FAILED, {"tolerated": True, "message": message})
    else:
        settle_or_revisit(reaction, job, COMPLETED, {})


def pass_over(reaction: Reaction, job: Job) -> None:
    """Count a job that the run leaves out as done: take its arcs, and let its dependents go on."""
    state = reaction.state
    if job.status is not BLOCKED:
        return
    job.accepted = "left_out"
    arcs = state.step_of(job).arcs
    if not arcs or state.is_stopping(job) or take_arcs(reaction, job, (True,) * len(arcs)):
        settle_or_revisit(reaction, job, SKIPPED, {"reason": "left out of this run"}, job.because)


def take_arcs(
    reaction: Reaction, job: Job, answers: tuple[bool, ...], arguments: dict[str, dict[str, Any]] | None = None
) -> bool:
    """Follow the arcs whose condition holds, with their arguments; False where the loop budget is exhausted."""
    state = reaction.state
    plan, scope = state.plan_of(job.scope), state.scopes[job.scope]
    chosen = _chosen_arcs(plan.steps[job.step], answers)
    if not chosen and plan.end >= 0:
        chosen = [plan.steps[plan.end].name]
    for name in chosen:
        number = plan.index[name]
        _carry(scope, name, arguments or {}, adds=number == plan.end or number in scope.joining)
        target = state.jobs[scope.first + number]
        again = number != plan.end and target.status in _REVISITED
        if again and not spend(reaction, job, 1, "next", "goto"):
            return False
        because = reaction.note_route(job, "next", "goto", name, "next")
        if again:
            _reopen_for_visit(state, target)
            wake_or_join(reaction, target, because)
        elif number != plan.end and target.status not in TERMINAL:
            target.tokens += 1
            if target.status is BLOCKED and not target.waits_for and not scope.waiting[number]:
                wake_or_join(reaction, target, because)
    return True


def skip_unreached(reaction: Reaction, scope: Scope, status: Status) -> None:
    """Skip (or cancel) the steps that no arc reached, once nothing else in the scope can make progress."""
    state = reaction.state
    for number in sorted(state.plans[scope.id].arc_targets):
        job = state.jobs[scope.first + number]
        if job.status is BLOCKED and not job.waits_for:
            settle_or_revisit(reaction, job, status, {"reason": "no arc was taken to it"})


def _chosen_arcs(step: Step, answers: tuple[bool, ...]) -> list[str]:
    chosen = [arc.step for arc, holds in zip(step.arcs, answers, strict=True) if holds]
    return chosen[:1] if step.arcs_mode == "first" else chosen


def _carry(scope: Scope, name: str, arguments: dict[str, dict[str, Any]], adds: bool) -> None:
    """Keep an arc's arguments for its target step; at a join, add them to those of the other arcs."""
    if name in arguments or name in scope.arc_arguments:
        before = scope.arc_arguments.get(name, {}) if adds else {}
        scope.arc_arguments = {**scope.arc_arguments, name: {**before, **arguments.get(name, {})}}


def loops_max(state: State, job: Job) -> int:
    """The loop budget in force."""
    asked = state.options.loops_max
    return state.workflow_of(job.scope).loops_max if asked is None else asked


def spend(reaction: Reaction, job: Job, cost: int, trigger: Trigger, action: str) -> bool:
    """Spend from the loop budget; False where it is exhausted, which fails the item, the child workflow or the run."""
    scope = reaction.state.scopes[job.scope]
    if scope.loops + cost <= loops_max(reaction.state, job):
        scope.loops += cost
        return True
    _exceed(reaction, job, trigger, action)
    return False


def _exceed(reaction: Reaction, job: Job, trigger: Trigger, action: str) -> None:
    """Fail the job that would exceed the budget, and stop its item, its child workflow or the run."""
    state, limit = reaction.state, loops_max(reaction.state, job)
    word: str = state.workflow_of(job.scope).failure_key if trigger == "on_failure" else trigger
    step = state.step_of(job)
    if trigger in ("on_failure", "on_success") and isinstance(step.action, FanOut) and step.action.scope:
        # A producer calls this key `on_finish`.
        word = "on_finish"
    message = f"Routing loop budget exceeded (max_loops={limit}) during {word} {action}"
    frame = state.frame_of(job.scope)
    if frame.owner:
        frame.aborted = message
    else:
        state.aborted = message
    seq = reaction.note("loop_budget_exceeded", job, {"message": message})
    reaction.summarize_route(job, trigger, "budget", None, f"max_loops={limit}")
    if job.status in TERMINAL:
        state.scopes[job.scope].open += 1
    if state.first_failure is None:
        state.first_failure = Failed(step.name, job.attempt, Kind.CONTRACT, None, message)
    keep_first_failure(reaction, job, message)
    settle_and_inform(reaction, job, FAILED, failure_data(step, message))
    if step.critical:
        stop_siblings(reaction, job)
    stop_scope(reaction, frame, seq, state.cause_of(job))
