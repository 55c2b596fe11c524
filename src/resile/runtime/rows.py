"""The rows that surfaces query, made from the folded state."""

from __future__ import annotations

from resile.core.state import Job, State
from resile.store.contract import JobRow


def job_row(state: State, job: Job) -> JobRow:
    """One job as the surfaces see it."""
    cause = job.cause
    return JobRow(
        job.id,
        state.step_of(job).name,
        state.scopes[job.scope].name if job.scope in state.scopes else "root",
        job.shown,
        job.tried,
        job.exit_code,
        job.recovered,
        job.tolerated,
        None if cause is None else {"step": cause.step, "job": cause.job, "status": cause.status},
        job.started_at,
        job.ended_at,
    )
