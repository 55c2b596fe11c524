"""`end`: the one exit. It starts once, when every other job of the root scope is terminal, however they ended."""

from __future__ import annotations

from typing import Any

from resile.core.actions import StopEngine
from resile.core.reaction import Reaction
from resile.core.scheduling.arcs import skip_unreached
from resile.core.state import ROOT, Failed, State
from resile.model.items import ItemFailure
from resile.model.status import (
    CANCELED,
    COMPLETED,
    DISABLED,
    FAILED,
    SKIPPED,
    STATUS_NAMES,
    TERMINAL,
    TERMINATED,
)

# The lists in which `end` finds the names of the steps that did not complete.
_NAMED = {FAILED: "failed", CANCELED: "canceled", TERMINATED: "canceled", SKIPPED: "skipped"}


def converge(reaction: Reaction) -> None:
    """After each event: start `end`, conclude the run, or stop the engine where only judgements are missing."""
    state = reaction.state
    if state.phase in ("new", "ended"):
        return
    scope = state.scopes[ROOT]
    if state.phase == "running":
        if scope.open and state.active:
            # The usual case: open jobs remain, and some of them make progress.
            return
        if scope.open and not state.parked:
            skip_unreached(reaction, scope, SKIPPED)
        # A killed repair may outlive its owner for a moment; `end` waits for all attempts.
        if not scope.open and not state.in_flight:
            state.phase = "ending"
            if state.blocks is not None:
                from resile.core.scheduling.blocks import complete_workflow

                complete_workflow(reaction, state.blocks)
            reaction.wake(state.end_of(scope), state.seq)
    if state.phase == "ending" and state.end_of(scope).status in TERMINAL:
        if state.blocks is None or all(block.tried for block in state.blocks.open.values()):
            _conclude(reaction)
    elif state.parked and not state.active and (state.redrive is None or not state.redrive.reading):
        reaction.order(StopEngine("parked", state.seq))


def execution(state: State, scope: int = ROOT) -> dict[str, Any]:
    """The variables of a workflow's `end`: the outcome of everything before it."""
    plan, first = state.plan_of(scope), state.scopes[scope].first
    named: dict[str, list[str]] = {"failed": [], "tolerated": [], "canceled": [], "skipped": []}
    results: dict[str, Any] = {}
    for number, step in enumerate(plan.steps):
        job, name = state.jobs[first + number], step.name
        if number == plan.end or job.status is DISABLED:
            continue
        results[name] = {
            "status": STATUS_NAMES[job.status],
            "exit_code": job.exit_code,
            "attempts": job.attempts_started,
        }
        # A later visit that was stopped does not hide the one that failed; a redrive that left no dead letter mends it.
        kind = "failed" if job.failed_visit and job.status is not COMPLETED else _NAMED.get(job.status)
        if kind is not None:
            named["tolerated" if job.tolerated and kind == "failed" else kind].append(name)
    return {
        "status": _verdict_before_end(state, scope, named["failed"]),
        **{f"{kind}_steps": names for kind, names in named.items()},
        "results": results,
        "first_failure": _first_failure(state, scope),
    }


def _first_failure(state: State, scope: int) -> dict[str, Any] | None:
    """The first failure of a workflow: of the run, or of a child workflow's scope."""
    first: Failed | ItemFailure | None = state.first_failure if scope == ROOT else state.scopes[scope].first_failure
    if first is None:
        return None
    return {
        "step": first.step,
        "attempt": first.attempt,
        "kind": first.kind,
        "exit_code": first.exit_code,
        "message": first.message,
    }


def _verdict_before_end(state: State, scope: int, failed: list[str]) -> str:
    """The verdict before `end` has run."""
    if state.canceled:
        return "canceled"
    aborted = state.aborted if scope == ROOT else state.scopes[scope].aborted
    return "failed" if failed or aborted else "completed"


def _conclude(reaction: Reaction) -> None:
    """Conclude the run: the last outcome of each step, `end` included, decides the verdict, or `end` overrides it."""
    state = reaction.state
    before = execution(state)
    end = state.end_of(state.scopes[ROOT])
    failed = list(before["failed_steps"])
    verdict = before["status"]
    if end.status is COMPLETED and state.override and not state.canceled:
        verdict = state.override
    elif end.status in (FAILED, TERMINATED) and not (end.tolerated or state.canceled):
        verdict = "failed"
        failed.append(state.step_of(end).name)
    state.phase = "ended"
    state.verdict = verdict
    state.ended_at = reaction.at
    meta = {
        "evaluated_by_end_step": True,
        "total_steps": len(before["results"]),
        "failed_steps_count": len(failed),
        "failed_steps": failed,
        "duration_ms": round((reaction.at - state.started_at) * 1000),
    }
    if state.aborted:
        meta["reason"] = state.aborted
    seq = reaction.note_run(f"workflow_{verdict}", verdict, end.last_event_seq, **meta)
    seq = reaction.note_run(f"playbook_{verdict}", verdict, seq, **meta)
    reaction.order(StopEngine(verdict, seq))
