"""The endpoints that clients of Torc know: its names, its numbers, its JSON.

`workflow_id` is our run, `run_id` its epoch, and `id` of a job its number among the jobs of all runs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from resile.commands.inspect import last_failures
from resile.commands.judge import Judgement
from resile.commands.service.jobs import list_jobs
from resile.dialects.native.writer.rules import handler_rule
from resile.dialects.torc.job_words import attempt_in_torc, status_in_torc
from resile.engine.replay import current_workflow, row_of
from resile.model.nested import job_key, split_job_key
from resile.model.status import STATUS_NAMES
from resile.model.workflow import Rule, Workflow
from resile.server import acts
from resile.server.answers import FailedTorcJob, FailureHandler, FailureHandlers, TorcJob, TorcJobs
from resile.server.declarations import Answer, Request, Route
from resile.server.endpoints.runs import words_of
from resile.server.problems import Problem
from resile.server.stores import Connection
from resile.store.contract import JobRow, Store

_RETRYABLE = ("running", "failed", "terminated")
_VERDICTS: dict[str, Literal["retry", "fail"]] = {"ready": "retry", "failed": "fail"}


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The jobs of this run, with this status."""

    workflow_id: Annotated[int, Meta(ge=0, le=10**18 - 1)]
    status: str = ""


class JobBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A judgement: `ready` runs the job again, `failed` lets it fail."""

    status: Literal["ready", "failed"]
    reason: str = ""


class RetryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The retry is refused when the job has had so many attempts."""

    max_retries: Annotated[int, Meta(ge=0, le=10**9)] | UnsetType = UNSET


def get_handler(request: Request) -> FailureHandler:
    """A failure handler by its number."""
    run, number = split_job_key(request.number("id"))
    found = _handlers_of(request.store, run) if request.store.run(run) is not None else []
    if not 0 < number <= len(found):
        raise Problem("no_such_failure_handler", f"there is no failure handler {request.path['id']}")
    return found[number - 1]


def list_handlers(request: Request) -> FailureHandlers:
    """The failure handlers of a run's workflow."""
    run = request.number("id")
    row_of(request.store, run)
    return FailureHandlers(_handlers_of(request.store, run))


def _handlers_of(store: Store, run: int) -> list[FailureHandler]:
    """The failure handlers of a run; their numbers are as unique as those of jobs."""
    workflow = current_workflow(store, row_of(store, run))
    found = []
    for number, (name, rules) in enumerate(workflow.failure_handlers.items(), 1):
        written = [rule for rule in (_rule_for(one, workflow) for one in rules) if rule is not None]
        found.append(FailureHandler(job_key(run, number), run, name, msgspec.json.encode(written).decode()))
    return found


def _rule_for(rule: Rule, workflow: Workflow) -> dict[str, Any] | None:
    """A rule as the file has it, with `max_retries` as its system counts."""
    if workflow.dialect == "torc":
        from resile.dialects.torc.rules import write_rule

        return write_rule(rule)
    return handler_rule(rule, workflow.folder)


def list_torc_jobs(request: Request) -> TorcJobs:
    """The jobs of a run, all or those with one status."""
    asked: JobsQuery = request.query
    statuses = words_of("status", asked.status, tuple(STATUS_NAMES.values()))
    run, store = asked.workflow_id, request.store
    jobs = [job for job in list_jobs(store, run) if not statuses or status_in_torc(job.status) in statuses]
    failures = last_failures(store, run, [job.id for job in jobs if job.attempts])
    return TorcJobs(
        [
            FailedTorcJob(
                job.key,
                run,
                job.step,
                status_in_torc(job.status),
                attempt_in_torc(job.status, job.attempts),
                failures[job.id].stderr if job.id in failures else "",
            )
            for job in jobs
        ]
    )


async def update_job(request: Request) -> TorcJob:
    """Judge a parked job by the status that it shall have."""
    run, job = split_job_key(request.number("id"))
    body: JobBody = request.body
    before = await request.server.stores.read(lambda connection: _job(connection, request.number("id")))
    judgement = Judgement(verdict=_VERDICTS[body.status], reason=body.reason)
    await acts.judge(request, run, str(job), judgement)
    return TorcJob(before.id, run, before.name, body.status, before.attempt_id + (body.status == "ready"))


