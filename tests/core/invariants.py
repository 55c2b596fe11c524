"""Invariants of the state, which hold after every event."""

from __future__ import annotations

from resile.core.state import ROOT, Job, State
from resile.model.status import TERMINAL, Status

_ACTIVE = (Status.ready, Status.pending, Status.running)


def broken_invariants(state: State) -> list[str]:
    """The invariants that do not hold, in words; empty when all is well."""
    found: list[str] = []
    every = list(state.jobs.values())
    end = state.jobs[state.plan.end + 1]
    counts = {
        "active": (state.active, sum(_is_active(job) for job in every)),
        "early": (state.early, sum(job.attempt_state == "early" for job in every)),
        "parked": (state.parked, sum(job.status is Status.pending_failed for job in every)),
        "in flight": (
            state.in_flight,
            sum(job.runs_attempt for job in every),
        ),
    }
    for scope in state.scopes.values():
        inside = [job for job in every if job.scope == scope.id and not state.is_end(job)]
        counts[f"open in {scope.name}"] = (scope.open, sum(job.status not in TERMINAL for job in inside))
    found += [f"{name}: counted {kept}, there are {real}" for name, (kept, real) in counts.items() if kept != real]
    capacity = state.capacity
    if capacity is not None and state.in_flight > capacity.parallel + capacity.ahead + capacity.early:
        room = f"{capacity.parallel}+{capacity.ahead}+{capacity.early}"
        found.append(f"{state.in_flight} attempts in flight, room for {room}")
    if (end.status is not Status.blocked or end.waits_for) and state.scopes[ROOT].open:
        found.append("`end` moved before everything else was terminal")
    if state.phase == "ended" and (end.status not in TERMINAL or not state.verdict):
        found.append("the run ended without `end` or without a verdict")
    for scope in state.scopes.values():
        if any(count < 0 for count in scope.waiting):
            found.append(f"negative in-degree in {scope.name}: {scope.waiting}")
        for row in state.plans[scope.id].rows:
            if row is not None and len(set(scope.waiting[row])) > 1:
                found.append(f"steps with the same needs wait for different numbers of steps: {scope.waiting[row]}")
    return found


def _is_active(job: Job) -> bool:
    """Does this job make progress without outside input?"""
    if job.waits_for:
        return job.active if job.hosting else True
    if job.status is Status.recovering:
        return (bool(job.timer_at) and not job.repair_scope and not job.calls) or job.active
    return job.status in _ACTIVE
