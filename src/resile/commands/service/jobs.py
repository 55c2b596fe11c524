"""The jobs of a run: the list of all, and one job with the history of its attempts."""

from __future__ import annotations

from msgspec import structs

from resile.commands.documents.base import optional_timestamp
from resile.commands.documents.jobs import JobAttempt, JobDocument, KeyedJob
from resile.commands.documents.runs import RunDocument, RunJob, run_document
from resile.commands.inspect import standing
from resile.core.state import State
from resile.engine.clock import clock_of
from resile.engine.replay import dropped_jobs, fold_log, row_of
from resile.errors import ResileError
from resile.executors.output import worker_of
from resile.explain.rule_reference import RuleReference, parse_rule
from resile.model.nested import job_key
from resile.store.contract import AttemptRow
from resile.store.server_tables import SharedStore


def list_jobs(store: SharedStore, number: int) -> list[KeyedJob]:
    """The jobs of a run by number, those inside items and child workflows included."""
    with store.reading():
        document, _ = _read(store, number)
    return [_with_key(number, job) for job in document.jobs]


def describe_job(store: SharedStore, number: int, job: int) -> JobDocument:
    """One job of a run, with every attempt that it had in every epoch."""
    with store.reading():
        document, state = _read(store, number)
        found = next((one for one in document.jobs if one.id == job), None)
        if found is None:
            hint = f"`resile status {number} --json` lists the jobs of the run, with their numbers"
            raise ResileError("no-such-job", f"run {number} has no job {job}", hint=hint)
        rules = _rules_of(state, found)
        history = [_attempt(row, rules, state.epoch) for row in store.attempts(number, job)]
    return JobDocument(**structs.asdict(_with_key(number, found)), history=history)


def _read(store: SharedStore, number: int) -> tuple[RunDocument, State]:
    """The document of a run and its folded state."""
    row = row_of(store, number)
    state = fold_log(store, row)
    gone = dropped_jobs(store, number, state)
    return run_document(row, state, standing(store, row), clock_of(state).now(), gone), state


def _with_key(number: int, job: RunJob) -> KeyedJob:
    """A job with its number among the jobs of all runs."""
    return KeyedJob(**structs.asdict(job), key=job_key(number, job.id))


def _rules_of(state: State, job: RunJob) -> dict[int, RuleReference]:
    """The rule that answered each failed attempt of a job in the current epoch."""
    found: dict[int, RuleReference] = {}
    for route in state.routes:
        if (route.scope, route.step) == (job.scope, job.step) and route.trigger == "on_failure":
            found.setdefault(route.attempt, parse_rule(route.rule))
    return found


def _attempt(row: AttemptRow, rules: dict[int, RuleReference], epoch: int) -> JobAttempt:
    """One attempt; its rule is known only in the current epoch."""
    failure, usage = row.failure, row.usage
    return JobAttempt(
        epoch=row.epoch,
        attempt=row.attempt,
        started_at=optional_timestamp(row.started_at),
        ended_at=optional_timestamp(row.ended_at),
        exit_code=row.exit_code,
        kind=failure.kind if failure is not None else None,
        message=failure.message if failure is not None else "",
        wall_seconds=round(usage.wall_seconds, 3),
        cpu_seconds=round(usage.cpu_seconds, 3),
        rss_bytes_max=usage.rss_bytes_max,
        rule=rules.get(row.attempt) if row.epoch == epoch and failure is not None else None,
        worker=worker_of(row.log),
    )
