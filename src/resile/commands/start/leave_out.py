"""`run --from`, `--only`, `--skip`: marks the steps that a run leaves out, unless other steps need them.

    names of steps --> Choice --leave_out--> the workflow with `left_out` and `begins` on its steps

A step that is left out counts as done. Two calls are refused: if a step that runs uses the output of a step that is
left out, and if the arcs of a step that is left out have conditions that decide which steps run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from resile.errors import ResileError

if TYPE_CHECKING:
    from resile.commands.start.call import Choice
    from resile.model.workflow import Arc, Step, Workflow


def leave_out(workflow: Workflow, choice: Choice) -> Workflow:
    """The workflow without the steps that the caller does not want; raises an error if the rest needs them."""
    _refuse_wrong_names(workflow, choice)
    names = [step.name for step in workflow.steps]
    called = {step.name for step in workflow.steps if step.called_only}
    wanted = set(names)
    if choice.first:
        wanted = _steps_after(workflow, choice.first) | called
    elif choice.only:
        wanted = set(choice.only) | called
    wanted -= set(choice.skip)
    if not wanted - called:
        raise ResileError("left-out", "no step is left to run", hint=f"its steps: {', '.join(names[:20])}")
    left_out = set(names) - wanted
    begins = set(choice.first or (name for name in choice.only if _is_first(workflow, name, set(choice.only)))) - called
    after = _steps_after(workflow, wanted - called)
    steps = tuple(
        replace(step, begins=step.name in begins)
        if step.name in wanted
        else replace(step, left_out=True, when=None, arcs=_arcs_left(workflow, step, step.name in after, wanted))
        for step in workflow.steps
    )
    found = replace(workflow, steps=steps)
    _refuse_uses(found, left_out)
    return found


def _refuse_wrong_names(workflow: Workflow, choice: Choice) -> None:
    """Refuse names that are no steps, and options that contradict each other."""
    known = {step.name for step in workflow.steps}
    for option, names in (("--from", choice.first), ("--only", choice.only), ("--skip", choice.skip)):
        for name in names:
            if name == workflow.end.name and name not in known:
                raise ResileError("usage", f"{option} {name}: `{name}` runs in every case", hint="name other steps")
            if name not in known:
                raise unknown_step(workflow, name, option)
    if choice.first and choice.only:
        hint = "--only names every step that runs"
        raise ResileError("usage", "--from and --only can't be combined", hint=hint)
    for name in choice.skip:
        if name in choice.first or name in choice.only:
            option = "--from" if name in choice.first else "--only"
            raise ResileError("usage", f"{name!r} is in {option} and in --skip", hint="leave one of them out")


def unknown_step(workflow: Workflow, name: str, option: str) -> ResileError:
    """The error for a name that no step of the workflow has."""
    from difflib import get_close_matches

    known = [step.name for step in workflow.steps]
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"its steps: {', '.join(known[:20])}"
    if "," in name and set(name.split(",")) <= set(known):
        hint = f"name them one by one: {option} {' '.join(name.split(','))}"
    return ResileError(
        "no-such-step", f"{option}: {workflow.name} has no step {name!r}", where=workflow.file, hint=hint
    )


def _steps_after(workflow: Workflow, start: Iterable[str]) -> set[str]:
    """These steps and all that follow them, by needs or by arcs, at any distance."""
    onward: dict[str, list[str]] = {step.name: [arc.step for arc in step.arcs] for step in workflow.steps}
    for step in workflow.steps:
        for name in (name for need in step.needs for name in need.any_of):
            onward[name].append(step.name)
    found: set[str] = set()
    work = list(start)
    while work:
        name = work.pop()
        if name not in found:
            found.add(name)
            work += onward.get(name, ())
    return found - {workflow.end.name}


def _is_first(workflow: Workflow, name: str, wanted: set[str]) -> bool:
    """Does no other step that is wanted lead to this one?"""
    return not any(name in _steps_after(workflow, [other]) for other in wanted - {name})


def _arcs_left(workflow: Workflow, step: Step, is_after: bool, wanted: set[str]) -> tuple[Arc, ...]:
    """The arcs that a step which is left out still takes: only where steps that run lead to it and from it."""
    if not is_after:
        return ()
    for arc in step.arcs:
        if (arc.when is not None or arc.args) and _steps_after(workflow, [arc.step]) & wanted:
            message = f"{step.name!r} can't be left out: its own result decides whether {arc.step!r} runs"
            raise ResileError("left-out", message, where=_place(workflow, step), hint="let it run, too")
    return tuple(arc for arc in step.arcs if arc.when is None and not arc.args)


def _place(workflow: Workflow, step: Step) -> str:
    """The place of a step in its file."""
    origin = step.origin
    return f"{origin.file or workflow.file}:{origin.line}:{origin.column}" if origin.line else workflow.file


def _refuse_uses(workflow: Workflow, left_out: set[str]) -> None:
    """Refuse a step that runs and uses the output of a step that does not; `end` may."""
    from resile.commands.start.uses import Uses

    uses = Uses(workflow)
    for step in workflow.steps:
        if step.left_out:
            continue
        for name in sorted(uses.of_step(step) & left_out):
            message = f"{step.name!r} uses the output of {name!r}, which is left out"
            hint = f"let {name!r} run, too, or leave {step.name!r} out as well: --skip {step.name}"
            raise ResileError("left-out", message, where=_place(workflow, step), hint=hint)
