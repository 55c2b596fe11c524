"""The events that the core reacts to. The log of a run is the list of these; folding it gives the state.

Every clock reading, exit code and answer from outside the core arrives in one of these events, named in the past tense,
so the same log folds to the same state on any machine.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from resile.model.failure import Outcome
from resile.model.items import Item, LetterGroup


class Capacity(Struct, frozen=True, omit_defaults=True):
    """The resources that a run's engine may use.

    The core reserves `ahead` attempts beyond `parallel`, and `early` more whose needs have not ended yet.
    """

    parallel: int
    ahead: int = 0
    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: int = 0
    early: int = 0


class Options(Struct, frozen=True, omit_defaults=True):
    """Options of the command line, kept for every later resume."""

    loops_max: int | None = None
    retry_max: int | None = None
    failure_routing: bool = True


class RunStarted(Struct, frozen=True, tag="run_started", omit_defaults=True):
    """A run was created and an engine took it up."""

    at: float
    capacity: Capacity
    inputs: dict[str, Any] = {}
    options: Options = Options()


class RunResumed(Struct, frozen=True, tag="run_resumed", omit_defaults=True):
    """Another engine resumed the run."""

    at: float
    capacity: Capacity
    engine: str = ""


class AttemptStarted(Struct, frozen=True, tag="attempt_started", omit_defaults=True, gc=False):
    """A reserved attempt started."""

    at: float
    job: int
    attempt: int
    pid: int = 0


class AttemptEnded(Struct, frozen=True, tag="attempt_ended", omit_defaults=True, gc=False):
    """An attempt ended with an outcome; `canceled` where the engine killed it on request.

    An attempt that ended before its start was reported carries its `pid`: this event then reports both.
    """

    at: float
    job: int
    attempt: int
    outcome: Outcome
    canceled: bool = False
    pid: int = 0


class AttemptAdopted(Struct, frozen=True, tag="attempt_adopted", omit_defaults=True):
    """A resumed engine found this attempt still running."""

    at: float
    job: int
    attempt: int
    pid: int = 0


class AttemptWithdrawn(Struct, frozen=True, tag="attempt_withdrawn", omit_defaults=True):
    """A reserved attempt never started, or the engine interrupted it; it costs no budget."""

    at: float
    job: int
    attempt: int
    started: bool = False


class ConditionAnswered(Struct, frozen=True, tag="condition_answered", omit_defaults=True):
    """A step's `when` was evaluated; `problem` says why a broken expression counts as false."""

    at: float
    job: int
    value: bool
    problem: str = ""


class ArcsAnswered(Struct, frozen=True, tag="arcs_answered", omit_defaults=True):
    """The conditions on a step's arcs were evaluated, one answer for each arc.

    `given` are the arguments that arcs carry, by target step; where rendering them failed `refused` says why, and the
    step fails. `memory` holds the run memory that the step's effects wrote.
    """

    at: float
    job: int
    values: tuple[bool, ...]
    problem: str = ""
    given: dict[str, dict[str, Any]] = {}
    memory: dict[str, dict[str, Any]] = {}
    refused: str = ""


class RouteAnswered(Struct, frozen=True, tag="route_answered", omit_defaults=True):
    """The code of a rule (or of `on_success`) was evaluated.

    `calls` are the steps to run, None where the code returned no usable list; `target` is the step to go to, empty for
    none; `stop` is a transition's explicit stop, or says that a rule's condition is false. `problems` describe faulty
    expressions.
    """

    at: float
    job: int
    about: Literal["rule", "calls", "target"]
    calls: tuple[str, ...] | None = None
    target: str = ""
    stop: bool = False
    problems: tuple[str, ...] = ()


class ValueAnswered(Struct, frozen=True, tag="value_answered", omit_defaults=True):
    """The engine computed the value of a child workflow's step; an invalid value makes the outcome a failure."""

    at: float
    job: int
    attempt: int
    outcome: Outcome


class TimerFired(Struct, frozen=True, tag="timer_fired", omit_defaults=True):
    """A timer fired: a wait ended, or the timeout of a repair, an item or an open circuit."""

    at: float
    job: int
    attempt: int
    repair: bool = False
    item: int = -1


class ItemsRead(Struct, frozen=True, tag="items_read", omit_defaults=True):
    """The next items of a fan-out were read; reading continues at `place`, and `last` says that there are no more."""

    at: float
    job: int
    label: str
    items: tuple[Item, ...]
    place: int
    last: bool = False


class Redriven(Struct, frozen=True, tag="redriven", omit_defaults=True):
    """A user redrives dead letters of an ended run: `total` of one map, in the items file called `label`."""

    at: float
    map: str
    total: int
    label: str
    parallel: int
    by: str = ""


class GroupsRead(Struct, frozen=True, tag="groups_read", omit_defaults=True):
    """The next groups of a redrive were read; reading continues at `place`, and `last` says that there are no more."""

    at: float
    label: str
    groups: tuple[LetterGroup, ...]
    place: int
    last: bool = False


class Judged(Struct, frozen=True, tag="judged", omit_defaults=True):
    """A user judged a parked failure."""

    at: float
    job: int
    verdict: Literal["retry", "skip", "fail"]
    by: str = ""
    reason: str = ""
    output: Any = None
    memory_bytes: int = 0
    runtime_seconds: float = 0.0


class CancelRequested(Struct, frozen=True, tag="cancel_requested", omit_defaults=True):
    """A user canceled the run; `end` still runs."""

    at: float
    by: str = ""
    reason: str = ""


class EpochStarted(Struct, frozen=True, tag="epoch_started", omit_defaults=True):
    """A user restarted the run in a new epoch; with `failed_only` completed jobs stay completed."""

    at: float
    failed_only: bool = False
    by: str = ""


Event = (
    RunStarted
    | RunResumed
    | AttemptStarted
    | AttemptEnded
    | AttemptAdopted
    | AttemptWithdrawn
    | ConditionAnswered
    | ArcsAnswered
    | RouteAnswered
    | ValueAnswered
    | TimerFired
    | ItemsRead
    | CancelRequested
    | EpochStarted
    | Judged
    | Redriven
    | GroupsRead
)
