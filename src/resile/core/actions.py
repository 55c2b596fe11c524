"""What the core asks of the world: orders to perform once the event that caused them is durable, and records.

A `Note` is one canonical event of the run's public log (`resile events list`); it and the dead letters are written in
the same transaction as the event that caused them. The other actions are performed after that transaction.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from resile.model.items import DeadLetter, KeptScope


class Note(Struct, frozen=True, array_like=True, gc=False):
    """One canonical event. `seq` numbers them within a run, `because` is the seq of what caused it."""

    seq: int
    at: float
    type: str
    scope: str = ""
    step: str = ""
    job: int = 0
    attempt: int = 0
    status: str = ""
    because: int = 0
    data: dict[str, Any] = {}


class StartAttempt(Struct, frozen=True, gc=False):
    """Run this attempt of this job as soon as a slot is free; `gpus` are the device numbers granted to it.

    It is to wait for the attempts (of a job, its number) that it comes `after`: when all have ended with exit 0 it may
    start, and as soon as one ends in another way it is withdrawn.
    """

    job: int
    attempt: int
    because: int
    gpus: tuple[int, ...] = ()
    after: tuple[tuple[int, int], ...] = ()


class KillAttempt(Struct, frozen=True, gc=False):
    """End this attempt: SIGTERM, grace, SIGKILL; one that has not started never starts."""

    job: int
    attempt: int
    because: int


class FindAttempt(Struct, frozen=True, gc=False):
    """After a resume: is this attempt running, ended, never started, or lost?"""

    job: int
    attempt: int
    because: int


class AnswerCondition(Struct, frozen=True, gc=False):
    """Evaluate the `when` of this job's step."""

    job: int
    because: int


class AnswerArcs(Struct, frozen=True, gc=False):
    """Evaluate the conditions on this job's arcs."""

    job: int
    because: int


class AnswerRoute(Struct, frozen=True, gc=False):
    """Evaluate the code of the rule that this job has come to: which steps to run, or where to go."""

    job: int
    rule: int
    about: Literal["rule", "calls", "target"]
    because: int


class AnswerValue(Struct, frozen=True, gc=False):
    """Make what this job's child workflow gave into its value, and look whether that is as it must be."""

    job: int
    attempt: int
    because: int


class SetTimer(Struct, frozen=True, gc=False):
    """Send `TimerFired` for this job at `due`: the end of a wait, of a repair's time, or of something of an `item`."""

    job: int
    attempt: int
    due: float
    because: int
    repair: bool = False
    item: int = -1


class ReadItems(Struct, frozen=True, gc=False):
    """Read the next `count` items of a fan-out from its items file."""

    job: int
    label: str
    place: int
    count: int
    because: int


class ReadGroups(Struct, frozen=True, gc=False):
    """Read which fan-outs come next in a redrive, up to `count` of them."""

    label: str
    place: int
    count: int
    because: int


class KeepLetter(Struct, frozen=True, gc=False):
    """Write this dead letter down, in the same transaction as the event that caused it.

    Where it `goes_on`, the history of one that the same item has left before comes first.
    """

    letter: DeadLetter
    goes_on: bool = False


class DropLetter(Struct, frozen=True, gc=False):
    """The item of this value succeeded: it is no dead letter any more; `name` is its fan-out's."""

    name: str
    index: int
    value: Any


class KeepScope(Struct, frozen=True, gc=False):
    """A scope with dead letters inside is over: write it down, for their redrive."""

    kept: KeptScope


class StopEngine(Struct, frozen=True, gc=False):
    """Nothing is left to do: the run ended, or only parked failures remain."""

    status: Literal["completed", "failed", "canceled", "parked"]
    because: int


Order = (
    StartAttempt
    | KillAttempt
    | FindAttempt
    | AnswerCondition
    | AnswerArcs
    | AnswerRoute
    | AnswerValue
    | SetTimer
    | ReadItems
    | ReadGroups
    | StopEngine
)
Record = Note | KeepLetter | DropLetter | KeepScope
Action = Record | Order
