"""`dlq`: list, show, retry, export and remove the dead letters of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from resile.cli.display import output
from resile.cli.parse import Call, refusal
from resile.commands.documents import dead_letters
from resile.model.folders import put_in_place
from resile.model.status import EXIT_CODES

LIST_DEFAULT = 50
DATA_LINES_MAX = 40
HISTORY_MAX = 10
PREVIEW_MAX = 20


def list_letters(call: Call) -> int:
    """List the dead letters of a run."""
    limit = call.whole("limit")
    found = call.client.dead_letters(call.run, call.text("step"))
    if call.json:
        _print_array(islice(found, limit))
        return 0
    return output.answer(
        call, list(islice(found, limit or LIST_DEFAULT)), lambda shown, page: _list_lines(call, shown, page)
    )


def _print_array(letters: Iterator[dead_letters.DeadLetter]) -> None:
    """Print one document while its letters are read; an error comes before its first byte."""
    before = b'{"version":1,"dead_letters":['
    for letter in letters:
        output.write_bytes(before + output.encode(letter))
        before = b","
    output.write_bytes(b"]}\n" if before == b"," else before + b"]}\n")


def _list_lines(call: Call, letters: list[dead_letters.DeadLetter], page: output.Page) -> Iterator[str]:
    """The letters as a table, and the commands that show one and retry them."""
    if not letters:
        yield f"run {call.run} has no dead letters"
        return
    step = call.text("step")
    total = call.client.count_dead_letters(call.run, step)
    yield from (f"run {call.run}: {output.plural(total, 'dead letter')}", "")
    heads = ["ITEM", "REASON", "FAILED", "LAST", "WHAT HAPPENED"]
    yield from page.table([_row(letter) for letter in letters], heads, spare=(3, 2))
    if total > len(letters):
        yield from page.wrap(f"… and {total - len(letters)} more; `--limit N` shows more of them", "  ")
    shown_by = page.command(f"dlq show {call.run} ITEM")
    retries = _retries(call, page, step)
    yield ""
    if len(retries) == 1:
        yield from page.wrap(f"`{shown_by}` shows one, `{retries[0]}` runs them again", "  ")
    else:
        yield from page.wrap(f"`{shown_by}` shows one; each map is run again by its own command:", "  ")
        yield from (f"  {command}" for command in retries)


def _retries(call: Call, page: output.Page, step: str | None) -> list[str]:
    """The commands that retry the listed letters."""
    from resile.cli.display.summary import retry_commands

    maps = call.client.maps_with_dead_letters(call.run)
    if step is None or len(maps) < 2:
        return retry_commands(call.run, maps, page)
    asked = call.client.maps_with_dead_letters(call.run, step)
    if len(asked) > 1:
        return retry_commands(call.run, asked, page)
    return [page.command(f"dlq retry {call.run} --step {output.shell_quote(step)}")]


def _row(letter: dead_letters.DeadLetter) -> list[str]:
    """One row of the list."""
    history = letter.failure_history
    return [
        output.escape(letter.item_id),
        letter.reason if letter.reprocess_eligible else f"{letter.reason}, for review",
        str(letter.failure_count),
        output.day(letter.last_attempt),
        output.escape(_failure(history[-1])) if history else "it never started",
    ]


def _failure(failure: dead_letters.LetterFailure) -> str:
    return ": ".join(filter(None, (failure.step_failed, failure.error_message)))


def show(call: Call) -> int:
    """Show one dead letter."""
    letter = call.client.dead_letter(call.run, call.word("ITEM"), call.text("step"))
    return output.answer(call, letter, lambda found, page: _letter_lines(call.run, found, page))


def _letter_lines(run: int, letter: dead_letters.DeadLetter, page: output.Page) -> Iterator[str]:
    """One dead letter: its data, and its last failures."""
    head = f"{page.paint('bold', output.escape(letter.item_id))} of run {run}: {page.paint('red', letter.reason)}"
    review = "" if letter.reprocess_eligible else ", waits for a person's review (--force retries it)"
    yield from page.wrap(f"{head}, {output.plural(letter.failure_count, 'failure')}{review}", "  ")
    signs = f"  signature {letter.error_signature}, correlation id {output.escape(letter.correlation_id)}"
    yield from page.wrap(signs, "    ")
    yield from _data_lines(letter.item_data, page)
    history = letter.failure_history
    for failure in history[-HISTORY_MAX:]:
        when = (
            f"{failure.attempt_number}. {output.day(failure.timestamp)}, {output.duration(failure.duration_ms / 1000)}"
        )
        yield from page.wrap(f"  {when}, {output.escape(_failure(failure))}", "     ")
        if failure.json_log_location:
            yield f"     {output.escape(failure.json_log_location)}"
    if history:
        yield from page.tail(history[-1].stack_trace, "stderr")


def _data_lines(value: Any, page: output.Page) -> list[str]:
    """An item as indented JSON."""
    text = msgspec.json.format(output.encode(value), indent=2).decode().split("\n")
    bar = page.paint("dim", "|")
    lines = [f"  {bar} {output.fit(_indent(line), page.columns - 4)}" for line in text[:DATA_LINES_MAX]]
    more = len(text) - DATA_LINES_MAX
    return [*lines, f"  {bar} … {more} more lines; --json shows all"] if more > 0 else lines


def _indent(line: str) -> str:
    """Escape a line of JSON, but keep its indentation."""
    text = line.lstrip(" ")
    return " " * (len(line) - len(text)) + output.escape(text)


def stats(call: Call) -> int:
    """Show what the dead letters of a run have in common."""
    return output.answer(call, call.client.dead_letter_statistics(call.run, call.text("step")), _statistics_lines)


def _statistics_lines(document: dead_letters.LetterStatistics, page: output.Page) -> Iterator[str]:
    """The letters by signature, by type of error, by hour."""
    if not document.total:
        yield f"run {document.run} has no dead letters"
        return
    total, review = output.plural(document.total, "dead letter"), document.manual_review_required
    reasons = ", ".join(f"{count} {reason}" for reason, count in document.reasons.items())
    waiting = f"; {review} wait for a person's review" if review else ""
    head = f"run {document.run} {output.escape(document.workflow)}: {total} ({reasons}){waiting}"
    yield from (*page.wrap(head, "  "), "")
    wide = max(len(str(group.count)) for group in document.pattern_groups)
    for group in document.pattern_groups:
        times = " to ".join(dict.fromkeys(map(output.day, (group.first_occurrence, group.last_occurrence))))
        yield page.fit(f"{group.count:>{wide}} x {output.escape(group.signature)}  {output.escape(group.message)}")
        yield page.fit(f"{' ' * wide}   {times}, such as {', '.join(map(output.escape, group.sample_items))}")
    if document.other_patterns:
        yield f"… and {output.plural(document.other_patterns, 'dead letter')} with other signatures"
    errors = [[_error(entry.error_type), str(entry.count)] for entry in document.error_distribution]
    if errors:
        yield from ("", *page.table(errors, ["ERROR", "COUNT"]))
    hours = [[output.day(entry.hour)[:16], str(entry.count)] for entry in document.temporal_distribution]
    yield from ("", *page.table(hours, ["HOUR", "COUNT"]))


def _error(kind: str | dict[str, Any]) -> str:
    return kind if isinstance(kind, str) else f"exit code {kind['CommandFailed']['exit_code']}"


def export(call: Call) -> int:
    """Write the dead letters of a run as JSON Lines: to a file, atomically, or to stdout."""
    found = call.client.dead_letters(call.run, call.text("step"))
    path = call.text("FILE")
    if path is None:
        for letter in found:
            output.write_bytes(output.encode(letter) + b"\n")
        return 0
    count = 0
    beside = f"{path}.part"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        for letter in found:
            file.write(output.encode(letter) + b"\n")
            count += 1
        put_in_place(file, beside, path)
    document = dead_letters.LetterExport(run=call.run, file=path, dead_letters=count)
    return output.answer(call, document, lambda *_: [f"{output.plural(count, 'dead letter')} in {path}"])


def purge(call: Call) -> int:
    """Remove dead letters, once the user has confirmed it."""
    step, signature = call.text("step"), call.text("signature")
    if not call.flag("yes") and not sys.stdin.isatty():
        hint = output.command_hint(f"dlq purge {call.run} --yes", output.place_of(call))
        raise refusal("there is no terminal to ask on, and dead letters that are removed do not come back", hint)
    count = call.client.count_dead_letters(call.run, step, signature)
    if count and not call.flag("yes") and not _confirm(call.run, count):
        output.say("nothing was removed")
        return 1
    result = call.client.purge(call.run, step, signature)
    text = f"run {call.run}: {output.plural(result.purged, 'dead letter')} removed, {result.dead_letters} left"
    return output.answer(call, result, lambda *_: [text])


def _confirm(run: int, count: int) -> bool:
    sys.stderr.write(f"remove {output.plural(count, 'dead letter')} of run {run} for good? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def retry(call: Call) -> int:
    """Retry dead letters, or list those that would run."""
    from resile.cli.commands.run import drive, drive_run, limits_of
    from resile.commands.redrive import RedriveCall

    asked = RedriveCall(
        run=call.run,
        step=call.text("step"),
        parallel=call.whole("max-parallel"),
        filter=call.text("filter"),
        signature=call.text("signature"),
        force=call.flag("force"),
    )
    if call.flag("dry-run"):
        return output.answer(call, call.client.preview_redrive(asked), _preview_lines)
    done = drive(call, lambda watch: call.client.redrive(asked, watch), "the redrive", "dlq retry {run}")
    if done is None:
        return EXIT_CODES["interrupted"]
    is_over = done.exit_code == 0 and not done.dead_letters
    is_failed = call.flag("resume") and call.client.status(call.run).status == "failed"
    if is_failed and is_over:
        output.say(f"run {call.run}: {output.plural(done.succeeded, 'item')} succeeded; the run goes on")
        # The store lets one writer at a time into a process.
        call.close()
        return drive_run(call, lambda watch: call.client.rerun(call.run, limits_of(call), watch, failed_only=True))
    if is_failed and done.exit_code == 0:
        left = output.plural(done.dead_letters, "dead letter")
        output.say(f"run {call.run} is still failed and does not go on: {left} left")
        done = msgspec.structs.replace(done, exit_code=EXIT_CODES["failed"])
    output.answer(call, done, _result_lines)
    return done.exit_code


def _preview_lines(document: dead_letters.RedrivePreview, _page: output.Page) -> Iterator[str]:
    """The first of the items that would run."""
    yield f"run {document.run}: {output.plural(document.selected, 'item')} would run"
    yield from (f"  {output.escape(name)}" for name in document.items[:PREVIEW_MAX])
    more = document.selected - len(document.items[:PREVIEW_MAX])
    if more:
        yield f"  … and {more} more"


def _result_lines(document: dead_letters.RedriveResult, page: output.Page) -> Iterator[str]:
    """The result of a redrive, in one line."""
    run, selected, left = document.run, document.selected, document.left
    if not selected:
        yield f"run {run}: no dead letter is selected"
        return
    text = f"run {run}: {document.succeeded} of {output.plural(selected, 'item')} succeeded"
    match document.status:
        case "interrupted":
            yield f"{text}, {left} left; `{page.command(f'dlq retry {run}')}` goes on"
        case "parked":
            yield f"{text}, {left} left; failures wait for judgement: `{page.command(f'parked {run}')}`"
        case _ if left:
            shown = page.command(f"dlq list {run} --step {output.shell_quote(document.map or '')}")
            words = [f"{document.failed} failed again"] if document.failed else []
            words += [f"{left - document.failed} not tried"] if left > document.failed else []
            yield f"{text}, {', '.join(words)}; `{shown}` shows them"
        case _:
            yield text
