"""Statistics of a fan-out: its counts, the kinds of its failures, and what they suggest.

A run's document, `resile metrics` and `${map.…}` in later steps show the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from resile.core.fanout.error_types import error_type, suggestion_for
from resile.core.fanout.fanout import counts
from resile.core.fanout.item_outcomes import FINE
from resile.core.fanout.naming import fan_action, fan_name, map_name
from resile.core.fanout.progress import Fan, Pattern, add
from resile.core.fanout.worktrees import steps_with_worktree
from resile.core.scheduling.scopes import is_parked
from resile.core.state import ROOT, Job, State
from resile.model.status import Status
from resile.store.contract import JobRow, LetterCount, LetterRow

PATTERN_COUNT_MIN = 3

_GENERIC = "Review error logs for more details."


def map_metrics(fan: Fan, letters: int, running: int = 0) -> dict[str, Any]:
    """Every field of ErrorMetrics, the circuit breaker's state, and the counts of dead letters and running items."""
    numbers = counts(fan)
    return {
        "total_items": fan.total,
        "successful": fan.successful,
        "failed": fan.failed,
        "skipped": fan.skipped,
        "held": numbers["held"],
        "failure_rate": numbers["failure_rate"],
        "error_types": dict(fan.error_types),
        "failure_patterns": [
            _pattern(signature, pattern)
            for signature, pattern in fan.patterns.items()
            if pattern.count >= PATTERN_COUNT_MIN
        ],
        "dead_letters": letters,
        "circuit": fan.circuit,
        "running": running,
        "waiting": len(fan.waiting),
    }


def all_metrics(state: State, letters: Sequence[LetterCount]) -> dict[str, Any]:
    """The statistics of all maps of a run, by step in the root and by path inside others; one entry for each map."""
    kept = letters_by_name(letters)
    found: dict[str, Any] = {}
    inner: dict[str, Fan] = {}
    running: dict[str, int] = {}
    for name, past in state.closed_map_totals.items():
        add(inner.setdefault(name, Fan(0, "")), past)
    for number in state.fans:
        job = state.jobs[number]
        fan = state.fan_of(job)
        if fan is None or job.scope in state.scopes_to_drop:
            continue
        if job.scope == ROOT:
            letter_count = kept.get(fan_name(state, job), 0)
            found[state.step_of(job).name] = map_metrics(fan, letter_count, _running_count(state, fan))
            continue
        name = map_name(state, job)
        total = inner.setdefault(name, Fan(0, ""))
        add(total, fan)
        total.held += fan.held_now - fan.held
        # Only the number of waiting items is shown.
        total.waiting |= {len(total.waiting) + place: one for place, one in enumerate(fan.waiting.values())}
        total.circuit = total.circuit if fan.circuit == "closed" else fan.circuit
        running[name] = running.get(name, 0) + _running_count(state, fan)
    for name, total in inner.items():
        letter_count = sum(count.count for count in letters if count.map == name)
        found[name] = map_metrics(total, letter_count, running.get(name, 0))
    return found


def _running_count(state: State, fan: Fan) -> int:
    """How many items have begun and are not over; items opened ahead, or waiting for a judgement, don't count."""
    scopes = [state.scopes[number] for number in fan.active.values()]
    return sum(
        any(state.jobs[number].attempts_started for number in range(scope.first, scope.first + len(scope.waiting)))
        and not (state.parked and is_parked(state, scope))
        for scope in scopes
    )


def result_jobs(state: State, job: Job, rows: Iterable[JobRow]) -> list[int]:
    """For each item of a fan-out that succeeded, in their order, the job of its last step that ran.

    An item that was retried has the jobs of each execution, one after the other: the last counts.
    """
    own = {step.name for step in fan_action(state, job).steps}
    places: dict[int, int] = {}
    last: dict[int, tuple[int, bool]] = {}
    for index, place, row in _jobs_of_items(state, job, rows):
        number, fine = last[index] if places.get(index, place) < place else (0, True)
        number = row.id if row.status == Status.completed and row.step in own else number
        places[index], last[index] = place, (number, fine and row.status in FINE)
    return [number for _, (number, fine) in sorted(last.items()) if fine and number]


def item_jobs(state: State, job: Job, rows: Iterable[JobRow]) -> dict[int, list[JobRow]]:
    """The jobs of the last execution of each item of a fan-out that has begun, by its index."""
    found: dict[int, list[JobRow]] = {}
    places: dict[int, int] = {}
    for index, place, row in _jobs_of_items(state, job, rows):
        if places.get(index, place) >= place:
            found[index] = []
        found[index].append(row)
        places[index] = place
    return found


def _jobs_of_items(state: State, job: Job, rows: Iterable[JobRow]) -> Iterator[tuple[int, int, JobRow]]:
    """The jobs that belong to the items of a fan-out, each with the item's index and its own place among its steps."""
    fan = state.fans[job.id]
    steps = {step.name: number for number, step in enumerate(steps_with_worktree(fan_action(state, job)))}
    prefix = f"{fan_name(state, job)}["
    for row in rows:
        if row.id <= fan.after or row.step not in steps or not row.scope.startswith(prefix):
            continue
        index = row.scope[len(prefix) : -1]
        if index.isdigit() and row.scope == f"{prefix}{index}]":
            yield int(index), steps[row.step], row


def is_fine(row: JobRow) -> bool:
    """Can the item of this job still succeed, after the way the job ended?"""
    return row.status in FINE or row.tolerated


def end_of_item(
    jobs: Sequence[JobRow], letter: LetterRow | None, message: Callable[[int], str], *, is_dropped: bool
) -> tuple[str, str | None]:
    """The status of an item and the message of its failure, from the jobs of its last execution and its dead letter.

    If the map drops failed items, their status is `skipped`.
    """
    failed = next((row for row in jobs if row.status not in FINE), None)
    if failed is None and letter is None:
        return "success", None
    if letter is not None and letter.history:
        return "failed", letter.history[-1].message
    if failed is None and letter is not None:
        return letter.reason, None
    return "skipped" if is_dropped else "failed", message(failed.id) if failed is not None else None


def seconds_of(jobs: Sequence[JobRow]) -> float:
    """How long the jobs of an item took together."""
    began = [row.started_at for row in jobs if row.started_at is not None]
    done = [row.ended_at for row in jobs if row.ended_at is not None]
    return round(max(max(done) - min(began), 0.0), 3) if began and done else 0.0


def letters_by_name(letters: Sequence[LetterCount]) -> dict[str, int]:
    """How many dead letters each fan-out has, by its name."""
    found: dict[str, int] = {}
    for count in letters:
        found[count.name] = found.get(count.name, 0) + count.count
    return found


def _pattern(signature: str, pattern: Pattern) -> dict[str, Any]:
    """A recurring failure and the suggested remedy."""
    kind, suggestion = suggest(pattern.kind, pattern.message)
    return {
        "pattern_type": kind,
        "signature": signature,
        "frequency": pattern.count,
        "items": list(pattern.items),
        "message": pattern.message,
        "suggested_action": suggestion,
    }


def suggest(kind: str, message: str) -> tuple[str, str]:
    """The type of a failure, and a suggestion."""
    name = error_type(kind, None, message)
    return name, suggestion_for(name) or _GENERIC
