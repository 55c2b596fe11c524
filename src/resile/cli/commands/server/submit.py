"""`submit`: hand a run to the servers of a database, and with --wait follow it."""

from __future__ import annotations

from collections.abc import Iterator

from resile.cli.commands.run import call_of, drive_run
from resile.cli.display.output import Page, answer
from resile.cli.parse import Call
from resile.commands.documents.answers import SubmittedRun


def submit(call: Call) -> int:
    """Hand over a run."""
    found = call.client.submit(call_of(call), priority=call.integer("priority"), key=call.word("key"))
    if call.flag("wait"):
        return drive_run(call, lambda watch: call.client.wait(found.run, watch))
    return answer(call, found, _lines)


def _lines(found: SubmittedRun, _: Page) -> Iterator[str]:
    yield f"run {found.run}"
