"""The events that the core reacts to. The log of a run is the list of these; folding it gives the state.

Every clock reading, exit code and answer from outside the core arrives in one of these events, named in the past tense,
so the same log folds to the same state on any machine.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from resile.model.failure import Failure, Fingerprint, Outcome
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


class Machine(Struct, frozen=True, omit_defaults=True):
    """The boot on which an engine runs, and the run's time when that boot began: all engines on this boot take it."""

    boot: str
    clock_offset: float


class Options(Struct, frozen=True, omit_defaults=True):
    """Options of the command line, kept for every later resume."""

    loops_max: int | None = None
    retry_max: int | None = None
    failure_routing: bool = True


class Grant(Struct, frozen=True, array_like=True, gc=False):
    """What a recovery grants to a job from its next attempt on; zero leaves what its step asks for."""

    memory_bytes: int = 0
    runtime_seconds: float = 0.0


class Remedy(Struct, frozen=True, omit_defaults=True):
    """What a recovery does about one failure: the step `job` of the workflow runs again, or (`park`) waits for a judge.

    `name` is the path of the job that failed, inside that step or the step itself; the grant is for it alone. `failure`
    is what the judge sees.
    """

    job: int
    name: str
    diagnosis: str
    grant: Grant = Grant()
    park: bool = False
    failure: Failure | None = None


class CachedStep(Struct, frozen=True, omit_defaults=True):
    """What a run takes over from an earlier `run` for a step that did not change.

    `values` are the names that it captured, `outputs` the values of its child workflow.
    """

    run: int
    exit_code: int | None = None
    values: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    fingerprint: Fingerprint | None = None


class Cached(Struct, frozen=True, omit_defaults=True):
    """What a run takes over from an earlier one: steps by name, and its memory.

    Arcs had `reached` these other steps, with these `arguments`, from steps that are taken over.
    """

    steps: dict[str, CachedStep]
    reached: tuple[str, ...] = ()
    arguments: dict[str, dict[str, Any]] = {}
    memory: dict[str, dict[str, Any]] = {}


class _OfRun(Struct, frozen=True, omit_defaults=True):
    """An event of a run, with its time."""

    at: float


class _OfJob(_OfRun, frozen=True):
    """An event of one job."""

    job: int


class _OfAttempt(_OfJob, frozen=True):
    """An event of one attempt of a job."""

    attempt: int


class RunStarted(_OfRun, frozen=True, tag="run_started"):
    """A run was created and an engine took it up; `source` is the hash of its file, `by` who handed it to a server.

    `learned` is the memory of steps that ask for what they needed in earlier runs, by step.
    """

    capacity: Capacity
    inputs: dict[str, Any] = {}
    options: Options = Options()
    machine: Machine | None = None
    source: str = ""
    by: str = ""
    learned: dict[str, int] = {}
    cached: Cached | None = None


class RunResumed(_OfRun, frozen=True, tag="run_resumed"):
    """Another engine resumed the run; `records_lost` where what the executor wrote down for it is gone or too short.

    `by` is who asked a server for it.
    """

    capacity: Capacity
    engine: str = ""
    machine: Machine | None = None
    records_lost: bool = False
    by: str = ""


class AttemptStarted(_OfAttempt, frozen=True, tag="attempt_started", gc=False):
    """A reserved attempt started."""

    pid: int = 0


class AttemptEnded(_OfAttempt, frozen=True, tag="attempt_ended", gc=False):
    """An attempt ended with an outcome; `canceled` where the engine killed it on request.

    An attempt that ended before its start was reported carries its `pid`: this event then reports both. The
    `fingerprint` is there where the results depend on more than the definition.
    """

    outcome: Outcome
    canceled: bool = False
    pid: int = 0
    fingerprint: Fingerprint | None = None


class AttemptAdopted(_OfAttempt, frozen=True, tag="attempt_adopted"):
    """A resumed engine found this attempt still running, since `started_at`; its start may not have been reported."""

    pid: int = 0
    started_at: float = 0.0


class AttemptWithdrawn(_OfAttempt, frozen=True, tag="attempt_withdrawn"):
    """A reserved attempt never started, or the engine interrupted it; it costs no budget. `why` says more."""

    started: bool = False
    why: str = ""


class ConditionAnswered(_OfJob, frozen=True, tag="condition_answered"):
    """A step's `when` was evaluated; `problem` says why it counts as false, `refused` why it fails the step.

    In native files a broken expression is refused, and so is one that needs an output that is lost.
    """

    value: bool
    problem: str = ""
    refused: str = ""


