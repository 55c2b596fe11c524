"""The ladder: a failure walks the job's rules in order; the first that matches and has budget left answers it.

    rule = match -> limit -> wait -> repair -> then

A spent rule no longer matches and the walk goes on. Below the last rule the failure stands.
"""

from __future__ import annotations

from resile.core.actions import Action, SetTimer
from resile.core.backoff import delay_seconds
from resile.core.dispatch import enqueue
from resile.core.flow import fail, settle, spend, succeed
from resile.core.notes import note_job
from resile.core.state import Job, Route, State
from resile.model.failure import Failure
from resile.model.limits import LOST_RETRIES
from resile.model.rules import Match, Rule
from resile.model.status import Status

_LOST = Match(kinds=("lost",))
_POISON = Rule(then="park", text="lost attempts park the step", match=_LOST)
# Every step's implicit first rules: a machine that fails is not the step's fault, but not for ever.
LOSS_RULES: dict[str, tuple[Rule, ...]] = {
    "retry": (Rule(then="retry", text="retry after a lost attempt", match=_LOST, limit=LOST_RETRIES), _POISON),
    "park": (_POISON,),
}


def climb(state: State, out: list[Action], at: float, job: Job, failure: Failure) -> None:
    """Find the rule that answers this failure and do as it says."""
    step = state.step_of(job)
    for number, rule in enumerate(LOSS_RULES[step.on_loss] + step.rules):
        fired = (job.fired or {}).get(number, 0)
        if fired < rule.limit and matches(rule.match, failure):
            job.fired = {**(job.fired or {}), number: fired + 1}
            _answer(state, out, at, job, failure, rule, fired + 1)
            return
    _route(state, at, job, "fail", "no rule left")
    fail(state, out, at, job, failure.message)


def matches(match: Match, failure: Failure) -> bool:
    """Do all matchers of a rule hold for this failure?"""
    return (
        (not match.kinds or failure.kind in match.kinds)
        and (not match.codes or failure.exit_code in match.codes)
        and failure.exit_code not in match.codes_excluded
        and (not match.signals or failure.signal in match.signals)
    )


def origin_text(state: State, rule: Rule) -> str:
    """Where a rule stands and what it says, as the summary prints it."""
    where = f"{state.workflow.file}:{rule.origin.line}:{rule.origin.column} " if rule.origin.line else ""
    return where + rule.text


def _answer(state: State, out: list[Action], at: float, job: Job, failure: Failure, rule: Rule, fired: int) -> None:
    """Carry out one rule's verdict."""
    if rule.cost and not spend(state, out, at, job, rule.cost, "on_failure", rule.then):
        return
    _route(state, at, job, rule.then, origin_text(state, rule))
    match rule.then:
        case "retry":
            _retry(state, out, at, job, rule, fired)
        case "tolerate":
            job.tolerated = True
            succeed(state, out, at, job)
        case "park":
            scope = state.scopes[job.scope]
            scope.active -= 1
            scope.parked += 1
            job.status = Status.pending_failed
            note_job(state, out, at, "step_parked", job, {"message": failure.message})
        case "fail":
            fail(state, out, at, job, failure.message)
        case _:
            settle(state, out, at, job, Status.failed, {"message": f"{failure.message} ({rule.then} has no repair)"})


def _retry(state: State, out: list[Action], at: float, job: Job, rule: Rule, fired: int) -> None:
    """Reserve the next attempt, now or after the rule's wait."""
    identity = f"{state.workflow.name}/{state.step_of(job).name}"
    delay = delay_seconds(rule.wait, fired, identity) if rule.wait is not None else 0.0
    data = {"rule": origin_text(state, rule), "delay_seconds": delay, "next_attempt": job.attempt + 1}
    if delay > 0:
        job.status = Status.recovering
        job.due = at + delay
        seq = note_job(state, out, at, "retry_scheduled", job, data)
        out.append(SetTimer(job.id, job.attempt, job.due, seq))
        return
    seq = note_job(state, out, at, "retry_scheduled", job, data)
    enqueue(state, job, seq)


def _route(state: State, at: float, job: Job, action: str, rule: str) -> None:
    """Keep one line for the summary."""
    name = state.step_of(job).name
    state.routes.append(Route(at, state.scopes[job.scope].name, name, job.attempt, "on_failure", action, None, rule))
