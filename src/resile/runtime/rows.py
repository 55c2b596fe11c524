"""The rows that surfaces query, made from the folded state."""

from __future__ import annotations

from resile.core.state import Job, State
from resile.store.contract import JobRow


def job_row(state: State, job: Job) -> JobRow:
    """One job as the surfaces see it."""
    cause = job.cause
    scope = state.scopes.get(job.scope)
    began, ended = state.times(job)
    return JobRow(
        job.id,
        state.step_of(job).name,
        "root" if scope is None else scope.name,
        job.shown,
        job.tried,
        job.exit_code,
        job.recovered,
        job.tolerated,
        None if cause is None else {"step": cause.step, "job": cause.job, "status": cause.status},
        began,
        ended,
    )
