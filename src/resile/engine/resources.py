"""The capacity of this machine (CPUs, memory, GPUs; from its cgroup and devices), and the time limit of an attempt."""

from __future__ import annotations

import os
from collections.abc import Mapping

from resile.core.events import Capacity
from resile.core.scheduling.reservations import resources_for
from resile.core.state import Job, State
from resile.errors import ResileError
from resile.executors import descriptors
from resile.executors.contract import MEASURED, Share
from resile.model.limits import size
from resile.model.nested import steps_of, workflows_within
from resile.model.workflow import Step, Workflow

# Enough in reserve that the launcher never waits for a commit; few enough that a cancel has little to withdraw.
AHEAD = 64
# Calls of functions are shorter, and withdrawing one costs nothing.
CALLS_AHEAD = 512
# The capacity of a run that a server drives: practically unlimited, because each worker adds room.
CPUS_MAX, MEMORY_BYTES_MAX, GPUS_MAX = 1e6, 1 << 60, 1024
UNLIMITED = Capacity(1, cpus=CPUS_MAX, memory_bytes=MEMORY_BYTES_MAX, gpus=GPUS_MAX)
_BYTES_UNLIMITED = 1 << 60
_CGROUP, _DEVICES = "/sys/fs/cgroup", "/dev"
_NOTHING = Share()


def measure(parallel: int | None, cpus: float | None, memory_bytes: int | None, gpus: int | None) -> Capacity:
    """The capacity of an engine on this machine; the caller's numbers override the measured ones."""
    descriptors.refuse_too_few()
    has_cpus = cpus if cpus is not None and parallel is not None else _cpus()
    return Capacity(
        parallel=parallel if parallel is not None else max(1, int(has_cpus)),
        ahead=AHEAD,
        early=AHEAD,
        cpus=cpus if cpus is not None else has_cpus,
        memory_bytes=memory_bytes if memory_bytes is not None else _memory_bytes(),
        gpus=gpus if gpus is not None else _gpus(),
    )


def refuse_misfits(workflow: Workflow, capacity: Capacity) -> None:
    """Refuse a workflow with a step that needs more than this machine has."""
    for step in steps_of(workflow):
        wanted = _misfit(step, capacity)
        if wanted:
            raise ResileError(
                "does-not-fit",
                f"step {step.name!r} can never run here: it asks for {wanted}",
                where=f"{workflow.file}:{step.origin.line}:{step.origin.column}",
                hint="ask for less, or say what this machine may use with --cpus, --memory, --gpus",
            )


def refuse_labels(workflow: Workflow) -> None:
    """Refuse a workflow with a step that waits for a worker: without a server there is none."""
    for flow in workflows_within(workflow):
        for step in steps_of(flow):
            if step.runs_on:
                raise ResileError(
                    "needs-worker",
                    f"step {step.name!r} runs on a worker with the label {step.runs_on[0]!r}, and here is none",
                    where=f"{flow.file}:{step.origin.line}:{step.origin.column}",
                    hint="submit the workflow to a server that has such a worker, or remove `runs_on`",
                )


def scarce_descriptors(parallel: int) -> str:
    """Say that fewer steps run at once than asked for, because too few files may be open; empty if all can."""
    hard = descriptors.open_files_max()[1]
    slots = descriptors.slots_within(hard)
    if slots >= parallel:
        return ""
    return f"at most {slots} steps run at once, not {parallel}: only {hard} files may be open (`ulimit -Hn`)"


def _misfit(step: Step, capacity: Capacity) -> str:
    """The resource that a step needs more of than the engine has, in words; empty if the step fits."""
    resources = step.resources
    if resources is None:
        return ""
    if resources.cpus > capacity.cpus:
        return f"CPUs: {resources.cpus:g}, there are {capacity.cpus:g}"
    if resources.memory_bytes > capacity.memory_bytes:
        return f"{size(resources.memory_bytes)} of memory, there is {size(capacity.memory_bytes)}"
    if resources.gpus > capacity.gpus:
        return f"GPUs: {resources.gpus}, there are {capacity.gpus}"
    if resources.nodes > 1:
        return f"nodes: {resources.nodes}, and this machine is one (`--executor` runs steps on a cluster)"
    return ""


def _cpus() -> float:
    """The CPUs this process may use: its affinity, limited by the cgroup's quota."""
    allowed = float(len(os.sched_getaffinity(0)))
    quota = _words(f"{_CGROUP}/cpu.max")
    if len(quota) == 2 and quota[0] != "max":
        return min(allowed, int(quota[0]) / int(quota[1]))
    share, period = _words(f"{_CGROUP}/cpu/cpu.cfs_quota_us"), _words(f"{_CGROUP}/cpu/cpu.cfs_period_us")
    if share and period and int(share[0]) > 0:
        return min(allowed, int(share[0]) / int(period[0]))
    return allowed


def _memory_bytes() -> int:
    """The memory this process may use: the machine's, limited by the cgroup."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in (f"{_CGROUP}/memory.max", f"{_CGROUP}/memory/memory.limit_in_bytes"):
        words = _words(path)
        if words and words[0] != "max" and int(words[0]) < _BYTES_UNLIMITED:
            total = min(total, int(words[0]))
    return total


def _gpus() -> int:
    """The number of GPUs: those in CUDA_VISIBLE_DEVICES, else all, counted by their device files."""
    visible = visible_gpus(os.environ)
    if visible:
        return len(visible)
    try:
        names = os.listdir(_DEVICES)
    except OSError:
        return 0
    return sum(name.startswith("nvidia") and name[6:].isdigit() for name in names)


def visible_gpus(env: Mapping[str, str]) -> list[str]:
    """The GPUs that CUDA_VISIBLE_DEVICES names."""
    return [name.strip() for name in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]


def _words(path: str) -> list[str]:
    """The words of a small system file; none if it does not exist."""
    try:
        with open(path) as file:
            return file.read().split()
    except OSError:
        return []


def memory_limit(state: State, job: Job) -> int:
    """How much memory an attempt may use; 0 is no limit."""
    resources = state.step_of(job).resources
    if resources is None or not resources.enforce:
        return 0
    granted = resources_for(state, job)
    return granted.memory_bytes if granted is not None else 0


def watched_memory(state: State, job: Job) -> int:
    """The memory limit for the launch of an attempt; MEASURED if there is none and its step learns what it needs."""
    resources = state.step_of(job).resources
    return memory_limit(state, job) or (MEASURED if resources is not None and resources.memory_auto else 0)


def share_of(state: State, job: Job) -> Share:
    """The share of its place that an attempt takes."""
    granted = resources_for(state, job)
    return _NOTHING if granted is None else Share(granted.cpus, granted.memory_bytes, granted.gpus, granted.nodes)


def time_limit(state: State, job: Job) -> float | None:
    """How long an attempt may run: the shorter of its timeout and of the runtime it was granted."""
    step = state.step_of(job)
    if step.resources is None and not job.runtime_seconds:
        return step.timeout_seconds
    resources = resources_for(state, job)
    written = step.resources.runtime_seconds if step.resources is not None else None
    # A rule, a judge or a recovery that grants more time than the file replaces the timeout too.
    is_longer = job.runtime_seconds > (step.timeout_seconds or 0.0) and job.runtime_seconds != written
    timeout = None if is_longer else step.timeout_seconds
    limits = (timeout, resources.runtime_seconds if resources is not None else None)
    return min((limit for limit in limits if limit is not None), default=None)
