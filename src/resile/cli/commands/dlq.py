"""`dlq`: list, show, retry, export and remove the dead letters of a run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from resile.cli.display.output import (
    Paint,
    columns,
    command_hint,
    duration,
    encode,
    fit,
    moment,
    plural,
    print_document,
    say,
    shell_quote,
    stdout_reserved_for_json,
    table,
    write_bytes,
    write_text,
)
from resile.cli.display.output import (
    escape_control_characters as escape,
)
from resile.cli.parse import Call, refusal
from resile.commands.documents.dead_letters import DeadLetter, LetterExport, LetterFailure, PatternGroup, RedriveResult
from resile.errors import ResileError
from resile.model.status import EXIT_CODES

if TYPE_CHECKING:
    from resile.commands.redrive import RedriveCall

LIST_DEFAULT = 50
DATA_LINES_MAX = 40
HISTORY_MAX = 10
PREVIEW_MAX = 20


def list_letters(call: Call) -> int:
    """List the dead letters of a run."""
    step, limit = call.text("step"), call.whole("limit")
    found = call.client.dead_letters(call.run, step)
    if call.json:
        _print_array(islice(found, limit))
        return 0
    shown = [_row(letter) for letter in islice(found, limit or LIST_DEFAULT)]
    if not shown:
        write_text(f"run {call.run} has no dead letters\n")
        return 0
    total = call.client.count_dead_letters(call.run, step)
    paint = Paint(call.color, sys.stdout)
    heads = ["ITEM", "REASON", "FAILED", "LAST", "WHAT HAPPENED"]
    lines = [f"run {call.run}: {plural(total, 'dead letter')}", ""]
    lines += table(heads, shown, paint, columns(sys.stdout))
    if total > len(shown):
        lines.append(f"… and {total - len(shown)} more; `--limit N` shows more of them")
    shown_by = command_hint(f"dlq show {call.run} ITEM", call.db)
    retries = _retries(call, step)
    if len(retries) == 1:
        told = [f"`{shown_by}` shows one, `{retries[0]}` runs them again"]
    else:
        told = [f"`{shown_by}` shows one; run again they are map by map:", *(f"  {one}" for one in retries)]
    write_text("\n".join([*lines, "", *told]) + "\n")
    return 0


def _retries(call: Call, step: str | None) -> list[str]:
    """The commands that retry the listed letters."""
    from resile.cli.display.summary import retry_commands

    maps = call.client.maps_with_dead_letters(call.run)
    if step is None or len(maps) < 2:
        return retry_commands(call.run, maps, call.db)
    asked = call.client.maps_with_dead_letters(call.run, step)
    if len(asked) > 1:
        return retry_commands(call.run, asked, call.db)
    return [command_hint(f"dlq retry {call.run} --step {shell_quote(step)}", call.db)]


def _print_array(letters: Iterator[DeadLetter]) -> None:
    """Print one document while its letters are read; an error comes before its first byte."""
    before = b'{"version":1,"dead_letters":['
    for letter in letters:
        write_bytes(before + encode(letter))
        before = b","
    write_bytes(b"]}\n" if before == b"," else before + b"]}\n")


def _row(letter: DeadLetter) -> list[str]:
    """One row of the list."""
    history = letter.failure_history
    what = _failure(history[-1]) if history else "it never started"
    return [
        escape(letter.item_id),
        letter.reason if letter.reprocess_eligible else f"{letter.reason}, for review",
        str(letter.failure_count),
        _day(letter.last_attempt),
        escape(what),
    ]


def _failure(failure: LetterFailure) -> str:
    """The failed step, if there is one, and the message."""
    return ": ".join(filter(None, (failure.step_failed, failure.error_message)))


def _day(stamp: str) -> str:
    """A time in the user's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment(stamp)))


