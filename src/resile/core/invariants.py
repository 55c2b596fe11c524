"""What must hold after every event. Tests check it after each; a run does not pay for it."""

from __future__ import annotations

from resile.core.state import ROOT, State
from resile.model.status import TERMINAL, Status

_MOVING = (Status.ready, Status.pending, Status.running, Status.recovering)


def broken(state: State) -> list[str]:
    """The invariants that do not hold, in words; empty when all is well."""
    found: list[str] = []
    scope = state.scopes[ROOT]
    end = state.plan.end
    jobs = [job for job in state.jobs.values() if job.step != end]
    every = list(state.jobs.values())
    counts = {
        "open": (scope.open, sum(job.status not in TERMINAL for job in jobs)),
        "active": (scope.active, sum(job.status in _MOVING or job.asking == "when" for job in every)),
        "parked": (scope.parked, sum(job.status is Status.pending_failed for job in every)),
        "in flight": (
            state.in_flight,
            sum(job.status in (Status.pending, Status.running) and not job.asking for job in every),
        ),
    }
    found += [f"{name}: counted {kept}, there are {real}" for name, (kept, real) in counts.items() if kept != real]
    capacity = state.capacity
    if capacity is not None and state.in_flight > capacity.parallel + capacity.ahead:
        found.append(f"{state.in_flight} attempts in flight, room for {capacity.parallel + capacity.ahead}")
    last = every[-1]
    if last.status is not Status.blocked and not last.asking and scope.open:
        found.append("`end` moved before everything else was terminal")
    if state.phase == "ended" and (last.status not in TERMINAL or not state.verdict):
        found.append("the run ended without `end` or without a verdict")
    waiting = [number for number, count in enumerate(scope.waiting) if count < 0]
    if waiting:
        found.append(f"negative in-degree at steps {waiting}")
    return found
