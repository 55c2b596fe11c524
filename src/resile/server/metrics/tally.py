"""Counts what a server has done since its start: commits, and from its runs' events attempts, rules and recoveries."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import inf

from resile.core.actions import Note
from resile.core.state import State

_OUTCOMES = {"attempt_succeeded": "succeeded", "attempt_failed": "failed", "attempt_lost": "lost"}


COMMIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, inf)


class Durations:
    """A histogram of durations; a bucket includes its limit. One thread adds, others read."""

    def __init__(self, limits: Sequence[float]) -> None:
        self._limits = limits
        self._counts = [0] * len(limits)
        self.sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._limits, seconds)] += 1
        self.sum_seconds += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """The limits as Prometheus writes them, each with the number of durations up to it."""
        counts = accumulate(list(self._counts))
        return [
            ("+Inf" if limit == inf else str(limit), count) for limit, count in zip(self._limits, counts, strict=True)
        ]


class Tally:
    """The counts; the host's thread adds, others read."""

    def __init__(self) -> None:
        self.attempts_started = 0
        self.attempts_ended: Counter[str] = Counter()
        self.rules_fired: Counter[str] = Counter()
        self.recoveries = 0
        self.commits = Durations(COMMIT_SECONDS)

    def add(self, _state: State, notes: Iterable[Note]) -> None:
        """Count the events of one batch."""
        for note in notes:
            outcome = _OUTCOMES.get(note.type)
            if outcome is not None:
                self.attempts_ended[outcome] += 1
            elif note.type == "attempt_started":
                self.attempts_started += 1
            elif note.type == "step_recovered":
                self.recoveries += 1
            then = _then_of(note)
            if then:
                self.rules_fired[then] += 1


def _then_of(note: Note) -> str:
    """The `then` of the rule that answered a failure; empty for other events, and if no rule was left."""
    data = note.data
    match note.type:
        case "retry_scheduled":
            return "retry"
        case "route_taken" if data.get("trigger") == "on_failure":
            return str(data.get("action", ""))
        case "step_parked":
            return "park"
        case "step_failed" if data.get("tolerated"):
            return "tolerate"
        case "repair_started" if data.get("then") in ("recovered", "fallback"):
            return str(data["then"])
    return ""
