"""`resile rehearse`: applies one step's rules to a simulated failure, and really runs the repairs.

    ancestors (simulated success) --> the step (simulated failure, then success) --> end
                                         |
                                         its rules: handlers, scripts, called steps, nested rules: all real

A rehearsal keeps nothing: the store is in memory, and the output folder is deleted afterwards. A wait before a retry is
reported, not waited for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from resile.commands.documents.answers import Rehearsal, RepairAttempt
from resile.commands.documents.runs import event_of, routes_of
from resile.commands.load import load
from resile.commands.run import EngineListener
from resile.commands.start.inputs import read_pairs
from resile.core.actions import Note, StartAttempt
from resile.core.events import RunStarted
from resile.core.recovery.backoff import delay_seconds
from resile.core.recovery.matching import ladder_of
from resile.core.state import ROOT, Job, State
from resile.engine.clock import clock_of
from resile.engine.paths import epoch_folder
from resile.engine.resources import measure, refuse_misfits
from resile.engine.session import Session, create, take
from resile.errors import ResileError
from resile.executors.contract import readable_output
from resile.executors.outcome import decode_text, signal_name, signature_of
from resile.executors.output import open_output
from resile.model import codec
from resile.model.failure import FAILURE_KINDS, MATCHED_KINDS, Failure, Kind, Outcome
from resile.model.limits import TAIL_BYTES
from resile.model.status import RunStatus, Status
from resile.model.workflow import Need, Noop, Step, Workflow
from resile.store.contract import RunRow, Store
from resile.store.memory import MemoryStore

_SIGTERM, _SIGKILL, _SIGNALS_MAX, _CODES_MAX = 15, 9, 64, 255
# Events of the step's retry, which is only simulated.
_OF_RETRY = ("step_started", "attempt_started", "attempt_succeeded", "step.exit", "step_completed", "step_recovered")
_EXIT_CODES = {"fail": 1, "park": 4, "interrupted": 130}


def parse_failure(text: str, message: str) -> Failure:
    """Parse a failure: `exit:10`, `signal:9`, `signal:TERM`, `timeout`, `oom` …"""
    name, colon, detail = text.partition(":")
    kind = next((known for known in MATCHED_KINDS if known == name), None)
    number = _number(name, detail)
    if kind is None or number is None or (colon and kind not in (Kind.EXIT, Kind.SIGNAL, Kind.CHECK)):
        plain = ", ".join(known for known in MATCHED_KINDS if not FAILURE_KINDS[known].is_numbered)
        hint = f"exit:CODE, signal:NAME or one of {plain}"
        raise ResileError("bad-failure", f"--fail {text!r} is not a failure", hint=hint)
    signal = {Kind.SIGNAL: number, Kind.TIMEOUT: _SIGTERM, Kind.OOM: _SIGKILL}.get(kind)
    code = None if signal is None else 128 + signal
    match kind:
        case Kind.EXIT | Kind.CHECK:
            code, text = number, f"exit code {number}"
        case Kind.SIGNAL:
            text = f"killed by {signal_name(number)}"
        case Kind.TIMEOUT | Kind.OOM:
            text = FAILURE_KINDS[kind].wording
        case _:
            text = kind
    text = f"{text}: {message}" if message else text
    return Failure(kind, text, code, signal, "", message, signature_of(kind, code, text))


def _number(kind: str, detail: str) -> int | None:
    """The number of a failure; 1 if none is needed, None if it is missing or invalid."""
    if not detail:
        return None if kind in FAILURE_KINDS and FAILURE_KINDS[kind].is_numbered else 1
    most = _SIGNALS_MAX if kind == Kind.SIGNAL else _CODES_MAX
    if detail.isascii() and detail.isdigit() and len(detail) <= 3:
        return int(detail) if 0 < int(detail) <= most else None
    if kind != Kind.SIGNAL:
        return None
    import signal

    name = "SIG" + detail.upper().removeprefix("SIG")
    return int(signal.Signals[name]) if name in signal.Signals.__members__ else None


def rehearse(path: str, name: str, failure: Failure, inputs: Sequence[str], listener: EngineListener) -> Rehearsal:
    """Rehearse one step's rules: which fired, what the repairs did, and what would follow."""
    workflow = load(path, None).workflow
    staged = _stage_workflow(workflow, name)
    given = read_pairs(workflow, inputs)
    capacity = measure(workflow.max_parallel, None, None, None)
    refuse_misfits(staged, capacity)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="resile-rehearse-") as folder:
        store = MemoryStore()
        clock = clock_of()
        first = RunStarted(clock.now(), capacity, given, machine=clock.machine)
        row, state = create(store, staged, codec.encode(staged), first, output=folder, directory=os.getcwd())
        stage = _Stage(state, workflow, name, failure, listener)
        session = Session(store, row, stage.state, env=os.environ, listener=stage.listen, clock=clock)
        status = session.drive(
            take(store, row.id),
            [first],
            parallel=capacity.parallel,
            launcher=None,
            ready=lambda engine: listener.on_start(row.id, stage.state, engine.interrupt),
            rehearsal=stage.rehearsal,
        )
        return stage.document(store, row, status)


