"""What the command line needs from a server, beyond the rest, to print what it prints on a database."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, get_args

from msgspec import Meta, Struct, structs, to_builtins

from resile.commands.database.prune import PruneFilter
from resile.commands.documents.answers import Graph, JudgementResult, Pruned
from resile.commands.documents.base import public_inputs
from resile.commands.documents.dead_letters import LetterStatistics, RedrivePreview
from resile.commands.documents.remote import JobFailure, JobFailures, LetterCounts, LogFileAttempt, LogIndex, RunLog
from resile.commands.logs import LogFilter, log_files, log_index
from resile.commands.service.follow import status_left
from resile.engine.replay import row_of
from resile.executors.contract import output_size
from resile.model.status import RunStatus
from resile.server.acts import answer as answer_question
from resile.server.declarations import Answer, Items, Page, Reply, Request, Route
from resile.server.endpoints.dead_letters import PurgeQuery, RetryBody, StepQuery, redrive_call
from resile.server.problems import Problem
from resile.server.requests.reading import page_of

if TYPE_CHECKING:
    from resile.core.events import Event
    from resile.server.stores import Connection

ENTRIES_AT_ONCE = 500
WAIT_SECONDS_MAX = 20.0
# A waiting request reads the store again after this time at the latest: a lease may expire without a commit.
LOOK_SECONDS = 1.0
Number = Annotated[int, Meta(ge=0, le=10**18 - 1)]


class FailuresQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs."""

    job: list[str] = []


class LogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Entries with a higher number than `after`; where there are none the answer may come `wait_seconds` later."""

    after: Number = 0
    wait_seconds: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 0.0


class OutputListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose output: of one step, one attempt; of attempts that had not ended at the Unix time `since`.

    With `follow` an attempt may be named that has not started yet, while the run is being driven.
    """

    step: str = ""
    attempt: Number = 0
    since: float = 0.0
    follow: bool = False


class AnswerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to the question of a step."""

    step: Annotated[str, Meta(min_length=1)]
    text: str


class PruneBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which ended runs to delete: all conditions that are given must hold; with `dry_run` they are only listed."""

    older_than_seconds: Annotated[float, Meta(ge=0)] | None = None
    keep_last: Number | None = None
    statuses: list[str] = []
    workflow: str = ""
    dry_run: bool = False


def last_failures(request: Request) -> JobFailures:
    """The last failure of each of these jobs."""
    words: list[str] = request.query.job
    if not all(word.isascii() and word.isdigit() and len(word) <= 18 for word in words):
        raise Problem("invalid_field", "query: `job` is the number of a job")
    run = request.number("run")
    row_of(request.store, run)
    found = request.client.last_failures(run, [int(word) for word in words])
    return JobFailures([JobFailure(job, failure) for job, failure in found.items()])


def drawing(request: Request) -> Graph:
    """The steps of a run and the edges between them, as `resile graph --json` prints them."""
    return request.client.graph(request.number("run"))


def letter_counts(request: Request) -> LetterCounts:
    """How many dead letters a selection has."""
    run, step, signature = request.number("run"), request.query.step or None, request.query.signature or None
    return LetterCounts(
        request.client.count_dead_letters(run, step, signature),
        request.client.count_dead_letters(run),
        request.client.maps_with_dead_letters(run, step),
    )


def letter_statistics(request: Request) -> LetterStatistics:
    """The dead letters of a run, counted by failure, error and hour."""
    return request.client.dead_letter_statistics(request.number("run"), request.query.step or None)


def redrive_preview(request: Request) -> RedrivePreview:
    """The dead letters that a retry would run, counted; the first ones by name."""
    return request.client.preview_redrive(redrive_call(request))


async def answer(request: Request) -> Reply:
    """Answer the question of a step."""
    found = await answer_question(request, request.number("run"), request.body.step, request.body.text)
    return Reply(found, 201)


def prune(request: Request) -> Pruned:
    """Delete runs that have ended."""
    body: PruneBody = request.body
    known = get_args(RunStatus)
    for word in body.statuses:
        if word not in known:
            raise Problem("invalid_field", f"body: `statuses` can't have {word[:40]!r}", hint=f"of {', '.join(known)}")
    only = PruneFilter(body.older_than_seconds, body.keep_last, tuple(body.statuses), body.workflow)
    return request.client.prune(only, dry_run=body.dry_run)


def outputs(request: Request) -> LogIndex:
    """The attempts of a run that have output."""
    asked: OutputListQuery = request.query
    wanted = LogFilter(asked.step or None, asked.attempt or None, since=asked.since)
    return log_index(request.store, request.number("run"), wanted, follow=asked.follow)


