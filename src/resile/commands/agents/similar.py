"""Earlier failures with the same signature: what was decided about each, and how its job ended."""

from __future__ import annotations

from msgspec import Struct

from resile.commands.documents.base import timestamp
from resile.model.status import STATUS_NAMES, Status
from resile.store.server_tables import SharedStore

SIMILAR_MAX = 5
JUDGEMENTS_SEARCHED = 2_000
POSITIONS_SEARCHED = 20_000


class SimilarFailure(Struct, frozen=True):
    """A failure that was judged before; `ended` is the present status of its job."""

    run: int
    job: int
    step: str
    at: str
    verdict: str
    by: str
    reason: str
    ended: str


def similar_failures(store: SharedStore, signature: str, *, other_than: tuple[int, int]) -> list[SimilarFailure]:
    """The latest judgements of failures with this signature, newest first, except those of this job of this run."""
    tables = store.server_tables()
    recent = tables.announcements(max(0, tables.last_position() - POSITIONS_SEARCHED), POSITIONS_SEARCHED)
    judged = [one for one in recent if one.note.type == "step_judged"][-JUDGEMENTS_SEARCHED:]
    found: list[SimilarFailure] = []
    for one in reversed(judged):
        note = one.note
        if (one.run, note.job) == other_than or len(found) >= SIMILAR_MAX:
            continue
        attempts = [row for row in store.attempts(one.run, note.job) if row.attempt == note.attempt]
        if not any(row.failure is not None and row.failure.signature == signature for row in attempts):
            continue
        status = next((job.status for job in store.jobs(one.run) if job.id == note.job), None)
        found.append(
            SimilarFailure(
                run=one.run,
                job=note.job,
                step=note.step,
                at=timestamp(note.at),
                verdict=str(note.data.get("verdict", "")),
                by=str(note.data.get("by", "")),
                reason=str(note.data.get("reason", "")),
                ended="" if status is None else STATUS_NAMES[Status(status)],
            )
        )
    return found
