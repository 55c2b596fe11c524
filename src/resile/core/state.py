"""The folded state of one run. Only `react` changes it; a snapshot is its encoding.

scopes  {id: Scope}    the state of one list of steps that runs (the root is 1)
jobs    {id: Job}      a step in a scope
fans    {job: Fan}     the fan-out of a job
queues  {key: Queue}   ready jobs, one queue for each set of resources
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

from resile.core.block_state import Blocks
from resile.core.events import Capacity, Grant, Machine, Options
from resile.core.fanout.progress import Fan, Redrive
from resile.core.scheduling.plan import Plan, plan_of
from resile.model import codec
from resile.model.failure import Failure
from resile.model.items import Item, ItemFailure
from resile.model.rules import Trigger
from resile.model.status import BLOCKED, COMPLETED, PENDING, RUNNING, STATUS_NAMES, Status
from resile.model.workflow import Child, FanOut, Rule, Step, Workflow

FORMAT = 7
ROOT = 1
# Values of a job's `rule` that are not the number of a rule of its ladder.
NO_RULE = -1
SUCCESS = -2
# The times at which a job began and ended; 0 where it has not.
TIMES = struct.Struct("<dd")
_END = struct.Struct("<d")
_read_times, _write_times, _write_end = TIMES.unpack_from, TIMES.pack_into, _END.pack_into

# Field names in snapshots and stored scopes: short, as every job repeats them; unchanged, as old databases are read.
_JOB_NAMES = {
    "queue_number": "ticket",
    "last_event_seq": "noted",
    "waits_for": "asking",
    "active": "moving",
    "dependents_notified": "informed",
    "timer_at": "due",
    "repair_scope": "handling",
}
_SCOPE_NAMES = {
    "has_failed_need": "tainted",
    "kept_for_redrive": "kept",
    "first_failure": "broken",
    "arc_arguments": "given",
}
_STATE_NAMES = {
    "active": "moving",
    "queue_number": "ticket",
    "ahead_candidates": "hopeful",
    "closed_map_totals": "past",
    "scopes_to_drop": "finished",
}


class Cause(Struct, frozen=True, gc=False):
    """The job whose outcome caused a job to be canceled or skipped."""

    step: str
    job: int
    status: str


class Error(Struct, frozen=True, gc=False):
    """The failure that a repair handles, for its `${error.*}` and its environment.

    `inside` are the steps that failed in a child workflow.
    """

    at: float
    attempt: int
    step: str
    failure: Failure
    inside: tuple[str, ...] = ()


class Job(Struct, gc=False, omit_defaults=True, rename=_JOB_NAMES):
    """A step in a scope.

    An `active` job makes progress without outside input; a parked one, or one that waits for its repair, does not. A
    job `waits_for` the engine to evaluate an expression, or for the `inner` steps that run in its place: those of its
    items or its child workflow. `fired` counts the uses of each rule; `rule` is the one being applied, `repair_scope`
    the scope of its repair's steps. `because` is the seq of the event that made the job ready, `last_event_seq` that of
    its own last event. `timer_at` is the end of its wait, or the timeout of its repair or child workflow.

    `attempt_state`: `attempt` is already the number of the next one (`counted`), or that one is reserved while the job
    still waits for its needs (`early`). `visit`: an attempt has `started` since the job was last opened, or a rule has
    `repaired` it. `accepted`: why dependents go on although it did not complete: its failure is `tolerated`, some items
    of its fan-out succeeded (`partial`), it had none (`empty`), a judge skipped it (`judged`), or the run leaves it
    out. A `stale` job starts over when its attempt has ended. `in_doubt`: its attempt was reserved in another boot, or
    before the executor's records were lost. `output_lost`: that of its last attempt. `refused`: why its `when` has no
    answer. `failed_visit`: why a visit failed for good, whatever came later. `child_scope`: that of a child workflow
    that failed; `cached`: the run that completed it. `again`: it goes on with that scope, or (1) its failed items.
    """

    id: int
    scope: int
    step: int
    status: Status = BLOCKED
    attempt: int = 0
    attempt_state: Literal["", "counted", "early"] = ""
    queue_number: int = 0
    tokens: int = 0
    because: int = 0
    last_event_seq: int = 0
    waits_for: Literal["", "when", "arcs", "rule", "calls", "target", "value", "inner"] = ""
    visit: Literal["", "started", "repaired"] = ""
    accepted: Literal["", "tolerated", "partial", "judged", "empty", "left_out"] = ""
    active: bool = False
    dependents_notified: bool = False
    stale: bool = False
    in_doubt: bool = False
    output_lost: bool = False
    refused: str = ""
    failed_visit: str = ""
    timer_at: float = 0.0
    rule: int = NO_RULE
    repair_scope: int = 0
    calls: tuple[str, ...] = ()
    target: str = ""
    callers: tuple[int, ...] = ()
    fired: dict[int, int] | None = None
    error: Error | None = None
    exit_code: int | None = None
    output_job: int = 0
    child_scope: int = 0
    again: int = 0
    cached: int = 0
    memory_bytes: int = 0
    runtime_seconds: float = 0.0
    gpus: tuple[int, ...] = ()
    cause: Cause | None = None

    @property
    def attempts_started(self) -> int:
        """How many attempts have started; a reserved attempt has not."""
        return self.attempt - (self.attempt_state == "counted" or self.status is PENDING)

    @property
    def status_shown(self) -> Status:
        """The status that users see: a job that is reserved early still waits for its needs."""
        return BLOCKED if self.attempt_state == "early" else self.status

    @property
    def hosting(self) -> bool:
        """Do the items of a fan-out, or the steps of a child workflow, run in place of the job?"""
        return self.waits_for == "inner"

    @property
    def runs_attempt(self) -> bool:
        """Is an attempt of the job in flight?"""
        return (self.status is PENDING or self.status is RUNNING) and not self.waits_for

    @property
    def recovered(self) -> bool:
        """Did the job complete thanks to a repair?"""
        return self.visit == "repaired" and self.status is COMPLETED

    @property
    def tolerated(self) -> bool:
        """Did a rule tolerate the job's failure?"""
        return self.accepted == "tolerated"

    @property
    def counts_as_success(self) -> bool:
        """Do dependents go on as after a success?"""
        return self.status is COMPLETED or self.accepted != ""


