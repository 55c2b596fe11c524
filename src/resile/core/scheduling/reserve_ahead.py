"""Early attempts: reserved before what they need has ended, so that an executor goes from one to the next by itself.

    blocked --all it still needs is in flight, and exit 0 there will be a success--> pending, early
      early --the last need is good--------------------> pending like any other
            --withdrawn: a need ended in another way---> blocked
            --a need failed for good-------------------> canceled, as if it had been blocked

The order to start says after which attempts; an executor starts it when all of those have ended with exit 0 and
withdraws it otherwise. So nothing starts early: only the decision is taken, and on disk, before it is due.

Only jobs that no value, question or jump can change are reserved so: plain commands, in plans where nothing leads back.
"""

from __future__ import annotations

from bisect import bisect_left

from resile.core.reaction import Reaction
from resile.core.scheduling.plan import Plan
from resile.core.scheduling.reservations import mark_idle, reserve
from resile.core.state import ROOT, Job, Scope, State
from resile.core.transitions import set_status
from resile.model.status import BLOCKED, PENDING, RUNNING
from resile.model.workflow import Shell, Step, Validate

# An early attempt waits for so many others at most; a job with more open needs will soon have fewer.
NEEDS_MAX = 4
_TEMPLATE_MARKS = ("${", "{{", "{%")


def queue_for_reserving_ahead(state: State, scope: Scope, plan: Plan, source: int) -> None:
    """Queue this step's dependents for early reservation if they wait for at most NEEDS_MAX others."""
    if state.capacity is None or not state.capacity.early or scope.id != ROOT or not is_steady(state, plan):
        return
    for number in plan.dependents[source]:
        if 0 < scope.waiting[number] <= NEEDS_MAX:
            state.ahead_candidates.push(scope.first + number)


def reserve_early(reaction: Reaction) -> None:
    """Reserve early attempts while there is room; called when nothing is ready."""
    state = reaction.state
    capacity, candidates = state.capacity, state.ahead_candidates
    while capacity is not None and state.early < capacity.early and (number := candidates.peek()):
        candidates.pop()
        job = state.jobs[number]
        after = _attempts_needed(state, job) if job.status is BLOCKED and not job.pending_question else ()
        if after:
            state.queue_number += 1
            job.queue_number = state.queue_number
            job.early = True
            state.early += 1
            last = state.jobs[after[-1][0]]
            job.because = last.last_event_seq or last.because
            reaction.order(reserve(state, job, after))
            queue_for_reserving_ahead(state, state.scopes[ROOT], state.plan, job.step)


def cancel_early_reservation(state: State, job: Job) -> None:
    """An early attempt was withdrawn: its job waits for its needs again."""
    job.attempt -= 1
    set_status(job, BLOCKED)
    mark_idle(state, job)
    state.touched.append(job.id)


def is_steady(state: State, plan: Plan) -> bool:
    """Can nothing lead back, leave out or call steps in this plan?"""
    if plan.steady is None:
        plain_env = not any(_is_template(value) for value in state.workflow.env.values())
        more = [step for step in plan.steps if step.rules or step.arcs or step.on_success is not None]
        plan.steady = plain_env and not plan.critical and all(_never_leads_back(step) for step in more)
    return plan.steady


def _never_leads_back(step: Step) -> bool:
    """Can a step only end, be tried again, or fail?"""
    if step.arcs or step.on_success is not None:
        return False
    return not any(
        rule.then == "goto"
        or rule.halts
        or rule.transitions
        or (rule.repair is not None and (rule.repair.calls or rule.repair.calls_js))
        for rule in step.rules
    )


def _attempts_needed(state: State, job: Job) -> tuple[tuple[int, int], ...]:
    """The attempts after whose exit 0 a blocked job may start; nothing where that can't be said."""
    plan, step, scope = state.plan, state.step_of(job), state.scopes[ROOT]
    if job.step in scope.has_failed_need or plan.grouped[job.step] or scope.waiting[job.step] > NEEDS_MAX:
        return ()
    if not _is_plain(step):
        return ()
    after: list[tuple[int, int]] = []
    # From the end, because the latest needs are the likeliest to be open; all others have succeeded.
    for need in reversed(step.needs):
        if len(after) == scope.waiting[job.step]:
            break
        other = state.jobs[scope.first + plan.index[need.any_of[0]]]
        if other.counts_as_success:
            continue
        under_way = other.status in (PENDING, RUNNING) and not other.pending_question
        if not under_way or not _exit_0_is_success(state.step_of(other)):
            return ()
        if not _keeps_file_order(state, plan, job.step, other):
            return ()
        after.append((other.id, other.attempt))
    return tuple(reversed(after))


def _keeps_file_order(state: State, plan: Plan, number: int, source: Job) -> bool:
    """Has the dependent of `source` before this one begun? Dependents of one step start in the order of the file."""
    dependents = plan.dependents[source.step]
    place = bisect_left(dependents, number)
    return not place or state.jobs[state.scopes[ROOT].first + dependents[place - 1]].status is not BLOCKED


def _exit_0_is_success(step: Step) -> bool:
    """Is exit 0 of this step's command a success, whatever else it did?"""
    if not isinstance(step.action, Shell | Validate):
        return False
    return not (
        step.capture
        or step.outputs
        or step.commit_required
        or step.transform is not None
        or step.checks
        or step.cases
        or step.effects
    )


def _is_plain(step: Step) -> bool:
    """Is everything about an attempt of this step known before the run starts?"""
    if not isinstance(step.action, Shell | Validate):
        return False
    if step.when is not None or step.resources is not None or step.commit_required or step.effects or step.args:
        return False
    stdin = step.action.stdin if isinstance(step.action, Shell) else ""
    texts = (step.action.command, stdin, step.working_dir, *step.env.values())
    return not any(_is_template(text) for text in texts)


def _is_template(text: str) -> bool:
    """Could a text hold a value that is not known yet?"""
    return any(mark in text for mark in _TEMPLATE_MARKS)
