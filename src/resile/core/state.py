"""The folded state of one run. Only `react` changes it; a snapshot is its encoding.

State
  scopes  {id: Scope}    counters of one place where steps run (the root is 1)
  jobs    {id: Job}      a step in a scope
  queues  {key: Queue}   ready jobs, one queue for each share of the machine
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from resile.core.events import Capacity, Options
from resile.core.plan import Plan, plan_of
from resile.model.rules import Trigger
from resile.model.status import Status
from resile.model.workflow import Step, Workflow

FORMAT = 1
ROOT = 1


class Cause(Struct, frozen=True, gc=False):
    """Why a job was canceled or skipped: the job whose outcome decided it."""

    step: str
    job: int
    status: str


class Job(Struct, gc=False, omit_defaults=True):
    """A step in a scope. `fired` counts each rule's firings; `because` is the seq that made it ready."""

    id: int
    scope: int
    step: int
    status: Status = Status.blocked
    attempt: int = 0
    ticket: int = 0
    tokens: int = 0
    informed: bool = False
    because: int = 0
    noted: int = 0
    asking: Literal["", "when", "arcs"] = ""
    announced: bool = False
    recovered: bool = False
    tolerated: bool = False
    due: float = 0.0
    exit_code: int | None = None
    fired: dict[int, int] | None = None
    gpus: tuple[int, ...] = ()
    cause: Cause | None = None
    started_at: float | None = None
    ended_at: float | None = None


class Scope(Struct, gc=False, omit_defaults=True):
    """Counters of one place where steps run. `open` jobs are not terminal, `active` ones will move by themselves."""

    id: int
    name: str
    first: int
    waiting: list[int]
    tainted: set[int] = set()
    open: int = 0
    active: int = 0
    parked: int = 0
    loops: int = 0
    values: dict[str, Any] = {}


class Queue(Struct, gc=False):
    """First in, first out; a list with a moving head, because a snapshot must hold it."""

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
    """One answer to a failure, or one jump: a line of the summary."""

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


class State(Struct, dict=True):
    """Everything the core knows of a run.

    `seq` is the number of the last note. `touched` lists the jobs whose row changed since the driver cleared it.
    """

    seq: int = 0
    epoch: int = 1
    phase: Literal["new", "running", "ending", "ended"] = "new"
    verdict: Literal["", "completed", "failed", "canceled"] = ""
    canceled: bool = False
    aborted: str = ""
    override: str = ""
    started_at: float = 0.0
    ended_at: float | None = None
    inputs: dict[str, Any] = {}
    options: Options = Options()
    capacity: Capacity | None = None
    in_flight: int = 0
    cpus_used: float = 0.0
    memory_bytes_used: int = 0
    gpus_free: list[int] = []
    ticket: int = 0
    queues: dict[str, Queue] = {}
    scopes: dict[int, Scope] = {}
    jobs: dict[int, Job] = {}
    routes: list[Route] = []
    first_failure: Failed | None = None
    touched: list[int] = []

    @property
    def workflow(self) -> Workflow:
        """The definition this run follows; not part of a snapshot."""
        workflow: Workflow = self.__dict__["workflow"]
        return workflow

    @property
    def plan(self) -> Plan:
        """The shape of the root scope; not part of a snapshot."""
        plan: Plan = self.__dict__["plan"]
        return plan

    def step_of(self, job: Job) -> Step:
        """The definition of a job."""
        return self.plan.steps[job.step]

    def job_named(self, name: str) -> Job | None:
        """The job of a step of the root scope."""
        number = self.plan.index.get(name)
        return None if number is None else self.jobs[self.scopes[ROOT].first + number]


def new_state(workflow: Workflow) -> State:
    """A run before its first event: every job is there, nothing has happened."""
    return attach(State(), workflow)


def attach(state: State, workflow: Workflow) -> State:
    """Give a state its definition, which is stored once and not in every snapshot."""
    state.__dict__["workflow"] = workflow
    state.__dict__["plan"] = plan_of(workflow)
    if not state.jobs:
        plan = state.plan
        state.jobs = {number + 1: Job(number + 1, ROOT, number) for number in range(len(plan.steps))}
    return state


def encode(state: State) -> bytes:
    """A snapshot's bytes."""
    return msgspec.msgpack.encode(state)


def decode(data: bytes, workflow: Workflow) -> State:
    """The state that `encode` wrote."""
    return attach(msgspec.msgpack.decode(data, type=State), workflow)
