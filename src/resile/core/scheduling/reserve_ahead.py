"""Early attempts: reserved before their needs have ended, so that an executor starts them without asking the core.

    blocked --all its open needs are in flight, and exit 0 there will be a success--> pending, early
      early --the last need succeeded------------------> pending like any other
            --withdrawn: a need ended in another way---> blocked
            --lost, and a need is lost too-------------> blocked, its number stays used
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
from resile.model.workflow import Need, Shell, Step, Validate

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
    capacity, candidates, steps = state.capacity, state.ahead_candidates, state.plan.steps
    # Neighbouring steps often share one tuple of needs, which is then examined once.
    needs: tuple[Need, ...] = ()
    sources: list[Job] = []
    while capacity is not None and state.early < capacity.early and (number := candidates.peek()):
        candidates.pop()
        job = state.jobs[number]
        if job.status is not BLOCKED or job.waits_for:
            continue
        step = steps[job.step]
        if step.needs is not needs:
            needs, sources = step.needs, _attempts_needed(state, job)
        if not sources or not _is_plain(step) or not _keeps_file_order(state, job.step, sources):
            continue
        state.queue_number += 1
        job.queue_number = state.queue_number
        job.attempt_state = "early"
        if state.workflow.edition > 1:
            # As when a job wakes. In the first edition a step that had run in the epoch before ran twice.
            job.tokens = 0
        state.early += 1
        job.because = sources[-1].last_event_seq or sources[-1].because
        reaction.order(reserve(state, job, tuple((source.id, source.attempt) for source in sources)))
        queue_for_reserving_ahead(state, state.scopes[ROOT], state.plan, job.step)


def cancel_early_reservation(state: State, job: Job) -> None:
    """Undo the reservation of a withdrawn early attempt: its job waits for its needs again."""
    job.attempt -= 1
    block_again(state, job)


def block_again(state: State, job: Job) -> None:
    """Let a job whose early attempt is over wait for its needs again."""
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
        or rule.transitions
        or (rule.repair is not None and (rule.repair.calls or rule.repair.calls_js))
        for rule in step.rules
    )


def _attempts_needed(state: State, job: Job) -> list[Job]:
    """The jobs after whose exit 0 a blocked job may start; empty where that is uncertain."""
    plan, scope = state.plan, state.scopes[ROOT]
    if job.step in scope.has_failed_need or plan.grouped[job.step] or scope.waiting[job.step] > NEEDS_MAX:
        return []
    sources: list[Job] = []
    # From the end: later needs are the likeliest to be open. All needs not listed have succeeded.
    for need in reversed(plan.steps[job.step].needs):
        if len(sources) == scope.waiting[job.step]:
            break
        source = state.jobs[scope.first + plan.index[need.any_of[0]]]
        if source.counts_as_success:
            continue
        if not source.runs_attempt or not _exit_0_is_success(plan.steps[source.step]):
            return []
        sources.insert(0, source)
    return sources


def _keeps_file_order(state: State, number: int, sources: list[Job]) -> bool:
    """Have the previous dependents of all `sources` begun? Dependents of a step start in the order of the file."""
    first = state.scopes[ROOT].first
    for source in sources:
        dependents = state.plan.dependents[source.step]
        place = bisect_left(dependents, number)
        if place and state.jobs[first + dependents[place - 1]].status is BLOCKED:
            return False
    return True


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
    if not isinstance(step.action, Shell | Validate) or step.left_out:
        return False
    if step.when is not None or step.resources is not None or step.commit_required or step.effects or step.args:
        return False
    if step.reads:
        # The engine looks at these files when it launches the attempt, after its needs have written them.
        return False
    stdin = step.action.stdin if isinstance(step.action, Shell) else ""
    return not any(map(_is_template, (step.action.command, stdin, step.working_dir, *step.env.values())))


def _is_template(text: str) -> bool:
    """May a text contain a value that is not known yet?"""
    return "{" in text and any(mark in text for mark in _TEMPLATE_MARKS)
