"""The steps of a run as `status` lists them, and the answers to their failures, made from the document of a run.

STEP     STATUS     TRIES  EXIT  TIME        the steps of the workflow, then those of handlers and child workflows
process: 79 of 80 items succeeded, 1 failed  the items of each map, counted; failed ones are listed
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

from resile.cli.display import output
from resile.cli.display.maps import outcome, patterns
from resile.commands.documents.runs import Route, RunDocument, RunJob
from resile.model.nested import in_item, step_name
from resile.model.rules import NO_RULE_LEFT
from resile.model.status import status_clause

# A workflow with so many steps is listed whole; of a larger one only the first steps that need a look.
EVERY_STEP_MAX = 100
NOTABLE_SHOWN_MAX = 20
ITEMS_SHOWN_MAX = 10
ROUTES_SHOWN_MAX = 10
# What a long list shows: everything that needs a look.
_NOTABLE = ("failed", "tolerated", "parked", "running", "recovering", "recovered")
_HEADS = ("STEP", "STATUS", "TRIES", "EXIT", "TIME", "")
# The columns that a narrow terminal goes without.
_SPARE = (3, 2, 4)
_ROUTE_SPARE = (0, 3)

_Placed = TypeVar("_Placed", RunJob, Route)


def word_of(job: RunJob) -> str:
    """The status of a job in one word."""
    return output.status_word(job.status, recovered=job.recovered, tolerated=job.tolerated)


def step_lines(document: RunDocument, page: output.Page) -> Iterator[str]:
    """The steps as a table: those of the workflow, then those of handlers and child workflows."""
    steps = [job for job in document.jobs if not in_item(job.scope) and not is_silent_end(job)]
    steps.sort(key=lambda job: job.scope != "root")
    shown = steps
    if len(steps) > EVERY_STEP_MAX:
        notable = sorted((job for job in steps if word_of(job) in _NOTABLE), key=_importance)
        shown = notable[:NOTABLE_SHOWN_MAX]
    yield from page.table([_row(job) for job in shown], _HEADS, spare=_SPARE) if shown else ()
    listed = {job.id for job in shown}
    yield from _rest([job for job in steps if job.id not in listed], page, is_listed=bool(shown))


def item_lines(document: RunDocument, page: output.Page) -> Iterator[str]:
    """The steps of items that failed, run or wait for judgement, and the number of the others."""
    items = [job for job in document.jobs if in_item(job.scope)]
    shown = sorted((job for job in items if word_of(job) in _NOTABLE[:-1]), key=_importance)[:ITEMS_SHOWN_MAX]
    yield from page.table([_row(job) for job in shown], _HEADS, spare=_SPARE) if shown else ()
    listed = {job.id for job in shown}
    yield from _rest([job for job in items if job.id not in listed], page, document.jobs_omitted, is_listed=bool(shown))


def is_silent_end(job: RunJob) -> bool:
    """Is this an `end` that does nothing, or has not run? It is not counted either."""
    return job.step == "end" and job.seconds == 0 and job.status not in ("failed", "running")


def _importance(job: RunJob) -> int:
    return _NOTABLE.index(word_of(job))


def _row(job: RunJob) -> list[str]:
    """The cells of a job."""
    return [
        output.escape(step_name(job.scope, job.step)),
        word_of(job),
        str(job.attempts) if job.attempts else "",
        "" if job.exit_code is None else str(job.exit_code),
        output.duration(job.seconds) if job.attempts else "",
        _remark(job),
    ]


def _rest(hidden: Sequence[RunJob], page: output.Page, omitted: int = 0, *, is_listed: bool) -> list[str]:
    """The number of jobs that are not listed, by status; nothing if there are none. `is_listed`: others are."""
    counts = Counter(word_of(job) for job in hidden)
    counts["completed"] += omitted
    if not counts.total():
        return []
    inside = " inside items" if omitted or in_item(hidden[0].scope) else ""
    words = ", ".join(f"{count} {word}" for word, count in counts.most_common() if count)
    # The document leaves out the items that succeeded where a map has very many.
    more = "" if omitted else "; --json lists all"
    if not is_listed:
        return page.wrap(f"no step{inside} needs a look ({words}){more}", "  ")
    return page.wrap(f"and {output.plural(counts.total(), 'more step')}{inside}: {words}{more}", "  ")


def _remark(job: RunJob) -> str:
    """What the last column of a job says."""
    if job.cause:
        return f"{output.escape(job.cause.step)} {status_clause(job.cause.status)}"
    if job.waits_for:
        return f"waits for {output.escape(job.waits_for)}"
    return "its output is lost" if job.output_lost else ""


def map_lines(document: RunDocument, page: output.Page) -> Iterator[str]:
    """The outcome of each map, and the failures that many of its items had in common."""
    for name, numbers in document.maps.items():
        yield from page.wrap(outcome(name, numbers), "  ")
        yield from patterns(numbers, page)


def first_items(found: Sequence[_Placed]) -> list[_Placed]:
    """All entries of the workflow itself, and the first entries of items."""
    kept: list[_Placed] = []
    items = 0
    for entry in found:
        inside = in_item(entry.scope)
        items += inside
        if not inside or items <= ITEMS_SHOWN_MAX:
            kept.append(entry)
    return kept


def answers(document: RunDocument, page: output.Page) -> list[str]:
    """The answers to failures and the jumps, under a heading; of very many the first.

    A failure that no rule answered at all is only among the failed steps.
    """
    times = Counter((route.scope, route.step) for route in document.routes)
    routes = [
        route for route in document.routes if route.rule.text != NO_RULE_LEFT or times[route.scope, route.step] > 1
    ]
    if not routes:
        return []
    shown = first_items(routes)[:ROUTES_SHOWN_MAX]
    hidden = len(routes) - len(shown)
    more = f"  and {hidden} more; `{page.command(f'explain {document.run}')}` shows them"
    return [
        "",
        page.paint("bold", "What was done"),
        *route_lines(shown, page),
        *(page.wrap(more, "  ") if hidden else []),
    ]


def route_lines(routes: list[Route], page: output.Page) -> list[str]:
    """One line for each route: when, the action, the step and attempt, and the rule or the judge's reason."""
    rows = [
        [
            output.clock(output.moment(route.at)),
            _way(route),
            output.escape(step_name(route.scope, route.step)),
            f"attempt {route.attempt}",
            output.escape(route.rule.text if route.trigger == "judge" else output.short_rule(route.rule)),
        ]
        for route in routes
    ]
    return page.table(rows, indent="  ", spare=_ROUTE_SPARE, status=None)


def _way(route: Route) -> str:
    who = "judge " if route.trigger == "judge" else ""
    target = f" {output.escape(route.target)}" if route.target else ""
    return f"{who}{route.action}{target}"
