"""The read-only commands status, events and explain. They never write and never wait for an engine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from resile.commands.documents.runs import Event, RunDocument, RunList, RunSummary, event_of, run_document, run_summary
from resile.commands.events.names import ALIASES
from resile.engine.clock import clock_of
from resile.engine.replay import count_steps, dropped_jobs, fold_log, row_of
from resile.errors import ResileError
from resile.model.status import RUN_ENDED, RunStatus
from resile.store.contract import RunRow, Store
from resile.store.lease import boot_seconds

if TYPE_CHECKING:
    from resile.explain.report import Explanation

FOLLOW_SECONDS = 0.1


def standing(store: Store, row: RunRow) -> RunStatus:
    """The status of a run: a run that has not ended and has no engine is interrupted (or parked)."""
    if row.status in RUN_ENDED:
        return row.status  # type: ignore[return-value]
    if store.lease(row.id, boot_seconds()) is not None:
        return "running"
    return "parked" if row.status == "parked" else "interrupted"


def list_runs(store: Store | None) -> RunList:
    """The runs of a store, newest first; none if there is no store."""
    return RunList(runs=[_summary(store, row) for row in store.runs()] if store is not None else [])


def status(store: Store, number: int) -> RunDocument:
    """One run in full."""
    with store.reading():
        row = row_of(store, number)
        state = fold_log(store, row)
        gone, letters = dropped_jobs(store, number, state), store.letter_counts(number)
        return run_document(row, state, standing(store, row), clock_of(state).now(), gone, letters)


def _summary(store: Store, row: RunRow) -> RunSummary:
    steps = row.summary if row.status in RUN_ENDED and row.summary else count_steps(fold_log(store, row))
    return run_summary(row, standing(store, row), steps)


def events(
    store: Store, number: int, types: Sequence[str] = (), after: int = 0, names: str = "", job: int = 0
) -> Iterator[Event]:
    """The events of a run so far: all, the causal history of one job, or all under another system's names."""
    row = row_of(store, number)
    if job:
        yield from _history_of(store, number, types, after, job)
    elif names:
        yield from _under_other_names(store, row, types, after)
    else:
        yield from _select(store, number, types, after)


def _history_of(store: Store, number: int, types: Sequence[str], after: int, job: int) -> Iterator[Event]:
    """The events of a job, each with its causes before it."""
    from resile.core.causal_history import causal_history

    notes = causal_history(store.notes(number), job)
    if not notes:
        hint = f"`resile status {number} --json` lists the jobs of the run, with their numbers"
        raise ResileError("no-such-job", f"run {number} has no events of a job {job}", hint=hint)
    for note in notes:
        if note.seq > after and _is_wanted(note.type, types):
            yield event_of(number, note)


def _under_other_names(store: Store, row: RunRow, types: Sequence[str], after: int) -> Iterator[Event]:
    """The events under NoETL's names; the scope of each depends on earlier events, so all are read."""
    from resile.commands.events.noetl_names import as_playbook
    from resile.model import codec

    workflow = codec.decode(store.definition(row.definition))
    for event in as_playbook(list(_select(store, row.id, (), 0)), workflow):
        if event.seq > after and (event.type in types or _is_wanted(event.type, types)):
            yield event


def follow_events(store: Store, number: int, types: Sequence[str] = (), after: int = 0) -> Iterator[Event]:
    """The events of a run as they are written, until no engine drives it any more."""
    while True:
        driven = standing(store, row_of(store, number)) == "running"
        for event in _select(store, number, (), after):
            after = event.seq
            if _is_wanted(event.type, types):
                yield event
        if not driven:
            return
        time.sleep(FOLLOW_SECONDS)


def explain(store: Store, number: int, step: str | None = None) -> Explanation:
    """Explain the failures of a run, or everything about one step, job or item of it."""
    from resile.explain.explanation import explain as explain_run

    with store.reading():
        row = row_of(store, number)
        found = explain_run(store, row, standing(store, row), step)
        if found is None:
            raise _unknown_step(store, row, step or "")
    return found


def _unknown_step(store: Store, row: RunRow, step: str) -> ResileError:
    """The error for a step that the run does not have, with the closest name as a hint."""
    from difflib import get_close_matches

    from resile.explain.explanation import explainable_names
    from resile.model import codec

    near = get_close_matches(step, explainable_names(codec.decode(store.definition(row.definition))), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"`resile status {row.id}` lists its steps"
    return ResileError("no-such-step", f"run {row.id} has no step or item {step!r}", hint=hint)


def _select(store: Store, number: int, types: Sequence[str], after: int) -> Iterator[Event]:
    for note in store.notes(number, after):
        if _is_wanted(note.type, types):
            yield event_of(number, note)


def _is_wanted(kind: str, types: Sequence[str]) -> bool:
    """Does the filter, which may use another system's names, accept this type?"""
    return not types or any(kind == ALIASES.get(name, name) for name in types)
