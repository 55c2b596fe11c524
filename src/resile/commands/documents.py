"""The JSON that every surface prints: a run, the list of runs, one canonical event."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from resile.core.actions import Note
from resile.core.event_log import STATUS_NAMES
from resile.core.state import ROOT, Job, State
from resile.engine.replay import counts
from resile.model.status import EXIT_CODES, RUN_ENDED, RunStatus, Status
from resile.store.contract import JobRow, LetterCount, RunRow


def timestamp(at: float | None) -> str | None:
    """A moment in UTC, to the millisecond, as ISO 8601 writes it."""
    if at is None:
        return None
    milliseconds = round(at * 1000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    return f"{text}.{milliseconds % 1000:03d}Z"


def run_document(
    row: RunRow,
    state: State,
    status: RunStatus,
    now: float,
    gone: Iterable[JobRow] = (),
    letters: Sequence[LetterCount] = (),
) -> dict[str, Any]:
    """One run, as `run --json` and `status --json` print it; `gone` are jobs that its state has forgotten."""
    if status != "running":
        # Nothing goes on: time stands still at the last event.
        now = state.last_at or now
    ended = state.ended_at if status in RUN_ENDED else None
    started = state.started_at or row.started_at or row.created_at
    first = state.first_failure
    scope = state.scopes.get(ROOT)
    return {
        "run": row.id,
        "workflow": row.workflow,
        "dialect": row.dialect,
        "status": status,
        "exit_code": None if status == "running" else EXIT_CODES[status],
        "epoch": state.epoch,
        "started_at": timestamp(started),
        "ended_at": timestamp(ended),
        "duration_seconds": round((now if ended is None else ended) - started, 3),
        "steps": counts(state),
        "jobs": sorted(
            [_job(state, job, now) for job in state.jobs.values() if job.status is not Status.disabled]
            + [_gone_job(row, now) for row in gone if row.status != Status.disabled],
            key=lambda job: job["id"],
        ),
        "routes": [
            {
                "at": timestamp(route.at),
                "scope": route.scope,
                "step": route.step,
                "attempt": route.attempt,
                "trigger": route.trigger,
                "action": route.action,
                "target": route.target,
                "rule": route.rule,
            }
            for route in state.routes
        ],
        "first_failure": None
        if first is None
        else {
            "step": first.step,
            "attempt": first.attempt,
            "kind": first.kind,
            "exit_code": first.exit_code,
            "message": first.message,
        },
        "outputs": dict(scope.values) if scope is not None else {},
        "maps": _maps(state, letters),
        "dead_letters": sum(fan.count for fan in letters),
    }


def _maps(state: State, letters: Sequence[LetterCount]) -> dict[str, Any]:
    """The numbers of a run's fan-outs, by step."""
    if not state.fans and not state.closed_map_totals:
        return {}
    from resile.engine.map_statistics import all_metrics

    return all_metrics(state, letters)


def _job(state: State, job: Job, now: float) -> dict[str, Any]:
    """One job of a run's document."""
    cause = job.cause
    began, ended = state.times(job)
    seconds = 0.0 if began is None else (now if ended is None else ended) - began
    return {
        "id": job.id,
        "step": state.step_of(job).name,
        "scope": state.scopes[job.scope].name if job.scope in state.scopes else "root",
        "status": STATUS_NAMES[job.status_shown],
        "recovered": job.recovered,
        "tolerated": job.tolerated,
        "attempts": job.attempts_started,
        "exit_code": job.exit_code,
        "seconds": round(seconds, 3),
        "cause": None if cause is None else {"step": cause.step, "job": cause.job, "status": cause.status},
    }


def _gone_job(row: JobRow, now: float) -> dict[str, Any]:
    """One job that is only in the store any more."""
    seconds = 0.0 if row.started_at is None else (row.ended_at or now) - row.started_at
    return {
        "id": row.id,
        "step": row.step,
        "scope": row.scope,
        "status": STATUS_NAMES[row.status],
        "recovered": row.recovered,
        "tolerated": row.tolerated,
        "attempts": row.attempts,
        "exit_code": row.exit_code,
        "seconds": round(seconds, 3),
        "cause": row.cause,
    }


def row_document(row: RunRow, status: str, steps: dict[str, int]) -> dict[str, Any]:
    """One line of the list of runs."""
    return {
        "run": row.id,
        "workflow": row.workflow,
        "status": status,
        "started_at": timestamp(row.started_at),
        "ended_at": timestamp(row.ended_at),
        "steps": steps,
    }


def event_document(run: int, note: Note) -> dict[str, Any]:
    """One canonical event."""
    return {
        "seq": note.seq,
        "at": timestamp(note.at),
        "type": note.type,
        "run": run,
        "scope": note.scope or None,
        "step": note.step or None,
        "job": note.job or None,
        "attempt": note.attempt or None,
        "status": note.status,
        "because": note.because or None,
        "data": note.data,
    }
