"""Opening and stopping scopes: where a repair, an item or a child workflow runs.

open_scope --> jobs, all blocked --> start_scope: those that wait for nothing
stop_scope --> what has not started is canceled, what runs is killed, fan-outs inside start nothing more
"""

from __future__ import annotations

from typing import Any, Literal

from resile.core.actions import Action, KillAttempt
from resile.core.flow import settle, wake
from resile.core.state import Cause, Job, Scope, State
from resile.model.status import TERMINAL, Status


def open_scope(state: State, owner: Job, kind: Literal["repair", "item", "child"], name: str, **more: Any) -> Scope:
    """A new scope of a job, with its jobs; nothing has started."""
    outer = state.scopes[owner.scope]
    prefix = f"{outer.name}/" if outer.owner else ""
    state.last_scope += 1
    scope = Scope(
        state.last_scope,
        prefix + name,
        state.last_job + 1,
        [],
        kind=kind,
        owner=owner.id,
        rule=owner.rule,
        depth=outer.depth + 1,
        **more,
    )
    state.scopes[scope.id] = scope
    state.frame_of(outer.id).nested = True
    outer.nested = True
    plan = state.plan_of(scope.id)
    scope.waiting = list(plan.waiting)
    for number, step in enumerate(plan.steps):
        job = state.jobs[scope.first + number] = Job(scope.first + number, scope.id, number)
        if step.called_only:
            job.status = Status.disabled
        elif number != plan.end:
            scope.open += 1
    state.last_job += len(plan.steps)
    return scope


def start_scope(state: State, out: list[Action], scope: Scope, because: int) -> None:
    """Wake what waits for nothing."""
    plan = state.plan_of(scope.id)
    for number, count in enumerate(plan.waiting):
        if not count and number != plan.end and number not in plan.arc_targets:
            job = state.jobs[scope.first + number]
            if job.status is Status.blocked:
                wake(state, out, job, because)


def stop_scope(
    state: State, out: list[Action], at: float, top: Scope, because: int, cause: Cause | None = None
) -> None:
    """Cancel what has not started and kill what runs, in a scope and in those inside it; `end` is left alone."""
    top.stopped = True
    for scope in _inside(state, top):
        for number in range(scope.first, scope.first + len(scope.waiting)):
            job = state.jobs[number]
            if job.status in TERMINAL or state.is_end(job):
                continue
            job.tokens = 0
            job.callers = ()
            if job.hosting:
                _stop_host(state, job)
            elif job.asking or job.status not in (Status.pending, Status.running):
                job.informed = True
                job.cause = cause
                settle(state, out, at, job, Status.canceled, {}, because)
            else:
                out.append(KillAttempt(job.id, job.attempt, because))


def _inside(state: State, top: Scope) -> list[Scope]:
    """A scope and all that belong to its jobs, in the order in which they were opened."""
    found = {top.id}
    for scope in state.scopes.values():
        # A scope is always younger than the one around it, so one pass finds them all.
        if scope.owner and state.jobs[scope.owner].scope in found:
            found.add(scope.id)
    return [scope for scope in state.scopes.values() if scope.id in found]


def _stop_host(state: State, job: Job) -> None:
    """A fan-out starts nothing more; what it has begun ends like everything else, and then it does."""
    fan = state.fans.get(job.id)
    if fan is not None:
        fan.stopped = fan.stopped or "canceled"
        state.agenda.append(job.id)


def is_busy(state: State, scope: Scope) -> bool:
    """Does anything inside a scope, or in those inside it, still run?"""
    if not scope.nested:
        return False
    return any(
        job.hosting or (job.status in (Status.pending, Status.running) and not job.asking)
        for inner in _inside(state, scope)
        for job in (state.jobs[number] for number in range(inner.first, inner.first + len(inner.waiting)))
    )
