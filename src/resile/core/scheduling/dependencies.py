"""How jobs follow each other: needs, list order, arcs, skips, and cancellation that spreads at once.

    blocked --needs hold--> [when?] --> ready ... --> settle --> dependents: waiting - 1
                  |                                      |
                  +-- a need failed: canceled, with all its dependents, at any depth, in this same reaction

A settled job that somebody waits for (a repair's owner, a caller) goes on the agenda; react.py works it off.
"""

from __future__ import annotations

from typing import Any

from resile.core.actions import Action, AnswerArcs, AnswerCondition
from resile.core.event_log import STATUS_NAMES, note_job, note_pair
from resile.core.scheduling.ready_queue import enqueue
from resile.core.scheduling.reservations import in_time, release, rest, stir
from resile.core.scheduling.reserve_ahead import NEEDS_MAX, hope, set_back
from resile.core.state import NO_RULE, Cause, Failed, Job, Route, Scope, State
from resile.model.failure import Kind
from resile.model.fanout import FanOut
from resile.model.items import ItemFailure
from resile.model.limits import ROUTES_MAX
from resile.model.rules import Trigger
from resile.model.status import (
    BLOCKED,
    CANCELED,
    COMPLETED,
    FAILED,
    PENDING_FAILED,
    READY,
    SKIPPED,
    TERMINAL,
    TERMINATED,
    Status,
)

_SETTLED_NOTES: dict[Status, str] = {
    COMPLETED: "step_completed",
    FAILED: "step_failed",
    CANCELED: "step_canceled",
    TERMINATED: "step_canceled",
    SKIPPED: "step_skipped",
}

# An arc to one of these runs it once more, each time for 1 of the scope's loops; what was canceled stays so.
_REVISITED = (COMPLETED, FAILED, SKIPPED)


def wake(state: State, out: list[Action], job: Job, because: int) -> None:
    """Everything a job waited for holds: ask its `when`, or make it ready."""
    if job.tokens:
        job.tokens -= 1
    step = state.step_of(job)
    if step.in_order and not has_turn(state, job):
        scope = state.scopes[job.scope]
        fan = state.fans[scope.owner]
        fan.held_back = {**fan.held_back, scope.turn: job.id}
        job.because = because
        return
    if step.when is None:
        enqueue(state, job, because)
    else:
        stir(state, job)
        job.pending_question = "when"
        job.because = because
        out.append(AnswerCondition(job.id, because))


def has_turn(state: State, job: Job) -> bool:
    """Are all items before this job's item over?"""
    scope = state.scopes[job.scope]
    fan = state.fans.get(scope.owner)
    if fan is None:
        return True
    before = [state.scopes[number].turn for number in fan.active.values()]
    before += [waiting.turn for waiting in fan.waiting.values()]
    if any(turn < scope.turn for turn in before):
        return False
    fan.held_back = {turn: number for turn, number in fan.held_back.items() if turn != scope.turn}
    return True


def settle(
    state: State, out: list[Action], at: float, job: Job, status: Status, data: dict[str, Any], because: int = 0
) -> None:
    """A job has come to its end (for this visit); tell its dependents, and whoever waits for it."""
    scope, plan = state.scopes[job.scope], state.plan_of(job.scope)
    if job.status is PENDING_FAILED:
        state.parked -= 1
    rest(state, job)
    job.status = status
    job.pending_question = ""
    state.set_ended(job, at)
    job.rule, job.repair_scope, job.calls, job.error = NO_RULE, 0, (), None
    kind = "step_recovered" if job.recovered else _SETTLED_NOTES[status]
    if job.start_recorded:
        note_pair(state, out, at, "step.exit", kind, job, data, because)
    else:
        note_job(state, out, at, kind, job, data, because=because)
    if job.step == plan.end:
        if scope.owner:
            state.agenda.append(job.id)
        return
    scope.open -= 1
    if job.callers or scope.owner:
        state.agenda.append(job.id)
    if not job.dependents_notified:
        job.dependents_notified = True
        if plan.dependents[job.step]:
            _inform_dependents(state, out, at, scope, job)
    if scope.joining and not stopping(state, job):
        join(state, out, scope)
    if job.tokens and not stopping(state, job):
        revisit(state, out, at, job)
    elif status is COMPLETED and not scope.owner and not job.callers and job.id not in state.fans:
        # Nothing follows from it any more, and a long run has many such jobs.
        job.queue_number = job.because = job.last_event_seq = 0


