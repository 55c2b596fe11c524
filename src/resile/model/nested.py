"""Steps and workflows inside others: child workflows, steps of items, repairs.

Most steps have no inner steps, and a workflow may have very many steps: two functions select those that do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from resile.model.workflow import Child, FanOut, Step, Workflow

_WITH_INNER_STEPS = frozenset((FanOut, Child))

_JOBS_MAX = 2**32


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


def path_part(name: str) -> str:
    """A name as a part of a path such as `outer[3]/inner`: marks of a path are escaped, so no two paths are equal."""
    if "/" not in name and "[" not in name and "\\" not in name:
        return name
    return name.replace("\\", "\\\\").replace("/", "\\/").replace("[", "\\[")


def in_item(scope: str) -> bool:
    """Does a scope of this name belong to an item?"""
    marks = scope.replace("\\\\", "").replace("\\[", "") if "\\" in scope else scope
    return any(part.partition("]")[0].isdigit() for part in marks.split("[")[1:])


def step_name(scope: str, step: str) -> str:
    """The step's name, after its scope unless that is the run itself: `test`, `process[3]/test`, `inner/test`.

    Commands of a handler that have no name are named after their key (`on_failure-1`), so the scope's own key is left
    out: `test/on_failure-1`.
    """
    if scope in ("", "root"):
        return step
    owner, _, key = scope.rpartition(".")
    return f"{owner}/{step}" if step.startswith(f"{key}-") else f"{scope}/{path_part(step)}"


def names_of(scope: str, step: str) -> tuple[str, ...]:
    """Every name by which a call may mean a step: the bare one, the full one, and the full one with or without keys."""
    if scope in ("", "root"):
        return (step,)
    return step, step_name(scope, step), f"{scope}/{step}", f"{scope.rpartition('.')[0]}/{step}"


def job_key(run: int, job: int) -> int:
    """The number of a job of a run among the jobs of all runs, for interfaces that know jobs by one number."""
    return run * _JOBS_MAX + job


def split_job_key(key: int) -> tuple[int, int]:
    """The run and the job that such a number means."""
    return divmod(key, _JOBS_MAX)
