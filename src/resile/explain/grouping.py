"""Groups the items of a fan-out that ended alike: same outcome, same step, same failure.

The first items of each group are reported in full, the rest are counted; a million dead letters take no memory here.
"""

from __future__ import annotations

from collections.abc import Iterator

from resile.core.actions import Note
from resile.core.fanout.naming import item_id
from resile.core.state import Job, Scope
from resile.explain import report as reports
from resile.explain.timeline import Timeline
from resile.explain.wording import format_seconds

_THEN: dict[reports.Outcome, str] = {
    "dead letter": "kept as a dead letter",
    "skipped": "left out, as its error policy says",
    "passed": "",
}
# Events that make an item notable although it passed.
_NOTABLE = ("failed", "lost", "after", "redriven")
_OTHERS = "other failures"


def on_item_retry(timeline: Timeline, note: Note) -> None:
    """An item will run again: remember when."""
    timeline.again[note.job, note.data["item"]] = note.data


def on_item_dead_lettered(timeline: Timeline, note: Note) -> None:
    """An item became a dead letter: remember why."""
    timeline.letters[note.job, note.data["item"]] = note.data


def close_items(timeline: Timeline, job: int) -> None:
    """Report the items of a job that ended in this reaction, and those that never started."""
    for number in timeline.state.scopes_to_drop:
        scope = timeline.state.scopes[number]
        if scope.kind == "item" and scope.owner == job and number not in timeline.over:
            timeline.over.add(number)
            _close_execution(timeline, scope)
    if not timeline.letters:
        return
    owner = timeline.state.jobs[job]
    for label in [label for number, label in timeline.letters if number == job]:
        data = timeline.letters.pop((job, label))
        entry = timeline.items.pop((job, label), None) or reports.ItemReport(label)
        last = data.get("message", "")
        message = last or ("the circuit was open" if data["reason"] == "circuit_open" else "it never started")
        group = reports.ItemGroup(
            "dead letter", data["reason"], data.get("failed_step", ""), message, data.get("signature", "")
        )
        _add_to_group(timeline, owner, group, entry, range(0))


def close_scopes(timeline: Timeline) -> None:
    """At the end of a reaction, report its items and drop the jobs of items and child workflows that ended."""
    for number in timeline.state.scopes_to_drop:
        scope = timeline.state.scopes[number]
        if scope.kind == "item" and number not in timeline.over:
            close_items(timeline, scope.owner)
        timeline.forget(scope)
    for job in {number for number, _ in timeline.letters}:
        close_items(timeline, job)
    timeline.over.clear()
    timeline.again.clear()


def _close_execution(timeline: Timeline, scope: Scope) -> None:
    """Close one execution of an item; report the item where it does not run again."""
    owner = timeline.state.jobs[scope.owner]
    assert scope.item is not None
    key = (owner.id, item_id(timeline.state, owner, scope.item))
    execution = timeline.executions.pop(scope.id, None)
    letter, again = timeline.letters.pop(key, None), timeline.again.pop(key, None)
    if execution is None and letter is None and again is None and key not in timeline.items:
        return
    entry = timeline.items.pop(key, None) or reports.ItemReport(scope.name)
    execution = execution or reports.Execution(scope.number)
    entry.executions.append(execution)
    broken = scope.first_failure
    if broken is not None:
        execution.message = broken.message
        # An item that ran out of time may have no failed attempt; it counts as one failure.
        timeline.failures += next(_failures_in([execution]), None) is None
    if again is not None:
        wait = f" after {format_seconds(again['delay_seconds'])}" if again["delay_seconds"] else ""
        execution.then = f"execution {again['next_attempt']}{wait}"
        timeline.items[key] = entry
        return
    outcome: reports.Outcome = "dead letter" if letter is not None else "passed" if broken is None else "skipped"
    execution.then = _THEN[outcome]
    jobs = range(scope.first, scope.first + len(scope.waiting))
    first = next(_failures_in(entry.executions), None)
    if outcome == "passed" and first is None and not timeline.is_wanted_item(entry.item, jobs):
        return
    group = reports.ItemGroup(outcome, letter["reason"] if letter is not None else "")
    if broken is not None:
        group.step, group.message, group.signature = broken.step, broken.message, broken.signature
    elif letter is not None:
        group.message = letter.get("message", "")
    elif first is not None:
        report, failure = first
        group.step, group.message, group.signature = report.step, failure.message, failure.signature
    _add_to_group(timeline, owner, group, entry, jobs)


def _failures_in(executions: list[reports.Execution]) -> Iterator[tuple[reports.StepReport, reports.AttemptReport]]:
    """The failures in some executions of an item, in order; a map inside it counts when it kept items."""
    for execution in executions:
        for report in reports.all_reports(execution.inside):
            for moment in report.attempts:
                if moment.event in _NOTABLE or moment.items:
                    yield report, moment


def _add_to_group(
    timeline: Timeline, owner: Job, group: reports.ItemGroup, entry: reports.ItemReport, jobs: range
) -> None:
    """Add an item to the group of those that ended alike; beyond GROUPS_MAX, to the group of all others."""
    report = timeline.report_of(owner.id)
    # A map that failed inside an item has no signature.
    key = (owner.id, group.outcome, group.reason, group.step, group.signature or group.message)
    found = timeline.groups.get(key)
    if found is None and len(report.items) >= reports.GROUPS_MAX:
        key = (owner.id, group.outcome, group.reason, "", _OTHERS)
        group = reports.ItemGroup(group.outcome, group.reason, "", _OTHERS)
        found = timeline.groups.get(key)
    if found is None:
        found = timeline.groups[key] = group
        report.items.append(group)
    found.add(entry.item)
    if len(found.items) < reports.ITEMS_SHOWN_MAX or timeline.is_wanted_item(entry.item, jobs):
        found.items.append(entry)
