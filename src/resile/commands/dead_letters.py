"""Dead letters, the items of a run that failed for good: list, count and remove them.

    letters, letter    the record of each: its value, every failure, the paths of its logs
    statistics         by signature, by type of error, by hour
    purge              removes them, under the run's lease

The record has Prodigy's field names, filled from the engine's data. Letters are read as a stream: a million of them
take no memory. redrive.py runs them again.

Callers may name a map by its step, by its path (`outer/inner`), or by its path within one outer item
(`outer[3]/inner`).
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec import Struct, structs

from resile.commands.documents import dead_letters
from resile.commands.documents.base import timestamp
from resile.core.fanout.worktrees import steps_with_worktree
from resile.core.state import ROOT
from resile.engine.paths import named_logs, worktree
from resile.engine.replay import current_workflow, row_of
from resile.engine.session import hold_lease
from resile.errors import ResileError
from resile.model.failure import FAILURE_KINDS, Kind
from resile.model.items import ItemFailure
from resile.model.nested import path_part
from resile.model.workflow import Child, FanOut, Step
from resile.store.contract import LetterCount, LetterRow, RunRow, Store

SIGNATURES_MAX = 1_000
SAMPLES_MAX = 3
PURGE_KEYS = 1_000
HOUR_SECONDS = 3_600
NAMES_MAX = 5
INDEX_DIGITS_MAX = 18

_NO_COMMIT = f"{Kind.CONTRACT}: no commit"

ErrorTypes = dict[str, dict[str, str]]


def letters(store: Store, number: int, step: str | None = None) -> Iterator[dead_letters.DeadLetter]:
    """The records of a run's dead letters, by map and index, as a stream."""
    row = row_of(store, number)
    error_types = worktree_error_types(store, row)
    yield from (record(row, found, error_types) for found in _rows(store, row, step, None))


def letter(store: Store, number: int, which: str, step: str | None = None) -> dead_letters.DeadLetterDocument:
    """The record of one item, given its id or its index."""
    row = row_of(store, number)
    found = _one_letter(store, row, step, which)
    return dead_letters.DeadLetterDocument(**structs.asdict(record(row, found, worktree_error_types(store, row))))


def remove(store: Store, number: int, which: str, step: str | None = None) -> None:
    """Delete one dead letter, given the id or the index of its item; refused while another engine drives the run."""
    row = row_of(store, number)
    with hold_lease(store, number) as lease:
        found = _one_letter(store, row, step, which)
        store.purge_letters(lease, [(found.name, found.index)])


def _one_letter(store: Store, row: RunRow, step: str | None, which: str) -> LetterRow:
    """The dead letter with this id or index."""
    number = row.id
    found = _letters_named(store, row, step, which)
    if len(found) > 1:
        names = ", ".join(one.item_id for one in found[:NAMES_MAX])
        more = f" and {len(found) - NAMES_MAX} more" if len(found) > NAMES_MAX else ""
        raise ResileError(
            "ambiguous-item",
            f"several dead letters of run {number} are called {which}: {names}{more}",
            hint=f"name one in full, such as `resile dlq show {number} {shlex.quote(found[0].item_id)}`",
        )
    if not found:
        hint = f"`resile dlq list {number}` lists them"
        raise ResileError("no-such-letter", f"run {number} has no dead letter {which!r}", hint=hint)
    return found[0]


def _letters_named(store: Store, row: RunRow, step: str | None, which: str) -> list[LetterRow]:
    """The letters that match an index, an item's name in its scope, or its full name, which takes precedence."""
    index = which if which.isdigit() else which.rpartition("[")[2].removesuffix("]")
    if not (index.isascii() and index.isdigit() and len(index) <= INDEX_DIGITS_MAX):
        return []
    found: list[LetterRow] = []
    for name in dict.fromkeys(fan.name for fan in fan_outs(store, row, step)):
        if which in (index, f"{name}[{index}]") or f"{name}[{index}]".endswith(f"/{which}"):
            letter = store.letter(row.id, name, int(index))
            found += [letter] if letter is not None else []
    return [one for one in found if one.item_id == which] or found


class _Group(Struct):
    """The letters whose last failures have one signature."""

    message: str
    first: float
    last: float
    count: int = 0
    items: list[str] = []

    def add(self, letter: LetterRow) -> None:
        """Count one letter."""
        self.count += 1
        self.first = min(self.first, letter.first_at)
        self.last = max(self.last, letter.last_at)
        if len(self.items) < SAMPLES_MAX:
            self.items.append(letter.item_id)


