"""Redrives: selects dead letters from the store, writes them to an items file, and runs them like any other items.

    dead letters --eligible, signature, filter--> items file --Redriven--> engine
         ^                                                                   |
         +------ failed again: stays, with a longer history <----------------+--> succeeded: removed

The letters of an inner map belong to many fan-outs, one for each item around it; each fan-out is written as a group,
with the scopes that the store kept for it, so that its items see the same values as before. A letter is removed only
when its item has succeeded, and a redrive holds the run's lease from the selection on: so no item runs twice at a time
and none is lost. An interrupted redrive is finished with its original selection.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain, groupby, islice
from typing import Any

from msgspec import Struct, convert, structs, to_builtins

from resile.commands.dead_letters import fan_outs, letters_of, maps_of, record, worktree_error_types
from resile.commands.documents.dead_letters import RedrivePreview, RedriveResult
from resile.commands.load import shown_secrets
from resile.commands.run import EngineListener, drive_engine
from resile.commands.start.notices import warning_lines
from resile.core.events import Capacity, Event, Redriven, RunResumed
from resile.core.state import State
from resile.engine.clock import Clock, SystemClock, clock_of
from resile.engine.items.listing import items_path, read_groups, read_items, remove_letters, write_letters
from resile.engine.paths import epoch_folder
from resile.engine.replay import fold_log, row_of
from resile.engine.resources import measure, refuse_misfits
from resile.engine.session import caller, hold_lease
from resile.errors import ResileError
from resile.model.items import Item, LetterGroup
from resile.model.limits import ITEMS_PER_READ
from resile.model.status import EXIT_CODES, RunStatus
from resile.model.workflow import FanOut
from resile.store.contract import LetterCount, LetterRow, RunRow, Store

PARALLEL_DEFAULT = 5
PREVIEW_ITEMS_MAX = 1_000

# The statuses with which an engine leaves an unfinished redrive.
UNFINISHED = ("interrupted", "parked")
_FILTER_HINT = "a JavaScript expression over `item` and `letter`, such as: item.size < 1000"


class RedriveCall(Struct, frozen=True, kw_only=True):
    """Which dead letters to run again, and how many at a time; `by` is who asks, if not the caller.

    `items` are their names, or their indexes; all without it.
    """

    run: int
    step: str | None = None
    parallel: int | None = None
    filter: str | None = None
    signature: str | None = None
    force: bool = False
    items: tuple[str, ...] = ()
    by: str = ""


class _Task(Struct, frozen=True):
    """One redrive: its items file, and the events that begin or resume it."""

    map: str
    path: str
    events: list[Event]
    capacity: Capacity
    clock: SystemClock


def preview(store: Store, call: RedriveCall) -> RedrivePreview:
    """The items that a redrive would run; refused if the redrive would be refused."""
    row = row_of(store, call.run)
    state = fold_log(store, row)
    begun = _interrupted_task_of(row, state, call)
    if begun is not None:
        name: str | None = begun.map
        kept = _still_kept(store, call.run, begun)
        letters: Iterator[LetterRow] = (letter for letter, item in kept if letter.history == item.history)
    else:
        _refuse_unended(row, state)
        fans = _one_map(store, row, state, call)
        _refuse_unknown(store, row, fans, call)
        name = fans[0].map if fans else None
        letters = _select_letters(store, row, fans, call)
    items = [letter.item_id for letter in islice(letters, PREVIEW_ITEMS_MAX)]
    selected = len(items) + sum(1 for _ in letters)
    return RedrivePreview(run=call.run, map=name, selected=selected, items=items)


def redrive(store: Store, call: RedriveCall, listener: EngineListener) -> RedriveResult:
    """Run dead letters of an ended run again, or finish a redrive that was interrupted."""
    row_of(store, call.run)
    with hold_lease(store, call.run) as lease:
        row = row_of(store, call.run)
        state = fold_log(store, row)
        task = _interrupted_task_of(row, state, call) or _begin_redrive(store, row, state, call)
        if task is None:
            return _result_of(store, call.run, None, "completed", 0, Counter())
        status = drive_engine(
            store,
            row,
            state,
            lease,
            task.events,
            task.capacity,
            listener,
            clock=task.clock,
            notices=warning_lines(shown_secrets(state.workflow), state.workflow.file),
        )
        selected = sum(group.total for group in _task_groups(task))
        failed_again = Counter(letter.history != item.history for letter, item in _still_kept(store, call.run, task))
        if status not in UNFINISHED:
            remove_letters(task.path)
        return _result_of(store, call.run, task.map, status, selected, failed_again)


def redrive_events(
    store: Store, row: RunRow, state: State, body: Mapping[str, Any], clock: Clock
) -> tuple[list[Event], dict[str, Any]]:
    """The events with which a server begins the redrive that a request asks for, and the items that it runs."""
    call = convert({**body, "run": row.id}, RedriveCall)
    task = _interrupted_task_of(row, state, call) or _begin_redrive(store, row, state, call)
    if task is None:
        return [], {"ok": True, "items": []}
    items = [f"{group.name}[{item.index}]" for group in _task_groups(task) for item in _items(task.path, group)]
    events = [structs.replace(event, at=clock.now()) for event in task.events]
    return events, {"ok": True, "items": items}


def _result_of(
    store: Store, run: int, name: str | None, status: RunStatus, selected: int, failed_again: Counter[bool]
) -> RedriveResult:
    """The result of a redrive; `failed_again` counts the items that are still dead letters by whether they ran.

    The run's own verdict stays unchanged.
    """
    left = failed_again.total()
    return RedriveResult(
        run=run,
        map=name,
        status=status if status in UNFINISHED else "finished",
        selected=selected,
        succeeded=selected - left,
        failed=failed_again[True],
        left=left,
        dead_letters=sum(fan.count for fan in store.letter_counts(run)),
        exit_code=EXIT_CODES[status] if status in UNFINISHED else int(left > 0),
    )


def _interrupted_task_of(row: RunRow, state: State, call: RedriveCall) -> _Task | None:
    """The interrupted redrive of a run, if there is one; it keeps its own selection."""
    if state.phase != "redriving":
        return None
    if call != RedriveCall(run=call.run, by=call.by):
        hint = f"`resile dlq retry {row.id}` without a selection finishes it"
        raise ResileError("redrive-unfinished", f"run {row.id} has a redrive that was interrupted", hint=hint)
    begun = state.redrive
    assert begun is not None
    capacity = measure(begun.parallel, None, None, None)
    path = items_path(epoch_folder(row.output, row.id, state.epoch), begun.label)
    clock = clock_of(state)
    return _Task(begun.map, path, [RunResumed(clock.now(), capacity, caller(), clock.machine)], capacity, clock)


def _begin_redrive(store: Store, row: RunRow, state: State, call: RedriveCall) -> _Task | None:
    """Write the items of a new redrive; None if no letter is selected."""
    _refuse_unended(row, state)
    fans = _one_map(store, row, state, call)
    if not fans:
        return None
    name = fans[0].map
    capacity = measure(_parallel(state, name, call), None, None, None)
    refuse_misfits(state.workflow, capacity)
    label = f"redrive_s{state.seq}"
    path = items_path(epoch_folder(row.output, row.id, state.epoch), label)
    total = write_letters(path, _groups(store, row, state, fans, call))
    if not total:
        return None
    clock = clock_of(state)
    begin = Redriven(now := clock.now(), name, total, label, capacity.parallel, call.by or caller())
    return _Task(name, path, [begin, RunResumed(now, capacity, caller(), clock.machine)], capacity, clock)


def _refuse_unended(row: RunRow, state: State) -> None:
    """Refuse a run that has not ended: its engine still owns the items."""
    if state.phase != "ended":
        hint = f"`resile resume {row.id}` or `resile cancel {row.id}` first"
        raise ResileError(
            "run-unfinished", f"run {row.id} has not ended, so its dead letters can't be retried", hint=hint
        )


def _parallel(state: State, name: str, call: RedriveCall) -> int:
    """How many items run at a time: as the caller asks, else as the map asks within the file's limit."""
    if call.parallel is not None:
        return call.parallel
    maps = dict(maps_of(state.workflow.steps))
    # The first version did not escape the marks of a path in names.
    action = (maps.get(name) or next(step for path, step in maps.items() if path.replace("\\", "") == name)).action
    assert isinstance(action, FanOut)
    own = action.redrive_parallel or action.max_parallel or PARALLEL_DEFAULT
    return min(own, state.workflow.max_parallel or own)


