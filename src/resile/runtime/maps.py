"""What can be said of a fan-out: its numbers, the kinds of its failures, and what they suggest.

The same in a run's document, in `resile metrics`, and as `${map.…}` in the steps after it.
"""

from __future__ import annotations

import re
from typing import Any

from resile.core.fanout import counts
from resile.core.fans import Fan, Pattern
from resile.core.state import ROOT, State
from resile.model.fanout import FanOut

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


def map_metrics(fan: Fan) -> dict[str, Any]:
    """Every field of ErrorMetrics, and how the circuit and the dead letters stand."""
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
        "dead_letters": fan.failed + fan.held,
        "circuit": fan.circuit,
        "running": len(fan.active),
        "waiting": len(fan.waiting),
    }


def all_metrics(state: State) -> dict[str, Any]:
    """The fan-outs of a run's root, by step."""
    found: dict[str, Any] = {}
    for number, fan in state.fans.items():
        job = state.jobs[number]
        step = state.step_of(job)
        if job.scope == ROOT and isinstance(step.action, FanOut):
            found[step.name] = map_metrics(fan)
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
