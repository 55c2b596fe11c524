"""The core's output: orders that the engine performs after the causing event is durable, and records that it stores.

A `Note` is one canonical event of the run's public log (`resile events list`). The store writes notes, dead letters and
kept scopes in the same transaction as the event that caused them; the engine performs the orders after it.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from resile.model.items import DeadLetter, KeptScope


class Note(Struct, frozen=True, array_like=True, gc=False):
    """One canonical event. `seq` numbers the events of a run; `because` is the `seq` of its cause."""

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


class _ForJob(Struct, frozen=True, gc=False):
    """An order that concerns one job; `because` is the `seq` of the note that caused it."""

    job: int
    because: int


class _ForAttempt(Struct, frozen=True, gc=False):
    """An order that concerns one attempt of a job; `because` is the `seq` of the note that caused it."""

    job: int
    attempt: int
    because: int


class StartAttempt(_ForAttempt, frozen=True, gc=False):
    """Run this attempt of this job as soon as a slot is free; `gpus` are the device numbers granted to it.

    `after` lists attempts as (job, attempt). The executor starts this one when all of them have ended with exit 0, and
    withdraws it as soon as one of them ends otherwise. An attempt that is `refused` fails with this message.
    """

    gpus: tuple[int, ...] = ()
    after: tuple[tuple[int, int], ...] = ()
    refused: str = ""


class KillAttempt(_ForAttempt, frozen=True, gc=False):
    """End this attempt: SIGTERM, grace period, SIGKILL. An attempt that has not started never starts."""


class FindAttempt(_ForAttempt, frozen=True, gc=False):
    """After a resume: report whether this attempt is running, ended, never started, or lost.

    One that is `in_doubt` may have started although no record says so: without a record of its end it is lost.
    """

    in_doubt: bool = False


class AnswerCondition(_ForJob, frozen=True, gc=False):
    """Evaluate the `when` of this job's step."""


class AnswerArcs(_ForJob, frozen=True, gc=False):
    """Evaluate the conditions on this job's arcs."""


class AnswerRoute(Struct, frozen=True, gc=False):
    """Evaluate the code of the rule that this job applies: which steps to run, or where to go."""

    job: int
    rule: int
    about: Literal["rule", "calls", "target"]
    because: int


class AnswerValue(_ForAttempt, frozen=True, gc=False):
    """Compute the value of a child workflow's step from the child's outputs, and check it."""


class SetTimer(Struct, frozen=True, gc=False):
    """Send `TimerFired` for this job at `due`: when a wait, a repair's timeout, or a timer of an `item` ends."""

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
    """Read the next groups of a redrive, at most `count`; a group is the selected dead letters of one fan-out."""

    label: str
    place: int
    count: int
    because: int


class KeepLetter(Struct, frozen=True, gc=False):
    """Store this dead letter in the same transaction as the event that caused it.

    With `goes_on` the store puts the history of an earlier letter of the same item before this one's.
    """

    letter: DeadLetter
    goes_on: bool = False


class DropLetter(Struct, frozen=True, gc=False):
    """Delete the dead letter of an item that has now succeeded; `name` is that of its fan-out."""

    name: str
    index: int
    value: Any


class KeepScope(Struct, frozen=True, gc=False):
    """Store a closed scope that has dead letters inside, so that a redrive can restore it."""

    kept: KeptScope


class ScheduleNodes(Struct, frozen=True, gc=False):
    """Have this block: request it by the workflow's allocation with this index, unless it was requested before."""

    block: int
    allocation: int
    because: int


class StopEngine(Struct, frozen=True, gc=False):
    """Nothing is left to do: the run ended, or only parked failures remain."""

    status: Literal["completed", "failed", "canceled", "parked"]
    because: int


Question = AnswerCondition | AnswerArcs | AnswerRoute | AnswerValue
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
    | ScheduleNodes
    | StopEngine
)
Record = Note | KeepLetter | DropLetter | KeepScope
Action = Record | Order