class ArcsAnswered(_OfJob, frozen=True, tag="arcs_answered"):
    """The conditions on a step's arcs were evaluated, one answer for each arc.

    `given` are the arguments that arcs carry, by target step; where rendering them failed `refused` says why, and the
    step fails. `memory` holds the run memory that the step's effects wrote.
    """

    values: tuple[bool, ...]
    problem: str = ""
    given: dict[str, dict[str, Any]] = {}
    memory: dict[str, dict[str, Any]] = {}
    refused: str = ""


class RouteAnswered(_OfJob, frozen=True, tag="route_answered"):
    """The code of a rule (or of `on_success`) was evaluated.

    `calls` are the steps to run, None where the code returned no usable list; `target` is the step to go to, empty for
    none; `stop` is a transition's explicit stop, or says that a rule's condition is false. `problems` describe faulty
    expressions.
    """

    about: Literal["rule", "calls", "target"]
    calls: tuple[str, ...] | None = None
    target: str = ""
    stop: bool = False
    problems: tuple[str, ...] = ()


class ValueAnswered(_OfAttempt, frozen=True, tag="value_answered"):
    """The engine computed the value of a child workflow's step; an invalid value makes the outcome a failure."""

    outcome: Outcome


class TimerFired(_OfAttempt, frozen=True, tag="timer_fired"):
    """A timer fired: a wait ended, or the timeout of a repair, an item or an open circuit."""

    repair: bool = False
    item: int = -1


class ItemsRead(_OfJob, frozen=True, tag="items_read"):
    """The next items of a fan-out were read; reading continues at `place`, and `last` says that there are no more.

    `kept` are the stored scopes of items among these that go on where they failed in an earlier epoch.
    """

    label: str
    items: tuple[Item, ...]
    place: int
    last: bool = False
    kept: tuple[dict[str, Any], ...] = ()


class Redriven(_OfRun, frozen=True, tag="redriven"):
    """A user redrives dead letters of an ended run: `total` of one map, in the items file called `label`."""

    map: str
    total: int
    label: str
    parallel: int
    by: str = ""


class GroupsRead(_OfRun, frozen=True, tag="groups_read"):
    """The next groups of a redrive were read; reading continues at `place`, and `last` says that there are no more."""

    label: str
    groups: tuple[LetterGroup, ...]
    place: int
    last: bool = False


class Judged(_OfJob, frozen=True, tag="judged"):
    """A user judged a parked failure; `offline` while no engine drove the run: nothing was reserved then.

    `confidence`, from 0 to 1, is how sure a judge says to be.
    """

    verdict: Literal["retry", "skip", "fail"]
    by: str = ""
    reason: str = ""
    output: Any = None
    memory_bytes: int = 0
    runtime_seconds: float = 0.0
    offline: bool = False
    confidence: float | None = None


class RetryRequested(_OfJob, frozen=True, tag="retry_requested"):
    """A user runs a job again that runs, or has failed, perhaps with a grant; `offline` as in `Judged`."""

    by: str = ""
    reason: str = ""
    offline: bool = False
    grant: Grant = Grant()


class CancelRequested(_OfRun, frozen=True, tag="cancel_requested"):
    """A user canceled the run, `offline` as in `Judged`; `end` still runs."""

    by: str = ""
    reason: str = ""
    offline: bool = False


class EpochStarted(_OfRun, frozen=True, tag="epoch_started"):
    """A user restarted the run in a new epoch; with `failed_only` what completed stays completed, at any depth.

    `inputs` are its inputs from now on; None keeps those that it has. A recovery names the failures that it answers by
    its `remedies`: all other failures stay as they are. With `again` only these steps run again, and those that did not
    complete; `definition` is the workflow from now on, where that is another, and `source` the hash of its file.
    `learned` is as that of `RunStarted`.
    """

    failed_only: bool = False
    by: str = ""
    inputs: dict[str, Any] | None = None
    remedies: tuple[Remedy, ...] | None = None
    again: tuple[str, ...] | None = None
    definition: str = ""
    source: str = ""
    learned: dict[str, int] = {}


class _OfBlock(_OfRun, frozen=True):
    """An event of one block of nodes that the core had requested."""

    block: int


class BlockSubmitted(_OfBlock, frozen=True, tag="block_submitted"):
    """The batch system has taken a block as this `allocation`, or refused it with this `problem`."""

    allocation: str = ""
    problem: str = ""


class WorkerStarted(_OfBlock, frozen=True, tag="worker_started"):
    """A node of a block takes steps from now on."""

    node: str


class BlockEnded(_OfBlock, frozen=True, tag="block_ended"):
    """A block is gone, with all its workers, and does not come again."""

    reason: str = ""


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
    | RetryRequested
    | Redriven
    | GroupsRead
    | BlockSubmitted
    | WorkerStarted
    | BlockEnded
)
