"""A workflow whose attempts run on blocks of nodes: who says so, whether it can be done here, and how many at once."""

from __future__ import annotations

import os
import re

from msgspec.structs import replace

from resile.core.events import Capacity
from resile.engine.resources import AHEAD, CPUS_MAX, GPUS_MAX, MEMORY_BYTES_MAX
from resile.errors import ResileError
from resile.executors.contract import Share
from resile.executors.parsl.pools import Shape, shape_of
from resile.model.executor import POOLS_MAX, ExecutorSettings
from resile.model.nested import steps_of, workflows_within
from resile.model.workflow import Workflow

_COMMANDS = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub"}
_PLAIN_PATH = re.compile(r"[\w/.+,@:=%~-]+")
INSTALL = "pip install 'resile[cluster]'"


def place_on_cluster(workflow: Workflow, path: str | None) -> Workflow:
    """The workflow with the executor of a file, or its own; refused where it can't run."""
    settings = workflow.executor
    if path is not None:
        from resile.dialects.executor_file import read_executor_file

        settings = read_executor_file(path)
    assert settings is not None
    settings = replace(settings, directory=os.path.abspath(os.path.expanduser(settings.directory)))
    _refuse_directory(settings)
    _refuse_missing(settings)
    workflow = replace(workflow, executor=settings)
    shapes = shapes_of(workflow)
    _refuse_requests(settings, shapes)
    if len(shapes) > POOLS_MAX:
        named = "; ".join(f"{shape} ({', '.join(steps[:3])})" for shape, steps in shapes.items())
        raise ResileError(
            "too-many-shapes",
            f"the steps ask for {len(shapes)} different shapes of nodes, at most {POOLS_MAX} are possible: {named}",
            hint="let more steps have the same `resources`",
        )
    return workflow


def _refuse_directory(settings: ExecutorSettings) -> None:
    """Refuse a path that the scripts of batch systems can't have: a shell reads some of them twice."""
    if settings.provider != "local" and not _PLAIN_PATH.fullmatch(settings.directory):
        message = f"`directory` is {settings.directory!r}: the script of a block can't have such a path"
        raise ResileError("value", message, hint="let it have letters, digits and / . _ - + , @ : = % ~ only")


def _refuse_requests(settings: ExecutorSettings, shapes: dict[Shape, list[str]]) -> None:
    """Refuse what blocks of a batch system can't be asked for."""
    if settings.provider not in ("pbs", "lsf"):
        return
    named = [f"{shape} ({', '.join(steps[:3])})" for shape, steps in shapes.items() if shape.memory_bytes or shape.gpus]
    if named:
        message = f'`provider = "{settings.provider}"` asks for no memory and no GPUs: {"; ".join(named)}'
        raise ResileError("value", message, hint="remove `memory` and `gpus`, and choose a queue that has them")


def _refuse_missing(settings: ExecutorSettings) -> None:
    """Refuse what this machine lacks: Parsl, or the commands of the batch system."""
    import shutil
    from importlib.util import find_spec

    if find_spec("parsl") is None:
        message = "`--executor` needs Parsl, which is not installed"
        raise ResileError("not-installed", message, hint=f"install it with: {INSTALL}")
    command = _COMMANDS.get(settings.provider)
    if command is not None and shutil.which(command) is None:
        message = f'`provider = "{settings.provider}"` needs the command `{command}`, which is not installed here'
        raise ResileError("not-installed", message, hint="start the run where jobs can be submitted: a login node")


def shapes_of(workflow: Workflow) -> dict[Shape, list[str]]:
    """The shapes that the steps of a workflow ask for, and the steps."""
    assert workflow.executor is not None
    found: dict[Shape, list[str]] = {}
    for flow in workflows_within(workflow):
        for step in steps_of(flow):
            asked = step.resources
            share = Share() if asked is None else Share(asked.cpus, asked.memory_bytes, asked.gpus)
            limit = step.timeout_seconds or (asked.runtime_seconds if asked is not None else None) or 0.0
            found.setdefault(shape_of(workflow.executor, share, limit), []).append(step.name)
    return found


def cluster_capacity(workflow: Workflow, parallel: int | None) -> Capacity:
    """The capacity of an engine whose attempts run elsewhere: all blocks, for each shape."""
    assert workflow.executor is not None
    slots = workflow.executor.slots * len(shapes_of(workflow))
    return Capacity(
        parallel=slots if parallel is None else parallel,
        ahead=AHEAD,
        early=0,
        cpus=CPUS_MAX,
        memory_bytes=MEMORY_BYTES_MAX,
        gpus=GPUS_MAX,
    )
