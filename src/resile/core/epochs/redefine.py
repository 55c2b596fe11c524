"""Takes results over: from the epoch before, for a rerun of what changed, or from another run, for `run --cached`.

    EpochStarted(again, definition) --redefine--> the jobs of the next epoch, by the names of their steps
    RunStarted(cached)              --take_over-> completed jobs of a new run

The steps of the root scope are taken over whole: a map or a child workflow is one of them. Where the new definition has
other steps, another order, or other steps inside one, its jobs get new numbers: those of earlier epochs are never
reused, and stored scopes and dead letters of jobs with another definition are never taken up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from resile.core.events import Cached, EpochStarted
from resile.core.reaction import Reaction
from resile.core.state import ROOT, TIMES, Job, Scope, State, attach
from resile.core.transitions import set_status
from resile.model.nested import handler_steps
from resile.model.rules import Origin
from resile.model.status import COMPLETED
from resile.model.workflow import Child, FanOut, Step


def redefine(state: State, event: EpochStarted) -> None:
    """Make the jobs of the next epoch: completed ones stay, unless they run `again`; all others start over."""
    before = state.plan
    known = {before.steps[job.step].name: job for job in state.jobs.values() if job.scope == ROOT}
    root = state.scopes[ROOT]
    if event.definition:
        state.redefinition = event.definition
        attach(state, state.workflow)
    state.source = event.source or state.source
    plan = state.plan
    if _needs_numbers(before.steps, plan.steps):
        root.first = state.last_job + 1
        state.last_job += len(plan.steps)
    again = set(event.again or ())
    led_to = {arc.step for step in plan.steps if step.name in again for arc in step.arcs}
    times = bytearray(TIMES.size * len(plan.steps))
    jobs: dict[int, Job] = {}
    fans = {}
    for number, step in enumerate(plan.steps):
        found = known.get(step.name) if number != plan.end else None
        job = jobs[root.first + number] = Job(root.first + number, ROOT, number)
        if found is not None and found.status is COMPLETED and step.name not in again:
            jobs[job.id] = replace(found, id=job.id, step=number)
            times[TIMES.size * number : TIMES.size * (number + 1)] = TIMES.pack(
                *(at or 0.0 for at in state.times(found))
            )
            if found.id in state.fans:
                fans[job.id] = state.fans[found.id]
            continue
        fan = state.fans.get(job.id)
        if fan is not None and (fan.failed or fan.held):
            # Its dead letters can still be redriven.
            fans[job.id] = fan
        if found is not None and (found.attempt or found.cached) and step.name not in led_to:
            # The source of the arc that had reached it stays completed and does not take it again.
            job.tokens = 1
    state.jobs, state.fans, root.times = jobs, fans, times
    _forget_values(root, before.steps, {plan.steps[job.step].name for job in jobs.values() if job.status is COMPLETED})


def _needs_numbers(before: Sequence[Step], now: Sequence[Step]) -> bool:
    """Do the jobs get new numbers: are there other steps, or is a map or a child workflow another one?"""
    if [step.name for step in before] != [step.name for step in now]:
        return True
    return any(_inner(one) != _inner(other) for one, other in zip(before, now, strict=True))


def _inner(step: Step) -> Any:
    """What runs inside a step, wherever in the file it is."""
    return _without_places((step.action if isinstance(step.action, FanOut | Child) else None, *handler_steps(step)))


def _without_places(part: Any) -> Any:
    """A part of a definition as plain data without the places in its file."""
    if isinstance(part, Origin):
        return None
    if isinstance(part, Struct):
        return [type(part).__name__, *(_without_places(getattr(part, name)) for name in part.__struct_fields__)]
    if isinstance(part, dict):
        return {name: _without_places(value) for name, value in part.items()}
    return [_without_places(one) for one in part] if isinstance(part, tuple | list) else part


def _forget_values(root: Scope, steps: Sequence[Step], kept: set[str]) -> None:
    """Forget the values of steps that are gone or run again: only those that stay may be used."""
    staying = {name for step in steps if step.name in kept for name in _names_set_by(step)}
    gone = {name for step in steps if step.name not in kept for name in _names_set_by(step)} - staying
    root.values = {name: value for name, value in root.values.items() if name not in gone}
    root.outputs = {name: values for name, values in root.outputs.items() if name in kept}


def _names_set_by(step: Step) -> Iterator[str]:
    """The names of the values that a step and the steps of its handlers set."""
    yield step.name
    yield from (capture.name for capture in step.capture)
    for inner in handler_steps(step):
        yield from _names_set_by(inner)


def take_over(reaction: Reaction, scope: Scope, cached: Cached, because: int) -> None:
    """Complete the jobs of a new run whose steps an earlier run completed, with their values."""
    state, plan = reaction.state, reaction.state.plan
    state.memory, scope.arc_arguments = cached.memory, cached.arguments
    for name, kept in cached.steps.items():
        job = state.jobs[scope.first + plan.index[name]]
        set_status(job, COMPLETED)
        job.cached, job.exit_code, job.dependents_notified = kept.run, kept.exit_code, True
        scope.values.update(kept.values)
        if kept.outputs:
            scope.outputs[name] = kept.outputs
        reaction.note("step_cached", job, {"run": kept.run}, because)
    for name in cached.reached:
        state.jobs[scope.first + plan.index[name]].tokens = 1
