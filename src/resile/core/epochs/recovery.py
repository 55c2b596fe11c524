"""A recovery: an epoch that answers some failures of a run that has ended, and leaves the others as they are.

answered   its job runs again, with what was granted to it alone; or it is parked for a judge
ended by another's failure   waits again for what it needs, if something before it runs again
any other failure            stays failed, and what it canceled stays canceled
"""

from __future__ import annotations

from typing import Any

from resile.core.epochs.fresh_jobs import grant_again, start_over
from resile.core.events import Grant, Remedy
from resile.core.reaction import Reaction
from resile.core.scheduling.dependencies import recount, wake_joined
from resile.core.state import ROOT, Error, Job, Scope, State
from resile.model.failure import Failure, Kind
from resile.model.status import COMPLETED, FAILED, PENDING_FAILED, TERMINAL, TERMINATED


def grant(state: State, remedies: tuple[Remedy, ...]) -> None:
    """Remember what is granted to each job, by its path; never less than it had."""
    grants = dict(state.grants)
    for remedy in remedies:
        had, more = grants.get(remedy.name, Grant()), remedy.grant
        if more != Grant():
            grants[remedy.name] = Grant(
                max(had.memory_bytes, more.memory_bytes), max(had.runtime_seconds, more.runtime_seconds)
            )
    state.grants = grants


def remedy_data(remedies: tuple[Remedy, ...]) -> list[dict[str, Any]]:
    """What the log says about the remedies."""
    found = []
    for one in remedies:
        data: dict[str, Any] = {"job": one.job, "step": one.name, "diagnosis": one.diagnosis}
        if one.grant.memory_bytes:
            data["memory_bytes"] = one.grant.memory_bytes
        if one.grant.runtime_seconds:
            data["runtime_seconds"] = one.grant.runtime_seconds
        found.append(data | ({"park": True} if one.park else {}))
    return found


def jobs_of_recovery(state: State, remedies: tuple[Remedy, ...]) -> dict[int, Job]:
    """The jobs of the root scope for a recovery."""
    opened = opened_jobs(state, {remedy.job for remedy in remedies})
    parked = {remedy.job: remedy for remedy in remedies if remedy.park}
    end = state.plan.end
    jobs: dict[int, Job] = {}
    for job in state.jobs_in(state.scopes[ROOT]):
        if job.id in parked:
            jobs[job.id] = _parked_job(state, job, parked[job.id])
        elif job.id in opened or job.step == end:
            jobs[job.id] = start_over(job, state.fans.get(job.id), True)
        else:
            jobs[job.id] = job
    grant_again(state, jobs)
    return jobs


def opened_jobs(state: State, first: set[int]) -> set[int]:
    """The jobs that run again, or wait again, if these do.

    A job that was ended because of another's failure (TERMINATED) is no failure of its own: it runs again too. So does
    every job that has not ended at all.
    """
    jobs = state.jobs_in(state.scopes[ROOT])
    return with_followers(
        state, {job.id for job in jobs if job.id in first or job.status is TERMINATED or not _is_settled(job)}
    )


def with_followers(state: State, first: set[int]) -> set[int]:
    """These jobs of the root scope, and all that come after them and neither completed nor failed."""
    plan, scope = state.plan, state.scopes[ROOT]
    jobs = state.jobs_in(scope)
    opened = set(first)
    caused: dict[int, list[int]] = {}
    for job in jobs:
        if job.cause is not None:
            caused.setdefault(job.cause.job, []).append(job.id)
    work = [job for job in jobs if job.id in opened]
    while work:
        source = work.pop()
        after = [*plan.dependents[source.step], *(plan.index[arc.step] for arc in plan.steps[source.step].arcs)]
        found = {scope.first + number for number in after if number != plan.end}
        for number in sorted((found | set(caused.get(source.id, ()))) - opened):
            job = state.jobs[number]
            if job.status not in (COMPLETED, FAILED, PENDING_FAILED):
                opened.add(number)
                work.append(job)
    return opened


def _is_settled(job: Job) -> bool:
    return job.status in TERMINAL or job.status is PENDING_FAILED


def _parked_job(state: State, job: Job, remedy: Remedy) -> Job:
    """A failure that waits for a judge from now on."""
    failure = remedy.failure or Failure(Kind.CONTRACT, f"{remedy.name} failed")
    fresh = Job(job.id, job.scope, job.step, PENDING_FAILED, visit="started", exit_code=failure.exit_code)
    fresh.error = Error(state.last_at, job.attempt, state.step_of(job).name, failure)
    return fresh


def open_again(reaction: Reaction, scope: Scope, remedies: tuple[Remedy, ...], because: int) -> None:
    """Count the needs of the jobs that are open again, wake those without open needs, and say what is parked."""
    state = reaction.state
    jobs = state.jobs_in(scope)
    for job in jobs:
        if job.status not in TERMINAL:
            job.last_event_seq = because
            state.touched.append(job.id)
    for job in jobs:
        if job.status is PENDING_FAILED:
            state.parked += 1
    for remedy in remedies:
        if remedy.park:
            job = state.jobs[remedy.job]
            assert job.error is not None
            reaction.note("step_parked", job, {"message": job.error.failure.message, "diagnosis": remedy.diagnosis})
    recount(reaction, scope, [number for number in range(len(jobs)) if number != state.plan.end])
    if scope.joining:
        wake_joined(reaction, scope)
