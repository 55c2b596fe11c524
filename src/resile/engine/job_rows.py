"""The rows that surfaces query, made from the folded state."""

from __future__ import annotations

from collections.abc import Iterable

from resile.core.state import ROOT, Job, State
from resile.store.contract import JobRow


def job_row(state: State, job: Job) -> JobRow:
    """One job as the surfaces see it."""
    scope = state.scopes.get(job.scope)
    return _row(state, job, state.step_of(job).name, "root" if scope is None else scope.name)


def root_rows(state: State, numbers: Iterable[int], rows: dict[int, JobRow]) -> None:
    """Add the rows of these jobs of the root scope; the scope's name is looked up once for all."""
    jobs, steps = state.jobs, state.plans[ROOT].steps
    for number in numbers:
        job = jobs[number]
        rows[number] = _row(state, job, steps[job.step].name, "root")


def _row(state: State, job: Job, step: str, scope: str) -> JobRow:
    """A job by the names of its step and its scope."""
    cause = job.cause
    began, ended = state.times(job)
    return JobRow(
        job.id,
        step,
        scope,
        job.status_shown,
        job.attempts_started,
        job.exit_code,
        job.recovered,
        job.tolerated,
        None if cause is None else {"step": cause.step, "job": cause.job, "status": cause.status},
        began,
        ended,
    )
