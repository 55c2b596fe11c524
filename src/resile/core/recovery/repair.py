"""Repairs and what follows a success: steps of their own scope, then named steps of the job's scope, one by one.

    begin_repair --> a scope of jobs --> all done --> named calls --> done: carry the rule out
                                             |             |
                                             +-- failed ---+--> ladder.repair_failed

A repair is jobs like any others: durable, logged, with timeouts and rules of their own.
"""

from __future__ import annotations

from typing import Any

from resile.core.actions import Action, KillAttempt, SetTimer
from resile.core.event_log import note_job
from resile.core.recovery.ladder import ask, carry_out, origin_text, repair_failed, valid_target
from resile.core.recovery.matching import ladder_of
from resile.core.scheduling.dependencies import fail, keep_route, record_route, reopen, spend, stopping, succeed, wake
from resile.core.scheduling.goto import drop_stale, jump
from resile.core.scheduling.reservations import rest
from resile.core.scheduling.scopes import open_scope, start_scope
from resile.core.state import NO_RULE, SUCCESS, Job, Scope, State
from resile.model.status import TERMINAL, Status
from resile.model.workflow import Step


def begin_repair(
    state: State, out: list[Action], at: float, job: Job, steps: tuple[Step, ...], timeout_seconds: float | None
) -> None:
    """Open the scope of a repair, or go straight to the steps it calls."""
    rest(state, job)
    job.status = Status.recovering
    what = "on_success" if job.rule == SUCCESS else "on_failure"
    data: dict[str, Any] = {"for": what, "calls": list(job.calls)}
    if job.rule != SUCCESS:
        rule = ladder_of(state.step_of(job))[job.rule]
        data |= {"rule": origin_text(state, job, rule), "then": rule.then}
    seq = note_job(state, out, at, "repair_started", job, data)
    if timeout_seconds is not None:
        out.append(SetTimer(job.id, job.attempt, at + timeout_seconds, seq, repair=True))
        job.timer_at = at + timeout_seconds
    if not steps:
        _call_next(state, out, at, job)
        return
    scope = open_scope(state, job, "repair", f"{state.step_of(job).name}.{what}")
    job.repair_scope = scope.id
    start_scope(state, out, scope, seq)


def follow_up(state: State, out: list[Action], at: float, job: Job) -> None:
    """A job settled that somebody waits for: its caller, or the owner of its scope."""
    if job.callers:
        caller = state.jobs[job.callers[0]]
        job.callers = job.callers[1:]
        name = state.step_of(job).name
        worked = job.counts_as_success or job.status is Status.skipped
        if job.callers:
            _start_called(state, out, job)
        if caller.calls[:1] == (name,):
            if worked:
                caller.calls = caller.calls[1:]
                _call_next(state, out, at, caller)
            else:
                _finished(state, out, at, caller, f"remediation step {name!r} failed")
    scope = state.scopes[job.scope]
    if scope.kind == "repair" and not scope.open:
        owner = state.jobs[scope.owner]
        if owner.repair_scope == scope.id:
            problem = _problem(state, scope)
            if not problem and owner.calls:
                _call_next(state, out, at, owner)
            else:
                _finished(state, out, at, owner, problem)


def _problem(state: State, scope: Scope) -> str:
    """Why a repair counts as failed; empty where all its commands passed."""
    if scope.expired:
        return f"{scope.name} ran out of time"
    for number, step in enumerate(state.plan_of(scope.id).steps):
        job = state.jobs[scope.first + number]
        if job.status not in (Status.completed, Status.skipped):
            return f"{scope.name}: {step.name} failed"
    return ""


def _call_next(state: State, out: list[Action], at: float, job: Job) -> None:
    """Run the next named step, or end the repair."""
    if not job.calls:
        _finished(state, out, at, job, "")
        return
    called = state.job_named(job.calls[0], job.scope)
    assert called is not None
    if called.id in _waiters(state, job):
        _finished(state, out, at, job, f"remediation step {job.calls[0]!r} waits for the step that calls it")
        return
    called.callers = (*called.callers, job.id)
    record_route(state, out, at, job, "on_success" if job.rule == SUCCESS else "on_failure", "run", job.calls[0], "run")
    if called.status in TERMINAL or (called.status is Status.blocked and not called.pending_question):
        _start_called(state, out, called)


