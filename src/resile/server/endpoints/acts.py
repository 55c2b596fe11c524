"""What is done to runs: start, cancel, resume, run again, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from resile.commands.database.prune import delete_run
from resile.commands.documents.answers import ResetResult
from resile.commands.load import CompileOptions
from resile.commands.run import reset
from resile.commands.service.submit import SubmitOptions, TextCall, submit_again, submit_text
from resile.commands.service.submit import Submitted as Begun
from resile.commands.start.call import Choice, ResourceLimits
from resile.model.limits import LOOPS_MAX, PARALLEL_MAX, RETRIES_MAX
from resile.server import acts
from resile.server.answers import Accepted, Submitted
from resile.server.declarations import BASE, Answer, Reply, Request, Route
from resile.server.problems import Problem

if TYPE_CHECKING:
    from resile.server.stores import Connection

Label = Annotated[str, Meta(max_length=1000)]


class Limits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much a run may use: attempts at a time, CPUs, memory and GPUs of all places together."""

    max_parallel: Annotated[int, Meta(ge=1, le=PARALLEL_MAX)] | None = None
    cpus: Annotated[float, Meta(gt=0)] | None = None
    memory_bytes: Annotated[int, Meta(gt=0)] | None = None
    gpus: Annotated[int, Meta(ge=0)] | None = None

    def resources(self) -> ResourceLimits:
        """The limits as commands take them."""
        return ResourceLimits(self.max_parallel, None, self.cpus, self.memory_bytes, self.gpus)


class RunBody(Limits, frozen=True, forbid_unknown_fields=True, kw_only=True):
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


class CancelBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Why the run is canceled, for the record."""

    reason: str = ""


class ResumeBody(Limits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much the run may use from now on; what is left out stays as it is."""


class RerunBody(Limits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """With `failed_only` what completed is kept; `inputs` replace those of the run that have the same names.

    With `as_new` a new run of the same definition is made, and this one stays as it is.
    """

    failed_only: bool = False
    as_new: bool = False
    inputs: dict[str, Any] = {}


class ResetBody(Struct, frozen=True, forbid_unknown_fields=True):
    """With `failed_only` what completed is kept."""

    failed_only: bool = False


def start(request: Request) -> Reply:
    """Start a run of a workflow that is in the request."""
    body: RunBody = request.body
    call = TextCall(
        text=body.text,
        file=body.file,
        files=body.files,
        compile_options=CompileOptions(body.dialect, body.profile),
        inputs=body.inputs,
        limits=body.resources(),
        choice=Choice(tuple(body.first), tuple(body.only), tuple(body.skip)),
        loops_max=body.max_loops,
        retry_max=body.retry_max,
        failure_routing=body.failure_routing,
        force=body.force,
        labels=body.labels,
        directory=body.directory,
        output=request.server.output,
        runs_here=request.server.host.slots > 0,
    )
    # A repeated call finds the run that it made by the name of the call.
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
    await acts.resume(request, run, request.body.resources())
    return Accepted(run)


async def rerun(request: Request) -> Accepted | Reply:
    """Run it again in its next epoch, or as a new run."""
    run, body = request.number("run"), request.body
    if not body.as_new:
        await acts.rerun(request, run, body.failed_only, body.inputs, body.resources())
        return Accepted(run)
    if body.failed_only:
        raise Problem("invalid_field", "body: `as_new` starts from the beginning, so it excludes `failed_only`")

    def act(connection: Connection) -> Begun:
        """Make the run; a call that is repeated finds the one that it made by its name."""
        by, runs_here = request.identity.name, request.server.host.slots > 0
        limits = body.resources()
        return submit_again(connection.store, run, body.inputs, limits, by, key=request.call, runs_here=runs_here)

    found = await request.server.stores.write(act)
    request.server.host.ring()
    return Reply(Submitted(found.run, found.status), 201, {"Location": f"{BASE}/runs/{found.run}"})


def reset_run(request: Request) -> ResetResult:
    """Reset the steps of a run that has ended or is parked, so that a resume runs them again."""
    return reset(request.store, request.number("run"), failed_only=request.body.failed_only, by=request.identity.name)


def delete(request: Request) -> Reply:
    """Delete a run that has ended, with its logs and dead letters."""
    delete_run(request.store, request.number("run"))
    return Reply(None, 204)


def _act(
    name: str,
    handler: Any,
    about: str,
    body: type[Struct],
    problems: tuple[str, ...],
    also: Mapping[int, Answer] = {},
) -> Route:
    """The route of one act; `also` are its other answers."""
    return Route(
        method="POST",
        path=f"/runs/{{run}}/{name}",
        handler=handler,
        about=about,
        role="operator",
        runs="loop",
        body=body,
        is_body_optional=True,
        answers={202: Answer("It will be done", Accepted), **also},
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
    _act("resume", resume, "Go on with a run", ResumeBody, ("run_ended", "run_active")),
    _act(
        "rerun",
        rerun,
        "Run it again",
        RerunBody,
        ("run_active", "no_answer"),
        {201: Answer("A new run was made", Submitted, headers=_LOCATION)},
    ),
    Route(
        method="POST",
        path="/runs/{run}/reset",
        handler=reset_run,
        about="Reset steps, so that a resume runs them again",
        role="operator",
        runs="write",
        body=ResetBody,
        is_body_optional=True,
        answers={200: Answer("They are reset", ResetResult)},
        problems=("no_such_run", "run_active"),
    ),
)
