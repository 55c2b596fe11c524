"""The jobs of a run, one by one, with all attempts."""

from __future__ import annotations

from msgspec import Struct

from resile.commands.documents.runs import RunJob
from resile.explain.rule_reference import RuleReference


class KeyedJob(RunJob, frozen=True):
    """A job of a run, with the number that it has among the jobs of all runs."""

    key: int


class JobAttempt(Struct, frozen=True):
    """One attempt of a job.

    `rule` answered its failure; null where it did not fail or no rule was left. `worker` is null for an attempt on the
    machine of the engine.
    """

    epoch: int
    attempt: int
    started_at: str | None
    ended_at: str | None
    exit_code: int | None
    kind: str | None
    message: str
    wall_seconds: float
    cpu_seconds: float
    rss_bytes_max: int
    rule: RuleReference | None
    worker: str | None


class JobDocument(KeyedJob, frozen=True):
    """One job with every attempt that it had."""

    history: list[JobAttempt]
