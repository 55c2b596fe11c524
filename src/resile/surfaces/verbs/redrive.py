"""Dead letters run again: selected from the store, written to an items file, and driven like any other items.

    dead letters --eligible, signature, filter--> items file --Redriven--> engine
         ^                                                                   |
         +------ failed again: stays, with a longer history <----------------+--> succeeded: gone

A letter leaves only when its item has succeeded, and whoever redrives holds the run's lease from the selection on: so
no item runs twice at a time and none is lost. A redrive that was interrupted is finished as it was begun.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from resile.core.events import Capacity, Event, Redriven, RunResumed
from resile.core.state import State
from resile.errors import ResileError
from resile.model.fanout import FanOut
from resile.model.letters import Item
from resile.model.limits import ITEMS_PER_READ
from resile.model.status import EXIT_CODES, RunStatus
from resile.runtime.capacity import measure, refuse_misfits
from resile.runtime.folders import epoch_folder
from resile.runtime.items import items_path, read_items, write_letters
from resile.runtime.past import folded, row_of
from resile.runtime.session import Session, caller, take
from resile.store.contract import Lease, LetterCount, LetterRow, RunRow, Store
from resile.store.open import open_store
from resile.surfaces.verbs.dlq import fan_outs, record
from resile.surfaces.verbs.drive import Watcher, open_again

PARALLEL_DEFAULT = 5
PREVIEW_ITEMS_MAX = 1_000

# How an engine leaves a redrive that is not over.
_UNFINISHED = ("interrupted", "parked")
_FILTER_HINT = "a JavaScript expression over `item` and `letter`, such as: item.size < 1000"


class RedriveCall(Struct, frozen=True, kw_only=True):
    """Which dead letters are to run again, and how many at a time."""

    run: int
    db: str | None = None
    step: str | None = None
    parallel: int | None = None
    filter: str | None = None
    signature: str | None = None
    force: bool = False


class Redone(Struct, frozen=True):
    """What came of a redrive."""

    exit_code: int
    document: dict[str, Any]


class _Task(Struct, frozen=True):
    """One redrive: the items in a file, and the events that begin it or go on with it."""

    job: int
    step: str
    path: str
    events: list[Event]
    capacity: Capacity


def preview(call: RedriveCall) -> dict[str, Any]:
    """Which items a redrive would run; nothing runs."""
    store = open_store(call.db, readonly=True)
    try:
        row = row_of(store, call.run)
        fans = _one_map(store, row, call)
        items: list[str] = []
        selected = 0
        for letter in _selected(store, row, fans, call):
            selected += 1
            if selected <= PREVIEW_ITEMS_MAX:
                items.append(letter.item_id)
        step = fans[0].step if fans else None
        return {"run": call.run, "step": step, "dry_run": True, "selected": selected, "items": items}
    finally:
        store.close()


def redrive(call: RedriveCall, watcher: Watcher) -> Redone:
    """Run dead letters of an ended run again, or finish a redrive that was interrupted."""
    store = open_again(call.db)
    try:
        row_of(store, call.run)
        lease = take(store, call.run)
        try:
            row = row_of(store, call.run)
            state = folded(store, row)
            task = _unfinished(row, state, call) or _begun(store, row, state, call)
            if task is None:
                return _told(store, call.run, None, 0, 0, "completed")
            status = _drive(store, row, state, lease, task, watcher)
            total, left = _outcome(store, call.run, task)
            if status not in _UNFINISHED:
                os.unlink(task.path)
            return _told(store, call.run, task.step, total, left, status)
        finally:
            store.release_lease(lease)
    finally:
        store.close()


def _told(store: Store, run: int, step: str | None, total: int, left: int, status: RunStatus) -> Redone:
    """The result of a redrive; a run's own verdict is none of its business."""
    code = EXIT_CODES[status] if status in _UNFINISHED else int(left > 0)
    document = {
        "run": run,
        "step": step,
        "status": status if status in _UNFINISHED else "finished",
        "selected": total,
        "succeeded": total - left,
        "left": left,
        "dead_letters": sum(fan.count for fan in store.letter_counts(run)),
        "exit_code": code,
    }
    return Redone(code, document)


def _unfinished(row: RunRow, state: State, call: RedriveCall) -> _Task | None:
    """The redrive that was interrupted, if one was; it keeps its own selection."""
    if state.phase != "redriving":
        return None
    if call != RedriveCall(run=call.run, db=call.db):
        raise ResileError(
            "redrive-unfinished",
            f"run {row.id} has a redrive that was interrupted",
            hint=f"`resile dlq retry {row.id}` without a selection finishes it",
        )
    job, fan = next((job, fan) for job, fan in state.fans.items() if fan.redrive)
    capacity = measure(fan.parallel, None, None, None)
    path = items_path(epoch_folder(row.output, row.id, state.epoch), fan.label)
    step = state.step_of(state.jobs[job])
    return _Task(job, step.name, path, [RunResumed(time.time(), capacity, caller())], capacity)


