"""The summary of a run for people: verdict, counts, routes, failures with their causes, and next commands.

It is made from the JSON document of a run, so that `run` and `status` print the same. It shows only the first entries
from inside the items of maps; the lines of the maps have the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from resile.cli.display import output
from resile.cli.display.maps import in_item, outcome, patterns
from resile.commands.documents.runs import Route, RunDocument, RunJob

if TYPE_CHECKING:
    from resile.commands.client import Client

FAILED_SHOWN_MAX = 20
ITEMS_SHOWN_MAX = 10
JOBS_SHOWN_MAX = 50
NAME_COLUMNS_MIN = 8

_Placed = TypeVar("_Placed", RunJob, Route)


def summary(document: RunDocument, messages: dict[int, str], page: output.Page) -> list[str]:
    """The lines that `resile run` prints at the end; `messages` has the last message of each failed job."""
    maps = [[outcome(name, numbers), *patterns(numbers, page)] for name, numbers in document.maps.items()]
    lines = [
        *_headline(document, page),
        *(line for found in maps for line in found),
        *_routes(document, page),
        *_failed_steps("Failed", "failed", document, messages, page),
        *_failed_steps("Parked", "pending_failed", document, messages, page),
    ]
    commands = list(_next_commands(document, page))
    return [*lines, "", page.paint("bold", "Next"), *output.command_lines(commands)] if commands else lines


def last_messages(document: RunDocument, client: Client) -> dict[int, str]:
    """The last message of each failed step of a run, by job, from its events."""
    if not any(job.status in ("failed", "pending_failed") for job in document.jobs):
        return {}
    kinds = ["attempt_failed", "attempt_lost", "step_failed", "step_parked"]
    events = client.events(document.run, kinds)
    return {event.job or 0: event.data["message"] for event in events if event.data.get("message")}


def _headline(document: RunDocument, page: output.Page) -> list[str]:
    """The verdict, the duration, and the counts; a long name is cut."""
    status = document.status
    counts = structs.asdict(document.steps)
    total = counts.pop("total")
    words = [page.status(word, f"{count} {word}") for word, count in counts.items() if count]
    run = f"run {document.run}"
    took = f"{'for' if status == 'running' else 'after'} {output.duration(document.duration_seconds)}"
    room = page.columns - len(f"{run}  {status} {took}")
    name = output.fit(output.escape(document.workflow), max(room, NAME_COLUMNS_MIN))
    return [
        f"{run} {name} {page.paint('bold', page.status(status))} {took}",
        output.plural(total, "step") + (": " + ", ".join(words) if words else ""),
    ]


def jobs(document: RunDocument, page: output.Page) -> list[str]:
    """The jobs as a table: all of them in a small run, those that did not complete in a large one."""
    listed = document.jobs
    if len(listed) > JOBS_SHOWN_MAX:
        listed = [job for job in listed if job.status != "completed"]
        listed = _first_items(listed)[:JOBS_SHOWN_MAX]
    hidden = len(document.jobs) - len(listed)
    rows = [
        [
            output.escape(output.scoped_name(job.scope, job.step)),
            job.status,
            str(job.attempts) if job.attempts else "",
            "" if job.exit_code is None else str(job.exit_code),
            output.duration(job.seconds) if job.attempts else "",
            _remark(job),
        ]
        for job in listed
    ]
    lines = page.table(rows, ["STEP", "STATUS", "TRIES", "EXIT", "TIME", ""]) if rows else []
    return [*lines, f"and {output.plural(hidden, 'more job')}; --json lists all"] if hidden else lines


def _first_items(found: Sequence[_Placed]) -> list[_Placed]:
    """All entries of the workflow itself, and the first entries of items."""
    kept: list[_Placed] = []
    items = 0
    for entry in found:
        inside = in_item(entry.scope)
        items += inside
        if not inside or items <= ITEMS_SHOWN_MAX:
            kept.append(entry)
    return kept


def _remark(job: RunJob) -> str:
    """What the last column of a job says."""
    if job.cause:
        return f"{output.escape(job.cause.step)} is {job.cause.status}"
    if job.output_lost:
        return "its output is lost"
    return "tolerated" if job.tolerated else "recovered" if job.recovered else ""


def _routes(document: RunDocument, page: output.Page) -> list[str]:
    """The routes that were taken, under a heading; only some of those in items."""
    if not document.routes:
        return []
    shown = _first_items(document.routes)
    hidden = len(document.routes) - len(shown)
    more = [f"  and {hidden} more inside items; --json lists all"] if hidden else []
    return ["", page.paint("bold", "Routes"), *route_lines(shown, page), *more]


def route_lines(routes: list[Route], page: output.Page) -> list[str]:
    """One line for each route: when, the action, the step and attempt, and the rule or the judge's reason."""
    rows = [
        [
            output.clock(output.moment(route.at)),
            _way(route),
            output.escape(output.scoped_name(route.scope, route.step)),
            f"attempt {route.attempt}",
            output.escape(route.rule.text if route.trigger == "judge" else output.short_rule(route.rule)),
        ]
        for route in routes
    ]
    return page.table(rows, indent="  ")


