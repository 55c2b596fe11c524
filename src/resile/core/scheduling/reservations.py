"""Reservations: an attempt holds its slot, CPUs, memory and GPUs from its reservation to its end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from resile.core.actions import StartAttempt
from resile.core.state import Job, State
from resile.core.transitions import set_status
from resile.model.status import PENDING
from resile.model.workflow import Resources


def mark_active(state: State, job: Job) -> None:
    """Mark the job active: it will make progress without outside input."""
    if not job.active:
        job.active = True
        state.active += 1


def mark_idle(state: State, job: Job) -> None:
    """Mark the job idle: it waits for a repair or a judgement, or it is done."""
    if job.active:
        job.active = False
        state.active -= 1


def resources_for(state: State, job: Job) -> Resources | None:
    """The resources for a job: those of its step, or the larger grant of its last escalation."""
    resources = state.plans[job.scope].steps[job.step].resources
    if not (job.memory_bytes or job.runtime_seconds):
        return resources
    resources = resources or Resources()
    memory = job.memory_bytes or resources.memory_bytes
    if state.capacity is not None and memory > resources.memory_bytes:
        # A grant that grew, or was made on another machine, may exceed this one; the job must not wait for ever.
        memory = max(resources.memory_bytes, min(memory, state.capacity.memory_bytes))
    return Resources(
        resources.cpus,
        memory,
        resources.gpus,
        job.runtime_seconds or resources.runtime_seconds,
        resources.enforce,
        nodes=resources.nodes,
    )


def reserve(state: State, job: Job, after: tuple[tuple[int, int], ...] = ()) -> StartAttempt:
    """Reserve the resources of a job's next attempt; return the order to start it after the attempts in `after`."""
    set_status(job, PENDING)
    mark_active(state, job)
    if job.attempt_state == "counted":
        job.attempt_state = ""
    else:
        job.attempt += 1
    state.in_flight += 1
    state.touched.append(job.id)
    resources = resources_for(state, job)
    if resources is not None:
        # Held until `release`.
        state.cpus_used += resources.cpus
        state.memory_bytes_used += resources.memory_bytes
        if resources.gpus:
            job.gpus = tuple(islice(_free_gpus(state), resources.gpus))
            state.gpus_taken += job.gpus
    return StartAttempt(job.id, job.attempt, job.because, job.gpus, after, job.refused)


def release(state: State, job: Job) -> None:
    """Release the resources of an attempt that no longer runs."""
    state.in_flight -= 1
    job.in_doubt = False
    clear_early(state, job)
    resources = resources_for(state, job)
    if resources is not None:
        state.cpus_used -= resources.cpus
        state.memory_bytes_used -= resources.memory_bytes
        if job.gpus:
            state.gpus_taken = [gpu for gpu in state.gpus_taken if gpu not in job.gpus]
            job.gpus = ()


def clear_early(state: State, job: Job) -> None:
    """Mark a job as no longer early: its needs hold, or its attempt is over."""
    if job.attempt_state == "early":
        job.attempt_state = ""
        state.early -= 1


def fits(state: State, job: Job) -> bool:
    """Are the resources that this job asks for free?"""
    resources = resources_for(state, job)
    capacity = state.capacity
    if resources is None or capacity is None:
        return True
    # A share of a CPU is a float: allow for the rounding of sums.
    return (
        state.cpus_used + resources.cpus <= capacity.cpus + 1e-9
        and state.memory_bytes_used + resources.memory_bytes <= capacity.memory_bytes
        and len(list(islice(_free_gpus(state), resources.gpus))) == resources.gpus
    )


def _free_gpus(state: State) -> Iterator[int]:
    """The numbers of the GPUs that no attempt has, the lowest first."""
    count, taken = 0 if state.capacity is None else state.capacity.gpus, set(state.gpus_taken)
    return (gpu for gpu in range(count) if gpu not in taken)
