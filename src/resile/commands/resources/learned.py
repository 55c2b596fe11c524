"""`resources: {memory: auto}`: a step requests the memory that it needed in earlier runs of the same workflow.

Only attempts that passed count, or all if none passed. The request is the one that `resile resources` would suggest. In
the first run the step requests no memory, because there is nothing to learn from.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from resile.commands.load import Loaded
from resile.commands.resources.usage import path_of, percentile, suggested_bytes
from resile.model.nested import path_part
from resile.model.workflow import Child, FanOut, Step, Workflow
from resile.store.contract import RunRow, Store

# How many earlier runs count, and among how many of the newest runs of all workflows to search for them.
RUNS_MAX = 10
RUNS_SEARCHED = 1_000


def with_learned_memory(loaded: Loaded, store: Store | None) -> Loaded:
    """The workflow, with requests for the memory that its steps needed before."""
    needed = _peaks_of_steps(store, loaded.workflow.name) if store is not None else {}
    learned: dict[str, int] = {}
    workflow = _learn(loaded.workflow, "", needed, learned)
    if not learned:
        return loaded
    return replace(loaded, workflow=workflow, is_changed=True, learned=learned)


def _peaks_of_steps(store: Store, workflow: str) -> dict[str, int]:
    """The memory within which 95 % of the attempts of each step stayed, in the last runs of a workflow."""
    passed: dict[str, list[int]] = {}
    failed: dict[str, list[int]] = {}
    for row in islice(_earlier_runs(store, workflow), RUNS_MAX):
        names = {job.id: path_of(job.scope, job.step) for job in store.jobs(row.id)}
        for tried in store.attempts(row.id):
            if tried.usage.rss_bytes_max and tried.job in names:
                peaks = passed if tried.failure is None else failed
                peaks.setdefault(names[tried.job], []).append(tried.usage.rss_bytes_max)
    return {name: percentile(sorted(peaks), 95) for name, peaks in {**failed, **passed}.items()}


def _earlier_runs(store: Store, workflow: str) -> Iterator[RunRow]:
    return (row for row in store.runs(RUNS_SEARCHED) if row.workflow == workflow)


def _learn(workflow: Workflow, prefix: str, needed: dict[str, int], learned: dict[str, int]) -> Workflow:
    """The workflow with the requests that were learned; adds them to `learned`."""
    steps = tuple(_learn_step(step, prefix, needed, learned) for step in workflow.steps)
    return replace(workflow, steps=steps, end=_learn_step(workflow.end, prefix, needed, learned))


def _learn_step(step: Step, prefix: str, needed: dict[str, int], learned: dict[str, int]) -> Step:
    """A step with the learned request, and with those of its inner steps."""
    name = prefix + (path_part(step.name) if prefix else step.name)
    inside = f"{prefix}{path_part(step.name)}/"
    if isinstance(step.action, FanOut):
        inner = tuple(_learn_step(one, inside, needed, learned) for one in step.action.steps)
        step = replace(step, action=replace(step.action, steps=inner))
    elif isinstance(step.action, Child):
        step = replace(
            step, action=replace(step.action, workflow=_learn(step.action.workflow, inside, needed, learned))
        )
    if step.resources is None or not step.resources.memory_auto or name not in needed:
        return step
    learned[name] = suggested_bytes(needed[name])
    return replace(step, resources=replace(step.resources, memory_bytes=learned[name]))
