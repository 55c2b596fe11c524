"""Joins: a step with `join: all` that an arc has reached waits until no other path can lead to it any more."""

from __future__ import annotations

from resile.core.reaction import Reaction
from resile.core.state import Job, Scope, State
from resile.model.status import BLOCKED, TERMINAL


def wake_or_join(reaction: Reaction, job: Job, because: int) -> None:
    """Wake a job that an arc has reached; a join waits for the other paths first."""
    state = reaction.state
    if job.step not in state.plan_of(job.scope).joins:
        reaction.wake(job, because)
        return
    job.because = because
    scope = state.scopes[job.scope]
    if job.step not in scope.joining:
        scope.joining.append(job.step)


def wake_joined(reaction: Reaction, scope: Scope) -> None:
    """Wake the joins that no other path can reach any more, however many paths have arrived."""
    state = reaction.state
    joins = state.plan_of(scope.id).joins
    for number in list(scope.joining):
        job = state.jobs[scope.first + number]
        waits = job.status is BLOCKED and not job.waits_for
        if waits and any(_may_lead_on(state, scope, other, number) for other in joins[number]):
            continue
        scope.joining.remove(number)
        if waits:
            job.tokens = 1
            reaction.wake(job, job.because)


def _may_lead_on(state: State, scope: Scope, number: int, target: int) -> bool:
    """May a step before `target` still lead to it, because it is running or will run?"""
    plan, job = state.plan_of(scope.id), state.jobs[scope.first + number]
    if number in scope.joining:
        # Of two joins that lead to each other, the one that was reached first goes first.
        return target not in plan.joins[number]
    if job.status in TERMINAL or number == plan.end:
        return False
    return job.status is not BLOCKED or bool(job.waits_for or job.tokens) or number not in plan.arc_targets