class _Stage:
    """One rehearsal: the simulated steps, and the events of the others."""

    def __init__(self, state: State, workflow: Workflow, name: str, failure: Failure, listener: EngineListener) -> None:
        self.state = state
        self._workflow = workflow
        self._name = name
        self._failure = failure
        self._listener = listener
        self._notes: list[Note] = []
        self._pretended: set[int] = set()
        self._called: set[str] = {name}

    def rehearsal(self, order: StartAttempt, step: Step) -> Outcome | None:
        """Simulate the steps of the root: the step fails once, others pass. None for repairs, which really run."""
        job = self.state.jobs[order.job]
        if job.scope != ROOT or job.callers:
            return None
        self._pretended.add(job.id)
        if step.name == self._name and order.attempt == 1:
            return Outcome(self._failure.exit_code, self._failure)
        return Outcome(exit_code=0)

    def listen(self, state: State, notes: list[Note]) -> None:
        """Keep the events of the step and its repairs, and pass them to the listener."""
        kept = [note for note in notes if self._matters(note)]
        self._notes += kept
        if kept:
            self._listener.notes(state, kept)

    def _matters(self, note: Note) -> bool:
        """Is this event real? Events of ancestors, `end`, the step's retry, or the run as a whole are not."""
        if note.type in _OF_RETRY and note.step == self._name and note.attempt > 1 and note.scope == "root":
            return False
        if note.type == "route_taken" and note.data["action"] == "run":
            self._called.add(note.data["target"])
        return bool(note.job) and (note.scope != "root" or note.step in self._called)

    def document(self, store: Store, row: RunRow, status: RunStatus) -> Rehearsal:
        """The result of the rehearsal."""
        job = self.state.job_named(self._name)
        assert job is not None
        verdict = "interrupted" if status == "interrupted" else self._verdict(job)
        return Rehearsal(
            step=self._name,
            failure=self._failure,
            verdict=verdict,
            delay_seconds=self._delay(job) if verdict == "retry" else 0.0,
            exit_code=_EXIT_CODES.get(verdict, 0),
            routes=routes_of(self.state),
            repairs=list(self._repairs(store, row)),
            events=[event_of(row.id, note) for note in self._notes],
        )

    def _verdict(self, job: Job) -> str:
        """The result of the ladder, from the status of the step, or from the last rule that let it go on."""
        if job.status is Status.pending_failed:
            return "park"
        if job.status is not Status.completed:
            return "tolerate" if job.tolerated else "fail"
        ways = ("retry", "recovered", "fallback", "goto")
        taken = [route.action for route in self.state.routes if route.step == self._name and route.scope == "root"]
        return next(action for action in reversed(taken) if action in ways)

    def _delay(self, job: Job) -> float:
        step = next(step for step in self._workflow.steps if step.name == self._name)
        rule = ladder_of(step)[list(job.fired or {})[-1]]
        return delay_seconds(rule.wait, 1, f"{self._workflow.name}/{step.name}") if rule.wait is not None else 0.0

    def _repairs(self, store: Store, row: RunRow) -> Iterator[RepairAttempt]:
        """The attempts that really ran, with the tail of their output."""
        output = open_output(epoch_folder(row.output, row.id, row.epoch))
        for tried in store.attempts(row.id):
            if tried.job in self._pretended:
                continue
            job = self.state.jobs[tried.job]
            yield RepairAttempt(
                step=self.state.step_of(job).name,
                scope=self.state.scopes[job.scope].name,
                attempt=tried.attempt,
                exit_code=tried.exit_code,
                message=tried.failure.message if tried.failure is not None else "",
                seconds=round(tried.usage.wall_seconds, 3),
                stdout=decode_text(readable_output(output, tried.log, "out", -TAIL_BYTES)),
                stderr=decode_text(readable_output(output, tried.log, "err", -TAIL_BYTES)),
            )


def _stage_workflow(workflow: Workflow, name: str) -> Workflow:
    """Make the step depend on all its ancestors directly; every other step runs only if it is called."""
    known = {step.name: step for step in workflow.steps}
    if name not in known:
        from difflib import get_close_matches

        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"its steps: {', '.join(list(known)[:20])}"
        raise ResileError("no-such-step", f"{workflow.name} has no step {name!r}", where=workflow.file, hint=hint)
    before = _ancestors(workflow, name)
    steps = {step.name: replace(step, needs=(), arcs=(), called_only=True) for step in workflow.steps}
    for other in (name, *before):
        steps[other] = replace(steps[other], when=None, on_success=None, called_only=False)
    needs = tuple(Need((other,)) for other in known if other in before)
    rules = tuple(replace(rule, wait=None) for rule in known[name].rules)
    steps[name] = replace(steps[name], needs=needs, rules=rules)
    end = Step(name=workflow.end.name, action=Noop())
    return replace(workflow, steps=tuple(steps.values()), end=end)


def _ancestors(workflow: Workflow, name: str) -> set[str]:
    """Every step with a path to this one, by needs or by arcs."""
    sources: dict[str, list[str]] = {
        step.name: [other for need in step.needs for other in need.any_of] for step in workflow.steps
    }
    for step in workflow.steps:
        for arc in step.arcs:
            if arc.step in sources:
                sources[arc.step].append(step.name)
    found: set[str] = set()
    work = [name]
    while work:
        for source in sources[work.pop()]:
            if source != name and source not in found:
                found.add(source)
                work.append(source)
    return found
