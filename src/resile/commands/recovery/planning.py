"""Plans one round of a recovery: an action for each failure, and the events that carry it out; writes nothing.

A grant is max(granted, peak) x multiplier, rounded up, never above the ceiling. A job that has reached the ceiling is
hopeless.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from resile.commands.documents.recovery import Granted, PlannedRecovery
from resile.commands.inspect import standing
from resile.commands.recovery.diagnosis import Diagnosis, diagnose
from resile.commands.recovery.failed_jobs import FailedJob, failed_jobs
from resile.core.epochs.recovery import with_followers
from resile.core.events import EpochStarted, Event, Grant, Judged, Remedy, RetryRequested
from resile.core.state import ROOT, State
from resile.engine.replay import fold_log, row_of
from resile.engine.session import caller
from resile.errors import ResileError
from resile.model.limits import size
from resile.model.status import FAILED, RunStatus
from resile.model.workflow import Child, FanOut
from resile.store.server_tables import SharedStore

MEBIBYTE = 1 << 20


class RecoveryOptions(Struct, frozen=True, kw_only=True):
    """How to recover a run: the factors and ceilings by which limits grow, and what to do with unknown failures."""

    memory_multiplier: float = 1.5
    runtime_multiplier: float = 1.5
    memory_bytes_max: int = 64 << 30
    runtime_seconds_max: float = 24 * 3600.0
    retry_unknown: bool = False
    park_unknown: bool = False
    hook: str = ""
    rounds_max: int = 3


class RoundPlan(Struct, frozen=True):
    """The plan of one round; `seq` is the last event that it takes into account. Without `events` it does nothing.

    The jobs in `parked` wait for a judgement.
    """

    run: int
    workflow: str
    status: RunStatus
    seq: int
    jobs: list[PlannedRecovery]
    events: list[Event]
    parked: frozenset[int] = frozenset()


class _Decision(Struct, frozen=True):
    """One failed job, its diagnosis, and the action for it."""

    failed: FailedJob
    diagnosis: Diagnosis
    action: str
    grant: Grant = Grant()


def plan_round(store: SharedStore, run: int, options: RecoveryOptions, number: int = 1) -> RoundPlan:
    """Plan a round of recovery for a run that has ended or is parked; refuse an unfinished run."""
    with store.reading():
        row = row_of(store, run)
        status = standing(store, row)
        if status in ("running", "interrupted"):
            hint = f"`resile watch {run} --recover` waits for it" if status == "running" else f"`resile resume {run}`"
            raise ResileError(
                "run-unfinished", f"run {run} is {status}; only what has ended can be recovered", hint=hint
            )
        state = fold_log(store, row)
        if status not in ("failed", "parked"):
            return RoundPlan(run, row.workflow, status, state.seq, [], [])
        decisions = [
            _decide(state, one, diagnose(one, store.signature_history), options, status)
            for one in failed_jobs(store, run, state)
        ]
    decisions = _with_neighbours(decisions)
    stuck = _stuck(state, {one.failed.root for one in decisions if one.action != "stay"})
    jobs = [_entry(state, one, stuck, number) for one in decisions]
    acting = [one for one in decisions if one.action != "stay"]
    parked = frozenset(one.failed.job for one in decisions if one.failed.parked)
    return RoundPlan(run, row.workflow, status, state.seq, jobs, _events(acting, status), parked)


def _decide(
    state: State, failed: FailedJob, found: Diagnosis, options: RecoveryOptions, status: RunStatus
) -> _Decision:
    """Choose the action for one failure."""
    if status == "parked" and not failed.parked and isinstance(failed.step.action, FanOut | Child) | failed.is_inside:
        text = f"{found.evidence}; it waits until nothing is parked"
        return _Decision(failed, Diagnosis(found.name, text), "stay")
    match found.name:
        case "oom":
            return _with_memory(state, failed, found, options)
        case "timeout":
            return _with_time(state, failed, found, options)
        case "unknown" if not options.retry_unknown:
            parks = options.park_unknown and not failed.parked and not failed.is_inside
            if parks and status == "parked":
                # Only the event of a new epoch parks a failure, and a parked run can't begin a new epoch.
                text = f"{found.evidence}; it can be parked once nothing else is"
                return _Decision(failed, Diagnosis(found.name, text), "stay")
            return _Decision(failed, found, "park" if parks else "stay")
    return _Decision(failed, found, "retry", _had(state, failed))


def _had(state: State, failed: FailedJob) -> Grant:
    """The memory and time that a job was granted beyond its step's request."""
    job = state.jobs.get(failed.job)
    return Grant() if job is None else Grant(job.memory_bytes, job.runtime_seconds)