class Scope(Struct, gc=False, omit_defaults=True, rename=_SCOPE_NAMES):
    """One list of steps that runs, with its counters; `open` counts the jobs that are not terminal.

    Every scope but the root belongs to the job `owner`. A repair's scope holds the steps of that job's rule number
    `rule`; an item's those of the fan-out, for the `number`-th execution of `item`; a child's those of the other
    workflow, with its `inputs`. In a `stopped` scope no job starts any more. `waiting` counts the open needs of each
    step, and `has_failed_need` lists the steps with a failed need. `first_failure` failed the scope. A `nested` scope
    has had inner scopes. A scope that is `kept_for_redrive` has dead letters inside; a repair's then holds the `error`
    that it handles. `outputs` are the values that child workflows captured, by step; `arc_arguments` those that arcs
    carry, by target step. `joining` steps were reached and wait for other paths. `times` has those of all its jobs.
    """

    id: int
    name: str
    first: int
    waiting: list[int]
    kind: Literal["root", "repair", "item", "child"] = "root"
    owner: int = 0
    rule: int = NO_RULE
    depth: int = 0
    item: Item | None = None
    number: int = 0
    turn: int = 0
    started_at: float = 0.0
    inputs: dict[str, Any] = {}
    has_failed_need: set[int] = set()
    open: int = 0
    loops: int = 0
    expired: bool = False
    stopped: bool = False
    ending: bool = False
    nested: bool = False
    kept_for_redrive: bool = False
    error: Error | None = None
    aborted: str = ""
    override: str = ""
    first_failure: ItemFailure | None = None
    values: dict[str, Any] = {}
    outputs: dict[str, dict[str, Any]] = {}
    arc_arguments: dict[str, dict[str, Any]] = {}
    joining: list[int] = []
    times: bytearray = bytearray()


class Queue(Struct, gc=False):
    """First in, first out; a list with a moving head, so that a snapshot can hold it."""

    items: list[int] = []
    head: int = 0

    def push(self, job: int) -> None:
        """Add a job at the end."""
        self.items.append(job)

    def peek(self) -> int:
        """The job at the head, 0 where there is none."""
        return self.items[self.head] if self.head < len(self.items) else 0

    def pop(self) -> None:
        """Drop the head."""
        self.head += 1
        if self.head > 512 and self.head * 2 > len(self.items):
            del self.items[: self.head]
            self.head = 0


class Route(Struct, frozen=True, gc=False):
    """One decision about a failure, or one jump: a line of the summary."""

    at: float
    scope: str
    step: str
    attempt: int
    trigger: Trigger
    action: str
    target: str | None
    rule: str


class Failed(Struct, frozen=True, gc=False):
    """The first failure of a run, for the summary."""

    step: str
    attempt: int
    kind: str
    exit_code: int | None
    message: str


