"""The tools that only read."""

from __future__ import annotations

import tempfile
from itertools import islice
from typing import Any

import msgspec

from resile.commands.agents.similar import similar_failures
from resile.commands.inspect import RunFilter
from resile.commands.load import CompileOptions
from resile.commands.logs import LogFilter
from resile.commands.redrive import letters_that_match
from resile.server.mcp.arguments import (
    CheckWorkflow,
    ExplainRun,
    GetRun,
    ListDeadLetters,
    ListPendingFailedJobs,
    ListRuns,
    ReadLogs,
)
from resile.server.mcp.marking import mark, mark_fields
from resile.server.mcp.toolbox import Toolbox

JOBS_MAX = 200
LOG_BYTES_MAX = 64 * 1024
LETTERS_MAX = 200


def list_runs(toolbox: Toolbox, given: ListRuns) -> dict[str, Any]:
    """Summaries of runs."""
    statuses = (given.status,) if given.status else ()
    found = toolbox.client.runs(RunFilter(statuses=statuses, workflow=given.workflow, limit=given.limit))
    return _plain(found)


def get_run(toolbox: Toolbox, given: GetRun) -> dict[str, Any]:
    """One run; if it has many jobs, only the first ones."""
    document = _plain(toolbox.client.status(given.run))
    jobs = document["jobs"]
    if len(jobs) > JOBS_MAX:
        document["jobs"] = jobs[:JOBS_MAX]
        document["note"] = f"{len(jobs) - JOBS_MAX} of {len(jobs)} jobs are left out"
    return document


def explain_run(toolbox: Toolbox, given: ExplainRun) -> dict[str, Any]:
    """Why a run failed, or what happened to a step."""
    return _plain(toolbox.client.explain(given.run, given.step or None))


def read_logs(toolbox: Toolbox, given: ReadLogs) -> dict[str, Any]:
    """The output of attempts; only its end if it is long."""
    stream = {"stdout": "out", "stderr": "err", "both": "both"}[given.stream]
    which = str(given.job) if given.job is not None else given.step or None
    wanted = msgspec.convert(
        {"step": which, "attempt": given.attempt, "stream": stream, "tail": given.tail_lines}, LogFilter
    )
    kept: list[bytes] = []
    size, total = 0, 0
    for part in toolbox.client.logs(given.run, wanted):
        kept.append(part.data)
        size += len(part.data)
        total += len(part.data)
        while size - len(kept[0]) >= LOG_BYTES_MAX:
            size -= len(kept.pop(0))
    text = b"".join(kept)[-LOG_BYTES_MAX:]
    cut = total - len(text)
    answer: dict[str, Any] = {
        "run": given.run,
        "bytes": total,
        "cut": cut > 0,
        "text": mark(text.decode("utf-8", "replace")),
    }
    if cut:
        answer["note"] = f"the first {cut} bytes are left out"
    return answer


def list_pending_failed_jobs(toolbox: Toolbox, given: ListPendingFailedJobs) -> dict[str, Any]:
    """The parked failures of a run, each with the judgements of similar failures."""
    document = toolbox.client.parked_failures(given.workflow_id)
    jobs: list[dict[str, Any]] = []
    for failure in document.failures:
        plain = _plain(failure)
        similar = similar_failures(toolbox.store, failure.signature, other_than=(given.workflow_id, failure.job))
        jobs.append(
            {
                "job_id": failure.job,
                "name": failure.step,
                **{name: value for name, value in plain.items() if name not in ("job", "step")},
                "similar": [_plain(one) for one in similar],
            }
        )
    return {"workflow_id": given.workflow_id, "workflow": document.workflow, "status": document.status, "jobs": jobs}


def list_dead_letters(toolbox: Toolbox, given: ListDeadLetters) -> dict[str, Any]:
    """The dead letters of a run that a filter accepts."""
    wanted = letters_that_match(toolbox.store, given.run, given.filter) if given.filter else None
    letters = (one for one in toolbox.client.dead_letters(given.run) if wanted is None or one.item_id in wanted)
    found = [_plain(one) for one in islice(letters, LETTERS_MAX + 1)]
    answer: dict[str, Any] = {"run": given.run, "dead_letters": found[:LETTERS_MAX]}
    if len(found) > LETTERS_MAX:
        answer["note"] = f"only the first {LETTERS_MAX} are listed"
    return answer


def check_workflow(toolbox: Toolbox, given: CheckWorkflow) -> dict[str, Any]:  # noqa: ARG001
    """The findings in a workflow file."""
    from resile.commands.service.submit import check_text

    with tempfile.TemporaryDirectory(prefix="resile-check-") as folder:
        found = check_text(given.text, "workflow.yaml", {}, CompileOptions(given.dialect), folder)
    return _plain(found)


def _plain(document: object) -> dict[str, Any]:
    """A document as plain data, with the text of programs marked."""
    found: dict[str, Any] = mark_fields(msgspec.to_builtins(document))
    return found
