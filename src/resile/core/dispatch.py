"""Packing: which ready jobs get a slot now. Oldest first among those that fit; no job is looked at twice.

Attempts are reserved a few ahead of the free slots (status `pending`), so that an executor never waits for a
commit; but not where a critical step may yet keep them from starting. What a job reserves of CPUs, memory and GPUs it
holds until its attempt has ended.
"""

from __future__ import annotations

from resile.core.actions import Action, StartAttempt
from resile.core.plan import queue_key
from resile.core.state import Job, Queue, State
from resile.model.status import Status
from resile.model.workflow import Resources


def enqueue(state: State, job: Job, because: int) -> None:
    """A job may run: put it into the queue of its share of the machine."""
    job.status = Status.ready
    stir(state, job)
    job.because = because
    state.ticket += 1
    job.ticket = state.ticket
    key = queue_key(granted(state, job))
    queue = state.queues.get(key)
    if queue is None:
        queue = state.queues[key] = Queue()
    queue.push(job.id)
    state.touched.append(job.id)


def stir(state: State, job: Job) -> None:
    """From here on a job gets on by itself."""
    if not job.moving:
        job.moving = True
        state.moving += 1


def rest(state: State, job: Job) -> None:
    """A job waits for something that is not itself: a repair, a judgement, or nothing any more."""
    if job.moving:
        job.moving = False
        state.moving -= 1


def granted(state: State, job: Job) -> Resources | None:
    """What a job takes of the machine: what its step asks for, or what it was last granted beyond that."""
    resources = state.step_of(job).resources
    if not (job.memory_bytes or job.runtime_seconds):
        return resources
    resources = resources or Resources()
    memory = job.memory_bytes or resources.memory_bytes
    if state.capacity is not None and memory > resources.memory_bytes:
        # What was granted elsewhere, or grew, may be more than there is here; the job must not wait for ever.
        memory = max(resources.memory_bytes, min(memory, state.capacity.memory_bytes))
    return Resources(
        resources.cpus,
        memory,
        resources.gpus,
        job.runtime_seconds or resources.runtime_seconds,
    )


def dispatch(state: State, out: list[Action]) -> None:
    """Reserve attempts while there is room."""
    capacity = state.capacity
    if capacity is None:
        return
    room = capacity.parallel + (0 if state.plan.critical else capacity.ahead)
    while state.in_flight < room:
        job = _next(state)
        if job is None:
            return
        job.status = Status.pending
        if not job.reserved:
            job.attempt += 1
        job.reserved = False
        state.in_flight += 1
        state.touched.append(job.id)
        _take(state, job)
        out.append(StartAttempt(job.id, job.attempt, job.because, job.gpus))


def release(state: State, job: Job) -> None:
    """An attempt no longer runs: give back what it held."""
    state.in_flight -= 1
    resources = granted(state, job)
    if resources is not None:
        state.cpus_used -= resources.cpus
        state.memory_bytes_used -= resources.memory_bytes
        state.gpus_free.extend(job.gpus)
        state.gpus_free.sort()
        job.gpus = ()


def _next(state: State) -> Job | None:
    """Take the oldest ready job that fits out of its queue."""
    best: Job | None = None
    best_queue: Queue | None = None
    for queue in state.queues.values():
        # What was canceled meanwhile, or is gone with its item, has no turn any more.
        while (number := queue.peek()) and (
            (waiting := state.jobs.get(number)) is None or waiting.status is not Status.ready
        ):
            queue.pop()
        if not number:
            continue
        job = state.jobs[number]
        if (best is None or job.ticket < best.ticket) and _fits(state, job):
            best, best_queue = job, queue
    if best_queue is not None:
        best_queue.pop()
    return best


def _fits(state: State, job: Job) -> bool:
    """Is there room for what this job takes?"""
    resources = granted(state, job)
    capacity = state.capacity
    if resources is None or capacity is None:
        return True
    # A share of a CPU is a float: allow for the rounding of sums.
    return (
        state.cpus_used + resources.cpus <= capacity.cpus + 1e-9
        and state.memory_bytes_used + resources.memory_bytes <= capacity.memory_bytes
        and resources.gpus <= len(state.gpus_free)
    )


def _take(state: State, job: Job) -> None:
    """Hold what a job takes until `release`."""
    resources = granted(state, job)
    if resources is not None:
        state.cpus_used += resources.cpus
        state.memory_bytes_used += resources.memory_bytes
        job.gpus = tuple(state.gpus_free[: resources.gpus])
        del state.gpus_free[: resources.gpus]
