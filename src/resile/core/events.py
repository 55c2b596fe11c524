"""Facts that come into the core. The log of a run is the list of these; folding it gives the state.

Every clock reading, exit code and answer of the outside world arrives in one of these events, past tense,
so the same log folds to the same state on any machine.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from resile.model.failure import Outcome
from resile.model.items import Item, LetterGroup


class Capacity(Struct, frozen=True, omit_defaults=True):
    """What the engine that drives a run may use; `ahead` attempts are reserved beyond `parallel`.

    Beyond those, `early` ones are reserved before what they need has ended.
    """

    parallel: int
    ahead: int = 0
    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: int = 0
    early: int = 0


class Options(Struct, frozen=True, omit_defaults=True):
    """What the caller asked for on the command line, kept for every later resume."""

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
    """Another engine took the run up again."""

    at: float
    capacity: Capacity
    engine: str = ""


class AttemptStarted(Struct, frozen=True, tag="attempt_started", omit_defaults=True, gc=False):
    """A reserved attempt really runs now."""

    at: float
    job: int
    attempt: int
    pid: int = 0


class AttemptEnded(Struct, frozen=True, tag="attempt_ended", omit_defaults=True, gc=False):
    """An attempt came to an outcome; `canceled` when it ended because it was told to.

    One that ended before anybody was told of its start carries its `pid` and stands for both.
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
    """A reserved attempt never started, or we interrupted it ourselves; it costs no budget."""

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

    `given` are the values that arcs carry, by the step that they lead to; where they can't be had `refused` says why,
    and the step fails. `memory` is what else follows from the step's success.
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

    `calls` are steps to run, None where the code gave no usable list; `target` a step to go to, empty for none;
    `stop` is a transition's explicit stop, or the answer no to a rule's question. `problems` say what was wrong with
    an expression.
    """

    at: float
    job: int
    about: Literal["rule", "calls", "target"]
    calls: tuple[str, ...] | None = None
    target: str = ""
    stop: bool = False
    problems: tuple[str, ...] = ()


class ValueAnswered(Struct, frozen=True, tag="value_answered", omit_defaults=True):
    """What a child workflow gave was made into the value of the step that ran it, which may have failed by it."""

    at: float
    job: int
    attempt: int
    outcome: Outcome


class TimerFired(Struct, frozen=True, tag="timer_fired", omit_defaults=True):
    """A wait is over: the job goes on; or the time of its repair, of one of its items or of its open circuit is up."""

    at: float
    job: int
    attempt: int
    repair: bool = False
    item: int = -1


class ItemsRead(Struct, frozen=True, tag="items_read", omit_defaults=True):
    """The next items of a fan-out; `place` is where reading goes on, `last` says that there are no more."""

    at: float
    job: int
    label: str
    items: tuple[Item, ...]
    place: int
    last: bool = False


class Redriven(Struct, frozen=True, tag="redriven", omit_defaults=True):
    """Dead letters of an ended run are tried again: `total` of one map, in the items file called `label`."""

    at: float
    map: str
    total: int
    label: str
    parallel: int
    by: str = ""


class GroupsRead(Struct, frozen=True, tag="groups_read", omit_defaults=True):
    """The next fan-outs of a redrive; `place` is where reading goes on, `last` says that there are no more."""

    at: float
    label: str
    groups: tuple[LetterGroup, ...]
    place: int
    last: bool = False


class Judged(Struct, frozen=True, tag="judged", omit_defaults=True):
    """Somebody decided about a parked failure."""

    at: float
    job: int
    verdict: Literal["retry", "skip", "fail"]
    by: str = ""
    reason: str = ""
    output: Any = None
    memory_bytes: int = 0
    runtime_seconds: float = 0.0


class CancelRequested(Struct, frozen=True, tag="cancel_requested", omit_defaults=True):
    """Somebody wants the run to stop; `end` still runs."""

    at: float
    by: str = ""
    reason: str = ""


class EpochStarted(Struct, frozen=True, tag="epoch_started", omit_defaults=True):
    """The run goes again with the next epoch; `failed_only` keeps what completed."""

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