class Plans(dict[int, Plan]):
    """The plans of a state's scopes, by id, each made on first use and then cached: every event reads several."""

    def __init__(self, state: State, root: Plan) -> None:
        super().__init__({ROOT: root})
        self._state = state

    def __missing__(self, scope: int) -> Plan:
        plan = self[scope] = self._state.make_plan(scope)
        return plan


class State(Struct, dict=True, rename=_STATE_NAMES):
    """The complete state of a run.

    `seq` is the number of the last note. `source` is the hash of the workflow file. `touched` lists the jobs whose row
    changed since the engine cleared it. Jobs up to `jobs_before` outside the root scope belong to earlier epochs.
    `items` counts the items of all fan-outs. The next event removes the `scopes_to_drop`: until then their last rows
    can be read. `closed_map_totals` holds the totals of dropped fan-outs, by map. `ahead_candidates` may be reserved
    early. `grants` are by the path of a job. Neither `plans` nor the workflow are in a snapshot, but a `redefinition`.
    """

    plans: ClassVar[Plans]
    seq: int = 0
    epoch: int = 1
    phase: Literal["new", "running", "ending", "ended", "redriving"] = "new"
    verdict: Literal["", "completed", "failed", "canceled"] = ""
    canceled: bool = False
    end_canceled: bool = False
    aborted: str = ""
    override: str = ""
    started_at: float = 0.0
    last_at: float = 0.0
    ended_at: float | None = None
    inputs: dict[str, Any] = {}
    source: str = ""
    redefinition: str = ""
    options: Options = Options()
    capacity: Capacity | None = None
    machine: Machine | None = None
    active: int = 0
    parked: int = 0
    in_flight: int = 0
    early: int = 0
    cpus_used: float = 0.0
    memory_bytes_used: int = 0
    gpus_taken: list[int] = []
    queue_number: int = 0
    last_job: int = 0
    last_scope: int = ROOT
    jobs_before: int = 0
    items: int = 0
    queues: dict[str, Queue] = {}
    ahead_candidates: Queue = msgspec.field(default_factory=Queue)
    scopes: dict[int, Scope] = {}
    jobs: dict[int, Job] = {}
    fans: dict[int, Fan] = {}
    closed_map_totals: dict[str, Fan] = {}
    redrive: Redrive | None = None
    scopes_to_drop: list[int] = []
    memory: dict[str, dict[str, Any]] = {}
    grants: dict[str, Grant] = {}
    routes: list[Route] = []
    first_failure: Failed | None = None
    blocks: Blocks | None = None
    touched: list[int] = []

    @property
    def workflow(self) -> Workflow:
        """The definition that this run follows; not part of a snapshot."""
        workflow: Workflow = self.__dict__["workflow"]
        return workflow

    @property
    def plan(self) -> Plan:
        """The plan of the root scope; not part of a snapshot."""
        return self.plans[ROOT]

    def plan_of(self, scope: int) -> Plan:
        """The plan of any scope."""
        return self.plans[scope]

    def make_plan(self, scope: int) -> Plan:
        """Make the plan of a scope; all items of a fan-out share one."""
        where = self.scopes[scope]
        owner = self.jobs[where.owner]
        if where.kind != "repair":
            return self._inner_plan(owner)
        around = self.plans[owner.scope]
        step, rules = around.steps[owner.step], around.rules[owner.step]
        actions = step.on_success if where.rule == SUCCESS else rules[where.rule].repair
        return Plan(actions.steps if actions is not None else (), None, around.workflow)

    def _inner_plan(self, owner: Job) -> Plan:
        """The plan of the scopes that a fan-out or a child workflow opens; all of them share it."""
        around = self.plan_of(owner.scope)
        plan = around.inner.get(owner.step)
        if plan is None:
            action = around.steps[owner.step].action
            if isinstance(action, Child):
                plan = plan_of(action.workflow)
            else:
                from resile.core.fanout.worktrees import steps_with_worktree

                assert isinstance(action, FanOut)
                plan = Plan(steps_with_worktree(action), None, around.workflow)
            around.inner[owner.step] = plan
        return plan

    def forget(self, scope: int) -> None:
        """Drop a scope with its jobs, and the scopes inside it."""
        where = self.scopes.pop(scope)
        inside = range(where.first, where.first + len(where.waiting))
        if where.nested:
            for other in [found.id for found in self.scopes.values() if found.owner in inside]:
                self.forget(other)
        for number in inside:
            del self.jobs[number]
            self.fans.pop(number, None)
        self.plans.pop(scope, None)

    def step_of(self, job: Job) -> Step:
        """The definition of a job."""
        return self.plans[job.scope].steps[job.step]

    def cause_of(self, job: Job) -> Cause:
        """The cause that a canceled or skipped job records where this job caused it."""
        return Cause(self.step_of(job).name, job.id, STATUS_NAMES[job.status])

    def times(self, job: Job) -> tuple[float | None, float | None]:
        """The times at which a job began and ended; None where it has not."""
        scope = self.scopes.get(job.scope)
        if scope is None:
            return None, None
        began, ended = _read_times(scope.times, TIMES.size * job.step)
        return began or None, ended or None

    def set_began(self, job: Job, at: float) -> None:
        """Record that a job began; it has not ended."""
        _write_times(self.scopes[job.scope].times, TIMES.size * job.step, at, 0.0)

    def set_ended(self, job: Job, at: float) -> None:
        """Record that a job ended, or (at 0) is open again."""
        _write_end(self.scopes[job.scope].times, TIMES.size * job.step + _END.size, at)

    def fan_of(self, job: Job) -> Fan | None:
        """The fan-out of a job; a fan-out of an earlier epoch only where its job stayed completed."""
        fan = self.fans.get(job.id)
        return fan if fan is not None and (fan.epoch == self.epoch or job.status is COMPLETED) else None

    def end_of(self, scope: Scope) -> Job:
        """The job of the `end` of a workflow's scope."""
        return self.jobs[scope.first + self.plans[scope.id].end]

    def is_end(self, job: Job) -> bool:
        """Is this the `end` of its workflow?"""
        return job.step == self.plans[job.scope].end

    def frame_of(self, scope: int) -> Scope:
        """The scope whose variables a job sees first: an item, a child workflow, or the root; a repair has none."""
        where = self.scopes[scope]
        while where.kind == "repair":
            where = self.scopes[self.jobs[where.owner].scope]
        return where

    def scope_around(self, scope: Scope) -> Scope | None:
        """The scope that contains a scope; None for the root."""
        return self.scopes[self.jobs[scope.owner].scope] if scope.owner else None

    def workflow_of(self, scope: int) -> Workflow:
        """The definition that contains the steps of a scope; the run's where the scope has been dropped."""
        return self.plan_of(scope).workflow if scope in self.scopes else self.workflow

    def rules_of(self, job: Job) -> tuple[Rule, ...]:
        """The ladder of a job: its rules in the order in which a failure meets them."""
        return self.plan_of(job.scope).rules[job.step]

    def jobs_in(self, scope: Scope) -> list[Job]:
        """The jobs of a scope, in the order of its steps."""
        return [self.jobs[number] for number in range(scope.first, scope.first + len(scope.waiting))]

    def is_stopping(self, job: Job) -> bool:
        """Is the run, or a scope around this job, stopping? `end` and what runs for it stop only by a second cancel."""
        while not self.is_end(job):
            scope = self.scopes[job.scope]
            if scope.stopped or not scope.owner:
                return scope.stopped or self.canceled or bool(self.aborted)
            job = self.jobs[scope.owner]
        return self.end_canceled

    def job_named(self, name: str, scope: int = ROOT) -> Job | None:
        """The job of a step, searched in a scope and then in those around it, within its workflow."""
        while scope:
            number = self.plan_of(scope).index.get(name)
            if number is not None:
                return self.jobs[self.scopes[scope].first + number]
            where = self.scopes[scope]
            scope = self.jobs[where.owner].scope if where.owner and where.kind != "child" else 0
        return None