def log_file_list(request: Request) -> Items[LogFileAttempt]:
    """The attempts of a run that have ended, of all its epochs, with the names of their log files."""
    run = request.number("run")
    row_of(request.store, run)
    found = (
        LogFileAttempt(
            one.tried.job,
            one.tried.epoch,
            one.tried.attempt,
            one.step,
            one.begin,
            output_size(one.tried.log, "out"),
            output_size(one.tried.log, "err"),
        )
        for one in log_files(request.store, run)
    )
    return page_of(found, request.query)


async def run_log(request: Request) -> RunLog:
    """A part of the log of a run; it waits for more where there is none."""
    asked: LogQuery = request.query
    server, run = request.server, request.number("run")
    deadline = time.monotonic() + asked.wait_seconds
    while True:
        version = server.watcher.version
        found = await server.stores.read(lambda connection: _read_log(connection, run, asked.after))
        left = deadline - time.monotonic()
        if found.entries or found.left is not None or left <= 0 or server.is_stopping:
            return found
        await server.watcher.wait_beyond(version, min(left, LOOK_SECONDS))


def _read_log(connection: Connection, run: int, after: int) -> RunLog:
    """The next entries; reads the status first, so that no entry is missed: the next call reads later ones."""
    store = connection.store
    row = row_of(store, run)
    left = status_left(store, row)
    entries = list(islice(store.entries(run, after), ENTRIES_AT_ONCE))
    shown = [
        {"seq": entry.seq, "event": to_builtins(_public(entry.event)), "notes": to_builtins(entry.notes)}
        for entry in entries
    ]
    is_last = len(entries) < ENTRIES_AT_ONCE
    return RunLog("" if after else store.definition(row.definition).decode(), shown, left if is_last else None)


def _public(event: Event) -> Event:
    """An event without the inputs that look like secrets."""
    inputs: dict[str, Any] | None = getattr(event, "inputs", None)
    return structs.replace(event, inputs=public_inputs(inputs)) if inputs else event


_LETTERS = ("no_such_run", "no_such_map")
ROUTES = (
    Route(
        method="GET",
        path="/runs/{run}/last-failures",
        handler=last_failures,
        about="The last failures of some jobs",
        query=FailuresQuery,
        answers={200: Answer("The failures", JobFailures)},
        problems=("no_such_run",),
    ),
    Route(
        method="GET",
        path="/runs/{run}/drawing",
        handler=drawing,
        about="The steps of a run and its edges, with all that a drawing needs",
        answers={200: Answer("The graph", Graph)},
        problems=("no_such_run",),
    ),
    Route(
        method="GET",
        path="/runs/{run}/letter-counts",
        handler=letter_counts,
        about="Count dead letters of a run",
        query=PurgeQuery,
        answers={200: Answer("The counts", LetterCounts)},
        problems=_LETTERS,
    ),
    Route(
        method="GET",
        path="/runs/{run}/letter-statistics",
        handler=letter_statistics,
        about="Count the dead letters of a run by failure, error and hour",
        query=StepQuery,
        answers={200: Answer("The counts", LetterStatistics)},
        problems=_LETTERS,
    ),
    Route(
        method="POST",
        path="/runs/{run}/redrive-preview",
        handler=redrive_preview,
        about="Count the dead letters that a retry would run",
        body=RetryBody,
        is_body_optional=True,
        answers={200: Answer("The letters", RedrivePreview)},
        problems=(*_LETTERS, "no_such_letter", "run_active", "redrive_unfinished"),
    ),
    Route(
        method="POST",
        path="/runs/{run}/answers",
        handler=answer,
        about="Answer the question of a step",
        role="operator",
        runs="loop",
        body=AnswerBody,
        answers={201: Answer("The answer holds", JudgementResult)},
        problems=("no_such_run", "no_such_job", "not_parked", "no_answer"),
    ),
    Route(
        method="POST",
        path="/prune",
        handler=prune,
        about="Delete runs that have ended",
        role="admin",
        runs="write",
        body=PruneBody,
        answers={200: Answer("The runs that are deleted, or would be", Pruned)},
    ),
    Route(
        method="GET",
        path="/runs/{run}/outputs",
        handler=outputs,
        about="List the attempts of a run that have output",
        query=OutputListQuery,
        answers={200: Answer("The attempts", LogIndex)},
        problems=("no_such_run", "no_such_step", "no_such_attempt"),
    ),
    Route(
        method="GET",
        path="/runs/{run}/log-files",
        handler=log_file_list,
        about="List the attempts of a run that have ended, with the names of their log files",
        query=Page,
        answers={200: Answer("The attempts", Items[LogFileAttempt])},
        problems=("no_such_run",),
    ),
    Route(
        method="GET",
        path="/runs/{run}/log",
        handler=run_log,
        about="The log of a run, for a program that shows its progress",
        role="operator",
        runs="loop",
        query=LogQuery,
        answers={200: Answer("The next entries", RunLog)},
        problems=("no_such_run",),
    ),
)
