"""How well the rules of a run did: how often each fired, what its repairs took, what they brought back."""

from __future__ import annotations

from typing import Any

from resile.core.actions import Note
from resile.runtime.past import row_of
from resile.store.open import open_store


def metrics(number: int, *, db: str | None) -> dict[str, Any]:
    """Attempts and rules of a run, counted from its log."""
    store = open_store(db, readonly=True)
    try:
        row = row_of(store, number)
        tally = _Tally()
        for note in store.notes(number):
            tally.add(note)
        return {
            "run": number,
            "workflow": row.workflow,
            "attempts": tally.attempts,
            "failures": tally.kinds,
            "rules": list(tally.rules.values()),
            "maps": {},
        }
    finally:
        store.close()


class _Tally:
    """Counts while the log goes by."""

    def __init__(self) -> None:
        self.attempts = {"started": 0, "succeeded": 0, "failed": 0, "lost": 0}
        self.kinds: dict[str, int] = {}
        self.rules: dict[tuple[str, str], dict[str, Any]] = {}
        self._last: dict[int, dict[str, Any]] = {}
        self._begun: dict[int, float] = {}

    def add(self, note: Note) -> None:
        """One event of the log."""
        match note.type:
            case "attempt_started" | "attempt_succeeded" | "attempt_failed" | "attempt_lost":
                self.attempts[note.type.removeprefix("attempt_")] += 1
                if kind := note.data.get("kind"):
                    self.kinds[kind] = self.kinds.get(kind, 0) + 1
            case "retry_scheduled":
                self._fired(note, "retry")
            case "repair_started":
                self._begun[note.job] = note.at
                if note.data.get("then", "retry") != "retry":
                    self._fired(note, note.data["then"])
            case "route_taken" if note.data["trigger"] == "on_failure" and note.data["action"] == "goto":
                self._fired(note, "goto")
            case "repair_finished":
                entry = self._last.get(note.job, {})
                if entry:
                    entry["repairs"] += 1
                    entry["repairs_failed"] += not note.data["ok"]
                    entry["repair_seconds"] = round(
                        entry["repair_seconds"] + note.at - self._begun.pop(note.job, note.at), 3
                    )
            case "step_completed" | "step_recovered":
                entry = self._last.pop(note.job, {})
                if entry:
                    entry["recovered"] += 1

    def _fired(self, note: Note, then: str) -> None:
        """A rule answered a failure."""
        rule = note.data["rule"]
        entry = self.rules.setdefault(
            (note.step, rule),
            {"step": note.step, "rule": rule, "then": then, "fired": 0, "repairs": 0}
            | {"repairs_failed": 0, "repair_seconds": 0.0, "recovered": 0},
        )
        entry["fired"] += 1
        self._last[note.job] = entry
