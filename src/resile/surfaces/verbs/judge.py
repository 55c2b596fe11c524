"""Parked failures: what waits for judgement, and the judgement itself."""

from __future__ import annotations

import os
import time
from typing import Any, Literal

from msgspec import Struct

from resile.core.events import Judged
from resile.core.state import Job, State
from resile.errors import ResileError
from resile.model.status import RUN_ENDED, Status
from resile.runtime.past import folded, row_of
from resile.runtime.session import Session, caller, take
from resile.store.contract import AttemptRow, RunRow, Store
from resile.store.open import open_store
from resile.surfaces.documents import timestamp
from resile.surfaces.verbs.look import standing

ANSWER_SECONDS_MAX = 10.0
ASK_AGAIN_SECONDS = 0.05


class Judgement(Struct, frozen=True, kw_only=True):
    """What somebody decided about one parked failure, and why."""

    verdict: Literal["retry", "skip", "fail"]
    reason: str = ""
    output: Any = None
    memory_bytes: int = 0
    runtime_seconds: float = 0.0


def failures(number: int, *, db: str | None) -> dict[str, Any]:
    """Every parked failure of a run, with the tails of its output and the history of its attempts."""
    store = open_store(db, readonly=True)
    try:
        with store.reading():
            row = row_of(store, number)
            state = folded(store, row)
            parked = [job for job in state.jobs.values() if job.status is Status.pending_failed]
            found = [_failure(store, row, state, job) for job in parked]
            return {"run": number, "status": standing(store, row, time.time()), "failures": found}
    finally:
        store.close()


def _failure(store: Store, row: RunRow, state: State, job: Job) -> dict[str, Any]:
    """One parked failure."""
    attempts = [tried for tried in store.attempts(row.id, job.id) if tried.epoch == state.epoch]
    last = attempts[-1].failure if attempts else None
    step = state.step_of(job)
    return {
        "job": job.id,
        "step": step.name,
        "scope": state.scopes[job.scope].name,
        "attempts": job.attempt,
        "kind": last.kind if last else None,
        "exit_code": job.exit_code,
        "message": last.message if last else "",
        "stdout": last.stdout if last else "",
        "stderr": last.stderr if last else "",
        "history": [_tried(tried) for tried in attempts],
    }


def _tried(row: AttemptRow) -> dict[str, Any]:
    """One attempt of a parked failure."""
    return {
        "attempt": row.attempt,
        "started_at": timestamp(row.started_at),
        "ended_at": timestamp(row.ended_at),
        "kind": row.failure.kind if row.failure else None,
        "exit_code": row.exit_code,
        "message": row.failure.message if row.failure else "",
        "wall_seconds": round(row.usage.wall_seconds, 3),
        "rss_bytes_max": row.usage.rss_bytes_max,
    }


def judge(number: int, which: str, judgement: Judgement, *, db: str | None) -> dict[str, Any]:
    """Decide about a parked failure. An engine that drives the run goes on at once, else `resume` does."""
    store = open_store(db)
    try:
        row = row_of(store, number)
        if row.status in RUN_ENDED:
            raise ResileError("run-ended", f"run {number} has ended ({row.status}); nothing waits for judgement")
        state = folded(store, row)
        job = _parked(state, which, number)
        driven = standing(store, row, time.time()) == "running"
        if driven:
            _ask(store, number, job, judgement)
        else:
            lease = take(store, number)
            try:
                session = Session(store, row, folded(store, row), env=os.environ, listener=lambda _state, _notes: None)
                session.record(lease, _event(job.id, judgement, time.time()))
            finally:
                store.release_lease(lease)
        name = state.step_of(job).name
        return {"run": number, "job": job.id, "step": name, "verdict": judgement.verdict, "engine": driven}
    finally:
        store.close()


def _parked(state: State, which: str, number: int) -> Job:
    """The parked job that is meant, by its id or by a step's name that is not ambiguous."""
    named = [job for job in state.jobs.values() if which in (str(job.id), state.step_of(job).name)]
    parked = [job for job in named if job.status is Status.pending_failed]
    hint = f"`resile failures {number}` lists what is parked"
    if len(parked) == 1:
        return parked[0]
    if parked:
        ids = ", ".join(str(job.id) for job in parked)
        raise ResileError(
            "ambiguous-job", f"{which!r} is the name of several parked jobs: {ids}", hint="name one by id"
        )
    if named:
        raise ResileError("not-parked", f"{which!r} is {named[0].status.name}, not parked", hint=hint)
    raise ResileError("no-such-job", f"run {number} has no job {which!r}", hint=hint)


def _event(job: int, judgement: Judgement, at: float) -> Judged:
    """The judgement as the core takes it."""
    return Judged(
        at,
        job,
        judgement.verdict,
        caller(),
        judgement.reason,
        judgement.output,
        judgement.memory_bytes,
        judgement.runtime_seconds,
    )


def _ask(store: Store, number: int, job: Job, judgement: Judgement) -> None:
    """Leave a judgement for the engine that drives the run and wait until it has taken it."""
    now = time.time()
    after = max((note.seq for note in store.notes(number, job.noted)), default=job.noted)
    event = _event(job.id, judgement, now)
    body = {field: getattr(event, field) for field in event.__struct_fields__ if field not in ("at", "job")}
    store.request(number, now, "judge", {"job": job.id, **body})
    while time.time() < now + ANSWER_SECONDS_MAX:
        for note in store.notes(number, after):
            if note.type == "step_judged" and note.job == job.id:
                if note.at == now:
                    return
                raise ResileError(
                    "judged-already", f"{note.data['by']} judged job {job.id} first: {note.data['verdict']}"
                )
        time.sleep(ASK_AGAIN_SECONDS)
    raise ResileError("no-answer", f"the engine of run {number} did not take the judgement", hint="try again")
