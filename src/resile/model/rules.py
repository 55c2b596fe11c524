"""The ladder as data: match -> limit -> wait -> repair -> then.

Every dialect's failure handling compiles to a list of these rules; the core evaluates the list and knows no dialect.
Everything is bounded: `limit` is a number, `wait` has a ceiling, `repair` a maximum depth.
"""

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from resile.model.failure import FailureKind
from resile.model.limits import DURATION_SECONDS_MAX

if TYPE_CHECKING:
    from resile.model.workflow import Condition, Step

Then = Literal["retry", "recovered", "fallback", "tolerate", "goto", "park", "fail"]
Trigger = Literal["on_failure", "on_success", "next", "judge"]


class Origin(Struct, frozen=True, array_like=True):
    """A position in the user's file, or in another `file` that it includes; both numbers count from 1."""

    line: int = 0
    column: int = 0
    file: str = ""


NOWHERE = Origin()
"""The origin of anything that is not written in a file. As the default it is left out of a workflow's JSON."""


class Match(Struct, frozen=True, omit_defaults=True):
    """Which failures a rule answers; an empty matcher holds, several must all hold.

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

    kind: Literal["fixed", "linear", "exponential", "fibonacci"] = "fixed"
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


class Repair(Struct, frozen=True, omit_defaults=True):
    """Steps that run before a job is retried or counted as recovered: its own steps, or named steps of the scope.

    `on_failure` says what a failed repair means: `ignore` continues as after a success, `next` leaves the failure to
    the rules below, `fail` ends the climb.
    """

    steps: tuple["Step", ...] = ()
    calls: tuple[str, ...] = ()
    calls_js: str = ""
    timeout_seconds: float | None = None
    on_failure: Literal["ignore", "next", "fail"] = "next"


class Rule(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One answer to a failure.

    `limit` counts the firings of this rule, or with `limit_of` job those of all rules of the job's step.

    `when` is a condition on the failure that must hold.

    `routing` marks a rule that the file calls retry, run or goto, which a caller may turn off.

    `retries_anyway` marks a rule that the file calls retry: a caller may cap its limit, and it retries even if its code
    names no step to run.

    `halts` makes a `fail` end the whole scope.
    """

    then: Then
    text: str
    match: Match = Match()
    when: "Condition | None" = None
    limit: int = 1
    limit_of: Literal["rule", "job"] = "rule"
    wait: Backoff | None = None
    repair: Repair | None = None
    change: Escalation | None = None
    target: str = ""
    target_js: str = ""
    transitions: tuple[Transition, ...] = ()
    cost: int = 0
    routing: bool = False
    retries_anyway: bool = False
    halts: bool = False
    origin: Origin = NOWHERE


class SuccessActions(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Actions after a success, in this order: own steps, named steps, a jump back.

    Running the steps spends `run_cost` of the loop budget, the jump `cost`.
    """

    steps: tuple["Step", ...] = ()
    calls: tuple[str, ...] = ()
    calls_js: str = ""
    target: str = ""
    target_js: str = ""
    transitions: tuple[Transition, ...] = ()
    cost: int = 0
    run_cost: int = 0
    origin: Origin = NOWHERE
