"""The jobs of a run, and the output of their attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from resile.commands.documents.jobs import JobDocument, KeyedJob
from resile.model.status import STATUS_NAMES
from resile.server.declarations import TEXT, Answer, Items, Page, Request, Route
from resile.server.endpoints.runs import words_of
from resile.server.requests.reading import page_of
from resile.server.streams.output import AttemptName, follow, send

if TYPE_CHECKING:
    from starlette.responses import Response

    from resile.executors.contract import Stream


class JobQuery(Page, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs: all conditions must hold; `status` may be several, with commas."""

    status: str = ""
    step: str = ""
    scope: str = ""


class OutputQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """With `follow` the answer goes on until the attempt ends.

    After a rerun `epoch` says which attempt of this number is meant; without it, that of the last epoch that has one.
    """

    follow: bool = False
    epoch: Annotated[int, Meta(ge=0, le=10**18 - 1)] = 0


def list_jobs(request: Request) -> Items[KeyedJob]:
    """The jobs of a run that a filter accepts."""
    asked: JobQuery = request.query
    statuses = words_of("status", asked.status, tuple(STATUS_NAMES.values()))
    found = (
        job
        for job in request.client.jobs(request.number("run"))
        if (not statuses or job.status in statuses) and asked.step in ("", job.step) and asked.scope in ("", job.scope)
    )
    return page_of(found, asked)


def get_job(request: Request) -> JobDocument:
    """One job with every attempt that it had."""
    return request.client.job(request.number("run"), request.number("job"))


async def stdout(request: Request) -> Response:
    """What an attempt wrote to stdout."""
    return await _output(request, "out")


async def stderr(request: Request) -> Response:
    """What an attempt wrote to stderr."""
    return await _output(request, "err")


async def _output(request: Request, stream: Stream) -> Response:
    """What an attempt wrote to a stream: all, a range of it, or as it comes."""
    name = AttemptName(request.number("run"), request.number("job"), request.number("attempt"), request.query.epoch)
    if request.query.follow:
        return await follow(request.server, name, stream)
    return await send(request.server, name, stream, request.headers.get("range", ""))


def _output_route(name: str) -> Route:
    """The route of one stream."""
    return Route(
        method="GET",
        path=f"/runs/{{run}}/jobs/{{job}}/attempts/{{attempt}}/{name}",
        handler=stdout if name == "stdout" else stderr,
        about=f"What an attempt wrote to {name}",
        runs="loop",
        query=OutputQuery,
        answers={
            200: Answer("The output", media=TEXT, headers={"Accept-Ranges": "`bytes`"}),
            206: Answer("The range that `Range` asks for", media=TEXT, headers={"Content-Range": "`bytes a-b/n`"}),
        },
        problems=("no_such_run", "no_such_job", "no_such_attempt", "output_lost", "range_not_satisfiable"),
    )


ROUTES = (
    Route(
        method="GET",
        path="/runs/{run}/jobs",
        handler=list_jobs,
        about="List the jobs of a run",
        query=JobQuery,
        answers={200: Answer("The jobs", Items[KeyedJob])},
        problems=("no_such_run",),
    ),
    Route(
        method="GET",
        path="/runs/{run}/jobs/{job}",
        handler=get_job,
        about="Describe a job and its attempts",
        is_for_steps=True,
        answers={200: Answer("The job", JobDocument)},
        problems=("no_such_run", "no_such_job"),
    ),
    _output_route("stdout"),
    _output_route("stderr"),
)
