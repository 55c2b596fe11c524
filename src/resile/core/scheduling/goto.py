"""goto: back to an ancestor, and forward again through what had begun; nothing else is touched."""

from __future__ import annotations

from resile.core.actions import Action
from resile.core.scheduling.dependencies import recount, reopen
from resile.core.scheduling.plan import Plan
from resile.core.state import Job, State
from resile.model.status import Status


def is_ancestor(state: State, job: Job, name: str) -> bool:
    """Does the path to this job lead through a step of this name, in the same scope?"""
    plan = state.plan_of(job.scope)
    number = plan.index.get(name)
    return number is not None and number != job.step and job.step in descendants(plan, number)


def descendants(plan: Plan, number: int) -> set[int]:
    """Every step that comes after one by needs or arcs."""
    found: set[int] = set()
    work = [number]
    while work:
        here = work.pop()
        for target in plan.dependents[here] + [plan.index[arc.step] for arc in plan.steps[here].arcs]:
            if target not in found and target != plan.end:
                found.add(target)
                work.append(target)
    return found


def jump(state: State, out: list[Action], at: float, job: Job, target: str) -> None:
    """Set back the target and those of its descendants that had begun; what runs finishes, is dropped, runs again."""
    scope = state.scopes[job.scope]
    plan = state.plan_of(job.scope)
    start = plan.index[target]
    begun = {start, job.step} | {
        number
        for number in descendants(plan, start)
        if state.jobs[scope.first + number].status not in (Status.blocked, Status.disabled)
        or state.jobs[scope.first + number].pending_question
    }
    for number in sorted(begun):
        again = state.jobs[scope.first + number]
        busy = again.status in (Status.pending, Status.running) and not again.pending_question
        if again is not job and (busy or again.repair_scope or again.calls):
            again.stale = True
        else:
            reopen(state, again)
            again.dependents_notified = False
            led_by = any(plan.index[arc.step] == number for source in begun for arc in plan.steps[source].arcs)
            again.tokens = int(number in plan.arc_targets and not led_by)
    below = {dependent for number in begun for dependent in plan.dependents[number]}
    recount(state, out, at, scope, sorted(begun | below))


def drop_stale(state: State, out: list[Action], at: float, job: Job) -> bool:
    """A job whose result nobody wants any more is set back; True where it was one."""
    if not job.stale:
        return False
    reopen(state, job)
    job.dependents_notified = False
    recount(state, out, at, state.scopes[job.scope], [job.step])
    return True
