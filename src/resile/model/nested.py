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
        found += _inner_workflows([*one.steps, one.end])


def _inner_workflows(work: list[Step]) -> Iterator[Workflow]:
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
    """The steps of the handlers of a step: those that repair its failures, and those that run after its success."""
    for rule in step.rules:
        yield from rule.repair.steps if rule.repair is not None else ()
    yield from step.on_success.steps if step.on_success is not None else ()


def path_part(name: str) -> str:
    """Escape a name for a path such as `outer[3]/inner`, so that different names never give the same path."""
    if "/" not in name and "[" not in name and "\\" not in name:
        return name
    return name.replace("\\", "\\\\").replace("/", "\\/").replace("[", "\\[")


def in_item(scope: str) -> bool:
    """Does a scope of this name belong to an item?"""
    marks = scope.replace("\\\\", "").replace("\\[", "") if "\\" in scope else scope
    return any(part.partition("]")[0].isdigit() for part in marks.split("[")[1:])


def step_name(scope: str, step: str) -> str:
    """The step's name, after its scope unless that is the run itself: `test`, `process[3]/test`, `inner/test`.

    A handler's command without a name is named after its key, `on_failure-1`. The same key at the end of its scope,
    `test.on_failure`, is then left out: `test/on_failure-1`.
    """
    if scope in ("", "root"):
        return step
    owner, _, key = scope.rpartition(".")
    return f"{owner}/{step}" if step.startswith(f"{key}-") else f"{scope}/{path_part(step)}"


def names_of(scope: str, step: str) -> tuple[str, ...]:
    """All names by which a user may refer to a step.

    They are its own name, the one that `step_name` gives, and its own name after its scope with or without the scope's
    key: `on_failure-1`, `test/on_failure-1`, `test.on_failure/on_failure-1`.
    """
    if scope in ("", "root"):
        return (step,)
    return step, step_name(scope, step), f"{scope}/{step}", f"{scope.rpartition('.')[0]}/{step}"


def job_key(run: int, job: int) -> int:
    """A number for a job that no job of any other run has, for interfaces that identify a job by one number."""
    return run * _JOBS_MAX + job


def split_job_key(key: int) -> tuple[int, int]:
    """The run and the job that a number of `job_key` stands for."""
    return divmod(key, _JOBS_MAX)
