"""Counts what a server does since its start, from the events of its runs: attempts, rules, recoveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from resile.core.actions import Note
from resile.core.state import State

_OUTCOMES = {"attempt_succeeded": "succeeded", "attempt_failed": "failed", "attempt_lost": "lost"}


class Tally:
    """The counts; the host's thread adds, others read."""

    def __init__(self) -> None:
        self.attempts_started = 0
        self.attempts_ended: Counter[str] = Counter()
        self.rules_fired: Counter[str] = Counter()
        self.recoveries = 0

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
            if note.type in ("retry_scheduled", "route_taken", "step_parked") and "rule" in note.data:
                self.rules_fired[str(note.data.get("then", "retry"))] += 1
