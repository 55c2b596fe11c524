"""How each failure met the rules of its job, for those who fold a log again to explain it.

An engine does not enable tracing, so its runs keep nothing of this; the log holds all that is needed to trace later.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from resile.core.state import State
from resile.model.failure import Failure

# Why a rule does not answer a failure; where none of these holds, it does.
SkipReason = Literal["no match", "off", "spent", "no more"]


class RuleSkipped(Struct, frozen=True, gc=False):
    """A rule that did not answer, by its number; `used` of its `limit` were spent."""

    rule: int
    why: SkipReason
    used: int
    limit: int


class RuleTrace(Struct, frozen=True, gc=False):
    """One failure: the rules that were skipped, then the one that answers; NO_RULE where none did.

    `used` counts the answers that this rule gave before, `seq` is that of the last note before the failure met it.
    """

    seq: int
    job: int
    failure: Failure
    skipped: tuple[RuleSkipped, ...]
    rule: int
    used: int = 0
    limit: int = 0


def enable_tracing(state: State) -> list[RuleTrace]:
    """Record how rules are evaluated from now on; the caller clears the list."""
    traces: list[RuleTrace] = []
    state.__dict__["rule_traces"] = traces
    return traces


def trace_of(state: State) -> list[RuleTrace] | None:
    """The list to record evaluations in, where tracing is enabled."""
    traces: list[RuleTrace] | None = state.__dict__.get("rule_traces")
    return traces
