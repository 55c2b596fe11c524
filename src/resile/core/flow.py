"""How jobs follow each other: needs, list order, arcs, skips, and cancellation that spreads at once.

    blocked --needs hold--> [when?] --> ready ... --> settle --> dependents: waiting - 1
                  |                                      |
                  +-- a need failed: canceled, with all its dependents, at any depth, in this same reaction

A job is `active` in its scope from waking until it settles or parks; when no job is active and some are still
open, nothing more can happen by itself (converge.py).
"""

from __future__ import annotations

from typing import Any

from resile.core.actions import Action, AnswerArcs, AnswerCondition, KillAttempt
from resile.core.dispatch import enqueue
from resile.core.notes import STATUS_NAMES, note_job
from resile.core.state import ROOT, Cause, Job, Route, Scope, State
from resile.model.rules import Trigger
from resile.model.status import TERMINAL, Status

_SETTLED_NOTES: dict[Status, str] = {
    Status.completed: "step_completed",
    Status.failed: "step_failed",
    Status.canceled: "step_canceled",
    Status.terminated: "step_canceled",
    Status.skipped: "step_skipped",
}


def wake(state: State, out: list[Action], job: Job, because: int) -> None:
    """Everything a job waited for holds: ask its `when`, or make it ready."""
    state.scopes[job.scope].active += 1
    if job.tokens:
        job.tokens -= 1
    if state.step_of(job).when is None:
        enqueue(state, job, because)
    else:
        job.asking = "when"
        job.because = because
        out.append(AnswerCondition(job.id, because))


def settle(
    state: State, out: list[Action], at: float, job: Job, status: Status, data: dict[str, Any], because: int = 0
) -> None:
    """A job has come to its end (for this visit); tell its dependents."""
    scope = state.scopes[job.scope]
    if job.status is Status.pending_failed:
        scope.parked -= 1
    elif job.status is not Status.blocked or job.asking:
        scope.active -= 1
    job.status = status
    job.asking = ""
    job.ended_at = at
    if job.announced:
        because = note_job(state, out, at, "step.exit", job, because=because)
    kind = "step_recovered" if job.recovered and status is Status.completed else _SETTLED_NOTES[status]
    note_job(state, out, at, kind, job, data, because=because)
    if job.step == state.plan.end:
        return
    scope.open -= 1
    if not job.informed:
        job.informed = True
        _inform_dependents(state, out, at, scope, job)
    if job.tokens and not stopping(state):
        revisit(state, out, at, job, job.noted, asker=job)


def _inform_dependents(state: State, out: list[Action], at: float, scope: Scope, first: Job) -> None:
    """Count down the dependents of a settled job, and of all that are canceled or skipped because of it."""
    plan, jobs, waiting = state.plan, state.jobs, scope.waiting
    work = [first]
    while work:
        source = work.pop()
        status = source.status
        good = status is Status.completed or source.tolerated
        for number in plan.dependents[source.step]:
            waiting[number] -= 1
            if good and waiting[number]:
                continue
            job = jobs[scope.first + number]
            if job.status is not Status.blocked or job.asking:
                continue
            if not good:
                scope.tainted.add(number)
            fate = _fate(state, scope, number, source)
            if fate is Status.ready:
                if number not in plan.arc_targets or job.tokens:
                    wake(state, out, job, source.noted)
            elif fate is not None:
                _drop(state, out, at, scope, job, fate, source)
                work.append(job)


def _fate(state: State, scope: Scope, number: int, source: Job) -> Status | None:
    """What a blocked job's needs now say: ready, canceled, skipped, or nothing yet."""
    if number not in scope.tainted:
        return Status.ready if not scope.waiting[number] else None
    failed = source.status not in (Status.completed, Status.skipped) and not source.tolerated
    if failed and not state.plan.grouped[number]:
        return Status.canceled
    if scope.waiting[number] and not failed:
        return None
    skipped = False
    for need in state.plan.steps[number].needs:
        members = [state.jobs[scope.first + state.plan.index[name]] for name in need.any_of]
        if any(member.status is Status.completed or member.tolerated for member in members):
            continue
        if any(member.status not in TERMINAL for member in members):
            continue
        if all(member.status is Status.skipped for member in members):
            skipped = skipped or not need.skip_satisfies
        else:
            return Status.canceled
    if scope.waiting[number]:
        return None
    return Status.skipped if skipped else Status.ready


def _drop(state: State, out: list[Action], at: float, scope: Scope, job: Job, fate: Status, source: Job) -> None:
    """Cancel or skip a job that never started; its cause is the job where the trouble began."""
    job.status = fate
    job.ended_at = at
    job.informed = True
    job.cause = source.cause or cause_of(state, source)
    scope.open -= 1
    data = {"cause": {"step": job.cause.step, "job": job.cause.job, "status": job.cause.status}}
    note_job(state, out, at, _SETTLED_NOTES[fate], job, data, because=source.noted)