async def retry_job(request: Request) -> TorcJob:
    """Run a job again that runs, failed or was terminated; of many that ask for one retry one gets it."""
    most = request.query.max_retries
    if most is UNSET:
        raise Problem("max_retries_missing", "query: `max_retries` is missing", hint="?max_retries=3")
    run, job = split_job_key(request.number("id"))
    epoch = request.number("run_id")
    before = await request.server.stores.read(lambda connection: _job(connection, request.number("id")))
    if not await acts.was_left(request, run):
        await request.server.stores.read(lambda connection: _refuse_retry(connection, request, epoch, most))
    asked = {"job": job, "epoch": epoch, "attempts_max": most}
    result = await acts.ask(request, run, "retry", asked)
    return TorcJob(before.id, run, before.name, "ready", int(result["attempt"]))


def _refuse_retry(connection: Connection, request: Request, epoch: int, most: int) -> TorcJob:
    """The job to retry; refused if its engine would refuse it. The engine decides again when it gets the request."""
    job = _job(connection, request.number("id"))
    current = row_of(connection.store, job.workflow_id).epoch
    if epoch != current:
        raise Problem("run_id_stale", f"run {job.workflow_id} is at run_id {current}, not {epoch}")
    if job.status not in _RETRYABLE:
        raise Problem("job_not_retryable", f"job {job.id} ({job.name}) is {job.status}")
    if job.attempt_id >= most:
        message = f"job {job.id} ({job.name}) has had {job.attempt_id} attempts, and max_retries is {most}"
        raise Problem("retries_exhausted", message)
    return job


def _job(connection: Connection, key: int) -> TorcJob:
    """A job by its number among the jobs of all runs."""
    run, number = split_job_key(key)
    rows = connection.store.jobs(run) if connection.store.run(run) is not None else iter(())
    row: JobRow | None = next((row for row in rows if row.id == number), None)
    if row is None:
        raise Problem("job_not_found", f"there is no job {key}")
    status = STATUS_NAMES[row.status]
    return TorcJob(key, run, row.step, status_in_torc(status), attempt_in_torc(status, row.attempts))


ROUTES = (
    Route(
        method="GET",
        path="/failure_handlers/{id}",
        handler=get_handler,
        about="A failure handler of a workflow",
        also_at_root=True,
        answers={200: Answer("The failure handler", FailureHandler)},
        problems=("no_such_failure_handler",),
    ),
    Route(
        method="GET",
        path="/workflows/{id}/failure_handlers",
        handler=list_handlers,
        about="List the failure handlers of a run's workflow",
        also_at_root=True,
        answers={200: Answer("The failure handlers", FailureHandlers)},
        problems=("no_such_run",),
    ),
    Route(
        method="GET",
        path="/jobs",
        handler=list_torc_jobs,
        about="List the jobs of a run as Torc does",
        query=JobsQuery,
        also_at_root=True,
        answers={200: Answer("The jobs", TorcJobs)},
        problems=("no_such_run",),
    ),
    Route(
        method="PUT",
        path="/jobs/{id}",
        handler=update_job,
        about="Judge a parked job by the status that it shall have",
        role="operator",
        runs="loop",
        body=JobBody,
        also_at_root=True,
        answers={200: Answer("The job", TorcJob)},
        problems=("job_not_found", "not_parked", "no_answer"),
    ),
    Route(
        method="POST",
        path="/jobs/{id}/retry/{run_id}",
        handler=retry_job,
        about="Retry a job",
        role="operator",
        runs="loop",
        query=RetryQuery,
        also_at_root=True,
        answers={200: Answer("The job, ready for its next attempt", TorcJob)},
        problems=(
            "max_retries_missing",
            "job_not_found",
            "run_id_stale",
            "job_not_retryable",
            "retries_exhausted",
            "no_answer",
        ),
    ),
)
