"""Parked failures as `parked` prints them, and the answer of `judge`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.commands.documents.base import Document
from resile.explain.rule_reference import RuleReference


class PastAttempt(Struct, frozen=True):
    """One attempt of a job; `kind` is null where it did not fail."""

    attempt: int
    started_at: str | None
    ended_at: str | None
    kind: str | None
    exit_code: int | None
    message: str
    wall_seconds: float
    rss_bytes_max: int


class ParkedFailure(Struct, frozen=True):
    """A failure that waits for judgement; `stdout` and `stderr` are the tails of the attempt's output."""

    job: int
    step: str
    scope: str
    attempts: int
    failed_at: str
    kind: str
    exit_code: int | None
    signal: int | None
    message: str
    rule: RuleReference
    stdout: str
    stderr: str
    history: list[PastAttempt]


class ParkedFailures(Document, frozen=True, kw_only=True):
    """The parked failures of a run."""

    run: int
    workflow: str
    status: str
    failures: list[ParkedFailure]


class JudgementResult(Document, frozen=True, kw_only=True):
    """A judgement in the log; `driven` says whether an engine continues the run at once."""

    run: int
    job: int
    step: str
    driven: bool
    verdict: str
    by: str
    reason: str
    output: Any
    memory_bytes: int
    runtime_seconds: float