def _waiters(state: State, job: Job) -> set[int]:
    """Everybody who waits for this job to get on, itself included; to call one of them would be to wait for ever."""
    found: set[int] = set()
    work = [job.id]
    while work:
        number = work.pop()
        if number not in found:
            found.add(number)
            waiting = state.jobs[number]
            owner = state.scopes[waiting.scope].owner
            work += [*waiting.callers, *([owner] if owner else [])]
    return found


def _start_called(state: State, out: list[Action], called: Job) -> None:
    """Run a step because somebody called for it, whatever it needs."""
    settled = called.status in TERMINAL
    reopen(state, called)
    if called.status is Status.blocked and settled:
        called.dependents_notified = True
    wake(state, out, called, state.seq)


def _finished(state: State, out: list[Action], at: float, job: Job, problem: str) -> None:
    """A repair is over: carry the rule out, or say what its failure means."""
    job.timer_at = 0.0
    note_job(
        state, out, at, "repair_finished", job, {"ok": not problem, "problem": problem} if problem else {"ok": True}
    )
    if drop_stale(state, out, at, job):
        return
    if stopping(state, job):
        fail(state, out, at, job, problem or "the run is stopping")
        return
    if job.rule == SUCCESS:
        if problem:
            keep_route(state, at, job, "on_success", "fail", None, "on_success")
            fail(state, out, at, job, problem)
        else:
            _after_success(state, out, at, job)
        return
    job.repaired = True
    if problem:
        repair_failed(state, out, at, job, problem)
    else:
        carry_out(state, out, at, job, ladder_of(state.step_of(job))[job.rule])


def expired(state: State, out: list[Action], job: Job) -> None:
    """A repair's time is up: kill what it runs and start nothing more of it."""
    scope = state.scopes.get(job.repair_scope)
    if scope is None:
        return
    scope.expired = True
    for number in range(len(state.plan_of(scope.id).steps)):
        inner = state.jobs[scope.first + number]
        if inner.status in (Status.pending, Status.running):
            out.append(KillAttempt(inner.id, inner.attempt, job.last_event_seq))


def succeeded(state: State, out: list[Action], at: float, job: Job) -> None:
    """An attempt succeeded: do what `on_success` says, then settle."""
    actions = state.step_of(job).on_success
    if actions is None or stopping(state, job):
        succeed(state, out, at, job)
        return
    job.rule = SUCCESS
    if actions.calls_js:
        ask(state, out, job, "calls")
        return
    _run_success(state, out, at, job, actions.calls)


def _run_success(state: State, out: list[Action], at: float, job: Job, calls: tuple[str, ...]) -> None:
    """Run what follows a success, or go on to its jump where there is nothing to run."""
    actions = state.step_of(job).on_success
    assert actions is not None
    job.calls = calls if state.options.failure_routing else ()
    runs = bool(actions.steps or job.calls)
    if runs and actions.run_cost and not spend(state, out, at, job, actions.run_cost, "on_success", "run"):
        return
    if runs:
        begin_repair(state, out, at, job, actions.steps, None)
    else:
        _after_success(state, out, at, job)


def _after_success(state: State, out: list[Action], at: float, job: Job) -> None:
    """The steps after a success are done: jump where `on_success` says so, else settle."""
    actions = state.step_of(job).on_success
    assert actions is not None
    if state.options.failure_routing:
        if actions.target_js or actions.transitions:
            ask(state, out, job, "target")
            return
        if actions.target:
            success_jump(state, out, at, job, actions.target, actions.cost)
            return
    job.rule = NO_RULE
    succeed(state, out, at, job)


def success_jump(state: State, out: list[Action], at: float, job: Job, target: str, cost: int) -> None:
    """Go back to an ancestor although all went well."""
    if spend(state, out, at, job, cost, "on_success", "goto"):
        record_route(state, out, at, job, "on_success", "goto", target, "on_success goto")
        jump(state, out, at, job, target)


def success_answered(
    state: State,
    out: list[Action],
    at: float,
    job: Job,
    about: str,
    calls: tuple[str, ...] | None,
    target: str,
    stop: bool,
) -> None:
    """The code of `on_success` has answered."""
    actions = state.step_of(job).on_success
    assert actions is not None
    if about == "calls":
        _run_success(state, out, at, job, tuple(dict.fromkeys((*actions.calls, *(calls or ())))))
        return
    where = "" if stop else valid_target(state, out, at, job, target, actions.target)
    if where:
        success_jump(state, out, at, job, where, actions.cost)
    else:
        job.rule = NO_RULE
        succeed(state, out, at, job)
