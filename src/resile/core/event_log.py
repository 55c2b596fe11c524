"""Writing the run's public log from inside the core: one place numbers the notes and links causes."""

from __future__ import annotations

from typing import Any

from resile.core.actions import Action, Note
from resile.core.state import Job, State
from resile.model.status import Status

STATUS_NAMES: dict[int, str] = {status.value: status.name for status in Status}
_NOTHING: dict[str, Any] = {}


def note_job(
    state: State, out: list[Action], at: float, kind: str, job: Job, data: dict[str, Any] = _NOTHING, because: int = 0
) -> int:
    """Note something about a job; caused by its own last note unless told otherwise."""
    state.seq = seq = state.seq + 1
    out.append(
        Note(
            seq,
            at,
            kind,
            state.scopes[job.scope].name,
            state.step_of(job).name,
            job.id,
            job.attempt,
            STATUS_NAMES[job.status],
            because or job.last_event_seq or job.because,
            data,
        )
    )
    job.last_event_seq = seq
    state.touched.append(job.id)
    return seq


def note_pair(
    state: State, out: list[Action], at: float, first: str, second: str, job: Job, data: dict[str, Any], because: int
) -> None:
    """Note two things about a job that happen together, the second because of the first; what is told is with that.

    Every attempt makes two such pairs, so what both notes say is looked up once.
    """
    seq = state.seq + 1
    scope, step, status = state.scopes[job.scope].name, state.step_of(job).name, STATUS_NAMES[job.status]
    because = because or job.last_event_seq or job.because
    out.append(Note(seq, at, first, scope, step, job.id, job.attempt, status, because, _NOTHING))
    out.append(Note(seq + 1, at, second, scope, step, job.id, job.attempt, status, seq, data))
    state.seq = job.last_event_seq = seq + 1
    state.touched.append(job.id)


def note_run(state: State, out: list[Action], at: float, kind: str, status: str, because: int, **data: Any) -> int:
    """Note something about the run as a whole."""
    state.seq = seq = state.seq + 1
    out.append(Note(seq, at, kind, "", "", 0, 0, status, because, data))
    return seq
