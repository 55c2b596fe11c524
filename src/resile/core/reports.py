"""What a fan-out tells of its failed items: at once, in batches, or all at the end; and what they have in common.

`aggregate` reports once at the end, `immediate` each as it fails, `batched` so many at a time, the rest at the end.
"""

from __future__ import annotations

from typing import Any

from resile.core.actions import Action
from resile.core.fans import Fan, Pattern
from resile.core.notes import note_job
from resile.core.state import Job, State
from resile.model.fanout import ErrorPolicy
from resile.model.letters import ItemFailure
from resile.model.limits import PATTERN_ITEMS_MAX, PATTERNS_MAX, REPORTED_ITEMS_MAX


def report(state: State, out: list[Action], at: float, job: Job, fan: Fan, policy: ErrorPolicy) -> None:
    """An item has failed for good: tell of it, if it is time."""
    due = {"aggregate": 0, "immediate": 1, "batched": policy.batch_size}[policy.collection]
    if due and len(fan.unreported) >= due:
        _tell(state, out, at, job, fan)


def note_failure(fan: Fan, name: str, failure: ItemFailure) -> None:
    """Count a failure by its type and by its look."""
    kind = f"exit:{failure.exit_code}" if failure.kind == "exit" and failure.exit_code is not None else failure.kind
    fan.error_types = {**fan.error_types, kind: fan.error_types.get(kind, 0) + 1}
    if len(fan.unreported) < REPORTED_ITEMS_MAX:
        fan.unreported.append((name, failure.message))
    else:
        fan.unreported_more += 1
    pattern = fan.patterns.get(failure.signature)
    if pattern is None:
        if len(fan.patterns) >= PATTERNS_MAX:
            return
        pattern = Pattern(failure.kind, failure.message)
        fan.patterns = {**fan.patterns, failure.signature: pattern}
    pattern.count += 1
    if len(pattern.items) < PATTERN_ITEMS_MAX:
        pattern.items = [*pattern.items, name]


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