def _with_memory(state: State, failed: FailedJob, found: Diagnosis, options: RecoveryOptions) -> _Decision:
    """Grant more memory to a job that ran out of it, up to the ceiling and to the memory that the run has."""
    peak = failed.last.usage.rss_bytes_max if failed.last is not None else 0
    most, why = options.memory_bytes_max, "--memory-max"
    there = state.capacity.memory_bytes if state.capacity is not None else 0
    if 0 < there < most:
        most, why = there, "all that the run may use"
    needed = max(failed.granted_memory_bytes, peak)
    if needed >= most:
        text = f"{found.evidence}; it needs more than {size(most)}, {why}"
        return _Decision(failed, Diagnosis("hopeless", text), "stay")
    more = min(most, math.ceil(needed * options.memory_multiplier / MEBIBYTE - 1e-9) * MEBIBYTE)
    return _Decision(failed, found, "retry", Grant(more, _had(state, failed).runtime_seconds))


def _with_time(state: State, failed: FailedJob, found: Diagnosis, options: RecoveryOptions) -> _Decision:
    """Grant more time to a job that ran out of it, up to the ceiling."""
    wall = failed.last.usage.wall_seconds if failed.last is not None else 0.0
    needed = max(failed.granted_seconds, wall)
    if needed >= options.runtime_seconds_max:
        text = f"{found.evidence}; it needs more than {options.runtime_seconds_max:g}s, --runtime-max"
        return _Decision(failed, Diagnosis("hopeless", text), "stay")
    more = min(options.runtime_seconds_max, math.ceil(needed * options.runtime_multiplier - 1e-9))
    return _Decision(failed, found, "retry", Grant(_had(state, failed).memory_bytes, float(more)))


def _with_neighbours(decisions: Sequence[_Decision]) -> list[_Decision]:
    """The decisions, changed so that all failures in a map or a child workflow run again if one of them does."""
    again = {one.failed.root for one in decisions if one.action == "retry" and one.failed.is_inside}
    found = []
    for one in decisions:
        if one.action == "stay" and one.failed.is_inside and not one.failed.parked and one.failed.root in again:
            text = f"{one.diagnosis.evidence}; it runs again with the rest of its step"
            found.append(replace(one, diagnosis=Diagnosis(one.diagnosis.name, text), action="retry"))
        else:
            found.append(one)
    return found


def _stuck(state: State, answered: set[int]) -> set[int]:
    """The jobs that can't run because a failure that they need stays."""
    plan, first = state.plan, state.scopes[ROOT].first
    stuck = {
        job.id
        for job in state.jobs_in(state.scopes[ROOT])
        if job.status is FAILED and not job.counts_as_success and job.id not in answered
    }
    grown = True
    while grown:
        grown = False
        for number, step in enumerate(plan.steps):
            if first + number in stuck or first + number in answered or number == plan.end:
                continue
            for need in step.needs:
                members = [first + plan.index[name] for name in need.any_of]
                if not need.failure_satisfies and all(member in stuck for member in members):
                    stuck.add(first + number)
                    grown = True
                    break
    return stuck


def _entry(state: State, one: _Decision, stuck: set[int], number: int) -> PlannedRecovery:
    """One line of the plan."""
    failed = one.failed
    memory, seconds = failed.granted_memory_bytes, failed.granted_seconds
    again: list[str] = []
    if one.action == "retry":
        opened = with_followers(state, {failed.root}) - stuck
        again = [state.step_of(state.jobs[job]).name for job in sorted(opened)]
    grant = one.grant if one.action == "retry" else Grant()
    return PlannedRecovery(
        job=failed.job,
        step=failed.name,
        diagnosis=one.diagnosis.name,
        evidence=one.diagnosis.evidence,
        granted=Granted(memory_bytes=memory or None, runtime_seconds=seconds or None),
        next=Granted(
            memory_bytes=grant.memory_bytes or memory or None, runtime_seconds=grant.runtime_seconds or seconds or None
        ),
        again=again,
        action=one.action,  # type: ignore[arg-type]
        round=number,
    )


def _events(acting: Sequence[_Decision], status: RunStatus) -> list[Event]:
    """The events of a round: a new epoch for a run that has ended, judgements and retries for a parked one."""
    by = caller()
    if not acting:
        return []
    if status == "failed":
        return [EpochStarted(0.0, True, by, None, tuple(_remedy(one) for one in acting))]
    events: list[Event] = []
    for one in acting:
        reason = f"recovery: {one.diagnosis.name}"
        if one.failed.parked:
            memory, seconds = one.grant.memory_bytes, one.grant.runtime_seconds
            events.append(Judged(0.0, one.failed.job, "retry", by, reason, None, memory, seconds, offline=True))
        elif one.action == "retry":
            events.append(RetryRequested(0.0, one.failed.job, by, reason, offline=True, grant=one.grant))
    return events


def _remedy(one: _Decision) -> Remedy:
    """The part of the new epoch's event that tells the core what to do about one failure."""
    failed, park = one.failed, one.action == "park"
    failure = failed.last.failure if park and failed.last is not None else None
    return Remedy(failed.root, failed.name, one.diagnosis.name, one.grant, park, failure)
