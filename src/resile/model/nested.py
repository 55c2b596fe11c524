"""Steps and workflows inside others: child workflows, steps of items, repairs.

Most steps have no inner steps, and a workflow may have very many steps: two functions select those that do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from resile.model.workflow import Child, FanOut, Step, Workflow

_WITH_INNER_STEPS = frozenset((FanOut, Child))


def steps_with_inner_steps(steps: Iterable[Step]) -> list[Step]:
    """The steps that run other steps in their place: for items, or as a child workflow."""
    return [step for step in steps if type(step.action) in _WITH_INNER_STEPS]


def steps_with_inner_workflows(steps: Iterable[Step]) -> list[Step]:
    """The steps that may contain a workflow: as their action, in a rule's repair, or in `on_success`."""
    return [step for step in steps if step.rules or step.on_success or type(step.action) in _WITH_INNER_STEPS]


def steps_of(workflow: Workflow) -> Iterator[Step]:
    """The steps of a workflow, `end` and the steps of fan-outs included, without those of child workflows."""
    yield from _with_items((*workflow.steps, workflow.end))


def _with_items(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps, each fan-out followed by the steps that run for its items."""
    for step in steps:
        yield step
        if type(step.action) is FanOut:
            yield from _with_items(step.action.steps)


def steps_within(steps: Iterable[Step]) -> Iterator[Step]:
    """These steps and all steps inside them: of items, child workflows, repairs and `on_success`."""
    work = list(steps)
    while work:
        step = work.pop()
        yield step
        if isinstance(step.action, FanOut):
            work += step.action.steps
        elif isinstance(step.action, Child):
            work += step.action.workflow.steps
        work += handler_steps(step)


def workflows_within(workflow: Workflow) -> Iterator[Workflow]:
    """A workflow and all workflows inside it, each once."""
    seen: set[int] = set()
    found = [workflow]
    while found:
        one = found.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        found += _children([*one.steps, one.end])


def _children(work: list[Step]) -> Iterator[Workflow]:
    """The workflows that these steps run, at any depth of fan-outs and repairs."""
    while work:
        found, work = steps_with_inner_workflows(work), []
        for step in found:
            if isinstance(step.action, FanOut):
                work += step.action.steps
            elif isinstance(step.action, Child):
                yield step.action.workflow
            work += handler_steps(step)


def handler_steps(step: Step) -> Iterator[Step]:
    """The steps that repair a step's failures or follow its success."""
    for rule in step.rules:
        yield from rule.repair.steps if rule.repair is not None else ()
    yield from step.on_success.steps if step.on_success is not None else ()
