"""`status`, `logs`, `events`: the commands that only read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from resile.cli.display.output import (
    Paint,
    columns,
    duration,
    encode,
    moment,
    print_document,
    scoped_name,
    table,
    write_bytes,
    write_text,
)
from resile.cli.display.output import (
    escape_control_characters as escape,
)
from resile.cli.parse import Call, nearest, refusal
from resile.commands.documents.answers import LogList, LogText
from resile.commands.documents.runs import Event, RunDocument, RunSummary
from resile.commands.events.names import ALIASES, EVENT_TYPES

if TYPE_CHECKING:
    from resile.commands.client import Client
    from resile.commands.logs import LogPart, Stream

_STREAMS = {"out": "stdout", "err": "stderr"}


def status(call: Call) -> int:
    """List the runs, or show one."""
    paint = Paint(call.color, sys.stdout)
    if call.text("RUN") is None:
        found = call.client.runs()
        if call.json:
            print_document(found)
        else:
            write_text("\n".join(_runs(found.runs, paint)) + "\n")
        return 0
    document = call.client.status(call.run)
    if call.json:
        print_document(document)
        return 0
    from resile.cli.display.summary import jobs, summary

    size = columns(sys.stdout)
    write_text(summary(document, last_words(document, call.client), paint, size, call.db))
    write_text("\n".join(["", *jobs(document, paint, size)]) + "\n")
    return 0


def _runs(runs: list[RunSummary], paint: Paint) -> list[str]:
    """The list of runs as a table."""
    if not runs:
        return ["no runs; `resile run FILE` makes one"]
    rows = [
        [
            str(run.run),
            run.status,
            escape(run.workflow),
            _day(run.started_at),
            duration(moment(run.ended_at) - moment(run.started_at)) if run.ended_at else "",
            f"{run.steps.completed}/{run.steps.total}",
            f"{run.steps.failed} failed" if run.steps.failed else "",
        ]
        for run in runs
    ]
    return table(["RUN", "STATUS", "WORKFLOW", "STARTED", "TOOK", "DONE", ""], rows, paint, columns(sys.stdout))


def _day(stamp: str | None) -> str:
    """A time in the user's time zone."""
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment(stamp))) if stamp else ""


def last_words(document: RunDocument, client: Client) -> dict[int, str]:
    """The last message of each failed step of a run, by job, from its events."""
    if not any(job.status in ("failed", "pending_failed") for job in document.jobs):
        return {}
    kinds = ["attempt_failed", "attempt_lost", "step_failed", "step_parked"]
    events = client.events(document.run, kinds)
    return {event.job or 0: event.data["message"] for event in events if event.data.get("message")}


def logs(call: Call) -> int:
    """Print the output of the steps of a run."""
    folder = call.text("export")
    if folder is not None:
        written = call.client.export_logs(call.run, folder)
        if call.json:
            print_document(written)
        else:
            write_text(f"{written.files} files in {folder}\n")
        return 0
    if call.json and call.flag("follow"):
        raise refusal("--json prints one document, so it can't be combined with --follow")
    stream = _stream(call)
    step, attempt = call.text("STEP"), call.whole("attempt")
    parts = call.client.logs(call.run, step, attempt, stream, follow=call.flag("follow"))
    if call.json:
        print_document(LogList(run=call.run, logs=_join(parts)))
    else:
        alone = step is not None and attempt is not None and stream != "both"
        _print_parts(parts, Paint(call.color, sys.stdout), alone)
    return 0


def _stream(call: Call) -> Stream:
    """The stream that the options select; both options together select both streams."""
    if call.flag("stdout") == call.flag("stderr"):
        return "both"
    return "out" if call.flag("stdout") else "err"


def _join(parts: Iterator[LogPart]) -> list[LogText]:
    """Join the pieces of each stream of each attempt."""
    found: dict[tuple[int, int, str], tuple[str, list[bytes]]] = {}
    for part in parts:
        found.setdefault((part.job, part.attempt, part.stream), (part.step, []))[1].append(part.data)
    return [
        LogText(job, step, attempt, _STREAMS[stream], b"".join(pieces).decode("utf-8", "replace"))
        for (job, attempt, stream), (step, pieces) in found.items()
    ]


def _print_parts(parts: Iterator[LogPart], paint: Paint, alone: bool) -> None:
    """Print the raw bytes, with a heading whenever step, attempt or stream changes."""
    last = None
    ended = True
    for part in parts:
        source = (part.job, part.attempt, part.stream)
        if source != last and not alone:
            heading = f"==> {escape(part.step)}, attempt {part.attempt}, {_STREAMS[part.stream]} <=="
            write_text(("" if ended else "\n") + paint("dim", heading) + "\n")
        last = source
        ended = part.data.endswith(b"\n")
        write_bytes(part.data)


def events_list(call: Call) -> int:
    """List the events of a run so far."""
    after, names = call.whole("after") or 0, call.text("names") or ""
    types = call.texts("type") if names else _types(call)
    job = call.whole("story") or 0
    if job and names:
        raise refusal("a story is told in our own names", "leave out --names or --story")
    return _print_events(call, call.client.events(call.run, types, after, names, job))


def events_follow(call: Call) -> int:
    """Print the events of a run as they happen."""
    return _print_events(call, call.client.follow_events(call.run, _types(call), call.whole("after") or 0))


def _types(call: Call) -> list[str]:
    """The requested event types; an unknown name is an error."""
    names = call.texts("type")
    for name in names:
        if name not in EVENT_TYPES and name not in ALIASES:
            hint = nearest(name, [*EVENT_TYPES, *ALIASES]) or "`resile events list RUN` shows those of a run"
            raise refusal(f"no event has the type {name!r}", hint)
    return names


def _print_events(call: Call, events: Iterator[Event]) -> int:
    """Print one event on each line: JSON for programs, words for people."""
    from resile.cli.display.lines import event_line

    for event in events:
        if call.json:
            write_bytes(encode(event) + b"\n")
            continue
        who = (scoped_name(event.scope or "", event.step or ""), event.attempt or 0)
        write_text(event_line(event.seq, moment(event.at), event.type, *who, event.data) + "\n")
    return 0
