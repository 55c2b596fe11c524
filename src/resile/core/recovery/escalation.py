"""Rules that grant a job more memory or time with each attempt, up to a ceiling."""

from __future__ import annotations

from resile.core.scheduling.reservations import resources_for
from resile.core.state import Job, State
from resile.model.failure import Failure, Kind
from resile.model.workflow import Rule


def can_escalate(state: State, job: Job, rule: Rule, failure: Failure) -> bool:
    """Can this rule still raise its grant? True for a rule that grants nothing."""
    return rule.change is None or _larger_grant(state, job, rule, failure) is not None


def escalate(state: State, job: Job, rule: Rule) -> None:
    """Grant a job more memory or time for its next attempt."""
    assert job.error is not None
    larger = _larger_grant(state, job, rule, job.error.failure)
    if larger is not None:
        job.memory_bytes, job.runtime_seconds = larger


def _larger_grant(state: State, job: Job, rule: Rule, failure: Failure) -> tuple[int, float] | None:
    """The next larger memory and runtime, or None where the exhausted one is at its ceiling."""
    change, resources = rule.change, resources_for(state, job)
    if change is None or resources is None:
        return None
    memory, runtime = resources.memory_bytes, resources.runtime_seconds or 0.0
    if failure.kind == Kind.TIMEOUT:
        ceiling = change.runtime_seconds_max
        longer = min(runtime * change.factor, ceiling) if ceiling else runtime * change.factor
        return (memory, longer) if longer > runtime else None
    most = change.memory_bytes_max
    larger = min(int(memory * change.factor), most) if most else int(memory * change.factor)
    return (larger, runtime) if larger > memory else None
