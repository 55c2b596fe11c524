"""What a fan-out tells of its failed items: at once, in batches, or all at the end; and what they have in common.

`aggregate` reports once at the end, `immediate` each as it fails, `batched` so many at a time, the rest at the end.
"""

from __future__ import annotations

from typing import Any

from resile.core.actions import Action
from resile.core.event_log import note_job
from resile.core.fanout.progress import Fan, Pattern
from resile.core.state import Job, State
from resile.model.failure import Kind
from resile.model.fanout import ErrorPolicy
from resile.model.items import Item, ItemFailure
from resile.model.limits import PATTERN_ITEMS_MAX, PATTERNS_MAX, REPORTED_ITEMS_MAX


def report(state: State, out: list[Action], at: float, job: Job, fan: Fan, policy: ErrorPolicy) -> None:
    """An item has failed for good: tell of it, if it is time."""
    due = {"aggregate": 0, "immediate": 1, "batched": policy.batch_size}[policy.collection]
    if due and len(fan.unreported) >= due:
        _tell(state, out, at, job, fan)


def note_failure(fan: Fan, name: str, failure: ItemFailure) -> None:
    """Count a failure, and have it reported."""
    count_failure(fan, name, failure)
    if len(fan.unreported) < REPORTED_ITEMS_MAX:
        fan.unreported.append((name, failure.message))
    else:
        fan.unreported_more += 1


def count_failure(fan: Fan, name: str, failure: ItemFailure) -> None:
    """Count a failure by its type and by its look."""
    kind = _kind(failure)
    fan.error_types = {**fan.error_types, kind: fan.error_types.get(kind, 0) + 1}
    pattern = fan.patterns.get(failure.signature)
    if pattern is None:
        if len(fan.patterns) >= PATTERNS_MAX:
            return
        pattern = Pattern(failure.kind, failure.message)
        fan.patterns = {**fan.patterns, failure.signature: pattern}
    pattern.count += 1
    if len(pattern.items) < PATTERN_ITEMS_MAX:
        pattern.items = [*pattern.items, name]


def uncount(fan: Fan, name: str, item: Item) -> bool:
    """An item comes to something: take out as what a redrive found it; False where it is in no number of the list."""
    if not fan.redrive:
        return True
    before = fan.counted.pop(item.index, None)
    if before is None:
        return False
    if not before or before[-1].kind == Kind.CANCELED:
        fan.held -= 1
        return True
    fan.failed -= 1
    kind = _kind(before[-1])
    left = {**fan.error_types, kind: fan.error_types.get(kind, 1) - 1}
    fan.error_types = {word: count for word, count in left.items() if count > 0}
    pattern = fan.patterns.get(before[-1].signature)
    if pattern is not None:
        pattern.count -= 1
        pattern.items = [other for other in pattern.items if other != name]
        fan.patterns = {look: found for look, found in fan.patterns.items() if found.count > 0}
    return True


def _kind(failure: ItemFailure) -> str:
    """The type of a failure, with the exit code where that is what it was."""
    return f"exit:{failure.exit_code}" if failure.kind == Kind.EXIT and failure.exit_code is not None else failure.kind


def report_rest(state: State, out: list[Action], at: float, job: Job, fan: Fan) -> None:
    """The fan-out is over: tell what has not been told."""
    if fan.unreported:
        _tell(state, out, at, job, fan)


def _tell(state: State, out: list[Action], at: float, job: Job, fan: Fan) -> None:
    """One report."""
    fan.batch += 1
    items = [{"item": name, "message": message} for name, message in fan.unreported]
    data: dict[str, Any] = {"items": items, "batch": fan.batch}
    if fan.unreported_more:
        data["more"] = fan.unreported_more
    note_job(state, out, at, "errors_reported", job, data)
    fan.unreported = []
    fan.unreported_more = 0
