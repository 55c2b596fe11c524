"""`slurm status`, `slurm cancel`: the allocations of runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from resile.cli.display.output import Page, answer, duration, escape, plural
from resile.cli.parse import Call
from resile.commands.cluster.allocations import allocation_list, cancel_allocations
from resile.commands.documents.answers import AllocationList
from resile.commands.store_handle import StoreHandle


def status(call: Call) -> int:
    """Show the allocations of a run, or of all runs."""
    run = call.run if call.word("RUN") else None
    with closing(StoreHandle(call.database)) as stores:
        return answer(call, allocation_list(stores.write(), run), _lines)


def cancel(call: Call) -> int:
    """End the allocations of a run."""
    with closing(StoreHandle(call.database)) as stores:
        return answer(call, cancel_allocations(stores.write(), call.run), _canceled_lines)


def _lines(document: AllocationList, page: Page) -> Iterator[str]:
    """A table of allocations."""
    if not document.allocations:
        yield "no allocations"
        return
    rows = [
        [
            escape(one.id),
            escape(one.name),
            escape(one.state),
            escape(one.node),
            str(one.jobs_done),
            "" if one.seconds_left is None else duration(one.seconds_left),
            escape(one.reason),
        ]
        for one in document.allocations
    ]
    yield from page.table(rows, ["ID", "NAME", "STATE", "NODE", "DONE", "LEFT", "REASON"], spare=(6, 1), status=None)


def _canceled_lines(document: AllocationList, page: Page) -> Iterator[str]:
    """How many allocations were ended."""
    del page
    yield f"{plural(len(document.allocations), 'allocation')} canceled"
