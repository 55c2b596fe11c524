"""The events of runs: a list of what happened so far, and streams of what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from resile.commands.documents.runs import Event
from resile.commands.events.names import ALIASES, EVENT_TYPES
from resile.engine.replay import row_of
from resile.server.declarations import EVENTS, Answer, Items, Page, Request, Route
from resile.server.problems import Problem
from resile.server.requests.reading import cursor_of, page_by, page_of
from resile.server.streams.events import announcements, events_of_run, stream

if TYPE_CHECKING:
    from starlette.responses import Response

Position = Annotated[int, Meta(ge=0, le=10**18 - 1)]
_STREAM = Answer("The events as they come", media=EVENTS)


class EventQuery(Page, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Only events with a higher `seq` than `after`, of these types.

    `job` selects the events of one job and their causes, `story` those of the jobs of a step and their causes. `names`
    gives all events the names of another system.
    """

    after: Position = 0
    type: list[str] = []
    job: Position = 0
    story: str = ""
    names: Literal["", "noetl"] = ""


class RunStreamQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Only events with a higher `seq` than `after`, of these types; the header `Last-Event-ID` wins.

    With `until_idle` the stream also ends when no engine drives the run: it is parked, or interrupted.
    """

    after: Position = 0
    type: list[str] = []
    until_idle: bool = False


class StreamQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Only events at a higher position than `after`; without it, only new events. `Last-Event-ID` wins."""

    after: Position | None = None


def list_events(request: Request) -> Items[Event]:
    """The events of a run so far, oldest first."""
    asked: EventQuery = request.query
    after = max(asked.after, cursor_of(asked))
    run = request.number("run")
    if not asked.names:
        _own_types(asked.type)
    if asked.story:
        return page_of(request.client.story(run, asked.story), asked)
    if asked.job or asked.names:
        # These events are not in the order of `seq`, or several share one.
        return page_of(request.client.events(run, asked.type, asked.after, asked.names, asked.job), asked)
    found = request.client.events(run, asked.type, after)
    return page_by(((event.seq, event) for event in found), asked)


async def stream_run(request: Request) -> Response:
    """The events of a run as they come, until it has ended."""
    run, asked = request.number("run"), request.query
    await request.server.stores.read(lambda connection: row_of(connection.store, run))
    after, types = _last_id(request, asked.after), _own_types(asked.type)
    return stream(request.server, events_of_run(run, until_idle=asked.until_idle), after, types)


async def stream_all(request: Request) -> Response:
    """Starts, ends, changes of status and parked failures of all runs as they come."""
    after = _last_id(request, request.query.after)
    if after is None:
        after = await request.server.stores.read(lambda connection: connection.tables.last_position())
    return stream(request.server, announcements, after)


def _own_types(names: list[str]) -> frozenset[str]:
    """Our names of these types; refuses a name that no event has."""
    types = frozenset(ALIASES.get(name, name) for name in names)
    for name in types - frozenset(EVENT_TYPES):
        hint = f"one of {', '.join(EVENT_TYPES)}"
        raise Problem("invalid_field", f"query: `type` can't be {name[:40]!r}", hint=hint)
    return types


def _last_id(request: Request, after: Any) -> Any:
    """The position after which the stream goes on."""
    given = request.headers.get("last-event-id")
    if given is None or not given.strip():
        return after
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise Problem("invalid_field", "`Last-Event-ID` is no `id` of this stream")
    return int(given)


ROUTES = (
    Route(
        method="GET",
        path="/runs/{run}/events",
        handler=list_events,
        about="List the events of a run, oldest first",
        query=EventQuery,
        answers={200: Answer("The events", Items[Event])},
        problems=("no_such_run", "no_such_job", "no_such_step"),
    ),
    Route(
        method="GET",
        path="/runs/{run}/events/stream",
        handler=stream_run,
        about="Stream the events of a run",
        runs="loop",
        query=RunStreamQuery,
        answers={200: _STREAM},
        problems=("no_such_run",),
    ),
    Route(
        method="GET",
        path="/events/stream",
        handler=stream_all,
        about="Stream the starts, ends, changes of status and parked failures of all runs",
        runs="loop",
        query=StreamQuery,
        answers={200: _STREAM},
    ),
)
