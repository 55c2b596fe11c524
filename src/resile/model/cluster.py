"""Cluster settings of a workflow: which scheduler each job uses, and when to request allocations.

    Scheduler    one kind of allocation: options for the batch system, nodes, time
    Allocation   when and how many of them to request, and how to place workers on their nodes
    Cluster      all of that, and the scheduler of each step

The stored definition keeps them. No executor reads them: `check` says that the jobs start on this machine.
"""

from typing import Literal

from msgspec import Struct

Trigger = Literal[
    "on_workflow_start",
    "on_workflow_complete",
    "on_jobs_ready",
    "on_jobs_complete",
    "on_worker_start",
    "on_worker_complete",
]


class Scheduler(Struct, frozen=True, omit_defaults=True):
    """One kind of allocation; `options` are long options of the batch system, `extra` is passed on unchanged."""

    walltime_seconds: float
    nodes: int = 1
    options: dict[str, str] = {}
    extra: str = ""


class Allocation(Struct, frozen=True, omit_defaults=True):
    """Request allocations on a trigger of these steps, or of the run where there are none."""

    scheduler: str
    trigger: Trigger
    steps: tuple[str, ...] = ()
    count: int = 1
    worker_per_node: bool = False
    worker_parallel_max: int | None = None
    persistent: bool = False


class Workers(Struct, frozen=True, omit_defaults=True):
    """When the workers of an allocation exit."""

    expiration_buffer_seconds: int = 60
    idle_seconds_max: int = 90
    ignore_completion: bool = False
    database_minutes_max: int = 20


class Cluster(Struct, frozen=True, omit_defaults=True):
    """Schedulers by name, their allocations, the scheduler that each step wants, and steps that need several nodes."""

    schedulers: dict[str, Scheduler] = {}
    allocations: tuple[Allocation, ...] = ()
    wanted: dict[str, str] = {}
    nodes: dict[str, int] = {}
    workers: Workers = Workers()