def show(call: Call) -> int:
    """Show one dead letter."""
    letter = call.client.dead_letter(call.run, call.texts("ITEM")[0], call.text("step"))
    if call.json:
        print_document(letter)
        return 0
    from resile.cli.commands.judge import tail_lines

    paint, size = Paint(call.color, sys.stdout), columns(sys.stdout)
    head = f"{paint('bold', escape(letter.item_id))} of run {call.run}"
    review = "" if letter.reprocess_eligible else ", waits for a person's review (--force retries it)"
    lines = [
        f"{head}: {paint('red', letter.reason)}, {plural(letter.failure_count, 'failure')}{review}",
        f"  signature {letter.error_signature}, correlation id {escape(letter.correlation_id)}",
        *_data(letter.item_data, paint, size),
    ]
    history = letter.failure_history
    for failure in history[-HISTORY_MAX:]:
        told = f"{failure.attempt_number}. {_day(failure.timestamp)}, {duration(failure.duration_ms / 1000)}"
        lines.append(fit(f"  {told}, {escape(_failure(failure))}", size))
        if failure.json_log_location:
            lines.append(f"     {escape(failure.json_log_location)}")
    if history:
        lines += tail_lines(history[-1].stack_trace, "stderr", paint, size)
    write_text("\n".join(lines) + "\n")
    return 0


def _data(value: Any, paint: Paint, size: int) -> list[str]:
    """An item as indented JSON."""
    text = msgspec.json.format(encode(value), indent=2).decode().split("\n")
    bar = paint("dim", "|")
    lines = [f"  {bar} {fit(_indent(line), size - 4)}" for line in text[:DATA_LINES_MAX]]
    more = len(text) - DATA_LINES_MAX
    return [*lines, f"  {bar} … {more} more lines; --json shows all"] if more > 0 else lines


def _indent(line: str) -> str:
    """A line of JSON with its indentation."""
    text = line.lstrip(" ")
    return " " * (len(line) - len(text)) + escape(text)


def stats(call: Call) -> int:
    """Show what the dead letters of a run have in common."""
    document = call.client.dead_letter_statistics(call.run, call.text("step"))
    if call.json:
        print_document(document)
        return 0
    total, review = document.total, document.manual_review_required
    if not total:
        write_text(f"run {call.run} has no dead letters\n")
        return 0
    reasons = ", ".join(f"{count} {reason}" for reason, count in document.reasons.items())
    waiting = f"; {review} wait for a person's review" if review else ""
    paint, size = Paint(call.color, sys.stdout), columns(sys.stdout)
    lines = [f"run {call.run} {escape(document.workflow)}: {plural(total, 'dead letter')} ({reasons}){waiting}", ""]
    wide = max(len(str(group.count)) for group in document.pattern_groups)
    for group in document.pattern_groups:
        lines += [fit(line, size) for line in _group(group, wide)]
    if document.other_patterns:
        lines.append(f"… and {plural(document.other_patterns, 'dead letter')} with other signatures")
    errors = [[_error(entry.error_type), str(entry.count)] for entry in document.error_distribution]
    if errors:
        lines += ["", *table(["ERROR", "COUNT"], errors, paint, size)]
    hours = [[_day(entry.hour)[:16], str(entry.count)] for entry in document.temporal_distribution]
    lines += ["", *table(["HOUR", "COUNT"], hours, paint, size)]
    write_text("\n".join(lines) + "\n")
    return 0


def _group(group: PatternGroup, wide: int) -> list[str]:
    """A group of similar failures: how many, their message, from when to when, and some of the items."""
    times = list(dict.fromkeys(_day(stamp) for stamp in (group.first_occurrence, group.last_occurrence)))
    items = ", ".join(map(escape, group.sample_items))
    return [
        f"{group.count:>{wide}} x {escape(group.signature)}  {escape(group.message)}",
        f"{' ' * wide}   {' to '.join(times)}, such as {items}",
    ]


def _error(kind: str | dict[str, Any]) -> str:
    """A type of error as text for people."""
    return kind if isinstance(kind, str) else f"exit code {kind['CommandFailed']['exit_code']}"


