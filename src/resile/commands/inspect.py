"""The verbs that only look: status and events. They never write and never wait for an engine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from resile.commands.documents import event_document, row_document, run_document
from resile.commands.events.names import ALIASES
from resile.engine.replay import counts, folded, gone_jobs, row_of
from resile.errors import ResileError
from resile.model.status import RUN_ENDED, RunStatus
from resile.store.contract import RunRow, Store
from resile.store.open import exists, open_store

FOLLOW_SECONDS = 0.1


def standing(store: Store, row: RunRow, now: float) -> RunStatus:
    """How a run stands: one that has not ended and that nobody drives is interrupted (or parked)."""
    if row.status in RUN_ENDED:
        return row.status  # type: ignore[return-value]
    if store.lease(row.id, now) is not None:
        return "running"
    return "parked" if row.status == "parked" else "interrupted"


def status(number: int | None, *, db: str | None) -> dict[str, Any]:
    """One run in full, or the list of runs, newest first; where there is no database there are no runs."""
    if number is None and not exists(db):
        return {"runs": []}
    store = open_store(db, readonly=True)
    try:
        now = time.time()
        if number is None:
            return {"runs": [_listed(store, row, now) for row in store.runs()]}
        with store.reading():
            row = row_of(store, number)
            state = folded(store, row)
            gone, letters = gone_jobs(store, number, state), store.letter_counts(number)
            return run_document(row, state, standing(store, row, now), now, gone, letters)
    finally:
        store.close()


def _listed(store: Store, row: RunRow, now: float) -> dict[str, Any]:
    """One line of the list; a run in progress is counted from its log."""
    stands = standing(store, row, now)
    steps = row.summary if row.status in RUN_ENDED and row.summary else counts(folded(store, row))
    return row_document(row, stands, steps)


def events(
    number: int, *, db: str | None, types: Sequence[str] = (), after: int = 0, names: str = "", job: int = 0
) -> Iterator[dict[str, Any]]:
    """The events of a run so far: the canonical ones, or under the names of another system; or the story of a job."""
    store = open_store(db, readonly=True)
    try:
        row = row_of(store, number)
        if job:
            yield from _told(store, number, types, after, job)
        elif names:
            yield from _renamed(store, row, types, after)
        else:
            yield from _selected(store, number, types, after)
    finally:
        store.close()


def _told(store: Store, number: int, types: Sequence[str], after: int, job: int) -> Iterator[dict[str, Any]]:
    """The events of a job, with those that led to each."""
    from resile.core.causal_history import causal_history

    told = causal_history(store.notes(number), job)
    if not told:
        hint = f"`resile status {number} --json` lists the jobs of the run, with their numbers"
        raise ResileError("no-such-job", f"run {number} has no events of a job {job}", hint=hint)
    for note in told:
        if note.seq > after and _wanted(note.type, types):
            yield event_document(number, note)


def _renamed(store: Store, row: RunRow, types: Sequence[str], after: int) -> Iterator[dict[str, Any]]:
    """The same under the names of a playbook; where each stands is only known from those before it."""
    from resile.commands.events.noetl_names import as_playbook
    from resile.model import codec

    workflow = codec.decode(store.definition(row.definition))
    for event in as_playbook(list(_selected(store, row.id, (), 0)), workflow):
        if event["seq"] > after and (event["type"] in types or _wanted(event["type"], types)):
            yield event


def follow(number: int, *, db: str | None, types: Sequence[str] = (), after: int = 0) -> Iterator[dict[str, Any]]:
    """The canonical events of a run as they come, until nobody drives it any more."""
    store = open_store(db, readonly=True)
    try:
        while True:
            driven = standing(store, row_of(store, number), time.time()) == "running"
            for event in _selected(store, number, (), after):
                after = event["seq"]
                if _wanted(event["type"], types):
                    yield event
            if not driven:
                return
            time.sleep(FOLLOW_SECONDS)
    finally:
        store.close()


def _selected(store: Store, number: int, types: Sequence[str], after: int) -> Iterator[dict[str, Any]]:
    """The events of these types after a number."""
    for note in store.notes(number, after):
        if _wanted(note.type, types):
            yield event_document(number, note)


def _wanted(kind: str, types: Sequence[str]) -> bool:
    """Does a filter, which may use another system's names, let this type through?"""
    return not types or any(kind == ALIASES.get(name, name) for name in types)
