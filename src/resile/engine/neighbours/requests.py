"""Requests of other processes to the engine of a run: the event that each becomes, and the result for its caller.

    cancel    stops the run; `end` runs              judge    answers a parked failure
    retry     runs a job again                       resume   nothing: the run is being driven

A result is `{"ok": true, ...}` or `{"error": {"code", "message", "hint"}}`. It becomes durable with the event.
"""

from __future__ import annotations

from typing import Any

import msgspec

from resile.core.events import CancelRequested, Event, Judged, RetryRequested
from resile.core.scheduling.retries import retry_problem
from resile.core.state import State
from resile.model.status import PENDING_FAILED, STATUS_NAMES
from resile.store.contract import Request

Result = dict[str, Any]


def refuse(code: str, message: str, hint: str = "") -> Result:
    """The result of a request that changes nothing."""
    return {"error": {"code": code, "message": message, "hint": hint}}


def answer_request(state: State, request: Request, now: float) -> tuple[Event | None, Result]:
    """The event that a request becomes in a run that is driven, and its result."""
    body = request.body
    match request.kind:
        case "cancel":
            return CancelRequested(now, str(body.get("by", "")), str(body.get("reason", ""))), {"ok": True}
        case "judge":
            return _judge(state, request, now)
        case "retry":
            return retry_job(state, request, now)
        case "resume":
            return None, refuse("run-active", f"run {request.run} is being driven")
        case "rerun" | "redrive":
            return None, refuse("run-active", f"run {request.run} has not ended")
        case _:
            return None, refuse("bad-request", f"a server knows no request {request.kind!r}")


def _judge(state: State, request: Request, now: float) -> tuple[Event | None, Result]:
    """A judgement counts only if its failure is still parked, so that only one of two judges wins."""
    try:
        event = msgspec.convert({**request.body, "at": now}, Judged)
    except msgspec.ValidationError as error:
        return None, refuse("bad-request", f"a judgement that can't be read: {error}")
    job = state.jobs.get(event.job)
    if job is None:
        return None, refuse("no-such-job", f"run {request.run} has no job {event.job}")
    if job.status is not PENDING_FAILED:
        name, status = state.step_of(job).name, STATUS_NAMES[job.status]
        return None, refuse("not-parked", f"job {job.id} ({name}) is {status}, not parked")
    return event, {"ok": True, "job": job.id, "step": state.step_of(job).name}


def retry_job(state: State, request: Request, now: float, *, offline: bool = False) -> tuple[Event | None, Result]:
    """Run a job again: refused in another epoch, in a status that has nothing to retry, and after enough attempts.

    The body names the `job`, the `epoch` and `attempts_max`. Each retry sees the changes of earlier ones, so only one
    of many wins.
    """
    body = request.body
    number = int(body.get("job", 0))
    if not 0 < number <= state.last_job:
        return None, refuse("job-not-found", f"run {request.run} has no job {body.get('job')}")
    if body.get("epoch", state.epoch) != state.epoch:
        return None, refuse("run-id-stale", f"run {request.run} is in epoch {state.epoch}, not {body['epoch']}")
    problem, job = retry_problem(state, number), state.jobs.get(number)
    if problem or job is None or job.stale:
        hint = "" if job is not None else "retry the step around it, or its dead letter"
        return None, refuse("job-not-retryable", f"job {number}: {problem or 'it is being retried'}", hint)
    if job.attempt >= int(body.get("attempts_max", job.attempt + 1)):
        return None, refuse("retries-exhausted", f"job {job.id} has had {job.attempt} attempts")
    event = RetryRequested(now, job.id, str(body.get("by", "")), str(body.get("reason", "")), offline)
    return event, {"ok": True, "job": job.id, "step": state.step_of(job).name, "attempt": job.attempt + 1}
