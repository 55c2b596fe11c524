"""Lists parked failures, and judges one.

    judge --no engine drives the run--> record it here, under the lease; `resume` then continues
          --an engine drives it-------> leave a request, and wait until it is in the log

The first judgement of a failure in the log holds; a second one is refused.
"""

from __future__ import annotations

import os
import time
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from resile.commands.documents.answers import JudgementResult, ParkedFailure, ParkedFailures, PastAttempt
from resile.commands.documents.base import optional_timestamp, timestamp
from resile.commands.inspect import standing
from resile.core.events import Judged
from resile.core.recovery.repair import origin_text
from resile.core.state import NO_RULE, Job, State
from resile.engine.clock import clock_of
from resile.engine.replay import fold_log, row_of
from resile.engine.session import Session, caller, take
from resile.errors import ResileError
from resile.explain.rule_reference import parse_rule
from resile.model.builtin_actions import Ask
from resile.model.failure import Failure
from resile.model.nested import names_of
from resile.model.status import RUN_ENDED, Status
from resile.model.workflow import Step, Workflow
from resile.store.contract import AttemptRow, RunRow
from resile.store.errors import LeaseHeld
from resile.store.server_tables import SharedStore

ANSWER_SECONDS_MAX = 10.0
ASK_AGAIN_SECONDS = 0.05


class Judgement(Struct, frozen=True, kw_only=True):
    """A decision about one parked failure, and its reason; zero memory or time leaves the limits unchanged."""

    verdict: Literal["retry", "skip", "fail"]
    reason: str = ""
    output: Any = None
    memory_bytes: int = 0
    runtime_seconds: float = 0.0
    confidence: float | None = None


class ParkedStep(Struct, frozen=True):
    """The step of a parked failure, the workflow that it stands in, and the failure."""

    workflow: Workflow
    step: Step
    failure: Failure


def parked_failures(store: SharedStore, number: int) -> ParkedFailures:
    """Every parked failure of a run, with the tail of its output and the history of its attempts."""
    with store.reading():
        row = row_of(store, number)
        state = fold_log(store, row)
        jobs = [job for job in state.jobs.values() if job.status is Status.pending_failed]
        return ParkedFailures(
            run=number,
            workflow=row.workflow,
            status=standing(store, row),
            failures=[_failure_of(store, row, state, job) for job in jobs],
        )


def _failure_of(store: SharedStore, row: RunRow, state: State, job: Job) -> ParkedFailure:
    """One parked failure."""
    error = job.error
    assert error is not None
    failure = error.failure
    attempts = list(store.attempts(row.id, job.id))
    # A recovery may have parked it in an epoch without attempts of its own.
    last = attempts[-1] if attempts else None
    return ParkedFailure(
        job=job.id,
        step=state.step_of(job).name,
        scope=state.scopes[job.scope].name,
        attempts=job.attempt or error.attempt,
        failed_at=timestamp(error.at),
        kind=failure.kind,
        exit_code=failure.exit_code,
        signal=failure.signal,
        message=failure.message,
        signature=failure.signature,
        rule=parse_rule(
            "a recovery" if job.rule == NO_RULE else origin_text(state, job, state.rules_of(job)[job.rule])
        ),
        stdout=failure.stdout,
        stderr=failure.stderr,
        history=[_past_attempt(tried) for tried in attempts if tried.epoch == (last.epoch if last else 0)],
    )


def _past_attempt(row: AttemptRow) -> PastAttempt:
    """One attempt of a parked failure."""
    return PastAttempt(
        attempt=row.attempt,
        started_at=optional_timestamp(row.started_at),
        ended_at=optional_timestamp(row.ended_at),
        kind=row.failure.kind if row.failure else None,
        exit_code=row.exit_code,
        message=row.failure.message if row.failure else "",
        wall_seconds=round(row.usage.wall_seconds, 3),
        rss_bytes_max=row.usage.rss_bytes_max,
    )


def judge(store: SharedStore, number: int, which: str, judgement: Judgement, by: str = "") -> JudgementResult:
    """Judge a parked failure. An engine that drives the run continues at once; otherwise `resume` does.

    `by` is the judge; the caller of the command if it is empty.
    """
    row = row_of(store, number)
    if row.status in RUN_ENDED:
        hint = f"`resile rerun {number} --failed-only` runs again what did not complete"
        message = f"run {number} has ended ({row.status}); nothing waits for judgement"
        raise ResileError("not-parked", message, hint=hint)
    state = fold_log(store, row)
    job = parked_job(state, which, number)
    refuse_misfit(state, job, judgement)
    event = Judged(clock_of(state).now(), job.id, by=by or caller(), **structs.asdict(judgement))
    driven = _deliver(store, number, event, state.seq)
    tables = store.server_tables()
    if not driven and tables.submission(number) is not None:
        # The server handed the run back when it parked; make it due again.
        tables.enqueue(number, time.time())
    step = state.step_of(job).name
    return JudgementResult(run=number, job=job.id, step=step, driven=driven, by=event.by, **structs.asdict(judgement))


