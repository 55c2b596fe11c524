"""goto: back to an ancestor, then forward again through its descendants that had begun; no other step is affected."""

from __future__ import annotations

from resile.core.reaction import Reaction
from resile.core.scheduling.dependencies import recount, reopen
from resile.core.scheduling.plan import Plan
from resile.core.state import Job, State
from resile.model.status import BLOCKED, DISABLED
from resile.model.workflow import FanOut


def is_ancestor(state: State, job: Job, name: str) -> bool:
    """Does the path to this job lead through a step of this name, in the same scope? Steps of items are in another."""
    plan = state.plan_of(job.scope)
    number = plan.index.get(name)
    if number is None or number == job.step:
        return False
    action = plan.steps[number].action
    if isinstance(action, FanOut) and action.scope:
        return False
    return job.step in descendants(plan, number)


def descendants(plan: Plan, number: int) -> set[int]:
    """Every step that follows a step by needs or arcs."""
    found: set[int] = set()
    work = [number]
    while work:
        here = work.pop()
        for target in plan.dependents[here] + [plan.index[arc.step] for arc in plan.steps[here].arcs]:
            if target not in found and target != plan.end:
                found.add(target)
                work.append(target)
    return found


def jump(reaction: Reaction, job: Job, target: str) -> None:
    """Reopen the target and its descendants that had begun; the results of running attempts are discarded."""
    state = reaction.state
    scope, plan = state.scopes[job.scope], state.plan_of(job.scope)
    start = plan.index[target]
    begun = {start, job.step}
    for number in descendants(plan, start):
        below = state.jobs[scope.first + number]
        if below.status not in (BLOCKED, DISABLED) or below.waits_for:
            begun.add(number)
    for number in sorted(begun):
        again = state.jobs[scope.first + number]
        busy = again.runs_attempt or again.hosting or again.repair_scope or again.calls
        if busy and again is not job:
            again.stale = True
        else:
            reopen(state, again)
            again.dependents_notified = False
            led_by = any(plan.index[arc.step] == number for source in begun for arc in plan.steps[source].arcs)
            again.tokens = int(number in plan.arc_targets and not led_by)
    dependents = {dependent for number in begun for dependent in plan.dependents[number]}
    recount(reaction, scope, sorted(begun | dependents))


def reopen_if_stale(reaction: Reaction, job: Job) -> bool:
    """Reopen a job whose result a jump made stale; True where it did."""
    if not job.stale:
        return False
    reopen(reaction.state, job)
    job.dependents_notified = False
    recount(reaction, reaction.state.scopes[job.scope], [job.step])
    return True