def _way(route: Route) -> str:
    who = "judge " if route.trigger == "judge" else ""
    target = f" {output.escape(route.target)}" if route.target else ""
    return f"{who}{route.action}{target}"


def _failed_steps(
    heading: str, status: str, document: RunDocument, messages: dict[int, str], page: output.Page
) -> Iterator[str]:
    """The steps with this status, each with its last message."""
    # A later visit of the same step (a retried item or child) has the current status.
    last = {(job.scope, job.step): job for job in document.jobs}
    failed = [job for job in last.values() if job.status == status]
    if not failed:
        return
    yield from ("", page.paint("bold", heading))
    # Steps of the workflow itself come first: they decided the run.
    shown = sorted(_first_items(failed), key=lambda job: in_item(job.scope))[:FAILED_SHOWN_MAX]
    for job in shown:
        how = [] if job.exit_code is None else [f"exit code {job.exit_code}"]
        how.append(output.plural(job.attempts, "attempt"))
        how += ["tolerated"] if job.tolerated else []
        yield f"  {page.paint('red', output.escape(output.scoped_name(job.scope, job.step)))}: {', '.join(how)}"
        if message := output.escape(messages.get(job.id, "")):
            yield page.fit(f"    {message}")
    if len(failed) > len(shown):
        yield f"  and {len(failed) - len(shown)} more"


def _next_commands(document: RunDocument, page: output.Page) -> Iterator[tuple[str, str]]:
    """Useful next commands, each with a remark."""
    run, status = document.run, document.status
    if status == "failed":
        yield page.command(f"explain {run}"), "which rules answered, and why"
        failed = [job for job in document.jobs if job.status == "failed" and not job.tolerated]
        culprit = next((job for job in failed if job.scope == "root"), None)
        # Without an exit code there was no process, and no output.
        if culprit is not None and culprit.exit_code is not None:
            yield page.command(f"logs {run} {output.shell_quote(culprit.step)}"), "what it printed"
    if status in ("failed", "canceled"):
        yield page.command(f"rerun {run} --failed-only"), "run again what did not complete"
    if status == "parked" or (status in ("interrupted", "running") and document.steps.parked):
        # If several jobs have one name, only the id is unambiguous.
        parked = [job for job in document.jobs if job.status == "pending_failed"]
        first = parked[0]
        alike = sum(job.step == first.step for job in parked) > 1 or first.step.isdigit()
        job = str(first.id) if alike else output.shell_quote(first.step)
        yield page.command(f"parked {run}"), "what waits for judgement (exit code 4)"
        yield page.command(f"judge {run} {job} retry --resume"), "or skip, or fail"
    if status == "interrupted":
        yield page.command(f"resume {run}"), "go on"
        yield page.command(f"cancel {run}"), "end it for good"
    if status == "running":
        yield page.command(f"logs {run} -f"), "follow what its steps print"
    if document.dead_letters:
        yield page.command(f"dlq list {run}"), output.plural(document.dead_letters, "dead letter")
        if status in ("completed", "failed", "canceled"):
            named = [name for name, numbers in document.maps.items() if numbers.dead_letters]
            yield from ((command, "run them again") for command in retry_commands(run, named, page))


def retry_commands(run: int, maps: list[str], page: output.Page) -> list[str]:
    """The commands that retry dead letters: one for each map."""
    if len(maps) < 2:
        return [page.command(f"dlq retry {run}")]
    return [page.command(f"dlq retry {run} --step {output.shell_quote(name)}") for name in maps]
