"""Runs, as they can be looked at: the list, one of them, its explanation, its metrics, its graph."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import get_args

import msgspec
from msgspec import Struct

from resile.commands.documents.answers import Graph, RunMetrics
from resile.commands.documents.runs import RunDocument, RunSummary
from resile.commands.inspect import RunFilter, all_runs, summary_of
from resile.dialects.reading.durations import duration_seconds
from resile.explain.report import Explanation
from resile.model.status import RUN_ENDED, RunStatus
from resile.server.answers import GraphLink, GraphNode, RunGraph
from resile.server.declarations import Answer, Items, Page, Request, Route
from resile.server.problems import Problem
from resile.server.requests.reading import cursor_of, page_by
from resile.store.contract import LetterCount, RunRow
from resile.store.server_tables import SharedStore

ENDED_KEPT_MAX, ENDED_BYTES_MAX = 200, 64 * 1024
# The documents of ended runs, each with the values that it was made from.
_ended: dict[int, tuple[RunRow | None, list[LetterCount], bytes]] = {}
_KINDS = {"needs": "needs", "any": "needs", "next": "next"}


class RunQuery(Page, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which runs: all conditions must hold. `status` may be several, with commas; `label` is NAME:VALUE."""

    status: str = ""
    workflow: str = ""
    label: list[str] = []
    since: str = ""
    until: str = ""


class ExplainQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which step, job or item; all that failed without it."""

    step: str = ""


def list_runs(request: Request) -> Items[RunSummary]:
    """The runs that a filter accepts, newest first."""
    asked: RunQuery = request.query
    only = RunFilter(
        statuses=words_of("status", asked.status, get_args(RunStatus)),
        workflow=asked.workflow,
        since=_moment("since", asked.since, 0.0),
        until=_moment("until", asked.until, float("inf")),
        labels=dict(_label(text) for text in asked.label),
    )
    return page_by(_select(request.store, only, cursor_of(asked) or None), asked)


def _select(store: SharedStore, only: RunFilter, before: int | None) -> Iterator[tuple[int, RunSummary]]:
    """The runs that a filter accepts; the number of a run is its place in the list."""
    for row in all_runs(store, before):
        if only.accepts(store, row):
            yield row.id, summary_of(store, row)


def words_of(name: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a parameter that are separated by commas; each must be one that is known."""
    words = tuple(word.strip() for word in text.split(",")) if text else ()
    for word in words:
        if word not in known:
            raise Problem("invalid_field", f"query: `{name}` can't be {word[:40]!r}", hint=f"one of {', '.join(known)}")
    return words


def _moment(name: str, text: str, default: float) -> float:
    """The Unix time of a parameter that is an RFC 3339 time, or a duration before now."""
    if not text:
        return default
    try:
        if not text.isdigit():
            return time.time() - duration_seconds(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        hint = "such as 2026-11-17T06:00:00Z, or 90m"
        raise Problem("invalid_field", f"query: `{name}` is no time", hint=hint) from error


def _label(text: str) -> tuple[str, str]:
    """The name and the value of a label."""
    name, colon, value = text.partition(":")
    if not name or not colon:
        raise Problem("invalid_field", "query: `label` is not NAME:VALUE", hint="such as label=team:data")
    return name, value


def get_run(request: Request) -> bytes:
    """One run in full; the document of a run that has ended is kept, because it takes the whole log to make it."""
    number = request.number("run")
    with request.store.reading():
        row = request.store.run(number)
        letters = request.store.letter_counts(number) if row is not None and row.status in RUN_ENDED else None
    if letters is None:
        return msgspec.json.encode(request.client.status(number))
    known = _ended.get(number)
    if known is None or known[:2] != (row, letters):
        known = row, letters, msgspec.json.encode(request.client.status(number))
        if len(known[2]) <= ENDED_BYTES_MAX:
            _ended[number] = known
        while len(_ended) > ENDED_KEPT_MAX:
            _ended.pop(next(iter(_ended), 0), None)
    return known[2]


def explain(request: Request) -> Explanation:
    """The failures of a run, or all about one step, with the rules that answered them."""
    return request.client.explain(request.number("run"), request.query.step or None)


def metrics(request: Request) -> RunMetrics:
    """The attempts and the rules of a run, counted."""
    return request.client.metrics(request.number("run"))


def graph(request: Request) -> RunGraph:
    """The steps of a run and the edges between them."""
    found = request.client.graph(request.number("run"))
    names = _names_of(found)
    edges = [
        GraphLink(names[edge.source], names[edge.target], _kind(edge.kind, edge.answer))  # type: ignore[arg-type]
        for edge in found.edges
    ]
    return RunGraph([GraphNode(names[step.id], step.status) for step in found.steps], edges)


def _names_of(found: Graph) -> dict[int, str]:
    """A name for each step that no other has: with the steps around it."""
    names: dict[int, str] = {}
    for step in found.steps:
        name = step.step if step.inside is None else f"{names[step.inside]}/{step.step}"
        while name in names.values():
            name += "'"
        names[step.id] = name
    return names


def _kind(kind: str, answer: str) -> str:
    """The kind of an edge in the API."""
    return _KINDS.get(kind) or (answer if answer in ("run", "goto") else "run" if kind == "success" else "on_failure")


ROUTES = (
    Route(
        method="GET",
        path="/runs",
        handler=list_runs,
        about="List runs, newest first",
        query=RunQuery,
        answers={200: Answer("The runs", Items[RunSummary])},
    ),
    Route(
        method="GET",
        path="/runs/{run}",
        handler=get_run,
        about="Describe a run",
        answers={200: Answer("The run", RunDocument)},
        problems=("no_such_run",),
    ),
    Route(
        method="GET",
        path="/runs/{run}/explain",
        handler=explain,
        about="Explain the failures of a run",
        query=ExplainQuery,
        answers={200: Answer("What happened, and why", Explanation)},
        problems=("no_such_run", "no_such_step"),
    ),
    Route(
        method="GET",
        path="/runs/{run}/metrics",
        handler=metrics,
        about="Count the attempts and the rules of a run",
        answers={200: Answer("The counts", RunMetrics)},
        problems=("no_such_run",),
    ),
    Route(
        method="GET",
        path="/runs/{run}/graph",
        handler=graph,
        about="The steps of a run and the edges between them",
        answers={200: Answer("The graph", RunGraph)},
        problems=("no_such_run",),
    ),
)