def cause_of(state: State, job: Job) -> Cause:
    """A job as the cause of another's end."""
    return Cause(state.step_of(job).name, job.id, STATUS_NAMES[job.status])


def succeed(state: State, out: list[Action], at: float, job: Job) -> None:
    """An attempt succeeded, or its failure is tolerated: follow the arcs, then settle."""
    arcs = state.step_of(job).arcs
    if arcs and not stopping(state):
        if any(arc.when is not None for arc in arcs):
            job.asking = "arcs"
            out.append(AnswerArcs(job.id, job.noted))
            return
        if not take_arcs(state, out, at, job, (True,) * len(arcs)):
            return
    finish(state, out, at, job)


def finish(state: State, out: list[Action], at: float, job: Job) -> None:
    """Settle a job whose work is done, tolerated failure included."""
    if job.tolerated:
        settle(state, out, at, job, Status.failed, {"tolerated": True})
    else:
        settle(state, out, at, job, Status.completed, {})


def take_arcs(state: State, out: list[Action], at: float, job: Job, answers: tuple[bool, ...]) -> bool:
    """Follow the arcs whose condition holds; False where the loop budget ended the scope."""
    step = state.step_of(job)
    chosen = [arc.step for arc, holds in zip(step.arcs, answers, strict=True) if holds]
    if step.arcs_mode == "first":
        chosen = chosen[:1]
    for name in chosen or [state.plan.steps[state.plan.end].name]:
        because = record_route(state, out, at, job, "next", "goto", name, "next")
        number = state.plan.index[name]
        if number == state.plan.end:
            continue
        target = state.jobs[state.scopes[job.scope].first + number]
        target.tokens += 1
        if target.status is Status.blocked and not target.asking:
            if not state.scopes[job.scope].waiting[number]:
                wake(state, out, target, because)
        elif target.status in TERMINAL and not revisit(state, out, at, target, because, asker=job):
            return False
    return True


def revisit(state: State, out: list[Action], at: float, job: Job, because: int, *, asker: Job) -> bool:
    """Run a finished job once more because an arc was taken to it; each time costs 1 of the scope's loops.

    A spent budget fails the asker, the job whose arc it was.
    """
    if job.status in (Status.canceled, Status.terminated, Status.disabled):
        job.tokens = 0
        return True
    if not spend(state, out, at, asker, 1, "next", "goto"):
        return False
    state.scopes[job.scope].open += 1
    job.status = Status.blocked
    job.announced = job.recovered = job.tolerated = False
    job.cause = job.exit_code = job.ended_at = None
    wake(state, out, job, because)
    return True


def spend(state: State, out: list[Action], at: float, job: Job, cost: int, trigger: str, action: str) -> bool:
    """Take from the scope's loop budget; a spent one fails the scope at once."""
    scope = state.scopes[job.scope]
    limit = loops_max(state)
    if scope.loops + cost <= limit:
        scope.loops += cost
        return True
    message = f"Routing loop budget exceeded (max_loops={limit}) during {trigger} {action}"
    state.aborted = message
    seq = note_job(state, out, at, "loop_budget_exceeded", job, {"message": message})
    state.routes.append(
        Route(at, scope.name, state.step_of(job).name, job.attempt, "next", "budget", None, f"max_loops={limit}")
    )
    if job.status in TERMINAL:
        scope.open += 1
        scope.active += 1
    fail(state, out, at, job, message)
    stop_all(state, out, at, seq)
    return False


def loops_max(state: State) -> int:
    """The loop budget in force."""
    asked = state.options.loops_max
    return state.workflow.loops_max if asked is None else asked


def fail(state: State, out: list[Action], at: float, job: Job, message: str) -> None:
    """The ladder is spent: the failure stands and the path leads to `end`."""
    data = {"message": message, "routed_to_end": True, "original_failed_step": state.step_of(job).name}
    settle(state, out, at, job, Status.failed, data)


def record_route(
    state: State, out: list[Action], at: float, job: Job, trigger: Trigger, action: str, target: str | None, rule: str
) -> int:
    """Note a jump and keep it for the summary."""
    name = state.step_of(job).name
    state.routes.append(Route(at, state.scopes[job.scope].name, name, job.attempt, trigger, action, target, rule))
    return note_job(state, out, at, "route_taken", job, {"trigger": trigger, "action": action, "target": target})


def stopping(state: State) -> bool:
    """Is the run on its way out, by cancel or by a spent budget?"""
    return state.canceled or bool(state.aborted)


def stop_all(state: State, out: list[Action], at: float, because: int) -> None:
    """Cancel what has not started and kill what runs; `end` is left alone."""
    for job in list(state.jobs.values()):
        if job.scope != ROOT or job.step == state.plan.end or job.status in TERMINAL:
            continue
        job.tokens = 0
        if job.asking or job.status not in (Status.pending, Status.running):
            job.informed = True
            settle(state, out, at, job, Status.canceled, {}, because)
        else:
            out.append(KillAttempt(job.id, job.attempt, because))