def statistics(store: Store, number: int, step: str | None = None) -> dead_letters.LetterStatistics:
    """Count the dead letters of a run by failure, error and hour; the most frequent come first."""
    row = row_of(store, number)
    error_types = worktree_error_types(store, row)
    eligible = others = 0
    maps: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    hours: Counter[int] = Counter()
    errors: Counter[str] = Counter()
    types: dict[str, str | dict[str, Any]] = {}
    groups: dict[str, _Group] = {}
    for found in _rows(store, row, step, None):
        eligible += found.eligible
        maps[found.map] += 1
        reasons[found.reason] += 1
        hours[int(found.last_at // HOUR_SECONDS)] += 1
        message = "it never started"
        if found.history:
            message, error = found.history[-1].message, _error_type(found, found.history[-1], error_types)
            errors[str(error)] += 1
            types[str(error)] = error
        if found.signature in groups or len(groups) < SIGNATURES_MAX:
            groups.setdefault(found.signature, _Group(message, found.first_at, found.last_at)).add(found)
        else:
            others += 1
    patterns = [
        dead_letters.PatternGroup(
            signature, one.count, one.message, timestamp(one.first), timestamp(one.last), one.items
        )
        for signature, one in groups.items()
    ]
    return dead_letters.LetterStatistics(
        run=row.id,
        workflow=row.workflow,
        total=maps.total(),
        reprocess_eligible=eligible,
        manual_review_required=maps.total() - eligible,
        maps=dict(maps),
        reasons=dict(reasons),
        pattern_groups=sorted(patterns, key=lambda group: -group.count),
        other_patterns=others,
        error_distribution=[dead_letters.ErrorCount(types[error], times) for error, times in errors.most_common()],
        temporal_distribution=[
            dead_letters.HourCount(timestamp(float(hour * HOUR_SECONDS)), times)
            for hour, times in sorted(hours.items())
        ],
    )


def count(store: Store, number: int, step: str | None = None, signature: str | None = None) -> int:
    """How many dead letters a purge would remove."""
    row = row_of(store, number)
    if signature is None:
        return sum(fan.count for fan in fan_outs(store, row, step))
    return sum(1 for _ in _rows(store, row, step, signature))


def map_names(store: Store, number: int, step: str | None = None) -> list[str]:
    """The paths of the maps that have dead letters, as `--step` accepts them; all, or those that match one name."""
    return list(dict.fromkeys(fan.map for fan in fan_outs(store, row_of(store, number), step)))


def purge(store: Store, number: int, step: str | None = None, signature: str | None = None) -> dead_letters.PurgeResult:
    """Delete dead letters; refused while another engine drives the run."""
    row = row_of(store, number)
    with hold_lease(store, number) as lease:
        if step is None and signature is None:
            gone = store.purge_letters(lease)
        else:
            keys = ((found.name, found.index) for found in _rows(store, row, step, signature))
            gone = 0
            while some := list(islice(keys, PURGE_KEYS)):
                gone += store.purge_letters(lease, some)
    left = sum(fan.count for fan in store.letter_counts(number))
    return dead_letters.PurgeResult(run=number, purged=gone, dead_letters=left)


def fan_outs(store: Store, row: RunRow, step: str | None) -> list[LetterCount]:
    """The fan-outs of a run that have dead letters: all, or those of one map; refuses an unknown name.

    First those of the root scope in the order of the file, then inner ones by name.
    """
    found = sorted(store.letter_counts(row.id), key=_order)
    if step is None:
        return found
    named = [fan for fan in found if step in (fan.name, fan.map, fan.step)]
    if not named:
        workflow = current_workflow(store, row)
        maps = dict(maps_of(workflow.steps))
        if step not in maps and all(one.name != step for one in maps.values()):
            hint = f"its maps are: {', '.join(maps)}" if maps else "it has no maps"
            raise ResileError("no-such-map", f"run {row.id} has no map {step!r}", hint=hint)
    return named


def _order(fan: LetterCount) -> tuple[bool, int, list[str | int], int]:
    """The sort key of a fan-out; indexes in names are compared as numbers."""
    import re

    parts = re.split(r"\[(\d+)\]", fan.name)
    name: list[str | int] = [int(part) if number % 2 else part for number, part in enumerate(parts)]
    is_own = fan.scope == ROOT
    return (not is_own, fan.job if is_own else 0, name, fan.job)


def maps_of(steps: tuple[Step, ...], around: str = "") -> Iterator[tuple[str, Step]]:
    """The steps that fan out, by their paths, including those inside other fan-outs, child workflows and handlers."""
    for step in steps:
        match step.action:
            case FanOut():
                path = f"{around}{path_part(step.action.scope or step.name)}"
                yield path, step
                yield from maps_of(step.action.steps, f"{path}/")
            case Child():
                yield from maps_of(step.action.workflow.steps, f"{around}{path_part(step.name)}/")
        for rule in step.rules:
            if rule.repair is not None:
                yield from maps_of(rule.repair.steps, f"{around}{path_part(step.name)}.on_failure/")
        if step.on_success is not None:
            yield from maps_of(step.on_success.steps, f"{around}{path_part(step.name)}.on_success/")


def letters_of(store: Store, run: int, fan: LetterCount) -> Iterator[LetterRow]:
    """The letters of one fan-out, by index."""
    return (found for found in store.letters(run, fan.name) if found.job == fan.job)


def _rows(store: Store, row: RunRow, step: str | None, signature: str | None) -> Iterator[LetterRow]:
    """The letters of these fan-outs with this signature."""
    for fan in fan_outs(store, row, step):
        for found in letters_of(store, row.id, fan):
            if signature in (None, found.signature):
                yield found


def worktree_error_types(store: Store, row: RunRow) -> ErrorTypes:
    """By map, the error types of the steps that make an item's worktree and merge it back."""
    workflow = current_workflow(store, row)
    found: ErrorTypes = {}
    for name, step in maps_of(workflow.steps):
        if isinstance(step.action, FanOut) and step.action.isolation == "worktree":
            first, *_, last = steps_with_worktree(step.action)
            found[name] = {first.name: "WorktreeError", last.name: "MergeConflict"}
    return found


def record(row: RunRow, letter: LetterRow, error_types: ErrorTypes) -> dead_letters.DeadLetter:
    """A dead letter as JSON."""
    return dead_letters.DeadLetter(
        item_id=letter.item_id,
        step=letter.step,
        map=letter.map,
        index=letter.index,
        correlation_id=letter.correlation_id,
        reason=letter.reason,
        item_data=letter.value,
        first_attempt=timestamp(letter.first_at),
        last_attempt=timestamp(letter.last_at),
        failure_count=letter.failure_count,
        error_signature=letter.signature,
        reprocess_eligible=letter.eligible,
        manual_review_required=not letter.eligible,
        worktree_artifacts=_artifacts(row, letter),
        failure_history=[
            _failure_of(row, letter, number, failure, error_types) for number, failure in enumerate(letter.history, 1)
        ],
    )


def _failure_of(
    row: RunRow, letter: LetterRow, number: int, failure: ItemFailure, error_types: ErrorTypes
) -> dead_letters.LetterFailure:
    """One failure of an item."""
    return dead_letters.LetterFailure(
        attempt_number=number,
        timestamp=timestamp(failure.at),
        error_type=_error_type(letter, failure, error_types),
        error_message=failure.message,
        error_context=[
            f"kind: {failure.kind}",
            f"job {failure.job}, attempt {failure.attempt}, epoch {failure.epoch}",
        ],
        stack_trace=failure.stderr,
        agent_id=letter.item_id,
        step_failed=failure.step,
        duration_ms=round(failure.seconds * 1000),
        json_log_location=_log(row, failure),
    )


def _artifacts(row: RunRow, letter: LetterRow) -> dead_letters.WorktreeArtifacts | None:
    """The worktree that a failed item left behind, if it still exists."""
    import subprocess

    folder = worktree(row.output, row.id, letter.job, letter.index)
    if not os.path.isdir(folder):
        return None
    status = subprocess.run(
        ["git", "status", "--porcelain", "--branch"], cwd=folder, capture_output=True, text=True, check=False
    )
    head, *changed = status.stdout.splitlines() or [""]
    return dead_letters.WorktreeArtifacts(
        folder,
        head.removeprefix("## ").partition("...")[0],
        changed,
        _log(row, letter.history[-1]) if letter.history else None,
    )


def _error_type(letter: LetterRow, failure: ItemFailure, error_types: ErrorTypes) -> str | dict[str, Any]:
    """The error type of a failure, as the record names it."""
    if failure.step in error_types.get(letter.map, {}):
        return error_types[letter.map][failure.step]
    if failure.signature == _NO_COMMIT:
        return "CommitValidationFailed"
    if error_type := FAILURE_KINDS[failure.kind].error_type:
        return error_type
    return "Unknown" if failure.exit_code is None else {"CommandFailed": {"exit_code": failure.exit_code}}


def _log(row: RunRow, failure: ItemFailure) -> str | None:
    """The file with the failing attempt's stderr, else with its stdout; None if the attempt printed nothing."""
    name = f"job_wf{row.id}_j{failure.job}_r{failure.epoch}_a{failure.attempt}"
    paths = (os.path.join(named_logs(row.output), f"{name}.{stream}") for stream in ("e", "o"))
    return next((path for path in paths if os.path.exists(path)), None)
