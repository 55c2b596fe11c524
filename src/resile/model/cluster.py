"""Cluster settings of a workflow: which scheduler each job uses, and when to request allocations.

    Scheduler    one kind of allocation: options for the batch system, nodes, time
    Allocation   when and how many of them to request, and how to place workers on their nodes
    Cluster      all of that, and the scheduler of each step

The core decides when to request allocations, and the executor of blocks submits them. A run on one machine uses none
of it.
"""

from typing import Literal

from msgspec import Struct

AUTO = "auto_schedule_on_ready_jobs"
Trigger = Literal[
    "on_workflow_start",
    "on_workflow_complete",
    "on_jobs_ready",
    "on_jobs_complete",
    "on_worker_start",
    "on_worker_complete",
    "auto_schedule_on_ready_jobs",
]


class Scheduler(Struct, frozen=True, omit_defaults=True):
    """One kind of allocation; `options` are long options of the batch system, `extra` is passed on unchanged."""

    walltime_seconds: float
    nodes: int = 1
    options: dict[str, str] = {}
    extra: str = ""


class Allocation(Struct, frozen=True, omit_defaults=True):
    """Request `count` allocations on a trigger, which is about `steps`, or about the whole run if there are none.

    An allocation has one worker, or with `worker_per_node` one on each node; a worker runs at most
    `worker_parallel_max` steps at once. A `persistent` request is made each time that its trigger holds, any other
    only the first time.
    """

    scheduler: str
    trigger: Trigger
    steps: tuple[str, ...] = ()
    count: int = 1
    worker_per_node: bool = False
    worker_parallel_max: int | None = None
    persistent: bool = False


class Workers(Struct, frozen=True, omit_defaults=True):
    """When the workers of an allocation exit: these seconds before its end, or after these seconds without work."""

    expiration_buffer_seconds: int = 60
    idle_seconds_max: int = 90


class Cluster(Struct, frozen=True, omit_defaults=True):
    """Schedulers by name, their allocations, the scheduler that each step wants, and steps that need several nodes."""

    schedulers: dict[str, Scheduler] = {}
    allocations: tuple[Allocation, ...] = ()
    wanted: dict[str, str] = {}
    nodes: dict[str, int] = {}
    workers: Workers = Workers()

    def may_take(self, scheduler: str, step: str) -> bool:
        """May a step run in the allocations of a scheduler? One that wants another, or more nodes, may not."""
        return (
            self.wanted.get(step, scheduler) == scheduler
            and self.nodes.get(step, 1) <= self.schedulers[scheduler].nodes
        )
