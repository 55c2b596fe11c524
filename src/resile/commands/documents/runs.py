"""A run as `run`, `resume`, `rerun` and `status` print it, the list of runs, and one event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from resile.commands.documents.base import Document, optional_timestamp, public_inputs, timestamp
from resile.core.actions import Note
from resile.core.scheduling.reservations import resources_for
from resile.core.state import ROOT, Job, State
from resile.core.state import Route as StateRoute
from resile.engine.replay import GoneJobs, count_steps
from resile.explain.rule_reference import RuleReference, parse_rule
from resile.model.limits import size
from resile.model.status import EXIT_CODES, RUN_ENDED, STATUS_NAMES, RunStatus, Status
from resile.store.contract import JobRow, LetterCount, RunRow


class StepCounts(Struct, frozen=True):
    """The steps of a run by status; steps inside items and child workflows are not counted."""

    total: int = 0
    completed: int = 0
    recovered: int = 0
    tolerated: int = 0
    failed: int = 0
    canceled: int = 0
    skipped: int = 0
    parked: int = 0


class Cause(Struct, frozen=True):
    """The job whose outcome decided the status of another job."""

    step: str
    job: int
    status: str


class RunJob(Struct, frozen=True):
    """One job; `scope` is `root` for the steps of the run itself. `waits_for` is the place that it needs to start.

    One that is `cached` was taken over from an earlier run, and has no attempts in this one.
    """

    id: int
    step: str
    scope: str
    status: str
    recovered: bool
    tolerated: bool
    output_lost: bool
    attempts: int
    exit_code: int | None
    seconds: float
    cause: Cause | None
    waits_for: str | None
    cached: bool


class Route(Struct, frozen=True):
    """A failure that a rule handled, or a jump; after a judgement the text of `rule` is the judge's reason."""

    at: str
    scope: str
    step: str
    attempt: int
    trigger: str
    action: str
    target: str | None
    rule: RuleReference


class FirstFailure(Struct, frozen=True):
    """The first attempt of a run that failed."""

    step: str
    attempt: int
    kind: str
    exit_code: int | None
    message: str


class FailurePattern(Struct, frozen=True):
    """Failures of one map with the same signature."""

    pattern_type: str
    signature: str
    frequency: int
    items: list[str]
    message: str
    suggested_action: str


class MapMetrics(Struct, frozen=True):
    """The items of a map, counted by outcome, and the patterns of their failures."""

    total_items: int
    successful: int
    failed: int
    skipped: int
    held: int
    failure_rate: float
    error_types: dict[str, int]
    failure_patterns: list[FailurePattern]
    dead_letters: int
    circuit: str
    running: int
    waiting: int


class RunDocument(Document, frozen=True, kw_only=True):
    """One run. For maps with very many items the jobs of successful items are left out; `jobs_omitted` counts them.

    An input whose name looks like that of a secret (`api_token`, `db_password`) is `***`.
    """

    run: int
    workflow: str
    dialect: str
    inputs: dict[str, Any]
    status: str
    exit_code: int | None
    epoch: int
    started_at: str
    ended_at: str | None
    duration_seconds: float
    steps: StepCounts
    jobs: list[RunJob]
    jobs_omitted: int
    routes: list[Route]
    first_failure: FirstFailure | None
    outputs: dict[str, Any]
    maps: dict[str, MapMetrics]
    dead_letters: int
    labels: dict[str, str]


class RunSummary(Struct, frozen=True):
    """A run in the list of runs."""

    run: int
    workflow: str
    status: str
    started_at: str | None
    ended_at: str | None
    duration_seconds: float
    steps: StepCounts
    labels: dict[str, str]
    first_failure: FirstFailure | None


class RunList(Document, frozen=True, kw_only=True):
    """The runs of a database, newest first."""

    runs: list[RunSummary]


class Event(Struct, frozen=True):
    """One event of a run's log; `because` is the `seq` of the event that caused it."""

    seq: int
    at: str
    type: str
    run: int
    scope: str | None
    step: str | None
    job: int | None
    attempt: int | None
    status: str | None
    because: int | None
    data: dict[str, Any]