def _inform_dependents(state: State, out: list[Action], at: float, scope: Scope, first: Job) -> None:
    """Count down the dependents of a settled job, and of all that are canceled or skipped because of it."""
    plan, jobs, waiting = state.plan_of(scope.id), state.jobs, scope.waiting
    work = [first]
    while work:
        source = work.pop()
        good = source.counts_as_success
        soon = False
        for number in plan.dependents[source.step]:
            waiting[number] -= 1
            if not good:
                scope.has_failed_need.add(number)
            elif waiting[number]:
                soon = soon or waiting[number] <= NEEDS_MAX
                continue
            job = jobs[scope.first + number]
            if job.early:
                _meet(state, job, source)
            if job.status is not BLOCKED or job.pending_question:
                continue
            if _follow(state, out, at, scope, job, source):
                work.append(job)
        if soon:
            hope(state, scope, plan, source.step)


def _meet(state: State, job: Job, source: Job) -> None:
    """What an early job waited for is there, or never will be: then it waits for nothing any more.

    One that is being stopped stays as it is: it is told of when it was withdrawn.
    """
    if source.counts_as_success:
        in_time(state, job)
        job.because = source.last_event_seq
        state.touched.append(job.id)
    elif not stopping(state, job):
        release(state, job)
        set_back(state, job)


def _follow(state: State, out: list[Action], at: float, scope: Scope, job: Job, source: Job) -> bool:
    """Wake, cancel or skip a blocked job as its needs say; True where it has come to its end."""
    fate = _fate(state, scope, job.step, source)
    if fate is READY:
        if job.step not in state.plan_of(scope.id).arc_targets or job.tokens:
            arrive(state, out, job, source.last_event_seq)
        return False
    if fate is None:
        return False
    _drop(state, out, at, scope, job, fate, source)
    return True


def _fate(state: State, scope: Scope, number: int, source: Job) -> Status | None:
    """What a blocked job's needs now say: ready, canceled, skipped, or nothing yet."""
    if number not in scope.has_failed_need:
        return READY if not scope.waiting[number] else None
    plan = state.plan_of(scope.id)
    failed = not source.counts_as_success and source.status is not SKIPPED
    if failed and not plan.grouped[number]:
        return CANCELED
    if scope.waiting[number] and not failed:
        return None
    skipped = False
    for need in plan.steps[number].needs:
        members = [state.jobs[scope.first + plan.index[name]] for name in need.any_of]
        if any(member.counts_as_success for member in members) or any(
            member.status not in TERMINAL for member in members
        ):
            continue
        if all(member.status is SKIPPED for member in members):
            skipped = skipped or not need.skip_satisfies
        else:
            return CANCELED
    if scope.waiting[number]:
        return None
    return SKIPPED if skipped else READY


def _drop(state: State, out: list[Action], at: float, scope: Scope, job: Job, fate: Status, source: Job) -> None:
    """Cancel or skip a job that never started; its cause is the job where the trouble began."""
    job.status = fate
    state.set_ended(job, at)
    job.dependents_notified = True
    job.cause = source.cause or Cause(state.step_of(source).name, source.id, STATUS_NAMES[source.status])
    scope.open -= 1
    if scope.owner or job.callers:
        state.agenda.append(job.id)
    data = {"cause": {"step": job.cause.step, "job": job.cause.job, "status": job.cause.status}}
    note_job(state, out, at, _SETTLED_NOTES[fate], job, data, because=source.last_event_seq)


def recount(state: State, out: list[Action], at: float, scope: Scope, numbers: list[int]) -> None:
    """Count the needs of these steps anew after some jobs were set back, and let go on what can.

    A need that is being revisited had told its dependents already; now that one of them waits for it again it
    must tell them all once more, so the others are counted anew as well.
    """
    plan = state.plan_of(scope.id)
    work, counted = list(numbers), set(numbers)
    while work:
        number = work.pop()
        members = {name for need in plan.steps[number].needs for name in need.any_of}
        jobs = [state.jobs[scope.first + plan.index[name]] for name in sorted(members)]
        scope.waiting[number] = sum(job.status not in TERMINAL for job in jobs)
        scope.has_failed_need.discard(number)
        if any(job.status in TERMINAL and not job.counts_as_success for job in jobs):
            scope.has_failed_need.add(number)
        for job in jobs:
            if job.status not in TERMINAL and job.dependents_notified:
                job.dependents_notified = False
                more = [other for other in plan.dependents[job.step] if other not in counted]
                counted.update(more)
                work += more
    for number in sorted(counted):
        job = state.jobs[scope.first + number]
        if job.status is BLOCKED and not job.pending_question and not scope.waiting[number]:
            needed = [
                state.jobs[scope.first + plan.index[name]] for need in plan.steps[number].needs for name in need.any_of
            ]
            source = next((other for other in needed if not other.counts_as_success), job)
            if _follow(state, out, at, scope, job, source):
                _inform_dependents(state, out, at, scope, job)


