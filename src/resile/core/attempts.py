"""Handlers for reports about attempts: one started, ended, was adopted by a new engine, or was withdrawn."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.core.actions import KillAttempt
from resile.core.events import AttemptAdopted, AttemptEnded, AttemptStarted, AttemptWithdrawn
from resile.core.growth import add_grown
from resile.core.reaction import Reaction
from resile.core.scheduling.arcs import fail, settle_or_revisit, succeed
from resile.core.scheduling.goto import reopen_if_stale
from resile.core.scheduling.reservations import release
from resile.core.scheduling.reserve_ahead import block_again, cancel_early_reservation
from resile.core.state import ROOT, Failed, Job, State
from resile.core.transitions import set_status
from resile.model.failure import Failure, Kind, Outcome
from resile.model.status import CANCELED, PENDING, RECOVERING, RUNNING, TERMINATED
from resile.model.workflow import Child, FanOut

OVERRIDES = ("completed", "failed")
_UNDER_WAY = (PENDING, RUNNING, RECOVERING)
# The exact types are compared here and in the engine: a failing isinstance check of a Struct is several times slower.
_HOSTING = frozenset((FanOut, Child))


def job_of_report(state: State, number: int, attempt: int) -> Job | None:
    """The job that a report is about; None for a late report about an earlier attempt, which changes nothing."""
    job = state.jobs.get(number)
    if job is None or job.attempt != attempt or job.waits_for:
        return None
    return job if job.status in _UNDER_WAY else None


def on_attempt_started(reaction: Reaction, event: AttemptStarted) -> None:
    """Set the job to running, and note the start."""
    job = job_of_report(reaction.state, event.job, event.attempt)
    if job is not None and job.status is PENDING:
        _note_start(reaction, job, event.pid)


def on_attempt_adopted(reaction: Reaction, event: AttemptAdopted) -> None:
    """Note that a resumed engine watches this attempt again; kill it if its scope is stopping."""
    state = reaction.state
    job = job_of_report(state, event.job, event.attempt)
    if job is None:
        return
    if job.status is PENDING:
        # It started while no engine was there to note it.
        reaction.at = event.started_at or event.at
        _note_start(reaction, job, event.pid)
        reaction.at = event.at
    reaction.note("attempt_adopted", job, {"pid": event.pid})
    if state.is_stopping(job):
        reaction.order(KillAttempt(job.id, job.attempt, job.last_event_seq))


def _note_start(reaction: Reaction, job: Job, pid: int) -> None:
    """Note the start of a step (once for each visit) and of this attempt."""
    set_status(job, RUNNING)
    data = {"pid": pid} if pid else {}
    if not job.visit:
        job.visit = "started"
        reaction.state.set_began(job, reaction.at)
        reaction.note_pair("step_started", "attempt_started", job, data, job.because)
    else:
        reaction.note("attempt_started", job, data)


def on_attempt_ended(reaction: Reaction, event: AttemptEnded) -> None:
    """Handle the outcome of an attempt: after a success follow the arcs, after a failure climb the ladder."""
    state = reaction.state
    job = job_of_report(state, event.job, event.attempt)
    if job is None:
        return
    outcome = event.outcome
    if job.attempt_state == "early" and outcome.failure is not None and outcome.failure.kind == Kind.LOST:
        _lose_early(reaction, event, job, outcome.failure)
        return
    if job.status is PENDING:
        # This event also reports the start, which happened `wall_seconds` earlier.
        reaction.at = event.at - outcome.usage.wall_seconds
        _note_start(reaction, job, event.pid)
        reaction.at = event.at
    release(state, job)
    job.exit_code = outcome.exit_code
    job.output_lost = outcome.output_lost
    step = state.step_of(job)
    if outcome.failure is None and type(step.action) in _HOSTING:
        _begin_hosting(reaction, event, job)
        return
    if outcome.output_lost:
        # Those of an earlier visit are not this one's.
        values = state.frame_of(job.scope).values
        state.frame_of(job.scope).values = {
            name: value for name, value in values.items() if name not in [one.name for one in step.capture]
        }
    if outcome.values_grown or outcome.memory_grown:
        outcome = _with_growth(state, job, outcome)
    if outcome.values:
        state.frame_of(job.scope).values.update(outcome.values)
        if outcome.failure is None and state.is_end(job):
            _override_verdict(state, job, outcome.values.get("workflow_status"))
    if outcome.memory:
        state.memory = {**state.memory, **outcome.memory}
    if outcome.failure is None:
        reaction.note("attempt_succeeded", job, _usage_data(event))
        if not job.stale or not reopen_if_stale(reaction, job):
            _succeed(reaction, job)
        return
    failure = outcome.failure
    kind = "attempt_lost" if failure.kind == Kind.LOST else "attempt_failed"
    reaction.note(kind, job, _usage_data(event) | _failure_data(failure))
    if event.canceled and not job.stale:
        settle_or_revisit(reaction, job, TERMINATED, {"message": failure.message})
        return
    if reopen_if_stale(reaction, job):
        return
    if state.first_failure is None:
        state.first_failure = Failed(step.name, job.attempt, failure.kind, failure.exit_code, failure.message)
    if state.is_stopping(job):
        fail(reaction, job, failure.message)
    else:
        _climb(reaction, job, failure)


def _succeed(reaction: Reaction, job: Job) -> None:
    """Settle a job whose attempt succeeded, after its `on_success`; that module is imported with the first one."""
    if reaction.state.step_of(job).on_success is None:
        succeed(reaction, job)
        return
    from resile.core.recovery.on_success import attempt_succeeded

    attempt_succeeded(reaction, job)


def _climb(reaction: Reaction, job: Job, failure: Failure) -> None:
    """Look for the rule that answers a failure; the modules for that are imported with the first one."""
    from resile.core.recovery.ladder import climb

    climb(reaction, job, failure)


def _with_growth(state: State, job: Job, outcome: Outcome) -> Outcome:
    """The outcome with the whole lists and mappings that it added to."""
    return replace(
        outcome,
        values=add_grown(state.frame_of(job.scope).values, outcome.values, outcome.values_grown),
        memory=add_grown(state.memory, outcome.memory, outcome.memory_grown),
    )


def _lose_early(reaction: Reaction, event: AttemptEnded, job: Job, failure: Failure) -> None:
    """An attempt was lost that its needs, of which one was lost too, may have started: the job waits for them again.

    Its number stays used. A step that must not run again after a loss is parked.
    """
    state = reaction.state
    release(state, job)
    if state.step_of(job).on_loss == "park" and not state.is_stopping(job):
        set_status(job, RUNNING)
        reaction.note("attempt_lost", job, _usage_data(event) | _failure_data(failure))
        _climb(reaction, job, failure)
        return
    reaction.note("attempt_lost", job, _usage_data(event) | _failure_data(failure))
    if state.is_stopping(job):
        settle_or_revisit(reaction, job, TERMINATED, {"message": failure.message})
    else:
        block_again(state, job)


def _override_verdict(state: State, job: Job, verdict: Any) -> None:
    """Apply the verdict that an explicit `end` sets for its workflow, if it sets one."""
    if verdict not in OVERRIDES:
        return
    if job.scope == ROOT:
        state.override = verdict
    else:
        state.scopes[job.scope].override = verdict


def _begin_hosting(reaction: Reaction, event: AttemptEnded, job: Job) -> None:
    """Open the items of a fan-out, or the scope of a child workflow, now that an attempt has prepared them."""
    from resile.core.fanout.child_workflow import begin_child
    from resile.core.fanout.fanout import begin_items

    state, values = reaction.state, event.outcome.values
    began = event.at - event.outcome.usage.wall_seconds
    if reopen_if_stale(reaction, job):
        return
    if state.is_stopping(job):
        settle_or_revisit(reaction, job, TERMINATED, {})
    elif isinstance(state.step_of(job).action, FanOut):
        goes_on = values.get("again", False)
        begin_items(reaction, job, values["items"], began, goes_on=goes_on, remarks=event.outcome.remarks)
    else:
        begin_child(reaction, job, values, began, event.outcome.kept)


def _usage_data(event: AttemptEnded) -> dict[str, Any]:
    """The measurements in the note about an attempt."""
    outcome = event.outcome
    usage = outcome.usage
    data: dict[str, Any] = {
        "exit_code": outcome.exit_code,
        "wall_seconds": round(usage.wall_seconds, 6),
        "cpu_seconds": round(usage.cpu_seconds, 6),
        "rss_bytes_max": usage.rss_bytes_max,
    }
    if outcome.memory:
        data["memory"] = outcome.memory
    if outcome.memory_grown:
        data["memory_grown"] = [{"path": list(one.path), "entries": one.entries} for one in outcome.memory_grown]
    if outcome.output_lost:
        data["output_lost"] = True
    if outcome.remarks:
        data["remarks"] = list(outcome.remarks)
    return data


def _failure_data(failure: Failure) -> dict[str, Any]:
    """The kind, message and signature in the note about a failed attempt."""
    data: dict[str, Any] = {"kind": failure.kind, "message": failure.message, "signature": failure.signature}
    if failure.signal is not None:
        data["signal"] = failure.signal
    return data


def on_attempt_withdrawn(reaction: Reaction, event: AttemptWithdrawn) -> None:
    """An attempt was withdrawn through no fault of its step: make the job ready again, at no cost."""
    state = reaction.state
    job = job_of_report(state, event.job, event.attempt)
    if job is None:
        return
    was_early = job.attempt_state == "early"
    release(state, job)
    if was_early and not event.started and not state.is_stopping(job):
        cancel_early_reservation(state, job)
        return
    if event.started:
        reaction.note("attempt_lost", job, {"interrupted": True} | ({"reason": event.why} if event.why else {}))
    else:
        job.attempt -= 1
    if state.is_stopping(job):
        settle_or_revisit(reaction, job, TERMINATED if event.started else CANCELED, {})
    else:
        reaction.enqueue(job, job.last_event_seq or job.because)
