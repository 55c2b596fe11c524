"""The summary of a run for people: verdict, counts, routes, failures with their causes, and next commands.

It is made from the JSON document of a run, so that `run` and `status` print the same. It shows only the first entries
from inside the items of maps; the lines of the maps have the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import structs

from resile.cli.display.maps import in_item, outcome, patterns
from resile.cli.display.output import (
    Paint,
    clock,
    command_hint,
    command_lines,
    duration,
    fit,
    moment,
    plural,
    scoped_name,
    shell_quote,
    short_rule,
    table,
)
from resile.cli.display.output import (
    escape_control_characters as escape,
)
from resile.commands.documents.runs import Route, RunDocument, RunJob

FAILED_SHOWN_MAX = 20
ITEMS_SHOWN_MAX = 10
JOBS_SHOWN_MAX = 50
NAME_COLUMNS_MIN = 8

_Placed = TypeVar("_Placed", RunJob, Route)


def summary(document: RunDocument, messages: dict[int, str], paint: Paint, columns: int, db: str | None) -> str:
    """The text that `resile run` prints at the end."""
    lines = [
        *headline(document, paint, columns),
        *_maps(document, columns),
        *_routes(document, paint, columns),
        *_failed_step_lines("Failed", "failed", document, messages, paint, columns),
        *_failed_step_lines("Parked", "pending_failed", document, messages, paint, columns),
    ]
    steps = _next(document, db)
    if steps:
        lines += ["", paint("bold", "Next"), *steps]
    return "\n".join(lines) + "\n"


def headline(document: RunDocument, paint: Paint, columns: int) -> list[str]:
    """The verdict, the duration, and the counts; a long name is cut."""
    status = document.status
    after = "for" if status == "running" else "after"
    counts = document.steps
    words = [
        paint.status(word, f"{count} {word}")
        for word, count in structs.asdict(counts).items()
        if count and word != "total"
    ]
    verdict = paint("bold", paint.status(status))
    rest = ": " + ", ".join(words) if words else ""
    run, took = f"run {document.run}", f"{after} {duration(document.duration_seconds)}"
    room = columns - len(f"{run}  {status} {took}")
    return [
        f"{run} {fit(escape(document.workflow), max(room, NAME_COLUMNS_MIN))} {verdict} {took}",
        f"{plural(counts.total, 'step')}{rest}",
    ]


def jobs(document: RunDocument, paint: Paint, columns: int) -> list[str]:
    """The jobs as a table: all of them in a small run, those that did not complete in a large one."""
    listed = document.jobs
    if len(listed) > JOBS_SHOWN_MAX:
        listed = [job for job in listed if job.status != "completed"]
        listed = _first_items(listed)[:JOBS_SHOWN_MAX]
    hidden = len(document.jobs) - len(listed)
    rows = [
        [
            escape(scoped_name(job.scope, job.step)),
            job.status,
            str(job.attempts) if job.attempts else "",
            "" if job.exit_code is None else str(job.exit_code),
            duration(job.seconds) if job.attempts else "",
            _remark(job),
        ]
        for job in listed
    ]
    lines = table(["STEP", "STATUS", "TRIES", "EXIT", "TIME", ""], rows, paint, columns) if rows else []
    return [*lines, f"and {plural(hidden, 'more job')}; --json lists all"] if hidden else lines


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


def _maps(document: RunDocument, columns: int) -> list[str]:
    """The outcome of each map, and its common failures."""
    lines: list[str] = []
    for name, numbers in document.maps.items():
        lines += [outcome(name, numbers), *patterns(numbers, columns)]
    return lines


def _remark(job: RunJob) -> str:
    """A remark about a job: its cause, or that it was tolerated or recovered."""
    if job.cause:
        return f"{escape(job.cause.step)} is {job.cause.status}"
    return "tolerated" if job.tolerated else "recovered" if job.recovered else ""


def _routes(document: RunDocument, paint: Paint, columns: int) -> list[str]:
    """The routes that were taken, under a heading; only some of those in items."""
    taken = document.routes
    if not taken:
        return []
    shown = _first_items(taken)
    hidden = len(taken) - len(shown)
    more = [f"  and {hidden} more inside items; --json lists all"] if hidden else []
    return ["", paint("bold", "Routes"), *route_lines(shown, paint, columns), *more]


def route_lines(routes: list[Route], paint: Paint, columns: int) -> list[str]:
    """One line for each route: when, the action, the step and attempt, and the rule or the judge's reason."""
    rows = [
        [
            clock(moment(route.at)),
            _way(route),
            escape(scoped_name(route.scope, route.step)),
            f"attempt {route.attempt}",
            escape(route.rule.text if route.trigger == "judge" else short_rule(route.rule)),
        ]
        for route in routes
    ]
    _, *lines = table([""] * 5, rows, paint, columns - 2)
    return [f"  {line}" for line in lines]


