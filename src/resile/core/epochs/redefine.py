"""Takes results over: from the epoch before, for a rerun of what changed, or from another run, for `run --cached`.

    EpochStarted(again, definition) --redefine--> the jobs of the next epoch, by the names of their steps
    RunStarted(cached)              --take_over-> completed jobs of a new run

The steps of the root scope are taken over whole: a map or a child workflow is one of them. Where the new definition has
other steps, or another order, its jobs get new numbers: those of earlier epochs are never reused.
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.core.events import Cached, EpochStarted
from resile.core.reaction import Reaction
from resile.core.state import ROOT, TIMES, Job, Scope, State, attach
from resile.core.transitions import set_status
from resile.model.status import COMPLETED


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
    if [step.name for step in plan.steps] != [step.name for step in before.steps]:
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
            state.touched.append(job.id)
        elif found is not None and (found.attempt or found.cached) and step.name not in led_to:
            # The source of the arc that had reached it stays completed and does not take it again.
            job.tokens = 1
    state.jobs, state.fans, root.times = jobs, fans, times


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