def _groups(
    store: Store, row: RunRow, state: State, fans: list[LetterCount], call: RedriveCall
) -> Iterator[tuple[LetterGroup, Iterator[Item]]]:
    """The selected letters of each fan-out, with the scopes around it, outermost first."""
    selected = _select_letters(store, row, fans, call)
    for _, letters in groupby(selected, key=lambda letter: (letter.name, letter.job)):
        first = next(letters)
        around: list[dict[str, Any]] = []
        scope = first.scope
        # Scopes that an earlier redrive restored are closed, but not dropped yet.
        while scope not in state.scopes or scope in state.scopes_to_drop:
            kept = store.kept_scope(row.id, scope)
            assert kept is not None
            around.insert(0, kept.body)
            scope = kept.outer
        items = (Item(letter.index, letter.value, letter.history) for letter in chain([first], letters))
        yield LetterGroup(first.name, first.job, 0, 0, tuple(around)), items


def _one_map(store: Store, row: RunRow, state: State, call: RedriveCall) -> list[LetterCount]:
    """The fan-outs of the one map that is selected; refused if several match, or if its scopes are unknown."""
    found = fan_outs(store, row, call.step)
    # An older version stored the letters of an inner map without the scopes around it.
    fans = [fan for fan in found if fan.scope]
    if len(fans) < len(found) and (call.force or not fans):
        lost = next(fan for fan in found if not fan.scope)
        raise ResileError(
            "letters-unplaced",
            f"an older Resile kept dead letters of {lost.map} without what was around it, so they can't be retried",
            hint=f"`resile rerun {row.id}` runs the whole map again, `resile dlq purge {row.id}` removes them",
        )
    if state.epoch > 1:
        fans = _known_fans(store, row, state, fans)
    names = list(dict.fromkeys(fan.map for fan in fans))
    if len(names) > 1:
        message = f"run {row.id} has dead letters of several maps: {', '.join(names)}"
        raise ResileError("several-maps", message, hint="name one with --step")
    return fans


