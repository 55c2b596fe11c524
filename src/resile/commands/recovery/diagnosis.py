"""Finds out why a job failed, from the evidence that its last attempt left. The executor makes no difference.

oom        by kind, or its peak reached what was granted
timeout    by kind, or it ran for 98 % of its time limit
lost       by kind
transient  a rule of the step retries just such failures, or most failures like it passed later
unknown    everything else
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from resile.commands.documents.recovery import DiagnosisName
from resile.commands.recovery.failed_jobs import FailedJob
from resile.core.recovery.matching import matches
from resile.model.failure import Failure, Kind
from resile.model.limits import size
from resile.model.rules import Match
from resile.model.workflow import Step
from resile.store.contract import SignatureHistory

# An attempt that failed after this share of its time limit counts as out of time.
TIME_SHARE = 0.98
# The history decides if it has at least this many failures of the same signature, and this share of them passed later.
CASES_MIN = 10
PASSED_SHARE = 0.5


class Diagnosis(Struct, frozen=True):
    """The cause of a failure, and the evidence for it in words."""

    name: DiagnosisName
    evidence: str


def diagnose(failed: FailedJob, history: Callable[[str], SignatureHistory]) -> Diagnosis:
    """The cause of a failed job; `history` knows the failures with a signature."""
    last = failed.last
    failure = last.failure if last is not None else None
    if last is None or failure is None:
        return Diagnosis("unknown", "it failed without an attempt that failed")
    peak, wall = last.usage.rss_bytes_max, last.usage.wall_seconds
    memory, limit = failed.granted_memory_bytes, failed.granted_seconds
    if failure.kind == Kind.OOM:
        return Diagnosis("oom", failure.message)
    if failure.kind == Kind.TIMEOUT:
        return Diagnosis("timeout", failure.message)
    if failure.kind == Kind.LOST:
        return Diagnosis("lost", failure.message)
    if memory and peak >= memory:
        return Diagnosis("oom", f"{failure.message}; it used {size(peak)} of {size(memory)}")
    if limit and wall >= TIME_SHARE * limit:
        return Diagnosis("timeout", f"{failure.message}; it ran {wall:.4g}s of {limit:g}s")
    return _transient(failed.step, failure, history) or Diagnosis("unknown", failure.message)


def _transient(step: Step, failure: Failure, history: Callable[[str], SignatureHistory]) -> Diagnosis | None:
    """The diagnosis `transient` if a rule or the history says so, else None."""
    for rule in step.rules:
        # A rule that retries every failure says nothing about this one.
        plain = rule.then == "retry" and rule.repair is None and rule.change is None and rule.match != Match()
        if plain and matches(rule.match, failure):
            return Diagnosis("transient", f"{failure.message}; {rule.text} says that it may pass")
    past = history(failure.signature) if failure.signature else SignatureHistory()
    if past.cases >= CASES_MIN and past.passed >= PASSED_SHARE * past.cases:
        text = f"{failure.message}; {past.passed} of {past.cases} failures like it passed on a later attempt"
        return Diagnosis("transient", text)
    return None
