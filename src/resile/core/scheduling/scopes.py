"""Opens, stops and closes scopes, in which a repair, an item or a child workflow runs.

open_scope --> jobs, all blocked --> start_scope wakes those without open needs; unstart_scope reverts that
stop_scope --> cancels jobs that have not started, kills those that run; fan-outs inside start no more items
close_scope --> dropped with the next event; stored if a redrive of dead letters inside, or a rerun, can restore it
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from resile.core.actions import KeepScope, KillAttempt
from resile.core.epochs.fresh_jobs import take_grant
from resile.core.fanout.naming import map_name
from resile.core.fanout.progress import Fan, add
from resile.core.reaction import Reaction
from resile.core.scheduling.dependencies import settle_and_inform, wake_joined, wake_or_join
from resile.core.scheduling.reservations import mark_idle
from resile.core.state import SUCCESS, TIMES, Cause, Job, Scope, State
from resile.core.transitions import set_status
from resile.model.failure import Kind
from resile.model.items import ItemFailure, KeptScope
from resile.model.status import BLOCKED, CANCELED, DISABLED, PENDING_FAILED, READY, SKIPPED, TERMINAL
from resile.model.workflow import Step


class Kept(Struct):
    """The stored form of a scope."""

    scope: Scope
    jobs: list[Job]
    fans: dict[int, Fan]


def open_scope(state: State, owner: Job, kind: Literal["repair", "item", "child"], name: str, **more: Any) -> Scope:
    """Open a scope for a job, with its own jobs, all blocked."""
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
    add_scope(state, scope)
    plan = state.plan_of(scope.id)
    scope.waiting = list(plan.waiting)
    scope.times = bytearray(TIMES.size * len(plan.steps))
    for number, step in enumerate(plan.steps):
        job = state.jobs[scope.first + number] = Job(scope.first + number, scope.id, number)
        if state.grants:
            take_grant(state, scope, job, step.name)
        if step.called_only:
            set_status(job, DISABLED)
        elif number != plan.end:
            scope.open += 1
    state.last_job += len(plan.steps)
    return scope


def add_scope(state: State, scope: Scope) -> None:
    """Add a scope to the state, inside the scope of its owner."""
    outer = state.scopes[state.jobs[scope.owner].scope]
    state.scopes[scope.id] = scope
    state.frame_of(outer.id).nested = True
    outer.nested = True


def start_scope(reaction: Reaction, scope: Scope, because: int) -> None:
    """Wake the jobs of a scope that have no open needs; those that only an arc leads to need one that reached them."""
    state = reaction.state
    plan = state.plan_of(scope.id)
    for number, count in enumerate(scope.waiting):
        if count or number == plan.end:
            continue
        job = state.jobs[scope.first + number]
        if job.status is BLOCKED and (number not in plan.arc_targets or job.tokens):
            wake_or_join(reaction, job, because)
    if scope.joining:
        wake_joined(reaction, scope)


def unstart_scope(state: State, scope: Scope) -> None:
    """Block again the jobs that `start_scope` woke; none of their attempts has been reserved."""
    for job in state.jobs_in(scope):
        if job.status is READY or job.waits_for:
            set_status(job, BLOCKED)
            job.waits_for = ""
            mark_idle(state, job)
            state.touched.append(job.id)


def stop_scope(reaction: Reaction, top: Scope, because: int, cause: Cause | None = None) -> None:
    """Cancel the jobs that have not started and kill those that run, in a scope and its inner scopes; not `end`."""
    state = reaction.state
    top.stopped = True
    for scope in _scopes_within(state, top):
        for job in state.jobs_in(scope):
            if job.status in TERMINAL or state.is_end(job):
                continue
            job.tokens = 0
            job.callers = ()
            if job.hosting:
                _stop_host(reaction, job)
            elif not job.runs_attempt:
                job.dependents_notified = True
                job.cause = cause
                settle_and_inform(reaction, job, CANCELED, {}, because)
            else:
                reaction.order(KillAttempt(job.id, job.attempt, because))


def stop_end(reaction: Reaction, end: Job, because: int) -> None:
    """Kill the attempt of an `end`, or stop what runs for it: its items, its child workflow, its handler."""
    state = reaction.state
    inner = [scope for scope in state.scopes.values() if scope.owner == end.id]
    if end.hosting:
        _stop_host(reaction, end)
    elif end.runs_attempt:
        reaction.order(KillAttempt(end.id, end.attempt, because))
    elif not inner:
        settle_and_inform(reaction, end, CANCELED, {}, because)
    for scope in inner:
        stop_scope(reaction, scope, because)


def _stop_host(reaction: Reaction, job: Job) -> None:
    """Let a fan-out start no more items; it ends when its running items have ended."""
    fan = reaction.state.fans.get(job.id)
    if fan is not None:
        fan.stopped = fan.stopped or "canceled"
        reaction.wakeups.append(job.id)


def stop_siblings(reaction: Reaction, job: Job) -> None:
    """Stop the scope of a step that has failed and is critical, or whose rule halts."""
    scope = reaction.state.scopes[job.scope]
    if not scope.stopped:
        stop_scope(reaction, scope, job.last_event_seq, reaction.state.cause_of(job))


def failure_data(step: Step, message: str) -> dict[str, Any]:
    """The data of the note about a final failure."""
    return {"message": message, "routed_to_end": True, "original_failed_step": step.name}


def validates_attempt(state: State, scope: Scope) -> bool:
    """Are these the steps after a success, with a check of the attempt among them?"""
    if scope.kind != "repair" or scope.rule != SUCCESS:
        return False
    actions = state.step_of(state.jobs[scope.owner]).on_success
    return actions is not None and actions.validates


def keep_first_failure(reaction: Reaction, job: Job, message: str) -> None:
    """Remember the first failure of an item, a child workflow, or checks after a success: a dead letter, the parent, or
    the rules of the step need it.
    """
    state = reaction.state
    scope = state.scopes[job.scope]
    if scope.first_failure is not None or not (scope.kind in ("item", "child") or validates_attempt(state, scope)):
        return
    found = replace(item_failure(reaction, scope, job, Kind.CONTRACT, message), exit_code=job.exit_code)
    if job.error is not None:
        failure = job.error.failure
        found = replace(
            found, kind=failure.kind, stderr=failure.stderr, signature=failure.signature, attempt=job.error.attempt
        )
    scope.first_failure = found


def item_failure(reaction: Reaction, scope: Scope, job: Job | None, kind: str, message: str) -> ItemFailure:
    """The failure of an execution of an item, or of a child workflow, at a job of its scope."""
    state = reaction.state
    return ItemFailure(
        number=scope.number,
        at=reaction.at,
        step=state.step_of(job).name if job is not None else "",
        kind=kind,
        message=message,
        seconds=max(0.0, reaction.at - scope.started_at),
        job=job.id if job is not None else 0,
        attempt=job.attempt if job is not None else 0,
        epoch=state.epoch,
        scope=scope.id,
    )


def close_scope(reaction: Reaction, scope: Scope, keep: bool = False) -> None:
    """Mark a finished scope for dropping at the next event; store it if a redrive, or (`keep`) a rerun, may need it."""
    state = reaction.state
    state.scopes_to_drop.append(scope.id)
    add_to_totals(state, scope, 1)
    if scope.kept_for_redrive:
        for inner in _scopes_within(state, scope):
            if inner.kept_for_redrive:
                reaction.order(keep_scope(state, inner))
    elif keep:
        reaction.order(keep_scope(state, scope))


def keep_scope(state: State, scope: Scope) -> KeepScope:
    """The order to store a scope."""
    jobs = state.jobs_in(scope)
    fans = {job.id: state.fans[job.id] for job in jobs if job.id in state.fans}
    body: dict[str, Any] = msgspec.to_builtins(Kept(scope, jobs, fans), str_keys=True)
    return KeepScope(KeptScope(scope.id, state.jobs[scope.owner].scope, body))


def restore_scope(state: State, body: dict[str, Any]) -> int:
    """Restore a stored scope; return its number, or 0 where it is still in the state."""
    kept = read_kept(body)
    if kept.scope.id in state.scopes:
        return 0
    state.scopes[kept.scope.id] = kept.scope
    for job in kept.jobs:
        if job.status not in TERMINAL:
            # The job was running when the next epoch began without it.
            set_status(job, CANCELED)
            job.waits_for = ""
            job.active = False
        state.jobs[job.id] = job
    kept.scope.open = 0
    state.fans |= kept.fans
    add_to_totals(state, kept.scope, -1)
    return kept.scope.id


def read_kept(body: dict[str, Any]) -> Kept:
    """A stored scope."""
    return msgspec.convert({**body, "jobs": [_replace_flags(job) for job in body["jobs"]]}, Kept, str_keys=True)


def _replace_flags(job: dict[str, Any]) -> dict[str, Any]:
    """A stored job; one that version 0.1 stored gets today's fields for the flags that it has."""
    accepted = "tolerated" if job.get("tolerated") else ""
    if job.get("excused") and not accepted:
        accepted = "judged" if job["status"] == SKIPPED else "partial"
    return {
        "visit": "repaired" if job.get("repaired") else "started" if job.get("announced") else "",
        "accepted": accepted,
        "attempt_state": "counted" if job.get("reserved") else "",
        **job,
    }