def _known_fans(store: Store, row: RunRow, state: State, fans: list[LetterCount]) -> list[LetterCount]:
    """The fan-outs whose jobs the run still has; refused if it has none of them.

    If the file has other steps, `rerun --changed` gives jobs new numbers: then older letters belong to no job.
    """
    known = [fan for fan in fans if _is_known(store, row, state, fan)]
    if fans and not known:
        raise ResileError(
            "letters-unplaced",
            f"run {row.id} follows another definition since the dead letters of {fans[0].map} were kept, so they can't"
            " be retried",
            hint=f"`resile rerun {row.id}` runs the whole map again, `resile dlq purge {row.id}` removes them",
        )
    return known


def _is_known(store: Store, row: RunRow, state: State, fan: LetterCount) -> bool:
    """Does the run still have the job of a fan-out, or the job that the outermost scope around it belongs to?"""
    scope, owner = fan.scope, fan.job
    while scope not in state.scopes or scope in state.scopes_to_drop:
        kept = store.kept_scope(row.id, scope)
        if kept is None:
            return False
        scope, owner = kept.outer, kept.body["scope"]["owner"]
    return owner in state.jobs and (owner != fan.job or owner in state.fans)


def _refuse_unknown(store: Store, row: RunRow, fans: list[LetterCount], call: RedriveCall) -> None:
    """Refuse a call that names an item without a dead letter."""
    missing = dict.fromkeys(call.items)
    for letter in (letter for fan in fans for letter in letters_of(store, row.id, fan)) if missing else ():
        missing.pop(letter.item_id, None)
        missing.pop(str(letter.index), None)
    for name in missing:
        hint = f"`resile dlq list {row.id}` lists them"
        raise ResileError("no-such-letter", f"run {row.id} has no dead letter {name!r}", hint=hint)


