"""The read-only commands status, events and explain. They never write and never wait for an engine."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from resile.commands.documents.base import public_inputs
from resile.commands.documents.runs import Event, RunDocument, RunList, RunSummary, event_of, run_document, run_summary
from resile.commands.events.names import ALIASES
from resile.engine.clock import clock_of
from resile.engine.replay import current_workflow, digest, dropped_jobs, fold_log, row_of
from resile.errors import ResileError
from resile.model.failure import Failure, Kind
from resile.model.status import RUN_ENDED, RunStatus
from resile.store.contract import RunRow
from resile.store.lease import boot_seconds
from resile.store.server_tables import SharedStore

if TYPE_CHECKING:
    from resile.explain.report import Explanation

FOLLOW_SECONDS = 0.1
RUNS_LISTED = 100
RUNS_PER_PAGE = 500


def standing(store: SharedStore, row: RunRow) -> RunStatus:
    """The status of a run. Without an engine it has ended, is parked, waits for a server, or is interrupted."""
    if row.status in RUN_ENDED:
        return row.status  # type: ignore[return-value]
    if store.lease(row.id, boot_seconds()) is not None:
        return "running"
    if row.status == "parked":
        return "parked"
    return "interrupted" if store.server_tables().submission(row.id) is None else "running"


class RunFilter(Struct, frozen=True):
    """Which runs a list has: all conditions that are given must hold. They started from `since` to `until`, in Unix
    time. A list has at most `limit` of them, or all if it is None.
    """

    statuses: tuple[str, ...] = ()
    workflow: str = ""
    since: float = 0.0
    labels: dict[str, str] = {}
    limit: int | None = RUNS_LISTED
    until: float = math.inf

    def accepts(self, store: SharedStore, row: RunRow) -> bool:
        """Does the run meet every condition?"""
        return (
            self.workflow in ("", row.workflow)
            and self.since <= (row.started_at or row.created_at) <= self.until
            and self.labels.items() <= row.labels.items()
            and (not self.statuses or standing(store, row) in self.statuses)
        )


def list_runs(store: SharedStore | None, only: RunFilter = RunFilter()) -> RunList:
    """The runs of a store that a filter accepts, newest first; none if there is no store."""
    if store is None:
        return RunList(runs=[])
    found = (row for row in all_runs(store) if only.accepts(store, row))
    return RunList(runs=[summary_of(store, row) for row in islice(found, only.limit)])


def all_runs(store: SharedStore, before: int | None = None) -> Iterator[RunRow]:
    """Every run of a store, newest first, a page at a time; with `before` those with a lower number."""
    while rows := store.runs(RUNS_PER_PAGE, before):
        yield from rows
        before = rows[-1].id


def status(store: SharedStore, number: int) -> RunDocument:
    """One run in full."""
    with store.reading():
        row = row_of(store, number)
        state = fold_log(store, row)
        gone, letters = dropped_jobs(store, number, state), store.letter_counts(number)
        return run_document(row, state, standing(store, row), clock_of(state).now(), gone, letters)


def summary_of(store: SharedStore, row: RunRow) -> RunSummary:
    """A run in the list of runs; the row of an ended run has all its fields."""
    status = standing(store, row)
    if row.status in RUN_ENDED and "first_failure" in row.summary:
        return run_summary(row, status, row.summary, row.ended_at or 0.0)
    state = fold_log(store, row)
    # The duration of a run that does not go on ends at its last event.
    until = time.time() if status == "running" else state.last_at or time.time()
    return run_summary(row, status, digest(state), until)


def events(
    store: SharedStore, number: int, types: Sequence[str] = (), after: int = 0, names: str = "", job: int = 0
) -> Iterator[Event]:
    """The events of a run so far: all, the causal history of one job, or all under another system's names."""
    row = row_of(store, number)
    if job:
        yield from _history_of(store, number, types, after, job)
    elif names:
        yield from _under_other_names(store, row, types, after)
    else:
        yield from _select(store, number, types, after)


def _history_of(store: SharedStore, number: int, types: Sequence[str], after: int, job: int) -> Iterator[Event]:
    """The events of a job, each with its causes before it."""
    from resile.core.causal_history import causal_history

    notes = causal_history(store.notes(number), (job,))
    if not notes:
        hint = f"`resile status {number} --json` lists the jobs of the run, with their numbers"
        raise ResileError("no-such-job", f"run {number} has no events of a job {job}", hint=hint)
    for note in notes:
        if note.seq > after and _is_wanted(note.type, types):
            yield event_of(number, note)


def _under_other_names(store: SharedStore, row: RunRow, types: Sequence[str], after: int) -> Iterator[Event]:
    """The events under NoETL's names; the scope of each depends on earlier events, so all are read."""
    from resile.commands.events.noetl_names import as_playbook

    workflow = current_workflow(store, row)
    for event in as_playbook(list(_select(store, row.id, (), 0)), workflow):
        if event.seq > after and (event.type in types or _is_wanted(event.type, types)):
            yield event


def follow_events(store: SharedStore, number: int, types: Sequence[str] = (), after: int = 0) -> Iterator[Event]:
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


def explain(store: SharedStore, number: int, step: str | None = None) -> Explanation:
    """Explain the failures of a run, or everything about one step, job or item of it."""
    from resile.explain.explanation import explain as explain_run

    with store.reading():
        row = row_of(store, number)
        found = explain_run(store, row, standing(store, row), step)
        if found is None:
            raise _unknown_step(store, row, step or "")
    return structs.replace(found, inputs=public_inputs(found.inputs))


def last_failures(store: SharedStore, number: int, jobs: Sequence[int]) -> dict[int, Failure]:
    """The last failure of each of these jobs, with the end of what it printed."""
    with store.reading():
        found = {job: _last_failure(store, number, job) for job in jobs}
        for note in store.notes(number) if found else ():
            # The last message may not come from the attempt: a spent budget, a reason to park.
            if note.type in ("step_failed", "step_parked") and note.job in found and note.data.get("message"):
                found[note.job] = structs.replace(found[note.job], message=note.data["message"])
    return found


def _last_failure(store: SharedStore, number: int, job: int) -> Failure:
    """The failure of the last attempt of a job; an empty one for a job that failed without any."""
    last = None
    for tried in store.attempts(number, job):
        last = tried.failure
    return last or Failure(Kind.CONTRACT, "")


def _unknown_step(store: SharedStore, row: RunRow, step: str) -> ResileError:
    """The error for a step that the run does not have, with the closest name as a hint."""
    from difflib import get_close_matches

    from resile.explain.explanation import explainable_names

    near = get_close_matches(step, explainable_names(current_workflow(store, row)), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"`resile status {row.id}` lists its steps"
    return ResileError("no-such-step", f"run {row.id} has no step or item {step!r}", hint=hint)


def _select(store: SharedStore, number: int, types: Sequence[str], after: int) -> Iterator[Event]:
    for note in store.notes(number, after):
        if _is_wanted(note.type, types):
            yield event_of(number, note)


def _is_wanted(kind: str, types: Sequence[str]) -> bool:
    """Does the filter, which may use another system's names, accept this type?"""
    return not types or any(kind == ALIASES.get(name, name) for name in types)
