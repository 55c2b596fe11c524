"""Handlers for the engine's answers to questions, for timers, and for judgements of parked failures."""

from __future__ import annotations

from typing import Any

from resile.core.attempts import job_of_report
from resile.core.events import ArcsAnswered, ConditionAnswered, Judged, RouteAnswered, TimerFired, ValueAnswered
from resile.core.reaction import Reaction
from resile.core.scheduling.arcs import fail, settle_done, settle_or_revisit, take_arcs
from resile.core.scheduling.dependencies import recount
from resile.core.scheduling.reserve_ahead import block_again
from resile.core.state import SUCCESS, Error, Failed, Job
from resile.model.failure import Failure, Kind
from resile.model.status import PENDING_FAILED, RECOVERING, SKIPPED


def on_condition_answered(reaction: Reaction, event: ConditionAnswered) -> None:
    """Handle the value of a step's `when`: run the step, skip it and its dependents, or fail it."""
    job = reaction.state.jobs.get(event.job)
    if job is None or job.waits_for != "when":
        return
    if event.problem:
        reaction.note("expression_rejected", job, {"problem": event.problem})
    job.refused = event.refused
    if event.value or event.refused:
        job.waits_for = ""
        reaction.enqueue(job, job.because)
    else:
        settle_or_revisit(reaction, job, SKIPPED, {"reason": "`when` is false"})


def on_arcs_answered(reaction: Reaction, event: ArcsAnswered) -> None:
    """Handle the conditions on a step's arcs: take the arcs that hold."""
    state = reaction.state
    job = state.jobs.get(event.job)
    if job is None or job.waits_for != "arcs":
        return
    job.waits_for = ""
    if event.problem:
        reaction.note("expression_rejected", job, {"problem": event.problem})
    if event.memory:
        state.memory = {**state.memory, **event.memory}
    if event.refused and not state.is_stopping(job):
        name = state.step_of(job).name
        job.accepted = ""
        job.error = Error(event.at, job.attempt, name, Failure(Kind.CONTRACT, event.refused))
        if state.first_failure is None:
            state.first_failure = Failed(name, job.attempt, Kind.CONTRACT, job.exit_code, event.refused)
        fail(reaction, job, event.refused)
    elif state.is_stopping(job) or take_arcs(reaction, job, event.values, event.given):
        settle_done(reaction, job)


def on_route_answered(reaction: Reaction, event: RouteAnswered) -> None:
    """Handle the answer of a rule's or `on_success`'s code: run the steps or go to the step that it names."""
    from resile.core.recovery.ladder import apply_route_answer, apply_rule_answer
    from resile.core.recovery.on_success import apply_success_answer

    job = reaction.state.jobs.get(event.job)
    if job is None or job.waits_for != event.about:
        return
    job.waits_for = ""
    for problem in event.problems:
        reaction.note("expression_rejected", job, {"problem": problem})
    if event.about == "rule":
        apply_rule_answer(reaction, job, not event.stop)
    elif job.rule == SUCCESS:
        apply_success_answer(reaction, job, event.about, event.calls, event.target, event.stop)
    else:
        apply_route_answer(reaction, job, event.calls, event.target, event.stop)


def on_value_answered(reaction: Reaction, event: ValueAnswered) -> None:
    """Take the value that the engine computed from a child workflow's outputs, or the failure to do so."""
    from resile.core.fanout.child_workflow import take_child_value

    job = reaction.state.jobs.get(event.job)
    if job is not None and job.waits_for == "value" and job.attempt == event.attempt:
        job.waits_for = ""
        take_child_value(reaction, job, event.outcome)


def on_timer_fired(reaction: Reaction, event: TimerFired) -> None:
    """Handle a timer: the end of a wait, or the timeout of a repair, an item, a child workflow or an open circuit."""
    host = reaction.state.jobs.get(event.job)
    if host is not None and host.hosting:
        from resile.core.fanout.timers import host_timer

        host_timer(reaction, event, host)
        return
    job = job_of_report(reaction.state, event.job, event.attempt)
    if job is None or job.status is not RECOVERING:
        return
    from resile.core.recovery.ladder import repair_or_carry_out
    from resile.core.recovery.repair import expire_repair

    if event.repair:
        expire_repair(reaction, job)
    elif job.active:
        job.timer_at = 0.0
        repair_or_carry_out(reaction, job)


def on_judged(reaction: Reaction, event: Judged) -> None:
    """Apply a user's judgement of a parked failure: retry the step, skip it, or let it fail."""
    state = reaction.state
    job = state.jobs.get(event.job)
    if job is None or job.status is not PENDING_FAILED:
        return
    data: dict[str, Any] = {"verdict": event.verdict, "by": event.by, "actor": event.by, "reason": event.reason}
    if event.confidence is not None:
        data["confidence"] = event.confidence
    granted = {"memory_bytes": event.memory_bytes, "runtime_seconds": event.runtime_seconds}
    data |= {name: value for name, value in granted.items() if value}
    reaction.note("step_judged", job, data)
    reaction.summarize_route(job, "judge", event.verdict, None, event.reason or "judge")
    match event.verdict:
        case "retry":
            state.parked -= 1
            job.memory_bytes = event.memory_bytes or job.memory_bytes
            job.runtime_seconds = event.runtime_seconds or job.runtime_seconds
            # A judge can be asked again, so a judgement does not spend the rule that parked the job.
            job.fired = {number: count for number, count in (job.fired or {}).items() if number != job.rule}
            job.error = None
            if job.visit:
                reaction.enqueue(job, job.last_event_seq)
            else:
                _wait_for_needs(reaction, job)
        case "skip":
            job.accepted = "judged"
            names = [capture.name for capture in state.step_of(job).capture]
            if event.output is not None:
                names = names or [state.step_of(job).name]
            values = dict.fromkeys(names, "" if event.output is None else event.output)
            frame = state.frame_of(job.scope)
            frame.values = {**frame.values, **values}
            settle_or_revisit(reaction, job, SKIPPED, data)
        case "fail":
            fail(reaction, job, event.reason or "judged a failure")


def _wait_for_needs(reaction: Reaction, job: Job) -> None:
    """Let a job whose early attempt was lost wait for its needs, some of which may be over by now."""
    block_again(reaction.state, job)
    recount(reaction, reaction.state.scopes[job.scope], [job.step])
