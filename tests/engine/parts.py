"""Performer and Observer without an engine: a folded state, a clock that stands still, output in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resile.core.actions import StartAttempt
from resile.core.events import Capacity, RunStarted
from resile.core.react import react
from resile.engine.evaluation.evaluators import Evaluators
from resile.engine.evaluation.values import Values
from resile.engine.launch import Performer, identity
from resile.engine.outcomes import Observer
from resile.engine.secrets import Hidden
from resile.engine.session import create
from resile.executors.contract import Ended, Launch, Report
from resile.model import codec
from resile.model.failure import Failure, LogRange, Outcome
from resile.model.workflow import Action, Step, Workflow
from resile.store.contract import AttemptRow
from resile.store.memory import MemoryStore
from tests.core.world import flow
from tests.engine.simulated import START, HandClock, MemoryOutput


class Parts:
    """The parts for one workflow that has just started, in a folder of its own."""

    def __init__(self, workflow: Workflow, folder: Path, secrets: tuple[str, ...] = (), **inputs: Any) -> None:
        self.clock = HandClock()
        self.output = MemoryOutput()
        store = MemoryStore()
        first = RunStarted(START, Capacity(parallel=4), inputs)
        row, self.state = create(
            store,
            workflow,
            codec.encode(workflow),
            first,
            output=str(folder),
            directory=str(folder),
        )
        react(self.state, first)
        hidden = Hidden(dict(zip(secrets, secrets, strict=True)))
        values = Values(store, row, self.state, {}, self.output, secrets=hidden)
        evaluators = Evaluators(values, hidden)
        self.performer = Performer(
            self.state,
            values,
            run_env=identity(row.id, 1, str(folder)),
            folder=str(folder),
            directory=str(folder),
            clock=self.clock,
            evaluators=evaluators,
            secrets=hidden,
        )
        self.observer = Observer(
            self.state,
            self.performer,
            values,
            evaluators,
            output=self.output,
            clock=self.clock,
            folder=str(folder),
            secrets=hidden,
        )

    def launch(self, job: int = 1, gpus: tuple[int, ...] = ()) -> Launch:
        """The launch of a job's first attempt."""
        made = self.performer.launch(StartAttempt(job, 1, 0, gpus))
        assert isinstance(made, Launch)
        return made

    def outcome(self, job: int = 1) -> Outcome:
        """The outcome of a job's first attempt, for which nothing is launched."""
        made = self.performer.launch(StartAttempt(job, 1, 0))
        assert isinstance(made, Outcome)
        return made

    def observe(self, report: Report, *, interrupted: bool = False) -> tuple[object, AttemptRow | None]:
        """What the observer makes of a report."""
        return self.observer.observe(report, interrupted=interrupted)

    def end(self, out: bytes = b"", err: bytes = b"", status: int = 0, **fields: object) -> Outcome:
        """The outcome of the first job's attempt, which wrote this and ended with this wait status."""
        log = self.output.write("s", out, err)
        event, _ = self.observe(Ended(1, 1, START, START + 2.0, status, 0.5, 4096, log, **fields))  # type: ignore[arg-type]
        made: Outcome = event.outcome  # type: ignore[attr-defined]
        return made

    def failure(self, out: bytes = b"", err: bytes = b"", status: int = 0, **fields: object) -> Failure:
        """The same of an attempt that failed: why."""
        failure = self.end(out, err, status, **fields).failure
        assert failure is not None
        return failure


def parts_of(folder: Path, action: Action, secrets: tuple[str, ...] = (), **keys: object) -> Parts:
    """The parts for a workflow of one step `a` with this action and these keys."""
    return Parts(flow(Step(name="a", action=action, **keys)), folder, secrets)  # type: ignore[arg-type]


NO_LOG = LogRange("")