def add_to_totals(state: State, scope: Scope, times: int) -> None:
    """Add the counts of a scope's fan-outs to the totals of their maps; with -1, subtract them."""
    for job in state.jobs_in(scope):
        fan = state.fans.get(job.id)
        # A fan-out of an earlier epoch does not count in this one.
        if fan is not None and fan.epoch == state.epoch:
            totals = state.closed_map_totals.setdefault(map_name(state, job), Fan(0, "", state.epoch))
            add(totals, fan, times)


def _scopes_within(state: State, top: Scope) -> list[Scope]:
    """A scope and all its inner scopes, at any depth, in the order in which they were opened."""
    found = {top.id}
    for scope in state.scopes.values():
        # A scope is always younger than the one around it, so one pass finds them all.
        if scope.owner and state.jobs[scope.owner].scope in found:
            found.add(scope.id)
    return [scope for scope in state.scopes.values() if scope.id in found]


def is_busy(state: State, scope: Scope) -> bool:
    """Does a job in a scope, or in its inner scopes, still run?"""
    if not scope.nested:
        return False
    return any(
        job.hosting or job.runs_attempt for inner in _scopes_within(state, scope) for job in state.jobs_in(inner)
    )


def is_parked(state: State, scope: Scope) -> bool:
    """Do all open jobs in a scope and its inner scopes wait for a judgement?"""
    jobs = [job for inner in _scopes_within(state, scope) for job in state.jobs_in(inner)]
    return any(job.status is PENDING_FAILED for job in jobs) and not any(job.active for job in jobs)
