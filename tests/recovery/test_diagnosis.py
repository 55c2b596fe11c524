"""Why a job failed: by the kind of its failure, by what it used, by its rules and by the history of its signature."""

from __future__ import annotations

from typing import Any

import pytest

from resile.commands.recovery.diagnosis import diagnose
from resile.commands.recovery.failed_jobs import FailedJob
from resile.model.failure import Failure, Usage
from resile.model.rules import Match
from resile.model.workflow import Noop, Repair, Rule, Step
from resile.store.contract import AttemptRow, SignatureHistory

GIB = 1 << 30


def failed(
    kind: str = "exit", *, usage: Usage = Usage(), memory: int = 0, seconds: float = 0.0, **step: Any
) -> FailedJob:
    """A failed job whose last attempt ended so."""
    failure = Failure(kind, "it broke", 7, signature="abc")  # type: ignore[arg-type]
    row = AttemptRow(1, 1, 1, 0.0, 1.0, 7, usage, None, failure)
    return FailedJob(1, 1, "a", Step(name="a", action=Noop(), **step), memory, seconds, row)


def name_of(found: FailedJob, history: SignatureHistory = SignatureHistory()) -> str:
    """The diagnosis, with this history of its signature."""
    return diagnose(found, lambda signature: history if signature == "abc" else SignatureHistory()).name


@pytest.mark.parametrize(("kind", "diagnosis"), [("oom", "oom"), ("timeout", "timeout"), ("lost", "lost")])
def test_the_kind_decides_first(kind: str, diagnosis: str) -> None:
    """Whatever it used, and however often it passed before."""
    often = SignatureHistory(20, 20)
    assert name_of(failed(kind, usage=Usage(9.9, 1, 2 * GIB), memory=GIB, seconds=10), often) == diagnosis


@pytest.mark.parametrize(
    ("usage", "diagnosis"),
    [
        (Usage(1.0, 1.0, GIB), "oom"),
        (Usage(1.0, 1.0, GIB - 1), "unknown"),
        (Usage(9.8, 1.0, 1), "timeout"),
        (Usage(9.79, 1.0, 1), "unknown"),
    ],
)
def test_what_it_used_decides_next(usage: Usage, diagnosis: str) -> None:
    """A peak at the request is oom, 98 % of the time limit is a timeout; without a request neither is known."""
    assert name_of(failed(usage=usage, memory=GIB, seconds=10.0)) == diagnosis
    assert name_of(failed(usage=usage)) == "unknown"


@pytest.mark.parametrize(
    ("rule", "diagnosis"),
    [
        (Rule(then="retry", match=Match(codes=(7,)), text="retry 7"), "transient"),
        (Rule(then="retry", match=Match(codes=(8,)), text="retry 8"), "unknown"),
        (Rule(then="retry", text="retry everything"), "unknown"),
        (Rule(then="fail", match=Match(codes=(7,)), text="fail 7"), "unknown"),
        (Rule(then="retry", match=Match(codes=(7,)), text="mend 7", repair=Repair()), "unknown"),
    ],
)
def test_a_rule_that_retries_this_very_failure_says_that_it_is_transient(rule: Rule, diagnosis: str) -> None:
    """Not one that retries everything, that does something else, or that repairs first."""
    assert name_of(failed(rules=(rule,))) == diagnosis


@pytest.mark.parametrize(
    ("cases", "passed", "diagnosis"),
    [(10, 5, "transient"), (10, 4, "unknown"), (9, 9, "unknown"), (11, 5, "unknown"), (200, 199, "transient")],
)
def test_the_history_of_its_signature_decides_last(cases: int, passed: int, diagnosis: str) -> None:
    """At least ten cases, of which at least half passed on a later attempt; the evidence has both numbers."""
    assert name_of(failed(), SignatureHistory(cases, passed)) == diagnosis
    if diagnosis == "transient":
        assert f"{passed} of {cases}" in diagnose(failed(), lambda _: SignatureHistory(cases, passed)).evidence


def test_a_job_without_an_attempt_is_unknown() -> None:
    """A refused step, or one that a judge failed, has no evidence."""
    found = failed()
    assert name_of(FailedJob(1, 1, "a", found.step, 0, 0.0, None)) == "unknown"
