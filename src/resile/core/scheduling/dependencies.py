"""Needs between jobs: waking, joining, skipping, and cancellation that spreads at once.

blocked --needs hold--> [when?] --> ready ... --> settle --> dependents: waiting - 1
              |                                      |
              +-- a need failed: canceled, with all its dependents, at any depth, in this same reaction

A step with `join: all` that an arc has reached waits until no other path can lead to it any more.
"""

from __future__ import annotations

from typing import Any

from resile.core.reaction import SETTLED_NOTES, Reaction
from resile.core.scheduling.reservations import clear_early, mark_idle, release
from resile.core.scheduling.reserve_ahead import NEEDS_MAX, cancel_early_reservation, queue_for_reserving_ahead
from resile.core.state import NO_RULE, Job, Scope, State
from resile.core.transitions import set_status
from resile.model.status import (
    BLOCKED,
    CANCELED,
    COMPLETED,
    PENDING_FAILED,
    READY,
    SKIPPED,
    TERMINAL,
    Status,
)


def settle_and_inform(reaction: Reaction, job: Job, status: Status, data: dict[str, Any], because: int = 0) -> None:
    """End a job for this visit, and tell its dependents and joins that it is over."""
    state = reaction.state
    scope, plan = state.scopes[job.scope], state.plans[job.scope]
    reaction.settle(job, status, data, because)
    if job.step == plan.end:
        return
    if not job.dependents_notified:
        job.dependents_notified = True
        if plan.dependents[job.step]:
            _inform_dependents(reaction, scope, job)
    if scope.joining and not state.is_stopping(job):
        wake_joined(reaction, scope)
    ends = status is COMPLETED and not (scope.owner or job.callers or job.id in state.fans)
    if ends and (not job.tokens or state.is_stopping(job)):
        # Snapshots leave zeros out: no later event needs these numbers, and a long run has many such jobs.
        job.queue_number = job.because = job.last_event_seq = 0


def _inform_dependents(reaction: Reaction, scope: Scope, first: Job) -> None:
    """Count down the dependents of a settled job, and of every job that is canceled or skipped because of it."""
    state = reaction.state
    plan, jobs, waiting = state.plan_of(scope.id), state.jobs, scope.waiting
    work = [first]
    while work:
        source = work.pop()
        dependents, row, soon = plan.dependents[source.step], plan.rows[source.step], False
        if not source.counts_as_success:
            scope.has_failed_need.update(dependents)
            for number in dependents:
                waiting[number] -= 1
        elif row is not None:
            left = waiting[row.start] - 1
            waiting[row] = [left] * len(dependents)
            if left:
                dependents, soon = [], left <= NEEDS_MAX
        else:
            some, dependents = dependents, []
            for number in some:
                left = waiting[number] = waiting[number] - 1
                if not left:
                    dependents.append(number)
                elif left <= NEEDS_MAX:
                    soon = True
        for number in dependents:
            job = jobs[scope.first + number]
            if job.attempt_state == "early":
                _resolve_early(state, job, source)
            if job.status is BLOCKED and not job.waits_for and _apply_needs(reaction, scope, job, source):
                work.append(job)
        if soon:
            queue_for_reserving_ahead(state, scope, plan, source.step)


def _resolve_early(state: State, job: Job, source: Job) -> None:
    """The last need of an early job is over: keep its reservation, or cancel it where the need failed.

    A job that is being stopped stays unchanged until its attempt is withdrawn.
    """
    if source.counts_as_success:
        clear_early(state, job)
        job.because = source.last_event_seq
        state.touched.append(job.id)
    elif not state.is_stopping(job):
        release(state, job)
        cancel_early_reservation(state, job)


def _apply_needs(reaction: Reaction, scope: Scope, job: Job, source: Job) -> bool:
    """Wake, cancel or skip a blocked job according to its needs; True where that ended it."""
    status = _status_from_needs(reaction.state, scope, job.step, source)
    if status is None:
        return False
    if status is READY:
        if job.step not in reaction.state.plan_of(scope.id).arc_targets or job.tokens:
            wake_or_join(reaction, job, source.last_event_seq)
        return False
    _cancel_or_skip(reaction, scope, job, status, _deciding_need(reaction.state, scope, job.step, status, source))
    return True