def export(call: Call) -> int:
    """Write the dead letters of a run as JSON Lines: to a file, atomically, or to stdout."""
    found = call.client.dead_letters(call.run, call.text("step"))
    path = call.text("FILE")
    if path is None:
        for letter in found:
            write_bytes(encode(letter) + b"\n")
        return 0
    count = 0
    beside = f"{path}.part"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        for letter in found:
            file.write(encode(letter) + b"\n")
            count += 1
    os.replace(beside, path)
    if call.json:
        print_document(LetterExport(run=call.run, file=path, dead_letters=count))
    else:
        write_text(f"{plural(count, 'dead letter')} in {path}\n")
    return 0


def purge(call: Call) -> int:
    """Remove dead letters, once the user has confirmed it."""
    step, signature = call.text("step"), call.text("signature")
    if not call.flag("yes") and not sys.stdin.isatty():
        hint = command_hint(f"dlq purge {call.run} --yes", call.db)
        raise refusal("there is no terminal to ask on, and dead letters that are removed do not come back", hint)
    count = call.client.count_dead_letters(call.run, step, signature)
    if count and not call.flag("yes") and not _confirm(call.run, count):
        say("nothing was removed")
        return 1
    answer = call.client.purge(call.run, step, signature)
    if call.json:
        print_document(answer)
    else:
        write_text(f"run {call.run}: {plural(answer.purged, 'dead letter')} removed, {answer.dead_letters} left\n")
    return 0


def _confirm(run: int, count: int) -> bool:
    """Ask on the terminal."""
    sys.stderr.write(f"remove {plural(count, 'dead letter')} of run {run} for good? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def retry(call: Call) -> int:
    """Retry dead letters, or list those that would run."""
    from resile.commands.redrive import RedriveCall

    asked = RedriveCall(
        run=call.run,
        step=call.text("step"),
        parallel=call.whole("max-parallel"),
        filter=call.text("filter"),
        signature=call.text("signature"),
        force=call.flag("force"),
    )
    if not call.flag("dry-run"):
        return _redrive(call, asked)
    document = call.client.preview_redrive(asked)
    if call.json:
        print_document(document)
        return 0
    names = [f"  {escape(name)}" for name in document.items[:PREVIEW_MAX]]
    more = document.selected - len(names)
    lines = [f"run {call.run}: {plural(document.selected, 'item')} would run", *names]
    write_text("\n".join([*lines, f"  … and {more} more"] if more else lines) + "\n")
    return 0


def _redrive(call: Call, asked: RedriveCall) -> int:
    """Show progress while the items run, then the result."""
    from resile.cli.commands.run import display_for
    from resile.cli.display.watch import ProgressWatcher

    go_on = command_hint(f"dlq retry {call.run}", call.db)
    with ProgressWatcher(display_for(call)) as watch:
        try:
            with stdout_reserved_for_json(call.json):
                done = call.client.redrive(asked, watch)
        except (ResileError, OSError) as error:
            if not watch.run:
                raise
            from resile.cli.display.problems import report

            report(error, json=call.json, debug=call.flag("debug"))
            say(f"  the redrive is interrupted; `{go_on}` goes on")
            return EXIT_CODES["interrupted"]
    if call.json:
        print_document(done)
    else:
        write_text(_result_text(done, go_on, call))
    return done.exit_code


def _result_text(document: RedriveResult, go_on: str, call: Call) -> str:
    """The result of a redrive, in a line or two."""
    selected, left = document.selected, document.left
    if not selected:
        return f"run {call.run}: no dead letter is selected\n"
    text = f"run {call.run}: {document.succeeded} of {plural(selected, 'item')} succeeded"
    match document.status:
        case "interrupted":
            return f"{text}, {left} left; `{go_on}` goes on\n"
        case "parked":
            parked = command_hint(f"parked {call.run}", call.db)
            return f"{text}, {left} left; failures wait for judgement: `{parked}`\n"
    shown = command_hint(f"dlq list {call.run} --step {shell_quote(document.map or '')}", call.db)
    words = [f"{document.failed} failed again"] if document.failed else []
    words += [f"{left - document.failed} not tried"] if left > document.failed else []
    return f"{text}, {', '.join(words)}; `{shown}` shows them\n" if left else f"{text}\n"
