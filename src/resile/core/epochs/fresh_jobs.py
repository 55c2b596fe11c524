"""Jobs before their first attempt, with what recoveries granted to them."""

from __future__ import annotations

from resile.core.fanout.progress import Fan
from resile.core.state import ROOT, Job, Scope, State
from resile.model.nested import step_name
from resile.model.status import TERMINAL


def start_over(job: Job, fan: Fan | None, goes_on: bool) -> Job:
    """A job before its first attempt; one that `goes_on` keeps what its fan-out or its child workflow completed.

    A step that an arc had reached stays reached: the source of the arc may stay completed and not take it again.
    """
    fresh = Job(job.id, job.scope, job.step)
    if goes_on:
        fresh.tokens = 1 if job.attempt else 0
        fresh.again = int(fan.is_over) if fan is not None else job.child_scope or job.again
    return fresh


def take_grant(state: State, scope: Scope, job: Job, step: str) -> None:
    """Give a fresh job what a recovery has granted to its path."""
    grant = state.grants.get(step_name(scope.name, step))
    if grant is not None:
        job.memory_bytes, job.runtime_seconds = grant.memory_bytes, grant.runtime_seconds


def grant_again(state: State, jobs: dict[int, Job]) -> None:
    """Give the jobs of the root scope that start over what recoveries granted to them."""
    root = state.scopes[ROOT]
    for job in jobs.values():
        if job.status not in TERMINAL:
            take_grant(state, root, job, state.plan.steps[job.step].name)