def succeed(state: State, out: list[Action], at: float, job: Job) -> None:
    """The work of a job is done, or its failure is tolerated: follow the arcs, then settle."""
    arcs = state.step_of(job).arcs
    if arcs and not stopping(state, job):
        if any(arc.when is not None or arc.args for arc in arcs):
            stir(state, job)
            job.pending_question = "arcs"
            out.append(AnswerArcs(job.id, job.last_event_seq))
            return
        if not take_arcs(state, out, at, job, (True,) * len(arcs)):
            return
    finish(state, out, at, job)


def finish(state: State, out: list[Action], at: float, job: Job) -> None:
    """Settle a job whose work is done, tolerated failure included."""
    if job.tolerated:
        message = job.error.failure.message if job.error is not None else ""
        settle(state, out, at, job, FAILED, {"tolerated": True, "message": message})
    else:
        settle(state, out, at, job, COMPLETED, {})


def take_arcs(
    state: State,
    out: list[Action],
    at: float,
    job: Job,
    answers: tuple[bool, ...],
    given: dict[str, dict[str, Any]] | None = None,
) -> bool:
    """Follow the arcs whose condition holds, with what they carry; False where the loop budget ended the scope."""
    step = state.step_of(job)
    plan = state.plan_of(job.scope)
    scope = state.scopes[job.scope]
    chosen = [arc.step for arc, holds in zip(step.arcs, answers, strict=True) if holds]
    if step.arcs_mode == "first":
        chosen = chosen[:1]
    if not chosen and plan.end >= 0:
        chosen = [plan.steps[plan.end].name]
    for name in chosen:
        number = plan.index[name]
        if name in (given or {}) or name in scope.arc_arguments:
            # Where paths meet, what each of them carries is there.
            before = scope.arc_arguments.get(name, {}) if number == plan.end or number in scope.joining else {}
            scope.arc_arguments = {**scope.arc_arguments, name: {**before, **(given or {}).get(name, {})}}
        target = state.jobs[scope.first + number]
        again = number != plan.end and target.status in _REVISITED
        if again and not spend(state, out, at, job, 1, "next", "goto"):
            return False
        because = record_route(state, out, at, job, "next", "goto", name, "next")
        if again:
            reopen(state, target)
            arrive(state, out, target, because)
        elif number != plan.end and target.status not in TERMINAL:
            target.tokens += 1
            if target.status is BLOCKED and not target.pending_question and not scope.waiting[number]:
                arrive(state, out, target, because)
    return True


def arrive(state: State, out: list[Action], job: Job, because: int) -> None:
    """A job may run, unless it waits for other paths: `join` lets it go."""
    if job.step not in state.plan_of(job.scope).joins:
        wake(state, out, job, because)
        return
    job.because = because
    scope = state.scopes[job.scope]
    if job.step not in scope.joining:
        scope.joining.append(job.step)


def join(state: State, out: list[Action], scope: Scope) -> None:
    """Let those go on to which nothing under way can lead any more, however many paths have arrived there."""
    joins = state.plan_of(scope.id).joins
    for number in list(scope.joining):
        job = state.jobs[scope.first + number]
        waits = job.status is BLOCKED and not job.pending_question
        if waits and any(_leads_on(state, scope, other, number) for other in joins[number]):
            continue
        scope.joining.remove(number)
        if waits:
            job.tokens = 1
            wake(state, out, job, job.because)


def _leads_on(state: State, scope: Scope, number: int, target: int) -> bool:
    """May a step that leads to another still do so, because it is under way or will be?"""
    plan, job = state.plan_of(scope.id), state.jobs[scope.first + number]
    if number in scope.joining:
        # Of two that lead to each other the one that was reached first goes first.
        return target not in plan.joins[number]
    if job.status in TERMINAL or number == plan.end:
        return False
    return job.status is not BLOCKED or bool(job.pending_question or job.tokens) or number not in plan.arc_targets


def revisit(state: State, out: list[Action], at: float, job: Job) -> None:
    """Run a finished job once more because an arc was taken to it while it ran; a spent budget fails it."""
    if job.status not in _REVISITED:
        job.tokens = 0
    elif spend(state, out, at, job, 1, "next", "goto"):
        reopen(state, job)
        wake(state, out, job, job.last_event_seq)


def reopen(state: State, job: Job) -> None:
    """Set a job back to before its first attempt of this visit; its counters stay spent."""
    if job.status in TERMINAL:
        state.scopes[job.scope].open += 1
    if job.status is PENDING_FAILED:
        state.parked -= 1
    rest(state, job)
    job.status = BLOCKED
    job.pending_question = ""
    job.start_recorded = job.repaired = job.tolerated = False
    job.dependents_go_on = job.stale = job.attempt_counted = False
    job.cause = job.exit_code = job.error = None
    state.set_ended(job, 0.0)
    job.rule, job.repair_scope, job.calls, job.target, job.output_job = NO_RULE, 0, (), "", 0


