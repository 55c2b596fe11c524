"""Decides which ready jobs get a slot now: the oldest first among those that fit.

A few more attempts are reserved than there are slots (status `pending`), so that an executor never waits for a commit;
but none that a critical step or the failures of other items may still keep from starting. A job holds the CPUs,
memory and GPUs of its reservation until its attempt has ended.
"""

from __future__ import annotations

from resile.core.fanout.breaker import holds_back
from resile.core.reaction import Reaction
from resile.core.scheduling.reservations import fits, reserve
from resile.core.scheduling.reserve_ahead import queue_for_reserving_ahead, reserve_early
from resile.core.state import Job, Queue, State
from resile.model.status import READY
from resile.model.workflow import FanOut


def dispatch(reaction: Reaction) -> None:
    """Reserve attempts while there is room."""
    state = reaction.state
    capacity = state.capacity
    if capacity is None:
        return
    parallel = capacity.parallel
    room = parallel + (0 if state.plan.critical else capacity.ahead)
    while (taken := state.in_flight - state.early) < room:
        job = _next_ready(state, ahead=taken >= parallel)
        if job is None:
            if state.ahead_candidates.items:
                reserve_early(reaction)
            return
        reaction.order(reserve(state, job))
        plan = state.plans[job.scope]
        if plan.dependents[job.step]:
            queue_for_reserving_ahead(state, state.scopes[job.scope], plan, job.step)


def _next_ready(state: State, ahead: bool) -> Job | None:
    """Pop the oldest ready job that fits; ahead of a free slot only where nothing can keep it from starting."""
    jobs = state.jobs
    job: Job | None = None
    best: Job | None = None
    best_queue: Queue | None = None
    for key, queue in state.queues.items():
        # Drop jobs that were canceled meanwhile, or removed with their item.
        while (number := queue.peek()) and ((job := jobs.get(number)) is None or job.status is not READY):
            queue.pop()
        if (
            number
            and job is not None
            and (best is None or job.queue_number < best.queue_number)
            and (not key or fits(state, job))
        ):
            best, best_queue = job, queue
    if best is None or best_queue is None or (ahead and state.fans and _may_be_held_back(state, best)):
        return None
    best_queue.pop()
    return best


def _may_be_held_back(state: State, job: Job) -> bool:
    """Is this a job of an item that the failures of other items may keep from starting?"""
    scope = state.scopes[job.scope]
    if scope.kind != "item":
        return False
    action = state.step_of(state.jobs[scope.owner]).action
    return isinstance(action, FanOut) and holds_back(action.policy)
