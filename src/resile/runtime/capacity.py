"""What this machine has to give: CPUs, memory and GPUs, as its cgroup and its devices say."""

from __future__ import annotations

import os

from resile.core.events import Capacity
from resile.errors import ResileError
from resile.model.workflow import Step, Workflow

# Enough in reserve that the launcher never waits for a commit, few enough that a cancel has little to take back.
AHEAD = 64
_UNLIMITED = 1 << 60


def measure(parallel: int | None, cpus: float | None, memory_bytes: int | None, gpus: int | None) -> Capacity:
    """The capacity of an engine here; whatever the caller gives wins."""
    own_cpus = cpus if cpus is not None else _cpus()
    return Capacity(
        parallel=parallel if parallel is not None else max(1, int(_cpus())),
        ahead=AHEAD,
        cpus=own_cpus,
        memory_bytes=memory_bytes if memory_bytes is not None else _memory_bytes(),
        gpus=gpus if gpus is not None else _gpus(),
    )


def refuse_misfits(workflow: Workflow, capacity: Capacity) -> None:
    """A step that could never fit is an error before anything runs."""
    for step in (*workflow.steps, workflow.end):
        wanted = _misfit(step, capacity)
        if wanted:
            raise ResileError(
                "does-not-fit",
                f"step {step.name!r} can never run here: it asks for {wanted}",
                where=f"{workflow.file}:{step.origin.line}:{step.origin.column}",
                hint="ask for less, or say what this machine may use with --cpus, --memory, --gpus",
            )


def _misfit(step: Step, capacity: Capacity) -> str:
    """What a step asks for beyond this machine, in words."""
    resources = step.resources
    if resources is None:
        return ""
    if resources.cpus > capacity.cpus:
        return f"{resources.cpus:g} CPUs of {capacity.cpus:g}"
    if resources.memory_bytes > capacity.memory_bytes:
        return f"{resources.memory_bytes} bytes of memory of {capacity.memory_bytes}"
    if resources.gpus > capacity.gpus:
        return f"{resources.gpus} GPUs of {capacity.gpus}"
    return ""


def _cpus() -> float:
    """CPUs this process may use: its affinity, cut by the cgroup's quota."""
    allowed = float(len(os.sched_getaffinity(0)))
    quota = _words("/sys/fs/cgroup/cpu.max")
    if len(quota) == 2 and quota[0] != "max":
        return min(allowed, int(quota[0]) / int(quota[1]))
    share, period = _words("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), _words("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if share and period and int(share[0]) > 0:
        return min(allowed, int(share[0]) / int(period[0]))
    return allowed


def _memory_bytes() -> int:
    """Memory this process may use: the machine's, cut by the cgroup's limit."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        words = _words(path)
        if words and words[0] != "max" and int(words[0]) < _UNLIMITED:
            total = min(total, int(words[0]))
    return total


def _gpus() -> int:
    """GPUs, counted by their device files."""
    try:
        names = os.listdir("/dev")
    except OSError:
        return 0
    return sum(name.startswith("nvidia") and name[6:].isdigit() for name in names)


def _words(path: str) -> list[str]:
    """The words of a small system file, none where it does not exist."""
    try:
        with open(path) as file:
            return file.read().split()
    except OSError:
        return []
