"""`db check`, `db copy` and `prune`: is the database whole, which runs are copied, and which are deleted?"""

from __future__ import annotations

from collections.abc import Iterator

from resile.cli.commands.runs import statuses
from resile.cli.display.output import Page, answer, escape, plural
from resile.cli.parse import Call, refusal
from resile.commands.database.copy import copy_database
from resile.commands.database.prune import PruneFilter
from resile.commands.documents.answers import DatabaseCheck, Pruned
from resile.model.limits import size

EXIT_DAMAGED = 1


def check(call: Call) -> int:
    """Check the database, all runs or some."""
    document = call.client.check_database([call.run] if call.text("RUN") else [], accept=call.flag("accept"))
    answer(call, document, _lines)
    return 0 if document.is_whole else EXIT_DAMAGED


def _lines(document: DatabaseCheck, _: Page) -> Iterator[str]:
    """What is wrong, then how many runs are whole."""
    for problem in document.problems:
        yield f"database: {escape(problem)}"
    damaged = 0
    for run in document.runs:
        damaged += bool(run.problems)
        for problem in run.problems:
            yield f"run {run.run} {escape(run.workflow)}: {escape(problem)}"
    whole = len(document.runs) - damaged
    yield f"{plural(len(document.runs), 'run')}: {whole} whole, {damaged} damaged"


def copy(call: Call) -> int:
    """Copy runs from one database to another."""
    runs = [int(word) for word in call.texts("RUN")]
    document = copy_database(call.word("FROM"), call.word("TO"), runs)
    return answer(call, document, lambda found, _: [f"{plural(len(found.runs), 'run')} copied: {_ranges(found.runs)}"])


def prune(call: Call) -> int:
    """Delete ended runs, or list those that would be deleted."""
    age = call.text("older-than")
    if age is not None and age.isdigit() and int(age):
        raise refusal(f"--older-than {age} has no unit", f"{age}d means days, {age}h hours")
    only = PruneFilter(
        older_than_seconds=call.duration("older-than", zero=True),
        keep_last=call.whole("keep-last"),
        statuses=statuses(call),
        workflow=call.word("workflow"),
    )
    is_dry = call.flag("dry-run")
    document = call.client.prune(only, dry_run=is_dry)
    return answer(call, document, lambda found, _: _prune_lines(found, is_dry))


def _prune_lines(found: Pruned, is_dry: bool) -> Iterator[str]:
    """How many runs and bytes, which runs, and what could not be given back."""
    if not found.runs:
        yield "no run that has ended meets the conditions"
    else:
        did = "would be deleted, about" if is_dry else "deleted,"
        yield f"{plural(len(found.runs), 'run')} {did} {size(found.bytes)} given back: {_ranges(found.runs)}"
    if found.note:
        yield found.note


def _ranges(numbers: list[int]) -> str:
    """Numbers in rising order, neighbours as a range: 1-3, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
