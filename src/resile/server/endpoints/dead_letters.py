"""Dead letters: the items of a run that failed for good."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from resile.commands.documents.dead_letters import DeadLetter, DeadLetterDocument
from resile.commands.redrive import RedriveCall
from resile.model.limits import PARALLEL_MAX
from resile.server.acts import ask, was_left
from resile.server.answers import Redriven
from resile.server.declarations import Answer, Items, Page, Reply, Request, Route
from resile.server.requests.reading import page_of

ITEMS_MAX = 10_000


class LetterQuery(Page, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Only the letters of this map."""

    step: str = ""


class StepQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Only the letters of this map."""

    step: str = ""


class PurgeQuery(StepQuery, frozen=True, forbid_unknown_fields=True):
    """Only letters whose last failure has this signature."""

    signature: str = ""


class RetryBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which letters run again: all conditions must hold. `filter` is an expression over `item` and `letter`.

    `force` takes letters that are not eligible, because their last attempt was lost.
    """

    items: Annotated[list[str], Meta(max_length=ITEMS_MAX)] = []
    filter: str = ""
    step: str = ""
    signature: str = ""
    force: bool = False
    dry_run: bool = False
    max_parallel: Annotated[int, Meta(ge=1, le=PARALLEL_MAX)] | None = None


def list_letters(request: Request) -> Items[DeadLetter]:
    """The dead letters of a run, by map and index."""
    asked: LetterQuery = request.query
    return page_of(request.client.dead_letters(request.number("run"), asked.step or None), asked)


def get_letter(request: Request) -> DeadLetterDocument:
    """One dead letter, by the name or the index of its item."""
    return request.client.dead_letter(request.number("run"), request.path["item"], request.query.step or None)


def redrive_call(request: Request) -> RedriveCall:
    """The letters that a request means."""
    body: RetryBody = request.body
    return RedriveCall(
        run=request.number("run"),
        step=body.step or None,
        parallel=body.max_parallel,
        filter=body.filter or None,
        signature=body.signature or None,
        force=body.force,
        items=tuple(body.items),
        by=request.identity.name,
    )


async def retry(request: Request) -> Reply:
    """Run dead letters again."""
    run, call = request.number("run"), redrive_call(request)
    # A dry run finds what would be refused, before anything is asked for.
    if not await was_left(request, run):
        found = await request.server.stores.read(lambda connection: connection.client.preview_redrive(call))
        if request.body.dry_run:
            return Reply(Redriven(found.items), 200)
    result = await ask(request, run, "redrive", msgspec.to_builtins(call))
    return Reply(Redriven(result["items"]), 202)


def purge(request: Request) -> Reply:
    """Remove all dead letters of a run."""
    request.client.purge(request.number("run"), request.query.step or None, request.query.signature or None)
    return Reply(None, 204)


def remove(request: Request) -> Reply:
    """Remove one dead letter."""
    request.client.remove_dead_letter(request.number("run"), request.path["item"], request.query.step or None)
    return Reply(None, 204)


_PROBLEMS = ("no_such_run", "no_such_map")
ROUTES = (
    Route(
        method="GET",
        path="/runs/{run}/dead-letters",
        handler=list_letters,
        about="List the dead letters of a run",
        query=LetterQuery,
        answers={200: Answer("The dead letters", Items[DeadLetter])},
        problems=_PROBLEMS,
    ),
    Route(
        method="DELETE",
        path="/runs/{run}/dead-letters",
        handler=purge,
        about="Remove the dead letters of a run",
        role="admin",
        runs="write",
        query=PurgeQuery,
        answers={204: Answer("They are removed")},
        problems=(*_PROBLEMS, "run_active"),
    ),
    Route(
        method="POST",
        path="/runs/{run}/dead-letters/retry",
        handler=retry,
        about="Run dead letters again",
        role="operator",
        runs="loop",
        body=RetryBody,
        is_body_optional=True,
        answers={
            202: Answer("They will run again", Redriven),
            200: Answer("They would run again", Redriven),
        },
        problems=(*_PROBLEMS, "no_such_letter", "run_active", "redrive_unfinished", "no_answer"),
    ),
    Route(
        method="GET",
        path="/runs/{run}/dead-letters/{item}",
        handler=get_letter,
        about="Describe a dead letter",
        texts=("item",),
        query=StepQuery,
        answers={200: Answer("The dead letter", DeadLetterDocument)},
        problems=(*_PROBLEMS, "no_such_letter"),
    ),
    Route(
        method="DELETE",
        path="/runs/{run}/dead-letters/{item}",
        handler=remove,
        about="Remove a dead letter",
        role="admin",
        runs="write",
        texts=("item",),
        query=StepQuery,
        answers={204: Answer("It is removed")},
        problems=(*_PROBLEMS, "no_such_letter", "run_active"),
    ),
)
