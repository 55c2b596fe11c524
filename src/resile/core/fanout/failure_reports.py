"""Reports about the failed items of a fan-out, grouped by signature.

`aggregate` reports once at the end, `immediate` each failure at once, `batched` every `batch_size` failures and the
rest at the end.
"""

from __future__ import annotations

from typing import Any

from resile.core.fanout.error_types import error_type
from resile.core.fanout.progress import Fan, Pattern
from resile.core.reaction import Reaction
from resile.core.state import Job
from resile.model.failure import Kind
from resile.model.fanout import ErrorPolicy
from resile.model.items import Item, ItemFailure
from resile.model.limits import PATTERN_ITEMS_MAX, PATTERNS_MAX, REPORTED_ITEMS_MAX


def report_if_due(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy) -> None:
    """Write a report after one more item failed for good, if enough failures are unreported."""
    due = {"aggregate": 0, "immediate": 1, "batched": policy.batch_size}[policy.collection]
    if due and len(fan.unreported) >= due:
        report(reaction, job, fan)


def report(reaction: Reaction, job: Job, fan: Fan) -> None:
    """Report the failures that are still unreported, if there are any."""
    if not fan.unreported:
        return
    fan.batch += 1
    items = [{"item": name, "message": message} for name, message in fan.unreported]
    data: dict[str, Any] = {"items": items, "batch": fan.batch}
    if fan.unreported_more:
        data["more"] = fan.unreported_more
    reaction.note("errors_reported", job, data)
    fan.unreported = []
    fan.unreported_more = 0


def count_and_report_failure(fan: Fan, name: str, failure: ItemFailure) -> None:
    """Count a failure and list it in the next report."""
    count_failure(fan, name, failure)
    if len(fan.unreported) < REPORTED_ITEMS_MAX:
        fan.unreported.append((name, failure.message))
    else:
        fan.unreported_more += 1


def count_failure(fan: Fan, name: str, failure: ItemFailure) -> None:
    """Count a failure by its type and by its signature."""
    kind = _type_of(failure)
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
    """Take a redriven item out of the counts; False where this fan-out's counts do not include it."""
    if not fan.redrive:
        return True
    before = fan.counted.pop(item.index, None)
    if before is None:
        return False
    if not before or before[-1].kind == Kind.CANCELED:
        fan.held -= 1
        return True
    fan.failed -= 1
    kind = _type_of(before[-1])
    left = {**fan.error_types, kind: fan.error_types.get(kind, 1) - 1}
    fan.error_types = {word: count for word, count in left.items() if count > 0}
    pattern = fan.patterns.get(before[-1].signature)
    if pattern is not None:
        pattern.count -= 1
        pattern.items = [other for other in pattern.items if other != name]
        fan.patterns = {signature: found for signature, found in fan.patterns.items() if found.count > 0}
    return True


def _type_of(failure: ItemFailure) -> str:
    return error_type(failure.kind, failure.exit_code, failure.message)
