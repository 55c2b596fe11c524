"""What is done to runs: start, cancel, resume, run again, delete."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from resile.commands.database.prune import delete_run
from resile.commands.load import CompileOptions
from resile.commands.service.submit import SubmitOptions, TextCall, submit_text
from resile.commands.start.call import Choice, ResourceLimits
from resile.model.limits import LOOPS_MAX, PARALLEL_MAX, RETRIES_MAX
from resile.server import acts
from resile.server.answers import Accepted, Submitted
from resile.server.declarations import BASE, Answer, Reply, Request, Route

Label = Annotated[str, Meta(max_length=1000)]


class RunBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A workflow as text, with the files that it takes in, and how to run it.

    `directory` is where its steps run: a folder of the server's machine, by default one of the run's own. With the same
    `key` again the first run is the answer. `first` are the steps with which to begin, with all that follow; `only`
    and `skip` choose steps, too. The others are options of `resile run`.
    """

    text: str
    file: Annotated[str, Meta(min_length=1, max_length=255)] = "workflow.yaml"
    files: dict[str, str] = {}
    dialect: str = ""
    profile: str = ""
    inputs: dict[str, Any] = {}
    directory: str = ""
    max_parallel: Annotated[int, Meta(ge=1, le=PARALLEL_MAX)] | None = None
    labels: dict[str, Label] = {}
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    key: Annotated[str, Meta(max_length=255)] = ""
    first: list[str] = []
    only: list[str] = []
    skip: list[str] = []
    max_loops: Annotated[int, Meta(ge=0, le=LOOPS_MAX)] | None = None
    retry_max: Annotated[int, Meta(ge=0, le=RETRIES_MAX)] | None = None
    failure_routing: bool = True
    force: bool = False
    cpus: Annotated[float, Meta(gt=0)] | None = None
    memory_bytes: Annotated[int, Meta(gt=0)] | None = None
    gpus: Annotated[int, Meta(ge=0)] | None = None


class CancelBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Why the run is canceled, for the record."""

    reason: str = ""


class RerunBody(Struct, frozen=True, forbid_unknown_fields=True):
    """With `failed_only` what completed is kept; `inputs` replace those of the run that have the same names."""

    failed_only: bool = False
    inputs: dict[str, Any] = {}


def start(request: Request) -> Reply:
    """Start a run of a workflow that is in the request."""
    body: RunBody = request.body
    call = TextCall(
        text=body.text,
        file=body.file,
        files=body.files,
        compile_options=CompileOptions(body.dialect, body.profile),
        inputs=body.inputs,
        limits=ResourceLimits(body.max_parallel, None, body.cpus, body.memory_bytes, body.gpus),
        choice=Choice(tuple(body.first), tuple(body.only), tuple(body.skip)),
        loops_max=body.max_loops,
        retry_max=body.retry_max,
        failure_routing=body.failure_routing,
        force=body.force,
        labels=body.labels,
        directory=body.directory,
        output=request.server.output,
    )
    # A call that is repeated finds the run that it made by its name.
    options = SubmitOptions(by=request.identity.name, priority=body.priority, key=body.key or request.call)
    found = submit_text(request.store, call, options)
    request.server.host.ring()
    is_first = found.is_new or (request.is_repeated and not body.key)
    location = {"Location": f"{BASE}/runs/{found.run}"}
    return Reply(Submitted(found.run, found.status), 201 if is_first else 200, location)


async def cancel(request: Request) -> Accepted:
    """End a run: stop its steps, then run `end`."""
    run = request.number("run")
    await acts.cancel(request, run, request.body.reason)
    return Accepted(run)


async def resume(request: Request) -> Accepted:
    """Go on with a run that no engine drives."""
    run = request.number("run")
    await acts.resume(request, run)
    return Accepted(run)


async def rerun(request: Request) -> Accepted:
    """Run it again in its next epoch."""
    run = request.number("run")
    await acts.rerun(request, run, request.body.failed_only, request.body.inputs)
    return Accepted(run)


def delete(request: Request) -> Reply:
    """Delete a run that has ended, with its logs and dead letters."""
    delete_run(request.store, request.number("run"))
    return Reply(None, 204)


def _act(name: str, handler: Any, about: str, body: type[Struct] | None, problems: tuple[str, ...]) -> Route:
    """The route of one act."""
    return Route(
        method="POST",
        path=f"/runs/{{run}}/{name}",
        handler=handler,
        about=about,
        role="operator",
        runs="loop",
        body=body,
        is_body_optional=True,
        answers={202: Answer("It will be done", Accepted)},
        problems=("no_such_run", *problems),
    )


_LOCATION = {"Location": "The path of the run"}
ROUTES = (
    Route(
        method="POST",
        path="/runs",
        handler=start,
        about="Start a run",
        role="operator",
        runs="write",
        body=RunBody,
        answers={
            201: Answer("The run was made", Submitted, headers=_LOCATION),
            200: Answer("A run of the same file and inputs has this key", Submitted, headers=_LOCATION),
        },
        problems=("invalid_workflow", "key_in_use"),
    ),
    Route(
        method="DELETE",
        path="/runs/{run}",
        handler=delete,
        about="Delete a run that has ended",
        role="admin",
        runs="write",
        answers={204: Answer("It is deleted")},
        problems=("no_such_run", "run_not_ended", "run_active"),
    ),
    _act("cancel", cancel, "Cancel a run", CancelBody, ("run_ended",)),
    _act("resume", resume, "Go on with a run", None, ("run_ended", "run_active")),
    _act("rerun", rerun, "Run it again", RerunBody, ("run_active", "no_answer")),
)
