"""Early attempts: reserved before their needs have ended, so that an executor starts them without asking the core.

    blocked --all its open needs are in flight, and exit 0 there will be a success--> pending, early
      early --the last need succeeded------------------> pending like any other
            --withdrawn: a need ended in another way---> blocked
            --a need failed for good-------------------> canceled, as if it had been blocked

The order to start lists the attempts to wait for. An executor starts the attempt when all of them have ended with exit
0 and withdraws it otherwise. So no attempt starts early: only the decision is made, and stored, early.

Only jobs that no value, question or jump can change are reserved early: plain commands, in plans without a way back.
"""

from __future__ import annotations

from bisect import bisect_left

from resile.core.reaction import Reaction
from resile.core.scheduling.plan import Plan
from resile.core.scheduling.reservations import mark_idle, reserve
from resile.core.state import ROOT, Job, Scope, State
from resile.core.transitions import set_status
from resile.model.status import BLOCKED
from resile.model.workflow import Shell, Step, Validate

# An early attempt waits for at most this many others; a job with more open needs will soon have fewer.
NEEDS_MAX = 4
_TEMPLATE_MARKS = ("${", "{{", "{%")


def queue_for_reserving_ahead(state: State, scope: Scope, plan: Plan, source: int) -> None:
    """Queue this step's dependents for early reservation if they wait for at most NEEDS_MAX others."""
    if state.capacity is None or not state.capacity.early or scope.id != ROOT or not is_steady(state, plan):
        return
    dependents, row = plan.dependents[source], plan.rows[source]
    if row is not None:
        if not 0 < scope.waiting[row.start] <= NEEDS_MAX:
            return
        state.ahead_candidates.items += [scope.first + number for number in dependents]
    else:
        for number in dependents:
            if 0 < scope.waiting[number] <= NEEDS_MAX:
                state.ahead_candidates.push(scope.first + number)


def reserve_early(reaction: Reaction) -> None:
    """Reserve early attempts while there is room; called when no job is ready."""
    state = reaction.state
    capacity, candidates = state.capacity, state.ahead_candidates
    while capacity is not None and state.early < capacity.early and (number := candidates.peek()):
        candidates.pop()
        job = state.jobs[number]
        after = _attempts_needed(state, job) if job.status is BLOCKED and not job.waits_for else ()
        if after:
            state.queue_number += 1
            job.queue_number = state.queue_number
            job.attempt_state = "early"
            state.early += 1
            last = state.jobs[after[-1][0]]
            job.because = last.last_event_seq or last.because
            reaction.order(reserve(state, job, after))
            queue_for_reserving_ahead(state, state.scopes[ROOT], state.plan, job.step)


def cancel_early_reservation(state: State, job: Job) -> None:
    """Undo the reservation of a withdrawn early attempt: its job waits for its needs again."""
    job.attempt -= 1
    set_status(job, BLOCKED)
    mark_idle(state, job)
    state.touched.append(job.id)


def is_steady(state: State, plan: Plan) -> bool:
    """Is it certain that no rule or arc can lead back, skip or call steps in this plan?"""
    if plan.steady is None:
        plain_env = not any(_is_template(value) for value in state.workflow.env.values())
        more = [step for step in plan.steps if step.rules or step.arcs or step.on_success is not None]
        plan.steady = plain_env and not plan.critical and all(_never_leads_back(step) for step in more)
    return plan.steady


def _never_leads_back(step: Step) -> bool:
    """Can a step only complete, be retried, or fail?"""
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
    """The attempts after whose exit 0 a blocked job may start; empty where that is uncertain."""
    plan, step, scope = state.plan, state.step_of(job), state.scopes[ROOT]
    if job.step in scope.has_failed_need or plan.grouped[job.step] or scope.waiting[job.step] > NEEDS_MAX:
        return ()
    if not _is_plain(step):
        return ()
    after: list[tuple[int, int]] = []
    # From the end: later needs are the likeliest to be open. All needs not listed have succeeded.
    for need in reversed(step.needs):
        if len(after) == scope.waiting[job.step]:
            break
        other = state.jobs[scope.first + plan.index[need.any_of[0]]]
        if other.counts_as_success:
            continue
        if not other.runs_attempt or not _exit_0_is_success(state.step_of(other)):
            return ()
        if not _keeps_file_order(state, plan, job.step, other):
            return ()
        after.append((other.id, other.attempt))
    return tuple(reversed(after))


def _keeps_file_order(state: State, plan: Plan, number: int, source: Job) -> bool:
    """Has the previous dependent of `source` begun? Dependents of one step start in the order of the file."""
    dependents = plan.dependents[source.step]
    place = bisect_left(dependents, number)
    return not place or state.jobs[state.scopes[ROOT].first + dependents[place - 1]].status is not BLOCKED


def _exit_0_is_success(step: Step) -> bool:
    """Does exit 0 of this step's command always mean success?"""
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
    """May a text contain a value that is not known yet?"""
    return any(mark in text for mark in _TEMPLATE_MARKS)
