"""`ls`, and `status` without a run: the list of runs."""

from __future__ import annotations

import sys
from typing import get_args

from resile.cli.display import output
from resile.cli.parse import Call, nearest, refusal
from resile.cli.table_daily import RUN_FILTERS
from resile.commands.documents.runs import RunList
from resile.commands.inspect import RUNS_LISTED, RunFilter
from resile.model.status import RunStatus


def list_runs(call: Call) -> int:
    """List the runs that the filters accept."""
    only = RunFilter(
        statuses=statuses(call),
        workflow=call.word("workflow"),
        since=call.moment("since") or 0.0,
        labels=call.pairs("label"),
        limit=call.whole("limit") or RUNS_LISTED,
    )
    is_filtered = any(call.flag(option.key) for option in RUN_FILTERS)
    return output.answer(call, call.client.runs(only), lambda document, page: _lines(document, page, is_filtered))


def refuse_filters(call: Call) -> None:
    """Refuse the filters of the list where one run is shown."""
    for option in RUN_FILTERS:
        if call.flag(option.key):
            raise refusal(f"--{option.key} is for the list of runs", f"leave out {call.word('RUN')}, or the option")


def statuses(call: Call) -> tuple[str, ...]:
    """The statuses that --status names, separated by commas."""
    words = tuple(word.strip() for word in call.word("status").split(",")) if call.flag("status") else ()
    known = get_args(RunStatus)
    for word in words:
        if word not in known:
            raise refusal(f"no run has the status {word!r}", nearest(word, known) or f"one of {', '.join(known)}")
    return words


def _lines(document: RunList, page: output.Page, is_filtered: bool) -> list[str]:
    """The list of runs as a table; on a terminal the newest last, next to the prompt."""
    if not document.runs:
        return ["no such runs" if is_filtered else "no runs; `resile run FILE` makes one"]
    rows = [
        [
            str(run.run),
            run.status,
            output.escape(run.workflow),
            output.day(run.started_at),
            output.duration(output.moment(run.ended_at) - output.moment(run.started_at)) if run.ended_at else "",
            f"{run.steps.completed}/{run.steps.total}",
            f"{run.steps.failed} failed" if run.steps.failed else "",
            output.escape(" ".join(f"{name}={value}" for name, value in run.labels.items())),
        ]
        for run in document.runs
    ]
    if output.is_terminal(sys.stdout):
        rows.reverse()
    heads = ["RUN", "STATUS", "WORKFLOW", "STARTED", "TOOK", "DONE", "", "LABELS"]
    if not any(row[-1] for row in rows):
        rows, heads = [row[:-1] for row in rows], heads[:-1]
    # A narrow terminal goes without these: the start, the time, the labels, the failed steps.
    return page.table(rows, heads, spare=[place for place in (3, 4, 7, 6) if place < len(heads)])