def run_document(
    row: RunRow,
    state: State,
    status: RunStatus,
    now: float,
    gone: GoneJobs | None = None,
    letters: Sequence[LetterCount] = (),
) -> RunDocument:
    """Describe a run; `gone` are the jobs that its state has dropped."""
    if status != "running":
        # The run is not running: measure until its last event.
        now = state.last_at or now
    ended = state.ended_at if status in RUN_ENDED else None
    started = state.started_at or row.started_at or row.created_at
    scope = state.scopes.get(ROOT)
    jobs = [_job(state, job, now) for job in state.jobs.values() if job.status is not Status.disabled]
    jobs += [_gone_job(found, now) for found in (gone.rows if gone else ()) if found.status != Status.disabled]
    return RunDocument(
        run=row.id,
        workflow=row.workflow,
        dialect=row.dialect,
        inputs=public_inputs(state.inputs),
        status=status,
        exit_code=None if status == "running" else EXIT_CODES[status],
        epoch=state.epoch,
        started_at=timestamp(started),
        ended_at=optional_timestamp(ended),
        duration_seconds=round(max(0.0, (now if ended is None else ended) - started), 3),
        steps=StepCounts(**count_steps(state)),
        jobs=sorted(jobs, key=lambda job: job.id),
        jobs_omitted=gone.omitted if gone else 0,
        routes=routes_of(state),
        first_failure=None
        if state.first_failure is None
        else msgspec.convert(state.first_failure, FirstFailure, from_attributes=True),
        outputs=dict(scope.values) if scope is not None else {},
        maps=map_metrics_of(state, letters),
        dead_letters=sum(fan.count for fan in letters),
        labels=row.labels,
    )


def map_metrics_of(state: State, letters: Sequence[LetterCount]) -> dict[str, MapMetrics]:
    """The statistics of a run's maps, by step."""
    if not state.fans and not state.closed_map_totals:
        return {}
    from resile.engine.evaluation.map_statistics import all_metrics

    return msgspec.convert(all_metrics(state, letters), dict[str, MapMetrics])


def routes_of(state: State) -> list[Route]:
    """The routes that a run took, in order."""
    return [_route(route) for route in state.routes]


def _route(route: StateRoute) -> Route:
    """One route; a judge's reason is free text without a position."""
    judged = route.trigger == "judge"
    rule = RuleReference(None, None, None, route.rule) if judged else parse_rule(route.rule)
    where = (route.scope, route.step, route.attempt)
    return Route(timestamp(route.at), *where, route.trigger, route.action, route.target, rule)


def _job(state: State, job: Job, now: float) -> RunJob:
    """A job that is still in the state of its run."""
    cause = job.cause
    began, ended = state.times(job)
    seconds = 0.0 if began is None else (now if ended is None else ended) - began
    return RunJob(
        job.id,
        state.step_of(job).name,
        state.scopes[job.scope].name if job.scope in state.scopes else "root",
        STATUS_NAMES[job.status_shown],
        job.recovered,
        job.tolerated,
        job.output_lost,
        job.attempts_started,
        job.exit_code,
        round(seconds, 3),
        None if cause is None else Cause(cause.step, cause.job, cause.status),
        _place_for(state, job),
        job.cached > 0,
    )


def _place_for(state: State, job: Job) -> str | None:
    """The labels and resources of the place that an attempt waits for, in words."""
    step = state.step_of(job)
    resources = resources_for(state, job) if job.status is Status.pending else None
    if job.status is not Status.pending or not (step.runs_on or resources):
        return None
    wanted = list(step.runs_on)
    if resources is not None:
        wanted += [f"{resources.cpus:g} CPUs"] if resources.cpus > 0 else []
        wanted += [f"{size(resources.memory_bytes)} of memory"] if resources.memory_bytes else []
        wanted += [f"{resources.gpus} GPUs"] if resources.gpus else []
    place = "a worker" if state.workflow.executor is None else "a block"
    return f"{place} with {', '.join(wanted)}" if wanted else None


def _gone_job(row: JobRow, now: float) -> RunJob:
    """A job that is only in the store."""
    seconds = 0.0 if row.started_at is None else (row.ended_at or now) - row.started_at
    return RunJob(
        row.id,
        row.step,
        row.scope,
        STATUS_NAMES[row.status],
        row.recovered,
        row.tolerated,
        False,
        row.attempts,
        row.exit_code,
        round(seconds, 3),
        msgspec.convert(row.cause, Cause | None),
        None,
        False,
    )


def run_summary(row: RunRow, status: str, steps: dict[str, Any], now: float) -> RunSummary:
    """One line of the list of runs; `steps` has the counts of its steps and its first failure."""
    started = row.started_at or row.created_at
    ended = row.ended_at if status in RUN_ENDED else None
    return RunSummary(
        row.id,
        row.workflow,
        status,
        optional_timestamp(row.started_at),
        optional_timestamp(row.ended_at),
        round(max(0.0, (now if ended is None else ended) - started), 3),
        msgspec.convert(steps, StepCounts),
        row.labels,
        msgspec.convert(steps.get("first_failure"), FirstFailure | None),
    )


def event_of(run: int, note: Note) -> Event:
    """One event of the log."""
    where = (note.scope or None, note.step or None, note.job or None, note.attempt or None)
    return Event(note.seq, timestamp(note.at), note.type, run, *where, note.status, note.because or None, note.data)
