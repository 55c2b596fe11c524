"""Decides whether attempts run on blocks of nodes, refuses workflows that can't, and computes the capacity."""

from __future__ import annotations

import os
import re

from msgspec.structs import replace

from resile.core.events import Capacity
from resile.engine.resources import AHEAD, CPUS_MAX, GPUS_MAX, MEMORY_BYTES_MAX
from resile.errors import ResileError
from resile.executors.contract import Share
from resile.executors.parsl.on_order.shapes import shape_of_request, with_scheduler
from resile.executors.parsl.pools import Shape, shape_of
from resile.model.executor import POOLS_MAX, ExecutorSettings
from resile.model.nested import steps_of, workflows_within
from resile.model.workflow import Workflow

_COMMANDS = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub"}
_PLAIN_PATH = re.compile(r"[\w/.+,@:=%~-]+")
# The word for `--executor`: on this machine.
LOCAL = "local"
INSTALL = "pip install 'resile[cluster]'"


def place_on_cluster(workflow: Workflow, path: str | None, folder: str | None = None) -> Workflow:
    """The workflow with the executor of a file, its own, or Slurm; refused if it can't run.

    A workflow that schedules nodes itself runs on Slurm if that is here and there is a `folder` for output.
    """
    settings = None if path == LOCAL else workflow.executor
    if path not in (None, LOCAL):
        from resile.dialects.executor_file import read_executor_file

        settings = read_executor_file(path)
    elif path is None and settings is None and folder is not None:
        settings = _slurm_settings(workflow, folder)
    if settings is None:
        return workflow if workflow.executor is None else replace(workflow, executor=None)
    directory = os.path.abspath(os.path.expanduser(settings.directory))
    settings = replace(settings, directory=directory, on_order=_comes_on_order(workflow, settings))
    _refuse_directory(settings)
    _refuse_missing(settings)
    workflow = replace(workflow, executor=settings)
    shapes = shapes_of(workflow)
    _refuse_requests(settings, shapes)
    _refuse_nodes(workflow, settings)
    _refuse_labels(workflow)
    if len(shapes) > POOLS_MAX:
        named = "; ".join(f"{shape} ({', '.join(steps[:3])})" for shape, steps in shapes.items())
        raise ResileError(
            "too-many-shapes",
            f"the steps ask for {len(shapes)} different shapes of nodes, at most {POOLS_MAX} are possible: {named}",
            hint="let more steps have the same `resources`",
        )
    return workflow


def _comes_on_order(workflow: Workflow, settings: ExecutorSettings) -> bool:
    """Do blocks come when actions schedule them? Other batch systems than Slurm have no such schedulers."""
    return (
        settings.provider in ("slurm", "local") and workflow.cluster is not None and bool(workflow.cluster.allocations)
    )


def _slurm_settings(workflow: Workflow, folder: str) -> ExecutorSettings | None:
    """The settings of a workflow that schedules nodes itself; None if this machine has no Slurm.

    If Slurm is here but can't be used, refuse: the jobs must not start on a login node by mistake.
    """
    import shutil
    from importlib.util import find_spec

    from resile.executors.parsl import slurm

    cluster = workflow.cluster
    if cluster is None or not cluster.allocations or shutil.which("sbatch") is None or not slurm.is_there():
        return None
    answer = slurm.ping()
    if not answer:
        return None
    hint = f"`--executor {LOCAL}` starts the jobs on this machine"
    if "UP" not in answer:
        message = f"the file schedules nodes of Slurm, which is down: {answer}"
        raise ResileError("slurm-failed", message, hint=f"try again later, or {hint}")
    if find_spec("parsl") is None:
        message = "the file schedules nodes of Slurm: that needs Parsl, which is not installed"
        raise ResileError("not-installed", message, hint=f"install it with: {INSTALL}; or {hint}")
    workers = cluster.workers
    return ExecutorSettings(
        folder,
        "slurm",
        idle_seconds=float(workers.idle_seconds_max),
        grace_seconds=float(workers.expiration_buffer_seconds),
    )


def _refuse_directory(settings: ExecutorSettings) -> None:
    """Refuse a path that can't be in the scripts of batch systems, because a shell parses some of them twice."""
    if settings.provider != "local" and not _PLAIN_PATH.fullmatch(settings.directory):
        message = f"`directory` is {settings.directory!r}: the script of a block can't have such a path"
        raise ResileError("value", message, hint="let it have letters, digits and / . _ - + , @ : = % ~ only")


