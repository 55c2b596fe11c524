"""The names of fan-outs and of their items, and the definition of a fan-out.

outer[3]/inner[0]    an item       outer[3]/inner    its fan-out among all of a run
outer/inner          the map that all such fan-outs come from

In such a path the marks `/` and `[` of a step's own name are escaped, so that two fan-outs never have one name.
"""

from __future__ import annotations

from resile.core.state import Job, State
from resile.model.items import Item
from resile.model.nested import path_part
from resile.model.workflow import FanOut


def fan_action(state: State, job: Job) -> FanOut:
    """The definition of a job's fan-out."""
    action = state.step_of(job).action
    assert isinstance(action, FanOut)
    return action


def item_id(state: State, job: Job, item: Item) -> str:
    """The name of an item among all of a run: the same in every retry."""
    return f"{fan_name(state, job)}[{item.index}]"


def fan_name(state: State, job: Job) -> str:
    """The name of a fan-out among all of a run, such as `outer[3]/inner`."""
    scope = state.scopes[job.scope]
    return f"{scope.name}/{short_name(state, job)}" if scope.owner else short_name(state, job)


def map_name(state: State, job: Job) -> str:
    """The name of a fan-out without the item indexes around it: `outer/inner`."""
    parts = [short_name(state, job)]
    scope = state.scopes[job.scope]
    while scope.owner:
        owner = state.jobs[scope.owner]
        outer = state.scopes[owner.scope]
        own = scope.name.removeprefix(f"{outer.name}/") if outer.owner else scope.name
        parts.insert(0, short_name(state, owner) if scope.kind == "item" else own)
        scope = outer
    return "/".join(parts)


def short_name(state: State, job: Job) -> str:
    """The name of a fan-out within its own scope."""
    return part_name(state, fan_action(state, job).scope or state.step_of(job).name)


def part_name(state: State, name: str) -> str:
    """A step's name as a part of a path; the first edition escaped nothing."""
    return name if state.workflow.edition == 1 else path_part(name)
