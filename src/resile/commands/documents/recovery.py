"""The document of `recover`: what was found about each failure, and what was done about it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from resile.commands.documents.base import Document

DiagnosisName = Literal["oom", "timeout", "transient", "lost", "unknown", "hopeless"]


class Granted(Struct, frozen=True, kw_only=True):
    """What an attempt may use; null is no limit."""

    memory_bytes: int | None
    runtime_seconds: float | None


class PlannedRecovery(Struct, frozen=True, kw_only=True):
    """One failed job: why it failed, what it had, what it gets next, and the steps that run `again` because of it.

    `action` says what becomes of it: it runs again (`retry`), waits for a judgement (`park`), or stays as it is.
    `round` is the round whose plan this is.
    """

    job: int
    step: str
    diagnosis: DiagnosisName
    evidence: str
    granted: Granted
    next: Granted
    again: list[str]
    action: Literal["retry", "park", "stay"]
    round: int


class Recovered(Document, frozen=True, kw_only=True):
    """A run after `recover`: its status, how many rounds there were, and the plans of these.

    What was done in earlier rounds stands first, then every failure of the last plan.
    """

    run: int
    status: str
    rounds: int
    plan: list[PlannedRecovery]