def new_state(workflow: Workflow) -> State:
    """A run before its first event, with all jobs of its root scope."""
    return attach(State(), workflow)


def attach(state: State, workflow: Workflow) -> State:
    """Attach the definition to a state, or its redefinition; a definition is stored once, not in every snapshot."""
    if state.redefinition:
        workflow = codec.decode(state.redefinition.encode())
    state.__dict__.update(workflow=workflow, plans=Plans(state, plan_of(workflow)))
    if not state.jobs:
        state.jobs = {number + 1: Job(number + 1, ROOT, number) for number in range(len(state.plan.steps))}
        state.last_job = len(state.jobs)
    return state


def encode(state: State) -> bytes:
    """A snapshot's bytes."""
    try:
        return b"M" + msgspec.msgpack.encode(state)
    except (UnicodeEncodeError, OverflowError):
        # Only JSON can hold bytes that were not UTF-8, which are kept as surrogates, and integers of more than 64 bits.
        import json

        return b"J" + json.dumps(msgspec.to_builtins(state, str_keys=True)).encode()


def decode(data: bytes, workflow: Workflow) -> State:
    """The state that `encode` wrote."""
    if data.startswith(b"M"):
        return attach(msgspec.msgpack.decode(data[1:], type=State), workflow)
    import json

    return attach(msgspec.convert(json.loads(data[1:]), State, str_keys=True), workflow)
