"""The document of `recover`: what it found about each failure, and what it did."""

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
    """One failed job: why it failed, what it was granted, what it gets next, and which steps run `again` because of it.

    `action` says what `recover` does with the job: run it again (`retry`), park it for a judgement (`park`), or leave
    it as it is (`stay`). `round` counts the rounds of recovery from 1.
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
    """A run after `recover`: its status, how many rounds there were, and their plans.

    `plan` has first what earlier rounds did, then every failed or parked job of the last round.
    """

    run: int
    status: str
    rounds: int
    plan: list[PlannedRecovery]
