"""What can be said of a fan-out: its numbers, the kinds of its failures, and what they suggest.

The same in a run's document, in `resile metrics`, and as `${map.…}` in the steps after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from resile.core.fan_names import fan_action, fan_name, map_name
from resile.core.fanout import counts
from resile.core.fans import Fan, Pattern, add
from resile.core.isolation import isolated
from resile.core.outcomes import FINE
from resile.core.state import ROOT, Job, State
from resile.model.status import Status
from resile.store.contract import JobRow, LetterCount

PATTERN_COUNT_MIN = 3

_GENERIC = "Review error logs for more details."
# What a failure's message says about its cause, most certain first.
_SUGGESTIONS: tuple[tuple[str, str, str], ...] = (
    ("oom", r"out of memory|cannot allocate memory|memoryerror", "Ask for more memory: resources.memory, or escalate."),
    ("timeout", r"timed? ?out|deadline exceeded", "Consider increasing timeout_per_agent"),
    (
        "permission",
        r"permission denied|access denied|operation not permitted|forbidden",
        "Verify file permissions and access rights",
    ),
    (
        "network",
        r"network|connection (refused|reset|closed)|could not resolve|name resolution|unreachable|econn|no route",
        "Check network connectivity and retry settings",
    ),
    ("disk", r"no space left|disk quota", "Make room on the disk, or name another output folder."),
    ("missing", r"command not found|no such file|not found", "Check that the command and its files are there."),
)


def map_metrics(fan: Fan, letters: int) -> dict[str, Any]:
    """Every field of ErrorMetrics, how the circuit stands, and how many dead letters there are now."""
    numbers = counts(fan)
    return {
        "total_items": fan.total,
        "successful": fan.successful,
        "failed": fan.failed,
        "skipped": fan.skipped,
        "held": fan.held,
        "failure_rate": numbers["failure_rate"],
        "error_types": dict(fan.error_types),
        "failure_patterns": [
            _pattern(signature, pattern)
            for signature, pattern in fan.patterns.items()
            if pattern.count >= PATTERN_COUNT_MIN
        ],
        "dead_letters": letters,
        "circuit": fan.circuit,
        "running": len(fan.active) - len(fan.gated),
        "waiting": len(fan.waiting),
    }


def all_metrics(state: State, letters: Sequence[LetterCount]) -> dict[str, Any]:
    """The maps of a run: those of its root by step, those inside others by their path, all their fan-outs together."""
    kept = letters_by_name(letters)
    found: dict[str, Any] = {}
    inner: dict[str, Fan] = {}
    for name, past in state.past.items():
        add(inner.setdefault(name, Fan(0, "")), past)
    for number in state.fans:
        job = state.jobs[number]
        fan = state.fan_of(job)
        if fan is None or job.scope in state.finished:
            continue
        if job.scope == ROOT:
            found[state.step_of(job).name] = map_metrics(fan, kept.get(fan_name(state, job), 0))
        else:
            total = inner.setdefault(map_name(state, job), Fan(0, ""))
            add(total, fan)
            # Only how many there are is told, and a scope has one number in the whole run.
            total.active |= {scope: scope for scope in fan.active.values()}
            total.gated += fan.gated
            total.waiting |= {len(total.waiting) + place: one for place, one in enumerate(fan.waiting.values())}
            total.circuit = total.circuit if fan.circuit == "closed" else fan.circuit
    for name, total in inner.items():
        found[name] = map_metrics(total, sum(count.count for count in letters if count.map == name))
    return found


def result_jobs(state: State, job: Job, rows: Iterable[JobRow]) -> list[int]:
    """For each item of a fan-out that succeeded, in their order, the job of its last step that ran.

    An item that was tried again has the jobs of each execution, one after the other: the last counts.
    """
    fan, action = state.fans[job.id], fan_action(state, job)
    own = {step.name for step in action.steps}
    steps = {step.name: number for number, step in enumerate(isolated(action))}
    prefix = f"{fan_name(state, job)}["
    last: dict[int, tuple[int, int, bool]] = {}
    for row in rows:
        if row.id <= fan.after or row.step not in steps or not row.scope.startswith(prefix):
            continue
        index = row.scope[len(prefix) : -1]
        if not index.isdigit() or row.scope != f"{prefix}{index}]":
            continue
        before = last.get(int(index))
        goes_on = before is not None and before[0] < steps[row.step]
        number, fine = (before[1], before[2]) if before is not None and goes_on else (0, True)
        number = row.id if row.status == Status.completed and row.step in own else number
        last[int(index)] = (steps[row.step], number, fine and row.status in FINE)
    return [number for _, (_, number, fine) in sorted(last.items()) if fine and number]


def letters_by_name(letters: Sequence[LetterCount]) -> dict[str, int]:
    """How many dead letters each fan-out has, by its name."""
    found: dict[str, int] = {}
    for count in letters:
        found[count.name] = found.get(count.name, 0) + count.count
    return found


def _pattern(signature: str, pattern: Pattern) -> dict[str, Any]:
    """A recurring failure with what to do about it."""
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
    """The type of a failure and what usually helps."""
    text = message.lower()
    for name, pattern, suggestion in _SUGGESTIONS:
        if kind == name or re.search(pattern, text):
            return name, suggestion
    return kind, _GENERIC
