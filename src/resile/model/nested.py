"""A workflow and all that run inside it: child workflows, in items and answers to failures too.

Most steps hold no others, and there may be very many: `hosts` and `holders` pick those that do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from resile.model.fanout import FanOut
from resile.model.workflow import Child, Step, Workflow

_HOSTS = frozenset((FanOut, Child))


def hosts(steps: Iterable[Step]) -> list[Step]:
    """Those that run other steps in their place: for items, or as another workflow."""
    return [step for step in steps if type(step.action) in _HOSTS]


def holders(steps: Iterable[Step]) -> list[Step]:
    """Those that hold other steps: in their place, as answers to their failures, or to follow their success."""
    return [step for step in steps if step.rules or step.on_success or type(step.action) in _HOSTS]


def family(workflow: Workflow) -> Iterator[Workflow]:
    """A workflow and all that run inside it, each once."""
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
    """The workflows that some steps run, whatever is around them."""
    while work:
        found, work = holders(work), []
        for step in found:
            if isinstance(step.action, FanOut):
                work += step.action.steps
            elif isinstance(step.action, Child):
                yield step.action.workflow
            work += _answers(step)


def _answers(step: Step) -> Iterator[Step]:
    """The steps that answer a step's failures or follow its success."""
    for rule in step.rules:
        yield from rule.repair.steps if rule.repair is not None else ()
    yield from step.on_success.steps if step.on_success is not None else ()