def _status_from_needs(state: State, scope: Scope, number: int, source: Job) -> Status | None:
    """The status that a blocked job's needs give it: ready, canceled, skipped, or None while undecided."""
    if number not in scope.has_failed_need:
        return READY if not scope.waiting[number] else None
    plan = state.plan_of(scope.id)
    failed = not source.counts_as_success and source.status is not SKIPPED
    if failed and not plan.grouped[number]:
        return CANCELED
    if scope.waiting[number] and not failed:
        return None
    skipped = False
    for need in plan.steps[number].needs:
        members = [state.jobs[scope.first + plan.index[name]] for name in need.any_of]
        if any(member.counts_as_success or member.status not in TERMINAL for member in members):
            continue
        if all(member.status is SKIPPED for member in members):
            skipped = skipped or not need.skip_satisfies
        elif not need.failure_satisfies:
            return CANCELED
    if scope.waiting[number]:
        return None
    return SKIPPED if skipped else READY


def _deciding_need(state: State, scope: Scope, number: int, status: Status, source: Job) -> Job:
    """The needed job because of which a job is canceled or skipped: the one that has just settled, or one before it."""
    plan, skips = state.plan_of(scope.id), status is SKIPPED
    for need in plan.steps[number].needs:
        members = [state.jobs[scope.first + plan.index[name]] for name in need.any_of]
        found = [job for job in members if (job.status is SKIPPED) == skips]
        is_open = any(job.counts_as_success or job.status not in TERMINAL for job in members)
        holds = (need.skip_satisfies or len(found) < len(members)) if skips else need.failure_satisfies
        if found and not is_open and not holds:
            return next((job for job in found if job is source), found[0])
    return source


def _cancel_or_skip(reaction: Reaction, scope: Scope, job: Job, status: Status, source: Job) -> None:
    """Cancel or skip a job that never started; its cause is the job that failed or was skipped first."""
    state = reaction.state
    set_status(job, status)
    state.set_ended(job, reaction.at)
    job.dependents_notified = True
    job.cause = source.cause or state.cause_of(source)
    scope.open -= 1
    if scope.owner or job.callers:
        reaction.wakeups.append(job.id)
    data = {"cause": {"step": job.cause.step, "job": job.cause.job, "status": job.cause.status}}
    reaction.note(SETTLED_NOTES[status], job, data, source.last_event_seq)


def recount(reaction: Reaction, scope: Scope, numbers: list[int]) -> None:
    """Count the open needs of these steps afresh after jobs were reopened, and wake or end the jobs that can go on.

    A need that is being revisited has informed its dependents already. One of them waits for it again, so the need will
    inform all of them once more, and the others are counted afresh as well.
    """
    state = reaction.state
    plan = state.plan_of(scope.id)
    work, counted = list(numbers), set(numbers)
    while work:
        number = work.pop()
        jobs = _needed_jobs(state, scope, number)
        scope.waiting[number] = sum(job.status not in TERMINAL for job in jobs)
        scope.has_failed_need.discard(number)
        if any(job.status in TERMINAL and not job.counts_as_success for job in jobs):
            scope.has_failed_need.add(number)
        for job in jobs:
            if job.status not in TERMINAL and job.dependents_notified:
                job.dependents_notified = False
                more = [other for other in plan.dependents[job.step] if other not in counted]
                counted.update(more)
                work += more
    for number in sorted(counted):
        job = state.jobs[scope.first + number]
        if job.status is BLOCKED and not job.waits_for and not scope.waiting[number]:
            needed = _needed_jobs(state, scope, number)
            source = next((other for other in needed if not other.counts_as_success), job)
            if _apply_needs(reaction, scope, job, source):
                _inform_dependents(reaction, scope, job)


def _needed_jobs(state: State, scope: Scope, number: int) -> list[Job]:
    plan = state.plan_of(scope.id)
    names = dict.fromkeys(name for need in plan.steps[number].needs for name in need.any_of)
    return [state.jobs[scope.first + plan.index[name]] for name in names]


def reopen(state: State, job: Job) -> None:
    """Reset a job to before its first attempt of this visit; its counters stay spent."""
    if job.status in TERMINAL:
        state.scopes[job.scope].open += 1
    if job.status is PENDING_FAILED:
        state.parked -= 1
    mark_idle(state, job)
    set_status(job, BLOCKED)
    job.waits_for = job.visit = job.accepted = job.attempt_state = job.failed_visit = ""
    job.stale = False
    job.cause = job.exit_code = job.error = None
    state.set_ended(job, 0.0)
    job.rule, job.repair_scope, job.calls, job.target, job.output_job = NO_RULE, 0, (), "", 0


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