def _refuse_requests(settings: ExecutorSettings, shapes: dict[Shape, list[str]]) -> None:
    """Refuse requests that a batch system can't give a block."""
    if settings.provider not in ("pbs", "lsf"):
        return
    named = [f"{shape} ({', '.join(steps[:3])})" for shape, steps in shapes.items() if shape.memory_bytes or shape.gpus]
    if named:
        message = f'`provider = "{settings.provider}"` asks for no memory and no GPUs: {"; ".join(named)}'
        raise ResileError("value", message, hint="remove `memory` and `gpus`, and choose a queue that has them")


def _refuse_nodes(workflow: Workflow, settings: ExecutorSettings) -> None:
    """Refuse steps that use several nodes if the batch system gives no such blocks."""
    if settings.provider == "slurm":
        return
    for flow in workflows_within(workflow):
        for step in steps_of(flow):
            if step.resources is not None and step.resources.nodes > 1:
                message = f'step {step.name!r} uses {step.resources.nodes} nodes: only `provider = "slurm"` has them'
                where = f"{flow.file}:{step.origin.line}:{step.origin.column}"
                raise ResileError("value", message, where=where, hint="remove `nodes` from its `resources`")


def _refuse_labels(workflow: Workflow) -> None:
    """Refuse steps that wait for a worker of a server: blocks have no labels."""
    for flow in workflows_within(workflow):
        for step in steps_of(flow):
            if step.runs_on:
                message = f"step {step.name!r} runs on a worker of a server, and this run has an `executor` of its own"
                where = f"{flow.file}:{step.origin.line}:{step.origin.column}"
                raise ResileError("value", message, where=where, hint="remove `runs_on`, or the executor")


def _refuse_missing(settings: ExecutorSettings) -> None:
    """Refuse what this machine lacks: Parsl, or the commands of the batch system."""
    import shutil
    from importlib.util import find_spec

    if find_spec("parsl") is None:
        message = "steps run on blocks of nodes through Parsl, which is not installed"
        raise ResileError("not-installed", message, hint=f"install it with: {INSTALL}")
    command = _COMMANDS.get(settings.provider)
    if command is not None and shutil.which(command) is None:
        message = f'`provider = "{settings.provider}"` needs the command `{command}`, which is not installed here'
        raise ResileError("not-installed", message, hint="start the run where jobs can be submitted: a login node")


def shapes_of(workflow: Workflow) -> dict[Shape, list[str]]:
    """The shapes that the steps of a workflow ask for, and the steps; or those of its requests, and the schedulers."""
    settings, cluster = workflow.executor, workflow.cluster
    assert settings is not None
    found: dict[Shape, list[str]] = {}
    if settings.on_order and cluster is not None:
        for one in cluster.allocations:
            found.setdefault(shape_of_request(cluster, one, workflow.steps), []).append(one.scheduler)
        return found
    for flow in workflows_within(workflow):
        for step in steps_of(flow):
            asked = step.resources
            share = Share() if asked is None else Share(asked.cpus, asked.memory_bytes, asked.gpus, asked.nodes)
            limit = step.timeout_seconds or (asked.runtime_seconds if asked is not None else None) or 0.0
            shape = shape_of(settings, share, limit)
            if cluster is not None:
                shape = with_scheduler(shape, settings, cluster, step.name)
            found.setdefault(shape, []).append(step.name)
    return found


def cluster_capacity(workflow: Workflow, parallel: int | None) -> Capacity:
    """The capacity of an engine whose attempts run elsewhere: all blocks, for each shape.

    If blocks come on order, all steps may wait for blocks at the same time, because blocks come at different times.
    """
    assert workflow.executor is not None
    slots = workflow.executor.slots * len(shapes_of(workflow))
    if workflow.executor.on_order:
        slots = len(workflow.steps) + 1
    return Capacity(
        parallel=slots if parallel is None else parallel,
        ahead=AHEAD,
        early=0,
        cpus=CPUS_MAX,
        memory_bytes=MEMORY_BYTES_MAX,
        gpus=GPUS_MAX,
    )
