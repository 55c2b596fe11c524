"""A tiny world for the core: it performs orders at once and in order, with outcomes that the test dictates."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from resile.core.actions import (
    AnswerArcs,
    AnswerCondition,
    AnswerRoute,
    AnswerValue,
    FindAttempt,
    KillAttempt,
    Note,
    Order,
    SetTimer,
    StartAttempt,
    StopEngine,
)
from resile.core.events import (
    ArcsAnswered,
    AttemptEnded,
    AttemptStarted,
    AttemptWithdrawn,
    Capacity,
    ConditionAnswered,
    Event,
    RouteAnswered,
    RunStarted,
    TimerFired,
    ValueAnswered,
)
from resile.core.react import react
from resile.core.state import ROOT, State, decode, encode, new_state
from resile.model.failure import Failure, Outcome
from resile.model.workflow import EDITION, Noop, Step, Workflow
from tests.core.invariants import broken_invariants

OK = Outcome(exit_code=0)


def failed(code: int = 1, kind: str = "exit", signal: int | None = None) -> Outcome:
    """An outcome that failed."""
    return Outcome(exit_code=code, failure=Failure(kind, f"exit code {code}", code, signal))  # type: ignore[arg-type]


def flow(*steps: Step, end: Step | None = None, **keys: object) -> Workflow:
    """A workflow of these steps."""
    closing = end or Step(name="end", action=Noop())
    fixed: dict[str, object] = {"edition": EDITION, **keys}
    return Workflow(name="t", dialect="native", file="t.yaml", folder=".", steps=steps, end=closing, **fixed)  # type: ignore[arg-type]


class World:
    """Drives one run. `outcome(step, attempt)` says how an attempt ends, `truth(step)` answers conditions."""

    def __init__(
        self,
        workflow: Workflow,
        outcome: Callable[[str, int], Outcome] = lambda _step, _attempt: OK,
        truth: Callable[[str], bool] = lambda _step: True,
        parallel: int = 1,
        route: Callable[[str, str], RouteAnswered] | None = None,
    ) -> None:
        self.state: State = new_state(workflow)
        self.outcome, self.truth, self.route = outcome, truth, route
        self.clock = 0.0
        self.orders: list[Order] = []
        self.notes: list[Note] = []
        self.log: list[Event] = []
        self.executed: list[str] = []
        self.ended: str | None = None
        self.capacity = Capacity(parallel=parallel, cpus=4, memory_bytes=1000, gpus=2)

    def feed(self, event: Event) -> list[Order]:
        """One event through the door, with every invariant checked after it."""
        self.log.append(event)
        self.state, actions = react(self.state, event)
        self.state.touched.clear()
        assert broken_invariants(self.state) == []
        orders: list[Order] = []
        for action in actions:
            if isinstance(action, Note):
                self.notes.append(action)
            else:
                orders.append(action)
        self.orders += orders
        return orders

    def start(self) -> World:
        """The first event."""
        self.feed(RunStarted(self.clock, self.capacity))
        return self

    def perform(self) -> None:
        """Carry out the oldest order."""
        order = self.orders.pop(0)
        self.clock += 1.0
        match order:
            case StartAttempt():
                name = self.name(order.job)
                self.executed.append(name)
                self.feed(AttemptStarted(self.clock, order.job, order.attempt))
                self.feed(AttemptEnded(self.clock, order.job, order.attempt, self.outcome(name, order.attempt)))
            case AnswerCondition():
                self.feed(ConditionAnswered(self.clock, order.job, self.truth(self.name(order.job))))
            case AnswerArcs():
                step = self.state.step_of(self.state.jobs[order.job])
                answers = tuple(arc.when is None or self.truth(f"{step.name}->{arc.step}") for arc in step.arcs)
                self.feed(ArcsAnswered(self.clock, order.job, answers))
            case AnswerRoute():
                assert self.route is not None
                answer = self.route(self.name(order.job), order.about)
                self.feed(structs.replace(answer, at=self.clock, job=order.job))
            case AnswerValue():
                answer = self.outcome(f"value of {self.name(order.job)}", order.attempt)
                error = self.state.jobs[order.job].error
                outcome = answer if error is None else Outcome(1, error.failure)
                self.feed(ValueAnswered(self.clock, order.job, order.attempt, outcome))
            case SetTimer(repair=True):
                pass
            case SetTimer():
                self.clock = max(self.clock, order.due)
                self.feed(TimerFired(self.clock, order.job, order.attempt))
            case KillAttempt():
                self.feed(AttemptEnded(self.clock, order.job, order.attempt, failed(143, "canceled"), canceled=True))
            case FindAttempt():
                self.feed(AttemptWithdrawn(self.clock, order.job, order.attempt))
            case StopEngine():
                self.ended = order.status

    def run(self) -> World:
        """Start and go on until the engine may stop; a run that does not end fails here."""
        self.start()
        for _ in range(10_000):
            if not self.orders:
                break
            self.perform()
        assert self.ended is not None
        return self

    def name(self, job: int) -> str:
        """The step of a job."""
        return self.state.step_of(self.state.jobs[job]).name

    def statuses(self) -> dict[str, str]:
        """Each step's status by name."""
        return {self.name(job.id): job.status.name for job in self.state.jobs.values() if job.scope == ROOT}

    def types(self, step: str | None = None) -> list[str]:
        """The canonical events (of one step), in order."""
        return [note.type for note in self.notes if step is None or note.step == step]

    def replayed(self) -> State:
        """The log folded again, through a snapshot taken in the middle."""
        state = new_state(self.state.workflow)
        for number, event in enumerate(self.log):
            state, _ = react(state, event)
            state.touched.clear()
            if number == len(self.log) // 2:
                state = decode(encode(state), self.state.workflow)
        return state
