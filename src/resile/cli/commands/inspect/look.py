"""`status`, `logs`, `events`: the commands that only read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from resile.cli.commands.runs import list_runs, refuse_filters
from resile.cli.display import output
from resile.cli.display.terminal import Harmless
from resile.cli.parse import Call, nearest, refusal
from resile.commands.documents.answers import LogList, LogText
from resile.commands.documents.runs import Event, RunDocument
from resile.commands.events.names import ALIASES, EVENT_TYPES
from resile.model.nested import step_name

if TYPE_CHECKING:
    from resile.commands.logs import LogFilter, LogPart, Stream

_STREAMS = {"out": "stdout", "err": "stderr"}


def status(call: Call) -> int:
    """List the runs, or show one."""
    if call.text("RUN") is None:
        return list_runs(call)
    refuse_filters(call)

    def lines_of(document: RunDocument, page: output.Page) -> list[str]:
        """The summary of the run with its inputs and its steps."""
        from resile.cli.display.summary import summary

        return summary(document, lambda jobs: call.client.last_failures(document.run, jobs), page, with_steps=True)

    return output.answer(call, call.client.status(call.run), lines_of)


def logs(call: Call) -> int:
    """Print the output of the steps of a run."""
    folder = call.text("export")
    if folder is not None:
        written = call.client.export_logs(call.run, folder)
        return output.answer(call, written, lambda found, _: [_export_line(found.files, folder)])
    if call.json and call.flag("follow"):
        raise refusal("--json prints one document, so it can't be combined with --follow")
    from resile.commands.logs import LogFilter

    step, attempt = call.text("STEP"), call.whole("attempt")
    stream: Stream = "both"
    if call.flag("stdout") != call.flag("stderr"):
        stream = "out" if call.flag("stdout") else "err"
    wanted = LogFilter(step, attempt, stream, call.whole("tail"), call.moment("since") or 0.0)
    parts = call.client.logs(call.run, wanted, follow=call.flag("follow"))
    if call.json:
        output.print_document(LogList(run=call.run, logs=_join(parts)))
    else:
        alone = step is not None and attempt is not None and stream != "both"
        is_empty = not _print_parts(parts, output.Page(call.color, sys.stdout), alone, call.flag("raw"))
        if is_empty and not call.flag("follow"):
            output.say(f"{output.escape(step) if step is not None else f'run {call.run}'}: {_no_output(wanted)}")
            if step is not None and step in call.client.status(call.run).maps:
                item = output.shell_quote(f"{step}[0]")
                output.say(f"  hint: it is a map; `resile logs {call.run} {item}` shows its first item")
    return 0


def _export_line(count: int, folder: str) -> str:
    """How many files were written; each has two names."""
    return f"{output.plural(count, 'file')} in {folder}, each with a name by step and one by number (job_wf…)"


def _no_output(wanted: LogFilter) -> str:
    """What to say where no output was found; it may be because of the options."""
    is_all = wanted.attempt is None and wanted.stream == "both" and not wanted.since
    return "nothing was printed" if is_all else "nothing was printed that these options ask for"


def _join(parts: Iterator[LogPart]) -> list[LogText]:
    """Join the pieces of each stream of each attempt."""
    found: dict[tuple[int, int, str], tuple[str, list[bytes]]] = {}
    for part in parts:
        found.setdefault((part.job, part.attempt, part.stream), (part.step, []))[1].append(part.data)
    return [
        LogText(job, step, attempt, _STREAMS[stream], b"".join(pieces).decode("utf-8", "replace"))
        for (job, attempt, stream), (step, pieces) in found.items()
    ]


def _print_parts(parts: Iterator[LogPart], page: output.Page, alone: bool, is_raw: bool) -> bool:
    """Print the output, with a heading whenever step, attempt or stream changes; return whether there was any.

    On a terminal, control characters are made harmless first, unless `is_raw`.
    """
    last = None
    ended = True
    text = None
    for part in parts:
        source = (part.job, part.attempt, part.stream)
        if source != last:
            _finish(text)
            text = None if is_raw or not sys.stdout.isatty() else Harmless(is_colored=page.is_colored)
            if not alone:
                heading = f"==> {output.escape(part.step)}, attempt {part.attempt}, {_STREAMS[part.stream]} <=="
                output.write_text(("" if ended else "\n") + page.paint("dim", heading) + "\n")
        last = source
        ended = part.data.endswith(b"\n")
        if text is None:
            output.write_raw(part.data)
        else:
            output.write_text(text.feed(part.data))
    _finish(text)
    return last is not None


def _finish(text: Harmless | None) -> None:
    """Print the rest of an attempt's output, and end its colors."""
    if text is not None:
        output.write_text(text.end())


def events_list(call: Call) -> int:
    """List the events of a run so far."""
    names, job = call.word("names"), call.whole("story") or 0
    types = call.texts("type") if names else _types(call)
    if job and names:
        raise refusal("a story is told in our own names", "leave out --names or --story")
    return print_events(call, call.client.events(call.run, types, call.whole("after") or 0, names, job))


def events_follow(call: Call) -> int:
    """Print the events of a run as they happen."""
    return print_events(call, call.client.follow_events(call.run, _types(call), call.whole("after") or 0))


def _types(call: Call) -> list[str]:
    """The requested event types; an unknown name is an error."""
    names = call.texts("type")
    for name in names:
        if name not in EVENT_TYPES and name not in ALIASES:
            hint = nearest(name, [*EVENT_TYPES, *ALIASES]) or "`resile events list RUN` shows those of a run"
            raise refusal(f"no event has the type {name!r}", hint)
    return names


def print_events(call: Call, events: Iterator[Event]) -> int:
    """Print one event on each line: JSON for programs, words for people, wrapped on a terminal."""
    from resile.cli.display.lines import event_line

    page = output.Page(call.color, sys.stdout)
    is_wrapped = page.columns != output.ENDLESS_COLUMNS
    for event in events:
        if call.json:
            output.write_bytes(output.encode(event) + b"\n")
            continue
        who = (step_name(event.scope or "", event.step or ""), event.attempt or 0)
        at = output.moment(event.at)
        line = event_line(event.seq, at, event.type, *who, event.data, in_words=is_wrapped)
        output.write_text("\n".join(page.wrap(line, " " * 9)) + "\n")
    return 0