def _begun(store: Store, row: RunRow, state: State, call: RedriveCall) -> _Task | None:
    """A new redrive, its items written down; None where nothing is selected."""
    if state.phase != "ended":
        raise ResileError(
            "run-unfinished",
            f"run {row.id} has not ended, so its dead letters can't be retried",
            hint=f"`resile resume {row.id}` or `resile cancel {row.id}` first",
        )
    fans = _one_map(store, row, call)
    if not fans:
        return None
    if len(fans) > 1 or fans[0].job not in state.fans:
        raise ResileError(
            "nested-map",
            f"{fans[0].step!r} is a map inside of another; its items can't be run again without that",
            hint=f"`resile rerun {row.id}` runs all of it again",
        )
    job = fans[0].job
    capacity = measure(_parallel(state, job, call), None, None, None)
    refuse_misfits(state.workflow, capacity)
    label = f"redrive_j{job}_s{state.seq}"
    path = items_path(epoch_folder(row.output, row.id, state.epoch), label)
    items = (Item(letter.index, letter.value, letter.history) for letter in _selected(store, row, fans, call))
    total = write_letters(path, items)
    if not total:
        os.unlink(path)
        return None
    now = time.time()
    begin = Redriven(now, job, total, label, capacity.parallel, caller())
    return _Task(job, fans[0].step, path, [begin, RunResumed(now, capacity, caller())], capacity)


def _parallel(state: State, job: int, call: RedriveCall) -> int:
    """How many items at a time: the caller's word, else the map's own within the file's."""
    if call.parallel is not None:
        return call.parallel
    action = state.step_of(state.jobs[job]).action
    assert isinstance(action, FanOut)
    own = action.max_parallel or PARALLEL_DEFAULT
    return min(own, state.workflow.max_parallel or own)


def _one_map(store: Store, row: RunRow, call: RedriveCall) -> list[LetterCount]:
    """The map that is meant, once for each of its jobs; refused where it could be several."""
    fans = fan_outs(store, row, call.step)
    names = list(dict.fromkeys(fan.step for fan in fans))
    if len(names) > 1:
        message = f"run {row.id} has dead letters of several maps: {', '.join(names)}"
        raise ResileError("several-maps", message, hint="name one with --step")
    return fans


def _selected(store: Store, row: RunRow, fans: list[LetterCount], call: RedriveCall) -> Iterator[LetterRow]:
    """The letters that a call means, as a stream, by index."""
    wanted = None if call.filter is None else _Filter(call.filter, row)
    try:
        for fan in fans:
            for letter in store.letters(row.id, fan.job):
                if not (letter.eligible or call.force) or call.signature not in (None, letter.signature):
                    continue
                if wanted is None or wanted.accepts(letter):
                    yield letter
    finally:
        if wanted is not None:
            wanted.close()


class _Filter:
    """An expression of the caller that is asked of each letter; one that can't answer ends the call before it runs."""

    def __init__(self, code: str, row: RunRow) -> None:
        from resile.sandbox.evaluate import Sandbox

        self._code = code
        self._row = row
        self._now = time.time()
        self._sandbox: Sandbox = Sandbox()
        problem = self._sandbox.check_syntax(code, "expression")
        if problem is not None:
            self.close()
            raise ResileError("bad-filter", f"--filter can't run: {problem}", hint=_FILTER_HINT)

    def accepts(self, letter: LetterRow) -> bool:
        """Does the expression hold for this letter?"""
        from resile.sandbox.evaluate import holds

        known = record(self._row, letter)
        item = known.pop("item_data")
        # Each may be long, and no expression should look for its answer there.
        for failure in known["failure_history"]:
            del failure["stack_trace"]
        context = {"item": item, "letter": known}
        seed = letter.correlation_id
        answer = self._sandbox.evaluate(self._code, context, now=self._now, seed=seed, form="expression")
        if answer.problem:
            message = f"--filter failed for {letter.item_id}: {answer.problem}"
            raise ResileError("bad-filter", message, hint=_FILTER_HINT)
        return holds(answer.value)

    def close(self) -> None:
        """Let the sandbox go."""
        self._sandbox.close()


def _drive(store: Store, row: RunRow, state: State, lease: Lease, task: _Task, watcher: Watcher) -> RunStatus:
    """Hand the items to an engine."""
    session = Session(store, row, state, env=os.environ, listener=watcher.notes, debug=watcher.debug)
    return session.drive(
        lease,
        task.events,
        parallel=task.capacity.parallel,
        launcher=None,
        ready=lambda engine: watcher.started(row.id, state, engine.interrupt),
    )


def _outcome(store: Store, run: int, task: _Task) -> tuple[int, int]:
    """How many items were selected, and how many of them are dead letters still; both lists are in order."""
    kept = (letter.index for letter in store.letters(run, task.job))
    current = next(kept, None)
    total = left = 0
    for item in _items(task.path):
        total += 1
        while current is not None and current < item.index:
            current = next(kept, None)
        left += current == item.index
    return total, left


def _items(path: str) -> Iterator[Item]:
    """The items of a file, a few at a time."""
    place, last = 0, False
    while not last:
        items, place, last = read_items(path, place, ITEMS_PER_READ)
        yield from items
