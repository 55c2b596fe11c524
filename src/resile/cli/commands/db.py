"""`db check`: is the database whole?"""

from __future__ import annotations

from collections.abc import Iterator

from resile.cli.display.output import Page, answer, escape, plural
from resile.cli.parse import Call
from resile.commands.documents.answers import DatabaseCheck

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
