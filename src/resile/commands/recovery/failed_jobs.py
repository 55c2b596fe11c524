"""The failed jobs of a run, at any depth, with the limits that each had and its last attempt."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from resile.core.fanout.naming import fan_name
from resile.core.scheduling.plan import plan_of
from resile.core.scheduling.scopes import read_kept
from resile.core.state import ROOT, Job, State
from resile.engine.resources import time_limit
from resile.model.builtin_actions import Ask
from resile.model.nested import step_name
from resile.model.status import FAILED, PENDING_FAILED
from resile.model.workflow import Child, FanOut, Step
from resile.store.contract import AttemptRow
from resile.store.server_tables import SharedStore


class FailedJob(Struct, frozen=True):
    """A job that failed; `root` is the job itself, or the job of the run's own step that it runs inside of.

    `granted_memory_bytes` and `granted_seconds` are the job's limits, 0 for no limit; `last` is its last attempt. A
    `parked` job waits for a judgement.
    """

    root: int
    job: int
    name: str
    step: Step
    granted_memory_bytes: int
    granted_seconds: float
    last: AttemptRow | None
    parked: bool = False

    @property
    def is_inside(self) -> bool:
        """Does the job run inside a map or a child workflow?"""
        return self.root != self.job


def failed_jobs(store: SharedStore, run: int, state: State) -> list[FailedJob]:
    """The failed and the parked jobs of a run; questions that wait for an answer are no failures."""
    found: list[FailedJob] = []
    for job in state.jobs.values():
        step = state.step_of(job)
        if job.status is PENDING_FAILED and not isinstance(step.action, Ask):
            found.append(_job_of_state(store, run, state, job, parked=True))
        elif job.status is FAILED and job.scope == ROOT and not job.counts_as_success and not state.is_end(job):
            inside = list(_failures_inside(store, run, state, job))
            found += inside or [_job_of_state(store, run, state, job)]
    return found


def _job_of_state(store: SharedStore, run: int, state: State, job: Job, *, parked: bool = False) -> FailedJob:
    """A failed job that the state still has."""
    step = state.step_of(job)
    root = job
    while root.scope != ROOT:
        root = state.jobs[state.scopes[root.scope].owner]
    name = step_name(state.scopes[job.scope].name, step.name)
    granted = job.memory_bytes or (step.resources.memory_bytes if step.resources is not None else 0)
    limit = time_limit(state, job) or 0.0
    return FailedJob(root.id, job.id, name, step, granted, limit, _last_attempt(store, run, job.id), parked)


def _failures_inside(store: SharedStore, run: int, state: State, host: Job) -> Iterator[FailedJob]:
    """The failed jobs of a map's items, or of a child workflow."""
    action = state.step_of(host).action
    if isinstance(action, FanOut):
        steps = {step.name: step for step in action.steps}
        fan = state.fans.get(host.id)
        for letter in store.letters(run, fan_name(state, host)):
            # A letter from before the items were listed is of an earlier epoch: its item may have succeeded since.
            is_of_now = fan is not None and letter.last_at >= fan.listed_at
            failure = letter.history[-1] if letter.history and is_of_now else None
            if failure is not None and failure.step in steps and failure.job:
                name = step_name(letter.item_id, failure.step)
                yield _dropped_job(store, run, state, host, failure.job, name, steps[failure.step])
    elif isinstance(action, Child) and host.child_scope:
        kept = store.kept_scope(run, host.child_scope)
        if kept is not None:
            scope = read_kept(kept.body)
            inner = plan_of(action.workflow).steps
            for job in scope.jobs:
                if job.status is FAILED and not job.counts_as_success:
                    name = step_name(scope.scope.name, inner[job.step].name)
                    yield _dropped_job(store, run, state, host, job.id, name, inner[job.step])


def _dropped_job(store: SharedStore, run: int, state: State, host: Job, job: int, name: str, step: Step) -> FailedJob:
    """A failed job that the state has dropped with its scope."""
    grant, asked = state.grants.get(name), step.resources
    memory = asked.memory_bytes if asked is not None else 0
    seconds = [limit for limit in (step.timeout_seconds, asked.runtime_seconds if asked is not None else None) if limit]
    limit = min(seconds, default=0.0)
    if grant is not None:
        memory, limit = max(memory, grant.memory_bytes), max(limit, grant.runtime_seconds)
    return FailedJob(host.id, job, name, step, memory, limit, _last_attempt(store, run, job))


def _last_attempt(store: SharedStore, run: int, job: int) -> AttemptRow | None:
    """The last attempt of a job."""
    last = None
    for row in store.attempts(run, job):
        last = row
    return last
