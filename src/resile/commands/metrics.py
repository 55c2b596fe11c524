"""Statistics of a run's rules: how often each fired, how long its repairs took, how often its steps recovered.

Only the current epoch is counted. The routes of the folded state tell which rule was applied; the log tells how its
repair and the step ended.
"""

from __future__ import annotations

from typing import Any

from resile.commands.documents.answers import AttemptCounts, RuleMetrics, RunMetrics
from resile.commands.documents.runs import map_metrics_of
from resile.core.actions import Note
from resile.core.state import Route
from resile.engine.replay import fold_log, row_of
from resile.explain.rule_reference import parse_rule
from resile.model.rules import NO_RULE_LEFT
from resile.store.contract import Store

# Routes that are not the decision of a rule: calls of a repair's steps, and an exhausted budget.
_NO_RULES = ("run", "budget")
_NO_REPAIRS = {"repairs": 0, "repairs_failed": 0, "repair_seconds": 0.0, "recovered": 0}

Key = tuple[str, str, str]


def metrics(store: Store, number: int) -> RunMetrics:
    """Count the attempts and the rules of a run."""
    with store.reading():
        row = row_of(store, number)
        tally = _Tally()
        state = fold_log(store, row)
        for route in state.routes:
            tally.add_route(route)
        for note in store.notes(number):
            tally.add(note)
        letters = store.letter_counts(number)
    return RunMetrics(
        run=number,
        workflow=row.workflow,
        attempts=AttemptCounts(**tally.attempts),
        failures=tally.kinds,
        rules=[RuleMetrics(**entry, rule=parse_rule(rule)) for (_, _, rule), entry in tally.rules.items()],
        maps=map_metrics_of(state, letters),
    )


class _Tally:
    """Counts routes and log events while they are read."""

    def __init__(self) -> None:
        self.rules: dict[Key, dict[str, Any]] = {}
        self._start_over()

    def _start_over(self) -> None:
        """Reset the counts at the start of a new epoch."""
        self.attempts = {"started": 0, "succeeded": 0, "failed": 0, "lost": 0}
        self.kinds: dict[str, int] = {}
        self._last: dict[int, Key] = {}
        self._repairing: dict[int, tuple[Key, float]] = {}
        for entry in self.rules.values():
            entry |= _NO_REPAIRS

    def add_route(self, route: Route) -> None:
        """Count a rule that was applied to a failure; failures without a rule are ignored."""
        if route.trigger != "on_failure" or route.action in _NO_RULES or route.rule == NO_RULE_LEFT:
            return
        fresh = {"step": route.step, "scope": route.scope, "then": route.action, "fired": 0, **_NO_REPAIRS}
        self.rules.setdefault((route.scope, route.step, route.rule), fresh)["fired"] += 1

    def add(self, note: Note) -> None:
        """Count one event of the log."""
        match note.type:
            case "run_resumed" if "epoch" in note.data:
                self._start_over()
            case "attempt_started" | "attempt_succeeded" | "attempt_failed" | "attempt_lost":
                self.attempts[note.type.removeprefix("attempt_")] += 1
                if kind := note.data.get("kind"):
                    self.kinds[kind] = self.kinds.get(kind, 0) + 1
            case "retry_scheduled" | "route_taken":
                self._remember_rule(note)
            case "repair_started":
                key = self._remember_rule(note)
                if key is not None:
                    self._repairing[note.job] = (key, note.at)
            case "repair_finished":
                key, begun = self._repairing.pop(note.job, (None, note.at))
                if key is not None:
                    entry = self.rules[key]
                    entry["repairs"] += 1
                    entry["repairs_failed"] += not note.data["ok"]
                    entry["repair_seconds"] = round(entry["repair_seconds"] + note.at - begun, 3)
            case "step_completed" | "step_recovered":
                key = self._last.pop(note.job, None)
                if key is not None:
                    self.rules[key]["recovered"] += 1
            case "step_failed":
                self._last.pop(note.job, None)

    def _remember_rule(self, note: Note) -> Key | None:
        """Remember and return the rule that this event applied to its job; None if it concerns no rule."""
        key = (note.scope, note.step, note.data.get("rule", ""))
        if key not in self.rules:
            return None
        self._last[note.job] = key
        self.rules[key]["then"] = note.data.get("then", self.rules[key]["then"])
        return key
