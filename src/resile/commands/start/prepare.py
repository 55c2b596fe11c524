"""Turns a call into a run that can start: its workflow, its inputs, and the capacity of its engine.

    RunCall --load--> leave out steps --> inputs --> capacity --> items and secrets are there: Loaded, inputs, Capacity

All refusals happen here, before anything is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from resile.commands.load import Loaded, load, shown_secrets
from resile.engine.env_files import CREDENTIALS, environment_of
from resile.engine.resources import CALLS_AHEAD, measure, refuse_misfits
from resile.engine.run_executor import calls_functions
from resile.engine.secrets import has_own_surroundings, load_secrets, refuse_secret_inputs, values_to_hide
from resile.errors import ResileError, is_utf8
from resile.model import codec
from resile.model.nested import steps_with_inner_steps, steps_with_inner_workflows
from resile.model.workflow import Child, FanOut, Step, Workflow

if TYPE_CHECKING:
    from resile.commands.start.call import Given, ResourceLimits, RunCall
    from resile.core.events import Capacity
    from resile.core.state import State
    from resile.store.contract import Store


def prepare(call: RunCall, store: Store | None) -> tuple[Loaded, dict[str, Any], Capacity]:
    """The workflow that a call means, its inputs and the capacity of its engine; raises an error if it can't run."""
    if call.workflow is None:
        loaded = load(call.path, store, call.compile_options)
    else:
        loaded = Loaded(call.workflow, codec.encode(call.workflow), tuple(shown_secrets(call.workflow)))
    return prepare_loaded(call, loaded, store)


def prepare_loaded(
    call: RunCall, loaded: Loaded, store: Store | None, before: Mapping[str, Any] | None = None
) -> tuple[Loaded, dict[str, Any], Capacity]:
    """As `prepare`, of a workflow that is compiled already; inputs that are not given may have values `before`."""
    folder = call.directory or os.getcwd()
    if not is_utf8(folder):
        raise ResileError("encoding", f"the path of this folder, {folder!a}, is not UTF-8 text", hint="rename it")
    if b'"memory_auto":true' in loaded.definition:
        from resile.commands.resources.learned import with_learned_memory

        loaded = with_learned_memory(loaded, store)
    if call.choice and call.cached:
        message, hint = "--cached chooses the steps itself", "leave out --from, --only and --skip"
        raise ResileError("usage", message, hint=hint)
    if call.choice:
        from resile.commands.start.leave_out import leave_out

        loaded = msgspec.structs.replace(loaded, workflow=leave_out(loaded.workflow, call.choice), is_changed=True)
    if steps_with_inner_workflows((*loaded.workflow.steps, loaded.workflow.end)):
        loaded = _settle_isolation(loaded, folder)
    if call.executor is not None or loaded.workflow.executor is not None or loaded.workflow.cluster is not None:
        from resile.commands.start.on_cluster import place_on_cluster

        placed = place_on_cluster(loaded.workflow, call.executor, call.cluster_folder)
        if placed is not loaded.workflow:
            loaded = msgspec.structs.replace(loaded, workflow=placed, is_changed=True)
    workflow = loaded.workflow
    if not call.force:
        _refuse_missing(loaded)
    inputs = _read_inputs(workflow, call.inputs, before)
    if call.base is not None or workflow.dialect == "visor":
        from resile.commands.start.checkout import add_checkout

        inputs = add_checkout(workflow, inputs, folder, call.base)
    capacity = capacity_for(workflow, call.limits)
    _refuse_items(workflow, folder)
    if inputs or call.labels or CREDENTIALS in os.environ or has_own_surroundings(workflow):
        secrets = _secrets_of(workflow)
        refuse_secret_inputs(inputs, secrets)
        refuse_secret_inputs(call.labels, secrets, "label")
    return loaded, inputs, capacity


def _settle_isolation(loaded: Loaded, directory: str) -> Loaded:
    """The workflow with the isolation of its maps decided for this folder."""
    from resile.commands.start.isolation import settle_isolation

    settled, has_worktrees = settle_isolation(loaded.workflow, directory)
    if settled is loaded.workflow:
        return loaded
    # Items that run in place keep what they write.
    warnings = tuple(found for found in loaded.warnings if has_worktrees or found.code != "not-committed")
    return msgspec.structs.replace(loaded, workflow=settled, warnings=warnings, is_changed=True)


