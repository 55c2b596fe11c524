"""The shapes of blocks that a workflow describes itself: its schedulers, and its requests for allocations."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from msgspec.structs import replace

from resile.executors.parsl.pools import Kind, Shape
from resile.model.cluster import Allocation, Cluster, Scheduler
from resile.model.executor import ExecutorSettings
from resile.model.workflow import Step

# At most this part of a block's time is left for its steps to end.
GRACE_PART = 4


def options_of(scheduler: Scheduler) -> tuple[str, ...]:
    """The options of a scheduler for the batch system; the lines of `extra` come last, because later options count."""
    named = [f"--{name}={shlex.quote(value)}" if value else f"--{name}" for name, value in scheduler.options.items()]
    lines = (line.strip().removeprefix("#SBATCH").strip() for line in scheduler.extra.splitlines())
    return (*named, *filter(None, lines))


def with_scheduler(shape: Shape, settings: ExecutorSettings, cluster: Cluster, step: str) -> Shape:
    """The shape of an attempt in blocks that follow the work, with the scheduler that its step wants, if any."""
    name = cluster.wanted.get(step)
    if name is None or settings.provider != "slurm":
        return shape
    scheduler = cluster.schedulers[name]
    is_spread = cluster.nodes.get(step, 1) == 1
    kind = Kind(name, options_of(scheduler), scheduler.nodes, per_node=is_spread, parallel=0 if is_spread else 1)
    return replace(shape, walltime_seconds=max(shape.walltime_seconds, scheduler.walltime_seconds), kind=kind)


def shape_of_request(cluster: Cluster, allocation: Allocation, steps: Sequence[Step]) -> Shape:
    """The shape of the blocks of a request: each step that may run there fits into it."""
    scheduler = cluster.schedulers[allocation.scheduler]
    takes = [step for step in steps if cluster.may_take(allocation.scheduler, step.name)]
    asked = [step.resources for step in takes if step.resources is not None]
    # An attempt that uses several nodes uses them alone.
    is_alone = not allocation.worker_per_node and any(cluster.nodes.get(step.name, 1) > 1 for step in takes)
    kind = Kind(
        allocation.scheduler,
        options_of(scheduler),
        scheduler.nodes,
        per_node=allocation.worker_per_node,
        parallel=allocation.worker_parallel_max or int(is_alone),
        on_order=True,
    )
    return Shape(
        math.ceil(max((one.cpus for one in asked), default=1.0)),
        max((one.memory_bytes for one in asked), default=0),
        max((one.gpus for one in asked), default=0),
        scheduler.walltime_seconds,
        kind,
    )


def settings_of(settings: ExecutorSettings, shape: Shape) -> ExecutorSettings:
    """The settings of the pool for a shape: if its allocation is short, the grace is shorter too.

    `nodes_per_block` counts the nodes of a block that have a worker.
    """
    kind = shape.kind
    if kind is None:
        return settings
    grace = min(settings.grace_seconds, (shape.walltime_seconds or settings.walltime_seconds) / GRACE_PART)
    workers = kind.parallel or (1 if kind.on_order else settings.workers_per_node)
    nodes = kind.nodes if kind.per_node else 1
    return replace(settings, grace_seconds=grace, nodes_per_block=nodes, workers_per_node=workers)