def parked_step(store: SharedStore, number: int, which: str) -> ParkedStep:
    """The step of one parked failure."""
    state = fold_log(store, row_of(store, number))
    job = parked_job(state, which, number)
    assert job.error is not None
    return ParkedStep(state.workflow_of(job.scope), state.step_of(job), job.error.failure)


def answer(store: SharedStore, number: int, which: str, text: str, by: str = "") -> JudgementResult:
    """Answer the question of a step that waits for it: the text is the step's output."""
    row = row_of(store, number)
    if row.status not in RUN_ENDED:
        state = fold_log(store, row)
        job = parked_job(state, which, number)
        if not isinstance(state.step_of(job).action, Ask):
            message = f"{state.step_of(job).name!r} asks nothing: it has failed, and waits for judgement"
            raise ResileError("no-question", message, hint=f"`resile parked {number}` shows how to judge it")
        which = str(job.id)
    return judge(store, number, which, Judgement(verdict="skip", output=text, reason="answered"), by)


def parked_job(state: State, which: str, number: int) -> Job:
    """The parked job with this id, or with this name if it is unambiguous."""
    hint = f"`resile parked {number}` lists what is parked"
    known = state.jobs.get(int(which)) if which.isascii() and which.isdigit() and len(which) <= 18 else None
    named = [known] if known is not None else [job for job in state.jobs.values() if which in _names(state, job)]
    parked = [job for job in named if job.status is Status.pending_failed]
    if len(parked) == 1:
        return parked[0]
    if parked:
        ids = ", ".join(str(job.id) for job in parked)
        message = f"{which!r} is the name of several parked jobs: {ids}"
        raise ResileError("ambiguous-job", message, hint="name one by its id")
    if named:
        name, status = state.step_of(named[0]).name, named[0].status.name
        raise ResileError("not-parked", f"job {named[0].id} ({name}) is {status}, not parked", hint=hint)
    raise ResileError("no-such-job", f"run {number} has no job {which!r}", hint=hint)


def _names(state: State, job: Job) -> tuple[str, ...]:
    """The accepted names of a job."""
    return names_of(state.scopes[job.scope].name, state.step_of(job).name)


def refuse_misfit(state: State, job: Job, judgement: Judgement) -> None:
    """Refuse a judgement that asks for more memory than the engine has: the job would wait for ever."""
    there = state.capacity.memory_bytes if state.capacity is not None else 0
    if there and judgement.memory_bytes > there:
        raise ResileError(
            "does-not-fit",
            f"{state.step_of(job).name!r} can't have {judgement.memory_bytes} bytes of memory: the run has {there}",
            hint="ask for less",
        )


def _deliver(store: SharedStore, number: int, event: Judged, after: int) -> bool:
    """Write a judgement to the log; True where the engine that drives the run took it.

    An engine may start or stop at any time, so leave a request for it and keep trying to take the lease. A request that
    comes too late has no effect: its failure is no longer parked.
    """
    left: int | None = None
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while True:
        try:
            lease = take(store, number)
        except LeaseHeld:
            if left is None:
                left = store.request(number, event.at, "judge", msgspec.to_builtins(event))
            if _is_taken(store, number, event.job, after, left):
                return True
            if time.monotonic() > deadline:
                raise ResileError(
                    "no-answer",
                    f"the engine of run {number} has been left the judgement but has not taken it",
                    hint=f"`resile events list {number} --type step_judged` shows whether it has by now",
                ) from None
            time.sleep(ASK_AGAIN_SECONDS)
            continue
        try:
            if _is_taken(store, number, event.job, after, left):
                return True
            row = row_of(store, number)
            state = fold_log(store, row)
            parked_job(state, str(event.job), number)
            session = Session(store, row, state, env=os.environ, listener=lambda _state, _notes: None)
            session.record(lease, msgspec.structs.replace(event, offline=True))
            return False
        finally:
            store.release_lease(lease)


def _is_taken(store: SharedStore, number: int, job: int, after: int, left: int | None) -> bool:
    """Has an engine taken the request? Raises if the failure was settled in another way first."""
    first = next(iter([note for note in store.notes(number, after) if note.job == job]), None)
    # Read last: it is written together with the judgement.
    result = None if left is None else store.result(left)
    if result is not None and "error" not in result:
        return True
    if first is not None and first.type == "step_judged":
        raise ResileError("judged-already", f"{first.data['by']} judged job {job} first: {first.data['verdict']}")
    if first is not None:
        raise ResileError("not-parked", f"job {job} is {first.status} by now, not parked")
    if result is not None:
        error = result["error"]
        raise ResileError(error["code"], error["message"], hint=error["hint"])
    return False