def _refuse_missing(loaded: Loaded) -> None:
    """Refuse a workflow whose input files or data are missing before anything runs."""
    missing = [finding for finding in loaded.warnings if finding.code in ("missing-file", "missing-data")]
    if missing:
        first = missing[0]
        count = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        hint = f"{first.hint}; `--force` runs it all the same"
        raise ResileError(first.code, first.message + count, where=first.where, hint=hint)


def inputs_for(state: State, given: Given) -> dict[str, Any]:
    """The inputs of a run, with those that a caller gives instead."""
    values = _read_inputs(state.workflow, given, state.inputs)
    if given:
        refuse_secret_inputs(values, _secrets_of(state.workflow))
    return values


def _read_inputs(workflow: Workflow, given: Given, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The inputs of a workflow; most have none, and get none."""
    if not (workflow.inputs or given):
        return {}
    from resile.commands.start.inputs import read_inputs

    return read_inputs(workflow, given, before)


def _secrets_of(workflow: Workflow) -> dict[str, str]:
    """The values to hide, from the caller's environment."""
    env = environment_of(workflow, os.environ)
    return values_to_hide(load_secrets(workflow, env), env)


def capacity_for(workflow: Workflow, limits: ResourceLimits) -> Capacity:
    """The capacity of the engine: as the caller says, else the file, else the machine.

    A workflow with a step that does not fit is refused.
    """
    asked = [limits.max_parallel, workflow.max_parallel]
    if workflow.executor is None:
        # On blocks their number is the limit.
        asked.append(limits.parallel_default)
    parallel = next((number for number in asked if number is not None), None)
    if workflow.executor is not None:
        from resile.commands.start.on_cluster import cluster_capacity

        return cluster_capacity(workflow, parallel)
    capacity = measure(parallel, limits.cpus, limits.memory_bytes, limits.gpus)
    if calls_functions(workflow):
        capacity = msgspec.structs.replace(capacity, ahead=CALLS_AHEAD)
    if parallel is None:
        # A fan-out that asks for more slots gets them, unless the caller or the file sets a limit.
        slots = max(capacity.parallel, *_item_slots(workflow.steps), 0)
        capacity = msgspec.structs.replace(capacity, parallel=slots)
    refuse_misfits(workflow, capacity)
    return capacity


def _item_slots(steps: Iterable[Step]) -> Iterator[int]:
    """How many items at a time the fan-outs among these steps ask for, including inner ones."""
    for step in steps_with_inner_steps(steps):
        if isinstance(step.action, FanOut):
            yield step.action.max_parallel or 0
            yield from _item_slots(step.action.steps)
        elif isinstance(step.action, Child):
            yield from _item_slots(step.action.workflow.steps)


def _refuse_items(workflow: Workflow, directory: str) -> None:
    """Check the items of maps without needs, which are read at once, before anything runs."""
    maps = steps_with_inner_steps(workflow.steps)
    targets = {arc.step for step in workflow.steps for arc in step.arcs} if maps else set()
    for step in maps:
        waits = step.needs or step.when is not None or step.called_only or step.name in targets
        if waits or not isinstance(step.action, FanOut):
            continue
        from resile.commands.files.check_maps import is_in_git
        from resile.engine.items.listing import check_input

        where = f"{workflow.file}:{step.origin.line}:{step.origin.column}"
        folder = os.path.join(directory, step.working_dir)
        problem = check_input(step.action.source, workflow.folder, folder)
        if problem:
            raise ResileError("input", f"the items of {step.name!r}: {problem}", where=where)
        if step.action.isolation == "worktree" and not is_in_git(folder):
            hint = "run it in one, or leave `isolation` out"
            message = "`isolation: worktree` needs a git repository"
            if workflow.dialect != "native":
                message, hint = (
                    "its items commit or run an agent, each in a worktree: that needs a git repository",
                    "`git init` makes one",
                )
            raise ResileError("isolation", message, where=where, hint=hint)
