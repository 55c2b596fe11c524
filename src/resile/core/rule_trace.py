"""Records how each failure met the rules of its job, for `explain`, which folds the log again.

An engine does not enable tracing, so running costs nothing; the log holds everything needed to trace later.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from resile.core.state import State
from resile.model.failure import Failure

# Why a rule does not answer a failure.
SkipReason = Literal["no match", "off", "spent", "no more"]


class RuleSkipped(Struct, frozen=True, gc=False):
    """A rule, by its number, that did not answer; `used` of its `limit` were spent."""

    rule: int
    why: SkipReason
    used: int
    limit: int


class RuleTrace(Struct, frozen=True, gc=False):
    """One failure: the rules that were skipped, then the rule that answers it, NO_RULE where none does.

    `used` counts earlier answers of this rule; `seq` is that of the last note before the failure met the rules.
    """

    seq: int
    job: int
    failure: Failure
    skipped: tuple[RuleSkipped, ...]
    rule: int
    used: int
    limit: int


def enable_tracing(state: State) -> list[RuleTrace]:
    """Record how rules are evaluated from now on; the caller clears the list."""
    traces: list[RuleTrace] = []
    state.__dict__["rule_traces"] = traces
    return traces


def trace_of(state: State) -> list[RuleTrace] | None:
    """The list for traces, None where tracing is not enabled."""
    traces: list[RuleTrace] | None = state.__dict__.get("rule_traces")
    return traces
