"""Parked failures of one run and of all, and the judgement of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from resile.commands.documents.answers import JudgementResult, ParkedFailure
from resile.commands.judge import Judgement, parked_failures
from resile.dialects.reading.durations import duration_seconds, memory_bytes
from resile.server.acts import judge
from resile.server.answers import FailureGroup, RunFailure
from resile.server.declarations import Answer, Items, Page, Reply, Request, Route
from resile.server.problems import Problem
from resile.server.requests.reading import page_of
from resile.store.server_tables import SharedStore

LISTED_MAX = 20


class JudgementBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A decision about a parked failure. `job` is its number or the name of its step.

    `memory` and `runtime` are for `retry_with`; `output` is what a skipped step gives.
    """

    job: Annotated[int, Meta(ge=1, le=10**18 - 1)] | str
    verdict: Literal["retry", "retry_with", "skip", "fail"]
    memory: str = ""
    runtime: str = ""
    output: Any | UnsetType = UNSET
    reason: str = ""
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None


def list_failures(request: Request) -> Items[ParkedFailure]:
    """The parked failures of a run."""
    return page_of(request.client.parked_failures(request.number("run")).failures, request.query)


def list_all(request: Request) -> Items[FailureGroup]:
    """The parked failures of all runs by signature, the most frequent first."""
    places: dict[str, list[tuple[int, int]]] = {}
    for run, job in request.tables.parked_jobs():
        places.setdefault(_signature(request.store, run, job), []).append((run, job))
    found = sorted(places.items(), key=lambda pair: -len(pair[1]))
    page = page_of(found, request.query)
    groups = [
        FailureGroup(signature, len(jobs), list(_describe(request.store, jobs[:LISTED_MAX])))
        for signature, jobs in page.items
    ]
    return Items(groups, page.next_cursor)


def _signature(store: SharedStore, run: int, job: int) -> str:
    """The signature of a job's last failure; a job that waits for an answer has none."""
    last = None
    for tried in store.attempts(run, job):
        last = tried.failure or last
    return "" if last is None else last.signature or f"{last.kind}: {last.message}"


def _describe(store: SharedStore, jobs: Iterable[tuple[int, int]]) -> Iterator[RunFailure]:
    """The parked failures of these jobs; a run is read once."""
    for run, own in groupby(jobs, key=lambda pair: pair[0]):
        wanted = {job for _, job in own}
        for failure in parked_failures(store, run).failures:
            if failure.job in wanted:
                yield RunFailure(**structs.asdict(failure), run=run)


async def judge_failure(request: Request) -> Reply:
    """Judge a parked failure; of two judges one wins."""
    body: JudgementBody = request.body
    memory, runtime = _size(body.memory), _seconds(body.runtime)
    if bool(memory or runtime) != (body.verdict == "retry_with"):
        raise Problem("invalid_field", "body: `retry_with` needs `memory` or `runtime`, and only it has them")
    if body.output is not UNSET and body.verdict != "skip":
        raise Problem("invalid_field", "body: `output` is for the verdict `skip`")
    judgement = Judgement(
        verdict="retry" if body.verdict == "retry_with" else body.verdict,
        reason=body.reason,
        output=None if body.output is UNSET else body.output,
        memory_bytes=memory,
        runtime_seconds=runtime,
        confidence=body.confidence,
    )
    found = await judge(request, request.number("run"), str(body.job), judgement)
    return Reply(found, 201)


def _size(text: str) -> int:
    """The bytes of a size; 0 for none."""
    try:
        return memory_bytes(text) if text else 0
    except ValueError as error:
        raise Problem("invalid_field", f"body: `memory` {error}", hint="such as 512m or 8g") from error


def _seconds(text: str) -> float:
    """The seconds of a duration; 0 for none."""
    try:
        return duration_seconds(text) if text else 0.0
    except ValueError as error:
        raise Problem("invalid_field", f"body: `runtime` {error}", hint="such as 90s or 2h") from error


ROUTES = (
    Route(
        method="GET",
        path="/runs/{run}/failures",
        handler=list_failures,
        about="List the parked failures of a run",
        query=Page,
        answers={200: Answer("The failures", Items[ParkedFailure])},
        problems=("no_such_run",),
    ),
    Route(
        method="GET",
        path="/failures",
        handler=list_all,
        about="List the parked failures of all runs, by signature",
        query=Page,
        answers={200: Answer("The failures, those with one signature together", Items[FailureGroup])},
    ),
    Route(
        method="POST",
        path="/runs/{run}/judgements",
        handler=judge_failure,
        about="Judge a parked failure",
        role="operator",
        runs="loop",
        body=JudgementBody,
        answers={201: Answer("The judgement holds", JudgementResult)},
        problems=("no_such_run", "no_such_job", "not_parked", "no_answer"),
    ),
)
