"""Repairs, and the steps after a success: steps of a scope of their own, then named steps of the job's scope.

    begin_repair --> a scope of jobs --> all done --> named calls, one by one --> done
                                             |             |                       |
                                             +-- failed ---+-----------------------+--> ladder.after_repair, or
                                                                                        on_success.after_success_steps

A repair consists of ordinary jobs: durable, logged, with timeouts and rules of their own. wakeups.py drives it.

The ladder and `on_success` share the questions to a rule's code, too.
"""

from __future__ import annotations

from typing import Any, Literal

from resile.core.actions import AnswerRoute, KillAttempt, SetTimer
from resile.core.fanout.naming import part_name
from resile.core.reaction import Reaction
from resile.core.scheduling.arcs import fail
from resile.core.scheduling.dependencies import reopen
from resile.core.scheduling.goto import is_ancestor, reopen_if_stale
from resile.core.scheduling.reservations import mark_active, mark_idle
from resile.core.scheduling.scopes import open_scope, start_scope
from resile.core.state import SUCCESS, Job, Scope, State
from resile.core.transitions import set_status
from resile.model.nested import step_name
from resile.model.status import BLOCKED, COMPLETED, PENDING, RECOVERING, RUNNING, SKIPPED, TERMINAL
from resile.model.workflow import Rule, Step


def begin_repair(reaction: Reaction, job: Job, steps: tuple[Step, ...], timeout_seconds: float | None) -> str | None:
    """Open the scope of a repair, or call its named steps; return why it can't begin, None where it is under way."""
    state = reaction.state
    mark_idle(state, job)
    set_status(job, RECOVERING)
    what = "on_success" if job.rule == SUCCESS else "on_failure"
    data: dict[str, Any] = {"for": what, "calls": list(job.calls)}
    if job.rule != SUCCESS:
        rule = state.rules_of(job)[job.rule]
        data |= {"rule": origin_text(state, job, rule), "then": rule.then}
    seq = reaction.note("repair_started", job, data)
    if timeout_seconds is not None:
        job.timer_at = reaction.at + timeout_seconds
        reaction.order(SetTimer(job.id, job.attempt, job.timer_at, seq, repair=True))
    if not steps:
        return call_next(reaction, job)
    scope = open_scope(state, job, "repair", f"{part_name(state, state.step_of(job).name)}.{what}")
    job.repair_scope = scope.id
    start_scope(reaction, scope, seq)
    return None


def call_next(reaction: Reaction, job: Job) -> str | None:
    """Run the next named step of a repair; return why it can't run, None where it is under way."""
    state = reaction.state
    name = job.calls[0]
    called = state.job_named(name, job.scope)
    assert called is not None
    if called.id in _jobs_waiting_for(state, job):
        return f"remediation step {name!r} waits for the step that calls it"
    called.callers = (*called.callers, job.id)
    reaction.note_route(job, "on_success" if job.rule == SUCCESS else "on_failure", "run", name, "run")
    if called.status in TERMINAL or (called.status is BLOCKED and not called.waits_for):
        start_called(reaction, called)
    return None


def _jobs_waiting_for(state: State, job: Job) -> set[int]:
    """All jobs that wait for this one, itself included: if it called one of them, both would wait for ever."""
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


def start_called(reaction: Reaction, called: Job) -> None:
    """Run a step because a repair calls it, without regard to its needs."""
    settled = called.status in TERMINAL
    reopen(reaction.state, called)
    if settled:
        called.dependents_notified = True
    reaction.wake(called, reaction.state.seq)


def problem_of(state: State, scope: Scope) -> str:
    """Why a repair counts as failed; empty where all its steps passed.

    A handler that is to recover its step has not done so where conditions left all its steps out, and a fallback where
    they left out the last one, whose output it would give; in the first edition both had.
    """
    if scope.expired:
        return f"{scope.name} ran out of time"
    jobs = state.jobs_in(scope)
    for job in jobs:
        if job.status not in (COMPLETED, SKIPPED):
            return f"{step_name(scope.name, state.step_of(job).name)} failed"
    must_run = _steps_that_recover(state, scope, jobs) if state.workflow.edition > 1 else []
    if must_run and all(job.status is SKIPPED and not job.accepted for job in must_run):
        return (
            f"nothing ran in {scope.name}"
            if len(must_run) == len(jobs)
            else f"the last step of {scope.name} did not run"
        )
    return ""


def _steps_that_recover(state: State, scope: Scope, jobs: list[Job]) -> list[Job]:
    """The steps of a repair of which one must have run: those by which its owner recovers without a further attempt."""
    owner = state.jobs[scope.owner]
    if scope.rule == SUCCESS or owner.calls:
        return []
    then = state.rules_of(owner)[scope.rule].then
    return jobs if then == "recovered" else jobs[-1:] if then == "fallback" else []


def close_repair(reaction: Reaction, job: Job, problem: str) -> bool:
    """Note the end of a repair; False where a jump or a stop overtook its job."""
    job.timer_at = 0.0
    reaction.note("repair_finished", job, {"ok": False, "problem": problem} if problem else {"ok": True})
    if reopen_if_stale(reaction, job):
        return False
    if reaction.state.is_stopping(job):
        fail(reaction, job, problem or "the run is stopping")
        return False
    return True


def expire_repair(reaction: Reaction, job: Job) -> None:
    """A repair timed out: kill its attempts in flight and start none of its other steps."""
    state = reaction.state
    scope = state.scopes.get(job.repair_scope)
    if scope is None:
        return
    scope.expired = True
    for inner in state.jobs_in(scope):
        if inner.status in (PENDING, RUNNING):
            reaction.order(KillAttempt(inner.id, inner.attempt, job.last_event_seq))


def ask(reaction: Reaction, job: Job, about: Literal["rule", "calls", "target"]) -> None:
    """Have the code of a job's rule evaluated: whether it applies, which steps to run, or where to go."""
    mark_active(reaction.state, job)
    set_status(job, RECOVERING)
    job.waits_for = about
    reaction.order(AnswerRoute(job.id, job.rule, about, job.last_event_seq))


def valid_target(reaction: Reaction, job: Job, asked: str, static: str) -> str:
    """The target that code returned, if it is an ancestor; otherwise note that, and return the static target."""
    if asked and is_ancestor(reaction.state, job, asked):
        return asked
    if asked:
        problem = f"goto_js: {asked!r} is no ancestor of this step"
        reaction.note("expression_rejected", job, {"problem": problem})
    return static


def origin_text(state: State, job: Job, rule: Rule) -> str:
    """The position and text of a job's rule, as the summary prints them."""
    origin = rule.origin
    file = origin.file or state.workflow_of(job.scope).file
    return f"{file}:{origin.line}:{origin.column} {rule.text}" if origin.line else rule.text
