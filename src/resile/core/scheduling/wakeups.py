"""Continues the jobs that wait for a settled job: a caller, the owner of a repair, an item, a child workflow.

react.py works the wakeups off after each event, so that all consequences of an event belong to the same reaction.
"""

from __future__ import annotations

from resile.core.fanout.child_workflow import begin_end, end_child
from resile.core.fanout.fanout import pump
from resile.core.fanout.item_outcomes import end_item
from resile.core.reaction import Reaction
from resile.core.recovery.ladder import after_repair
from resile.core.recovery.on_success import after_success_steps
from resile.core.recovery.repair import call_next, problem_of, start_called
from resile.core.scheduling.arcs import skip_unreached
from resile.core.scheduling.scopes import is_busy
from resile.core.state import SUCCESS, Job, Scope
from resile.model.status import BLOCKED, CANCELED, SKIPPED, TERMINAL


def follow_up(reaction: Reaction, job: Job) -> None:
    """Continue everything that waited for this job."""
    if job.hosting:
        pump(reaction, job)
        return
    state = reaction.state
    if job.callers:
        _return_to_caller(reaction, job)
    _go_on_with_repair(reaction, state.scopes[job.scope])
    scope: Scope | None = state.scopes.get(job.scope)
    while scope is not None:
        if scope.kind in ("item", "child") and scope.id not in state.scopes_to_drop:
            _end_if_over(reaction, scope)
            return
        scope = state.scope_around(scope)


def _return_to_caller(reaction: Reaction, job: Job) -> None:
    """A called step is over: continue the repair that called it, and run the step again for its next caller."""
    state = reaction.state
    caller = state.jobs[job.callers[0]]
    job.callers = job.callers[1:]
    name = state.step_of(job).name
    worked = job.counts_as_success or job.status is SKIPPED
    if job.callers:
        start_called(reaction, job)
    if caller.calls[:1] != (name,):
        return
    if worked:
        caller.calls = caller.calls[1:]
        _call_next_or_finish(reaction, caller)
    else:
        _finish_repair(reaction, caller, f"remediation step {name!r} failed")


def _go_on_with_repair(reaction: Reaction, scope: Scope) -> None:
    """When all steps of a repair are over, run the steps that it calls, or end it."""
    if scope.kind != "repair" or scope.open:
        return
    owner = reaction.state.jobs[scope.owner]
    if owner.repair_scope != scope.id:
        return
    problem = problem_of(reaction.state, scope)
    if not problem and owner.calls:
        _call_next_or_finish(reaction, owner)
    else:
        _finish_repair(reaction, owner, problem)


def _call_next_or_finish(reaction: Reaction, job: Job) -> None:
    problem = call_next(reaction, job) if job.calls else ""
    if problem is not None:
        _finish_repair(reaction, job, problem)


def _finish_repair(reaction: Reaction, job: Job, problem: str) -> None:
    """End a repair, or the steps of `on_success`."""
    if job.rule == SUCCESS:
        after_success_steps(reaction, job, problem)
    else:
        after_repair(reaction, job, problem)


def _end_if_over(reaction: Reaction, scope: Scope) -> None:
    """End an item or a child workflow with no open or running job."""
    state = reaction.state
    if scope.open and state.plan_of(scope.id).arc_targets:
        _skip_if_unreached(reaction, scope)
    if scope.open or is_busy(state, scope):
        return
    if scope.kind == "item":
        end_item(reaction, scope)
    elif not scope.ending:
        begin_end(reaction, scope)
    else:
        end_child(reaction, scope)


def _skip_if_unreached(reaction: Reaction, scope: Scope) -> None:
    """Skip the steps that no arc reached, once nothing else in the scope can make progress."""
    state = reaction.state
    left = [job for job in state.jobs_in(scope) if job.status not in TERMINAL and not state.is_end(job)]
    if all(job.status is BLOCKED and not job.waits_for for job in left):
        status = CANCELED if left and state.is_stopping(left[0]) else SKIPPED
        skip_unreached(reaction, scope, status)
