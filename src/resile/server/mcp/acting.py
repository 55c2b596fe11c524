"""The tools that judge failures, and start and end runs."""

from __future__ import annotations

from typing import Any

import msgspec

from resile.commands.agents.judge_many import Decision, judge_many
from resile.commands.judge import Judgement
from resile.commands.redrive import RedriveCall
from resile.dialects.reading.durations import duration_seconds, memory_bytes
from resile.errors import ResileError
from resile.server.mcp.arguments import CancelRun, Classification, ClassifyAndResolve, RetryDeadLetters, RunWorkflow
from resile.server.mcp.toolbox import Toolbox


def classify_and_resolve(toolbox: Toolbox, given: ClassifyAndResolve) -> dict[str, Any]:
    """Carry out decisions about parked failures; return the result of each, or why it was impossible."""
    run = given.workflow_id
    decided = judge_many(
        toolbox.store,
        run,
        [Decision(one.job_id, _judgement_of(one)) for one in given.classifications],
        by=toolbox.by,
        quota=toolbox.judge_quota,
        partial=given.partial,
        dry_run=given.dry_run,
    )
    if any(one.done for one in decided):
        toolbox.acts.ring(run)
    return {"workflow_id": run, "dry_run": given.dry_run, "results": msgspec.to_builtins(decided)}


def _judgement_of(one: Classification) -> Judgement:
    """The judgement that a classification means."""
    if one.action != "retry_with" and (one.memory or one.runtime):
        raise ResileError("bad-arguments", f"job {one.job_id}: memory and runtime go with retry_with")
    if one.action == "retry_with" and not (one.memory or one.runtime):
        raise ResileError("bad-arguments", f"job {one.job_id}: retry_with needs memory or runtime")
    if one.action != "skip" and one.output is not None:
        raise ResileError("bad-arguments", f"job {one.job_id}: output goes with skip")
    try:
        memory = memory_bytes(one.memory) if one.memory else 0
        runtime = duration_seconds(one.runtime) if one.runtime else 0.0
    except ValueError as error:
        raise ResileError("bad-arguments", f"job {one.job_id}: memory or runtime {error}") from error
    return Judgement(
        verdict="retry" if one.action == "retry_with" else one.action,
        reason=one.reason,
        output=one.output,
        memory_bytes=memory,
        runtime_seconds=runtime,
        confidence=one.confidence,
    )


def retry_dead_letters(toolbox: Toolbox, given: RetryDeadLetters) -> dict[str, Any]:
    """Run dead letters again, or list those that would run."""
    if given.dry_run:
        preview = toolbox.client.preview_redrive(RedriveCall(run=given.run, filter=given.filter or None))
        return {"run": given.run, "dry_run": True, "items": preview.items}
    return toolbox.acts.redrive(given.run, given.filter or None)


def run_workflow(toolbox: Toolbox, given: RunWorkflow) -> dict[str, Any]:
    """Start a run."""
    return {"run": toolbox.acts.run_text(given.text, given.dialect, given.inputs)}


def cancel_run(toolbox: Toolbox, given: CancelRun) -> dict[str, Any]:
    """Cancel a run."""
    return toolbox.acts.cancel(given.run, given.reason)
