"""What a workflow says about a cluster: where its jobs want to run, and when machines are to be asked for.

    Scheduler    one kind of allocation: options for the batch system, nodes, time
    Allocation   when so many of them are asked for, and how workers are put on their nodes
    Cluster      all of that, and which step wants which scheduler

A run on one machine does not need any of it; an executor for clusters reads it from the stored definition.
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
    """One kind of allocation; `options` are long options of the batch system, `extra` is handed over as it stands."""

    walltime_seconds: float
    nodes: int = 1
    options: dict[str, str] = {}
    extra: str = ""


class Allocation(Struct, frozen=True, omit_defaults=True):
    """Ask a scheduler for machines when something happens to these steps, or to the run where there are none."""

    scheduler: str
    trigger: Trigger
    steps: tuple[str, ...] = ()
    count: int = 1
    worker_per_node: bool = False
    worker_parallel_max: int | None = None
    persistent: bool = False


class Workers(Struct, frozen=True, omit_defaults=True):
    """How long the workers of an allocation stay, and what for."""

    expiration_buffer_seconds: int = 60
    idle_seconds_max: int = 90
    ignore_completion: bool = False
    database_minutes_max: int = 20


class Cluster(Struct, frozen=True, omit_defaults=True):
    """Schedulers by name, when they are asked, which step wants which, and steps that want more than one node."""

    schedulers: dict[str, Scheduler] = {}
    allocations: tuple[Allocation, ...] = ()
    wanted: dict[str, str] = {}
    nodes: dict[str, int] = {}
    workers: Workers = Workers()
