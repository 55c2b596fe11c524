"""Packing: which ready jobs get a slot now. Oldest first among those that fit; no job is looked at twice.

Attempts are reserved a few ahead of the free slots (status `pending`), so that an executor never waits for a
commit; but not where a critical step, or the failures of other items, may yet keep them from starting. What a job
reserves of CPUs, memory and GPUs it holds until its attempt has ended.
"""

from __future__ import annotations

from resile.core.actions import Action
from resile.core.fanout.breaker import holds_back
from resile.core.scheduling.plan import queue_key
from resile.core.scheduling.reservations import fits, granted, reserve, stir
from resile.core.scheduling.reserve_ahead import hope, reserve_early
from resile.core.state import Job, Queue, State
from resile.model.fanout import FanOut
from resile.model.status import READY


def enqueue(state: State, job: Job, because: int) -> None:
    """A job may run: put it into the queue of its share of the machine."""
    job.status = READY
    stir(state, job)
    job.because = because
    state.queue_number += 1
    job.queue_number = state.queue_number
    resources = granted(state, job)
    key = "" if resources is None else queue_key(resources)
    queue = state.queues.get(key)
    if queue is None:
        queue = state.queues[key] = Queue()
    queue.push(job.id)
    state.touched.append(job.id)


def dispatch(state: State, out: list[Action]) -> None:
    """Reserve attempts while there is room."""
    capacity = state.capacity
    if capacity is None:
        return
    parallel = capacity.parallel
    room = parallel + (0 if state.plan.critical else capacity.ahead)
    while (taken := state.in_flight - state.early) < room:
        job = _next(state, ahead=taken >= parallel)
        if job is None:
            if state.ahead_candidates.items:
                reserve_early(state, out)
            return
        out.append(reserve(state, job))
        plan = state.plan_of(job.scope)
        if plan.dependents[job.step]:
            hope(state, state.scopes[job.scope], plan, job.step)


def _next(state: State, ahead: bool) -> Job | None:
    """Take the oldest ready job that fits out of its queue; ahead of a free slot only where it will surely start."""
    jobs = state.jobs
    job: Job | None = None
    best: Job | None = None
    best_queue: Queue | None = None
    for key, queue in state.queues.items():
        # What was canceled meanwhile, or is gone with its item, has no turn any more.
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
    """Is this a job of an item that the failures of others may keep from starting?"""
    scope = state.scopes[job.scope]
    if scope.kind != "item":
        return False
    action = state.step_of(state.jobs[scope.owner]).action
    return isinstance(action, FanOut) and holds_back(action.policy)