def spend(state: State, out: list[Action], at: float, job: Job, cost: int, trigger: Trigger, action: str) -> bool:
    """Take from the scope's loop budget; a spent one fails the scope at once: the item, the child, or the run."""
    from resile.core.scheduling.scopes import stop_scope

    scope = state.scopes[job.scope]
    limit = loops_max(state, job)
    if scope.loops + cost <= limit:
        scope.loops += cost
        return True
    word: str = state.workflow_of(job.scope).failure_key if trigger == "on_failure" else trigger
    doing = state.step_of(job).action
    if trigger in ("on_failure", "on_success") and isinstance(doing, FanOut) and doing.scope:
        # What follows the items of a producer is called so.
        word = "on_finish"
    message = f"Routing loop budget exceeded (max_loops={limit}) during {word} {action}"
    frame = state.frame_of(job.scope)
    if frame.owner:
        frame.aborted = message
    else:
        state.aborted = message
    seq = note_job(state, out, at, "loop_budget_exceeded", job, {"message": message})
    keep_route(state, at, job, trigger, "budget", None, f"max_loops={limit}")
    if job.status in TERMINAL:
        scope.open += 1
    name = state.step_of(job).name
    if state.first_failure is None:
        state.first_failure = Failed(name, job.attempt, Kind.CONTRACT, None, message)
    fail(state, out, at, job, message)
    stop_scope(state, out, at, frame, seq, Cause(name, job.id, STATUS_NAMES[job.status]))
    return False


def loops_max(state: State, job: Job) -> int:
    """The loop budget in force."""
    asked = state.options.loops_max
    return state.workflow_of(job.scope).loops_max if asked is None else asked


def fail(state: State, out: list[Action], at: float, job: Job, message: str, **more: Any) -> None:
    """The ladder is spent: the failure stands and the path leads to `end`; a critical step takes its siblings along."""
    step, scope = state.step_of(job), state.scopes[job.scope]
    if scope.kind in ("item", "child") and scope.first_failure is None:
        scope.first_failure = _evidence(state, at, scope, job, message)
    data = {"message": message, "routed_to_end": True, "original_failed_step": step.name, **more}
    settle(state, out, at, job, FAILED, data)
    if step.critical and not scope.stopped:
        from resile.core.scheduling.scopes import stop_scope

        stop_scope(state, out, at, scope, job.last_event_seq, Cause(step.name, job.id, STATUS_NAMES[job.status]))


def _evidence(state: State, at: float, scope: Scope, job: Job, message: str) -> ItemFailure:
    """What failed a scope first, for its dead letter or its parent."""
    failure = job.error.failure if job.error is not None else None
    return ItemFailure(
        number=scope.number,
        at=at,
        step=state.step_of(job).name,
        kind=failure.kind if failure is not None else Kind.CONTRACT,
        message=message,
        exit_code=job.exit_code,
        stderr=failure.stderr if failure is not None else "",
        signature=failure.signature if failure is not None else "",
        seconds=max(0.0, at - scope.started_at),
        job=job.id,
        attempt=job.error.attempt if job.error is not None else job.attempt,
        epoch=state.epoch,
    )


def keep_route(state: State, at: float, job: Job, trigger: Trigger, action: str, target: str | None, rule: str) -> None:
    """Keep a verdict for the summary; of the items of a fan-out only so many."""
    scope = state.scopes[job.scope]
    if scope.owner and len(state.routes) >= ROUTES_MAX:
        return
    name = state.step_of(job).name
    attempt = job.error.attempt if job.error is not None else job.attempt
    state.routes.append(Route(at, scope.name, name, attempt, trigger, action, target, rule))


def record_route(
    state: State, out: list[Action], at: float, job: Job, trigger: Trigger, action: str, target: str | None, rule: str
) -> int:
    """Note a jump or a call, and keep it for the summary."""
    keep_route(state, at, job, trigger, action, target, rule)
    loops = state.scopes[job.scope].loops
    data = {"trigger": trigger, "action": action, "target": target, "rule": rule, "loops": loops}
    return note_job(state, out, at, "route_taken", job, data)


def stopping(state: State, job: Job) -> bool:
    """Is the run, or a scope around this job, on its way out: by cancel, a spent budget, a critical step, a timeout?"""
    if state.canceled or state.aborted:
        return True
    scope: Scope | None = state.scopes[job.scope]
    while scope is not None:
        if scope.stopped:
            return True
        scope = state.around(scope)
    return False