def _select_letters(store: Store, row: RunRow, fans: list[LetterCount], call: RedriveCall) -> Iterator[LetterRow]:
    """The letters that a call selects, as a stream, by fan-out and index."""
    found = (letter for fan in fans for letter in letters_of(store, row.id, fan))
    wanted = frozenset(call.items)
    selected = (
        letter
        for letter in found
        if (letter.eligible or call.force)
        and call.signature in (None, letter.signature)
        and (not wanted or letter.item_id in wanted or str(letter.index) in wanted)
    )
    return selected if call.filter is None else _filter_letters(selected, call.filter, store, row)


def _filter_letters(letters: Iterable[LetterRow], code: str, store: Store, row: RunRow) -> Iterator[LetterRow]:
    """The letters for which the caller's expression holds; an error in it ends the call before any item runs."""
    from resile.languages.javascript.evaluate import Sandbox, holds

    now, error_types = time.time(), worktree_error_types(store, row)
    with closing(Sandbox()) as sandbox:
        problem = sandbox.check_syntax(code, "expression")
        if problem is not None:
            raise ResileError("bad-filter", f"--filter can't run: {problem}", hint=_FILTER_HINT)
        for letter in letters:
            known = to_builtins(record(row, letter, error_types))
            item = known.pop("item_data")
            # Stack traces may be long, and no filter should depend on them.
            for failure in known["failure_history"]:
                del failure["stack_trace"]
            context = {"item": item, "letter": known}
            answer = sandbox.evaluate(code, context, now=now, seed=letter.correlation_id, form="expression")
            if answer.problem:
                message = f"--filter failed for {letter.item_id}: {answer.problem}"
                raise ResileError("bad-filter", message, hint=_FILTER_HINT)
            if holds(answer.value):
                yield letter


def letters_that_match(store: Store, number: int, code: str) -> frozenset[str]:
    """The ids of the dead letters of a run for which an expression holds, whether they can be retried or not."""
    row = row_of(store, number)
    found = (letter for fan in fan_outs(store, row, None) for letter in letters_of(store, number, fan))
    return frozenset(letter.item_id for letter in _filter_letters(found, code, store, row))


def _still_kept(store: Store, run: int, task: _Task) -> Iterator[tuple[LetterRow, Item]]:
    """The selected items that are still dead letters; letters and items are in the same order."""
    for group in _task_groups(task):
        kept = store.letters(run, group.name)
        current = next(kept, None)
        for item in _items(task.path, group):
            while current is not None and current.index < item.index:
                current = next(kept, None)
            if current is not None and current.index == item.index:
                yield current, item


def _task_groups(task: _Task) -> Iterator[LetterGroup]:
    """The groups in a redrive's items file, read in chunks."""
    place, last = 0, False
    while not last:
        groups, place, last = read_groups(task.path, place, ITEMS_PER_READ)
        yield from groups


def _items(path: str, group: LetterGroup) -> Iterator[Item]:
    """The items of a group, read in chunks."""
    place, left = group.offset, group.total
    while left:
        items, place, _ = read_items(path, place, min(left, ITEMS_PER_READ))
        left -= len(items)
        yield from items
