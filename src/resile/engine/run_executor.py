"""The executor of a run: local processes or blocks of nodes, and Python functions beside them if it calls any."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from resile.core.state import State
from resile.engine.paths import claim_folders, epoch_folder, label
from resile.engine.secrets import Hidden, encode_environment
from resile.executors.contract import Executor, Scheduling
from resile.executors.fence import Fence
from resile.executors.local.executor import LocalExecutor
from resile.model.nested import steps_of, workflows_within
from resile.model.workflow import Function, Workflow
from resile.store.contract import RunRow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from typing import TypedDict

    from resile.engine.monitoring.sampler import Monitor
    from resile.executors.local.prestart import Prestarted
    from resile.executors.shared.hub import Hub

    class _Settings(TypedDict):
        """What the executors of commands have in common."""

        label: str
        base_env: dict[bytes, bytes]
        directory: bytes
        fence: Fence
        secrets: Sequence[bytes]
        clock_offset: float


class Hosting(Struct, frozen=True):
    """How a host drives a run: on slots of its hub, which go to runs by priority.

    A run that is new has no attempts yet, and an empty folder.
    """

    hub: Hub
    priority: int
    is_new: bool


def open_fence(
    state: State,
    row: RunRow,
    epoch: int,
    identity: str,
    number: int,
    confirm: Callable[[], None],
    hosting: Hosting | None,
) -> Fence:
    """The fence of the engine that has the lease with this number; `confirm` renews the lease.

    Raises ResileError if another user could write to the run's folders, or a newer engine drives the run.
    """
    claim_folders(row.output, row.id, epoch, identity)
    # The launcher of a server looks at fences by name; workers of functions and launchers of earlier engines do not.
    # Nodes may not see the server's folder.
    is_own = state.workflow.executor is not None or calls_functions(state.workflow)
    is_shared = hosting is not None and hosting.is_new and not is_own
    shared = hosting.hub.fence if hosting is not None and is_shared else ""
    return Fence(epoch_folder(row.output, row.id, epoch), number, confirm, shared=shared)


def make_executor(
    state: State,
    row: RunRow,
    folder: str,
    parallel: int,
    epoch: int,
    identity: str,
    env: Mapping[str, str],
    own: Mapping[str, str],
    hidden: Hidden,
    launcher: Prestarted | None,
    clock_offset: float,
    fence: Fence,
    hosting: Hosting | None = None,
) -> Executor:
    """The executor of commands, combined with that of functions if the workflow calls any.

    Steps get the environment `env`, and the variables `own` that the run adds.
    """
    settings: _Settings = {
        "label": label(identity, row.id, epoch),
        "base_env": encode_environment(env, own),
        "directory": os.fsencode(row.directory),
        "fence": fence,
        "secrets": hidden.listed,
        "clock_offset": clock_offset,
    }
    commands: Executor
    if state.workflow.executor is not None:
        from resile.executors.parsl.on_order.executor import open_blocks

        flow, run_keys = state.workflow, {"run": row.id, "parallel": parallel, "is_hosted": hosting is not None}
        chosen = state.workflow.executor
        commands = open_blocks(
            folder, chosen, flow.cluster, flow.steps, sample_seconds=flow.monitor_seconds, **run_keys, **settings
        )
    elif hosting is not None:
        from resile.executors.shared.open_view import open_view

        run_keys = {"run": row.id, "epoch": epoch, "priority": hosting.priority, "parallel": parallel}
        commands = open_view(hosting.hub, folder, is_new=hosting.is_new, **run_keys, **settings)
    else:
        commands = LocalExecutor(folder, slots=parallel, launcher=launcher, **settings)
    if not calls_functions(state.workflow):
        return commands
    return _with_functions(commands, state, row, folder, parallel, epoch, {**env, **own}, clock_offset, fence)


def _with_functions(
    commands: Executor,
    state: State,
    row: RunRow,
    folder: str,
    parallel: int,
    epoch: int,
    env: Mapping[str, str],
    clock_offset: float,
    fence: Fence,
) -> Executor:
    """The executor of commands together with one of functions."""
    import sys

    from resile.engine.actions.function import home_of
    from resile.executors.functions.executor import FunctionExecutor
    from resile.executors.split import Composite

    # Add the directory the run was started in: `python -m` resolved the workflow's module from there.
    path = [*sys.path, state.workflow.folder, row.directory]
    functions = FunctionExecutor(
        folder,
        slots=parallel,
        path=path,
        env=env,
        run=row.id,
        epoch=epoch,
        home=home_of(state.workflow),
        directory=row.directory,
        fence=fence,
        clock_offset=clock_offset,
    )

    def is_call(number: int) -> bool:
        """Does this job call a function?"""
        job = state.jobs.get(number)
        return job is not None and isinstance(state.step_of(job).action, Function)

    return Composite(commands, functions, is_call)


def calls_functions(workflow: Workflow) -> bool:
    """Does a step call a Python function, here or in a workflow or a fan-out inside this one?"""
    return any(type(step.action) is Function for flow in workflows_within(workflow) for step in steps_of(flow))


def scheduling_of(state: State, executor: Executor) -> Scheduling | None:
    """The part of an executor that keeps the blocks which the core orders; None if the core orders none."""
    if state.workflow.executor is None or not state.workflow.executor.on_order:
        return None
    from resile.executors.parsl.on_order.executor import OrderedExecutor

    commands = _commands_of(executor)
    return commands if isinstance(commands, OrderedExecutor) else None


def closing_of(state: State, executor: Executor) -> Future[None] | None:
    """A future that is done when the blocks of a closed executor have ended; None if it has no blocks."""
    if state.workflow.executor is None:
        return None
    from resile.executors.parsl.executor import ParslExecutor

    commands = _commands_of(executor)
    return commands.closing if isinstance(commands, ParslExecutor) else None


def _commands_of(executor: Executor) -> Executor:
    """The executor of commands."""
    from resile.executors.split import Composite

    return executor.commands if isinstance(executor, Composite) else executor


def open_monitor(state: State, folder: str, executor: Executor) -> Monitor | None:
    """The monitor of an engine's attempts on this machine; None if the file asks for no samples."""
    if not state.workflow.monitor_seconds:
        return None
    from resile.engine.monitoring.sampler import Monitor
    from resile.executors.shared.view import RunView

    commands = _commands_of(executor)

    def is_here(number: int, attempt: int) -> bool:
        """Does this attempt run on this machine, and not on a node of a cluster or at a worker?"""
        job = state.jobs.get(number)
        if job is not None and isinstance(state.step_of(job).action, Function):
            return True
        if isinstance(commands, RunView):
            return commands.is_on_launcher(number, attempt)
        return state.workflow.executor is None

    return Monitor(folder, state.workflow.monitor_seconds, is_here)
