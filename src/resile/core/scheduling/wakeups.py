"""Who waits for a job that has settled: a caller, the owner of a repair, an item, a child workflow.

react.py works the agenda off after each event, so that whatever follows from an event follows in the same reaction.
"""

from __future__ import annotations

from resile.core.actions import Action
from resile.core.fanout.child_workflow import begin_end, child_over
from resile.core.fanout.fanout import pump
from resile.core.fanout.item_outcomes import item_over
from resile.core.recovery import repair
from resile.core.scheduling.dependencies import settle, stopping
from resile.core.scheduling.scopes import is_busy
from resile.core.state import Job, Scope, State
from resile.model.status import TERMINAL, Status


def follow_up(state: State, out: list[Action], at: float, job: Job) -> None:
    """Go on with whatever waited for this job."""
    if job.hosting:
        pump(state, out, at, job)
        return
    repair.follow_up(state, out, at, job)
    scope: Scope | None = state.scopes.get(job.scope)
    while scope is not None:
        if scope.kind in ("item", "child") and scope.id not in state.scopes_to_drop:
            _check(state, out, at, scope)
            return
        scope = state.around(scope)


def _check(state: State, out: list[Action], at: float, scope: Scope) -> None:
    """Is an item, or a child workflow, over?"""
    if scope.open and state.plan_of(scope.id).arc_targets:
        _skip_unreached(state, out, at, scope)
    if scope.open or is_busy(state, scope):
        return
    if scope.kind == "item":
        item_over(state, out, at, scope)
    elif not scope.ending:
        begin_end(state, out, scope)
    else:
        child_over(state, out, at, scope)


def _skip_unreached(state: State, out: list[Action], at: float, scope: Scope) -> None:
    """Nothing in the scope moves any more: steps that no arc reached are skipped."""
    jobs = [state.jobs[number] for number in range(scope.first, scope.first + len(scope.waiting))]
    left = [job for job in jobs if job.status not in TERMINAL and not state.is_end(job)]
    if any(job.status is not Status.blocked or job.pending_question for job in left):
        return
    targets = state.plan_of(scope.id).arc_targets
    status = Status.canceled if left and stopping(state, left[0]) else Status.skipped
    for job in left:
        if job.step in targets and job.status is Status.blocked:
            settle(state, out, at, job, status, {"reason": "no arc was taken to it"})