def _way(route: Route) -> str:
    """The action of a route: `retry`, `goto setup`, `run lint-fix`, `judge skip`."""
    who = "judge " if route.trigger == "judge" else ""
    target = f" {escape(route.target)}" if route.target else ""
    return f"{who}{route.action}{target}"


def _failed_step_lines(
    heading: str, status: str, document: RunDocument, messages: dict[int, str], paint: Paint, columns: int
) -> list[str]:
    """The steps with this status, each with its last message."""
    # A later visit of the same step (a retried item or child) has the current status.
    last = {(job.scope, job.step): job for job in document.jobs}
    failed = [job for job in last.values() if job.status == status]
    if not failed:
        return []
    lines = ["", paint("bold", heading)]
    # Steps of the workflow itself come first: they decided the run.
    shown = sorted(_first_items(failed), key=lambda job: in_item(job.scope))[:FAILED_SHOWN_MAX]
    for job in shown:
        how = [plural(job.attempts, "attempt")]
        if job.exit_code is not None:
            how.insert(0, f"exit code {job.exit_code}")
        if job.tolerated:
            how.append("tolerated")
        lines.append(f"  {paint('red', escape(scoped_name(job.scope, job.step)))}: {', '.join(how)}")
        message = escape(messages.get(job.id, ""))
        if message:
            lines.append(fit(f"    {message}", columns))
    if len(failed) > len(shown):
        lines.append(f"  and {len(failed) - len(shown)} more")
    return lines


def _next(document: RunDocument, db: str | None) -> list[str]:
    """Useful next commands."""
    run = document.run
    steps: list[tuple[str, str]] = []
    match document.status:
        case "failed":
            steps.append((command_hint(f"explain {run}", db), "which rules answered, and why"))
            failed = [job for job in document.jobs if job.status == "failed" and not job.tolerated]
            culprit = next((job for job in failed if job.scope == "root"), None)
            # Without an exit code there was no process, and no output.
            if culprit is not None and culprit.exit_code is not None:
                steps.append((command_hint(f"logs {run} {shell_quote(culprit.step)}", db), "what it printed"))
            steps.append((command_hint(f"rerun {run} --failed-only", db), "run again what did not complete"))
        case "parked":
            steps += _judging(document, db)
        case "canceled":
            steps.append((command_hint(f"rerun {run} --failed-only", db), "run again what did not complete"))
        case "interrupted":
            if document.steps.parked:
                steps += _judging(document, db)
            steps.append((command_hint(f"resume {run}", db), "go on"))
            steps.append((command_hint(f"cancel {run}", db), "end it for good"))
        case "running":
            if document.steps.parked:
                steps += _judging(document, db)
            steps.append((command_hint(f"logs {run} -f", db), "follow what its steps print"))
    letters = document.dead_letters
    if letters:
        steps.append((command_hint(f"dlq list {run}", db), plural(letters, "dead letter")))
    if letters and document.status in ("completed", "failed", "canceled"):
        named = [name for name, numbers in document.maps.items() if numbers.dead_letters]
        steps += [(command, "run them again") for command in retry_commands(run, named, db)]
    return command_lines(steps)


def retry_commands(run: int, maps: list[str], db: str | None) -> list[str]:
    """The commands that retry dead letters: one for each map."""
    if len(maps) < 2:
        return [command_hint(f"dlq retry {run}", db)]
    return [command_hint(f"dlq retry {run} --step {shell_quote(name)}", db) for name in maps]


def _judging(document: RunDocument, db: str | None) -> list[tuple[str, str]]:
    """The commands for parked failures; if several jobs have one name, only the id is unambiguous."""
    run = document.run
    parked = [job for job in document.jobs if job.status == "pending_failed"]
    first = parked[0]
    alike = sum(job.step == first.step for job in parked) > 1 or first.step.isdigit()
    job = str(first.id) if alike else shell_quote(first.step)
    return [
        (command_hint(f"parked {run}", db), "what waits for judgement (exit code 4)"),
        (command_hint(f"judge {run} {job} retry --resume", db), "or skip, or fail"),
    ]
