"""The parts of a rule that contain no steps: which failures it matches, how long it waits, what it grants."""

from typing import Literal

from msgspec import Struct

from resile.model.failure import FailureKind
from resile.model.limits import DURATION_SECONDS_MAX

Then = Literal["retry", "recovered", "fallback", "tolerate", "goto", "park", "fail"]
BackoffKind = Literal["fixed", "linear", "exponential", "fibonacci"]
Trigger = Literal["on_failure", "on_success", "next", "judge"]
# The rule that the route of a failure names if none answered it.
NO_RULE_LEFT = "no rule left"


class Origin(Struct, frozen=True, array_like=True):
    """A position in the user's file, or in another `file` that it includes; both numbers count from 1."""

    line: int = 0
    column: int = 0
    file: str = ""


NOWHERE = Origin()
"""The origin of anything that is not written in a file. As the default it is left out of a workflow's JSON."""


class Match(Struct, frozen=True, omit_defaults=True):
    """Which failures a rule answers; an empty matcher holds, several must all hold.

    A negative code is the end by a signal: -N by the signal N, -1 by any.
    `types` are names of exceptions that a function may raise, subclasses included; with or without their module.
    """

    codes: tuple[int, ...] = ()
    codes_excluded: tuple[int, ...] = ()
    kinds: tuple[FailureKind, ...] = ()
    signals: tuple[int, ...] = ()
    pattern: str = ""
    types: tuple[str, ...] = ()


class Backoff(Struct, frozen=True, omit_defaults=True):
    """How long to wait before the n-th retry; `jitter` is a share of the delay, or of the initial delay."""

    kind: BackoffKind = "fixed"
    initial_seconds: float = 0.0
    increment_seconds: float = 0.0
    multiplier: float = 2.0
    delay_seconds_max: float = DURATION_SECONDS_MAX
    jitter: float = 0.0
    jitter_of: Literal["delay", "initial"] = "delay"


class Escalation(Struct, frozen=True, omit_defaults=True):
    """A retry with more resources: memory after oom, runtime after a timeout."""

    factor: float = 1.5
    memory_bytes_max: int = 0
    runtime_seconds_max: float = 0.0


class Transition(Struct, frozen=True, array_like=True):
    """A conditional jump: the first transition whose expression holds decides; no target is an explicit stop."""

    when: str
    to: str | None = None
