"""The end of a run for people: verdict, counts, every route, what failed and why, and what to do next.

Made from the JSON document of a run, so `run` and `status` say the same.
"""

from __future__ import annotations

from typing import Any

from resile.surfaces.cli.output import Paint, again, clock, duration, fit, moment, plural, quoted, table, visible

FAILED_SHOWN_MAX = 20
JOBS_SHOWN_MAX = 50

Document = dict[str, Any]


def summary(document: Document, messages: dict[int, str], paint: Paint, columns: int, db: str | None) -> str:
    """Everything that `resile run` says when it is done."""
    lines = [
        *headline(document, paint),
        *_routes(document, paint, columns),
        *_failed(document, messages, paint, columns),
    ]
    steps = _next(document, db)
    if steps:
        lines += ["", paint("bold", "Next"), *steps]
    return "\n".join(lines) + "\n"


def headline(document: Document, paint: Paint) -> list[str]:
    """The verdict, how long it took, and the counts."""
    status = document["status"]
    name = visible(document["workflow"])
    after = "for" if status == "running" else "after"
    counts = document["steps"]
    words = [
        paint.status(word, f"{counts[word]} {word}")
        for word in ("completed", "recovered", "tolerated", "failed", "canceled", "skipped", "parked")
        if counts[word]
    ]
    verdict = paint("bold", paint.status(status))
    rest = ": " + ", ".join(words) if words else ""
    return [
        f"run {document['run']} {name} {verdict} {after} {duration(document['duration_seconds'])}",
        f"{plural(counts['total'], 'step')}{rest}",
    ]


def jobs(document: Document, paint: Paint, columns: int) -> list[str]:
    """The jobs as a table: all of them in a small run, those that did not complete in a large one."""
    listed = document["jobs"]
    hidden = 0
    if len(listed) > JOBS_SHOWN_MAX:
        open_first = [job for job in listed if job["status"] != "completed"]
        hidden = len(listed) - min(len(open_first), JOBS_SHOWN_MAX)
        listed = open_first[:JOBS_SHOWN_MAX]
    rows = [
        [
            visible(job["step"]),
            job["status"],
            str(job["attempts"]) if job["attempts"] else "",
            "" if job["exit_code"] is None else str(job["exit_code"]),
            duration(job["seconds"]) if job["attempts"] else "",
            _remark(job),
        ]
        for job in listed
    ]
    lines = table(["STEP", "STATUS", "TRIES", "EXIT", "TIME", ""], rows, paint, columns) if rows else []
    return [*lines, f"and {plural(hidden, 'more job')}; --json lists all"] if hidden else lines


def _remark(job: dict[str, Any]) -> str:
    """What else is to be said of a job."""
    if job["cause"]:
        return f"{visible(job['cause']['step'])} is {job['cause']['status']}"
    return "tolerated" if job["tolerated"] else "recovered" if job["recovered"] else ""


def _routes(document: Document, paint: Paint, columns: int) -> list[str]:
    """Every route taken: when, which step and attempt, what came of it, and the rule that said so."""
    taken = document["routes"]
    if not taken:
        return []
    rows = [
        [
            clock(moment(route["at"])),
            route["action"] + (f" {visible(route['target'])}" if route["target"] else ""),
            visible(route["step"]),
            f"attempt {route['attempt']}",
            visible(route["rule"]),
        ]
        for route in taken
    ]
    _, *lines = table([""] * 5, rows, paint, columns - 2)
    return ["", paint("bold", "Routes"), *(f"  {line}" for line in lines)]


def _failed(document: Document, messages: dict[int, str], paint: Paint, columns: int) -> list[str]:
    """The steps that failed or are parked, with what they said last."""
    failed = [job for job in document["jobs"] if job["status"] in ("failed", "pending_failed")]
    if not failed:
        return []
    lines = ["", paint("bold", "Failed")]
    for job in failed[:FAILED_SHOWN_MAX]:
        how = [plural(job["attempts"], "attempt")]
        if job["exit_code"] is not None:
            how.insert(0, f"exit code {job['exit_code']}")
        if job["tolerated"]:
            how.append("tolerated")
        if job["status"] == "pending_failed":
            how.append("parked")
        lines.append(f"  {paint('red', visible(job['step']))}: {', '.join(how)}")
        message = visible(messages.get(job["id"], ""))
        if message:
            lines.append(fit(f"    {message}", columns))
    if len(failed) > FAILED_SHOWN_MAX:
        lines.append(f"  and {len(failed) - FAILED_SHOWN_MAX} more")
    return lines


def _next(document: Document, db: str | None) -> list[str]:
    """Commands that help from here."""
    run = document["run"]
    steps: list[tuple[str, str]] = []
    match document["status"]:
        case "failed" | "parked":
            culprit = next((job for job in document["jobs"] if job["status"] in ("failed", "pending_failed")), None)
            if culprit is not None:
                steps.append((again(f"logs {run} {quoted(culprit['step'])}", db), "what it printed"))
            steps.append((again(f"rerun {run} --failed-only", db), "run again what did not complete"))
        case "canceled":
            steps.append((again(f"rerun {run} --failed-only", db), "run again what did not complete"))
        case "interrupted":
            steps.append((again(f"resume {run}", db), "go on"))
            steps.append((again(f"cancel {run}", db), "end it for good"))
        case "running":
            steps.append((again(f"logs {run} -f", db), "follow what its steps print"))
    size = max((len(command) for command, _ in steps), default=0)
    return [f"  {command:<{size}}  # {what}" for command, what in steps]
