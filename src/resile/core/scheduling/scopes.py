"""Opening, stopping and closing scopes: where a repair, an item or a child workflow runs.

open_scope --> jobs, all blocked --> start_scope: those that wait for nothing; unstart_scope takes that back
stop_scope --> what has not started is canceled, what runs is killed, fan-outs inside start nothing more
close_scope --> forgotten with the next event; where dead letters are inside, written down: a redrive restores it
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from resile.core.actions import Action, KeepScope, KillAttempt
from resile.core.fanout.naming import map_name
from resile.core.fanout.progress import Fan, add
from resile.core.scheduling.dependencies import settle, wake
from resile.core.scheduling.reservations import rest
from resile.core.state import TIMES, Cause, Job, Scope, State
from resile.model.items import KeptScope
from resile.model.status import TERMINAL, Status


class _Kept(Struct):
    """What is written down of a scope."""

    scope: Scope
    jobs: list[Job]
    fans: dict[int, Fan]


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
    scope.times = bytearray(TIMES.size * len(plan.steps))
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


def unstart_scope(state: State, scope: Scope) -> None:
    """Have what `start_scope` woke wait again; nothing of it has been ordered to start."""
    for number in range(scope.first, scope.first + len(scope.waiting)):
        job = state.jobs[number]
        if job.status is Status.ready or job.pending_question:
            job.status, job.pending_question = Status.blocked, ""
            rest(state, job)
            state.touched.append(number)


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
            elif job.pending_question or job.status not in (Status.pending, Status.running):
                job.dependents_notified = True
                job.cause = cause
                settle(state, out, at, job, Status.canceled, {}, because)
            else:
                out.append(KillAttempt(job.id, job.attempt, because))


def close_scope(state: State, out: list[Action], scope: Scope) -> None:
    """A scope is over: it is forgotten with the next event, and kept where a redrive will need it."""
    state.scopes_to_drop.append(scope.id)
    _count(state, scope, 1)
    if scope.kept_for_redrive:
        out += [keep_scope(state, inner) for inner in _inside(state, scope) if inner.kept_for_redrive]


def keep_scope(state: State, scope: Scope) -> KeepScope:
    """Write a scope down."""
    jobs = [state.jobs[number] for number in range(scope.first, scope.first + len(scope.waiting))]
    fans = {job.id: state.fans[job.id] for job in jobs if job.id in state.fans}
    body: dict[str, Any] = msgspec.to_builtins(_Kept(scope, jobs, fans), str_keys=True)
    return KeepScope(KeptScope(scope.id, state.jobs[scope.owner].scope, body))


def restore_scope(state: State, body: dict[str, Any]) -> int:
    """Take up a scope that was written down, unless it is there; its number, 0 where it was."""
    kept = msgspec.convert(body, _Kept, str_keys=True)
    if kept.scope.id in state.scopes:
        return 0
    state.scopes[kept.scope.id] = kept.scope
    for job in kept.jobs:
        if job.status not in TERMINAL:
            # It was under way when the run went on to its next epoch without it.
            job.status, job.hosting, job.active, job.early, job.pending_question = (
                Status.canceled,
                False,
                False,
                False,
                "",
            )
        state.jobs[job.id] = job
    kept.scope.open = 0
    state.fans |= kept.fans
    _count(state, kept.scope, -1)
    return kept.scope.id


def _count(state: State, scope: Scope, times: int) -> None:
    """The fan-outs of a scope are forgotten with it, or are there again: put them into the totals, or take them out."""
    for number in range(scope.first, scope.first + len(scope.waiting)):
        fan = state.fans.get(number)
        # What an earlier epoch came to is not counted in this one.
        if fan is not None and fan.epoch == state.epoch:
            add(
                state.closed_map_totals.setdefault(map_name(state, state.jobs[number]), Fan(0, "", state.epoch)),
                fan,
                times,
            )


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
        job.hosting or (job.status in (Status.pending, Status.running) and not job.pending_question)
        for inner in _inside(state, scope)
        for job in (state.jobs[number] for number in range(inner.first, inner.first + len(inner.waiting)))
    )


def is_parked(state: State, scope: Scope) -> bool:
    """Does nothing in a scope, or in those inside it, go on until somebody has judged?"""
    jobs = [
        state.jobs[number]
        for inner in _inside(state, scope)
        for number in range(inner.first, inner.first + len(inner.waiting))
    ]
    return any(job.status is Status.pending_failed for job in jobs) and not any(job.active for job in jobs)
