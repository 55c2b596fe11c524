"""`resile try`: one step's ladder against a failure that is only supposed, with its repairs run for real."""

from __future__ import annotations

import os
import time
from typing import Any

import msgspec

from resile.core.actions import Note, StartAttempt
from resile.core.events import RunStarted
from resile.core.state import State, new_state
from resile.errors import ResileError
from resile.executors.evidence import signature
from resile.model import codec
from resile.model.failure import Failure, FailureKind, Outcome
from resile.model.status import EXIT_CODES
from resile.model.workflow import Noop, Step, Workflow
from resile.runtime.capacity import measure
from resile.runtime.session import Session, create, take
from resile.store.memory import MemoryStore
from resile.surfaces.documents import event_document, run_document
from resile.surfaces.verbs.load import load, read_inputs

_KINDS: tuple[FailureKind, ...] = ("exit", "signal", "timeout", "oom", "lost", "spawn", "check", "contract")


def supposed(text: str, message: str) -> Failure:
    """A failure as people write it: `exit:10`, `signal:9`, `timeout`, `oom` …"""
    kind, _, number = text.partition(":")
    if kind not in _KINDS or (number and not number.isdigit()) or (kind in ("exit", "signal") and not number):
        kinds = ", ".join(_KINDS)
        raise ResileError(
            "bad-failure", f"--fail {text!r} is not a failure", hint=f"exit:CODE, signal:N or one of {kinds}"
        )
    code = int(number) if kind == "exit" else 128 + int(number) if kind == "signal" else None
    signal = int(number) if kind == "signal" else None
    said = message or (f"{kind} {number}".strip() + " (supposed)")
    return Failure(kind, said, code, signal, "", said, signature(kind, code, said))


def rehearse(path: str, name: str, failure: Failure, inputs: list[str], watcher: Any) -> dict[str, Any]:
    """Walk one step's ladder: what fired, what the repairs did, what would happen then."""
    workflow = _stage(load(path, None)[0], name)
    given = read_inputs(workflow, inputs, [])
    import tempfile

    with tempfile.TemporaryDirectory(prefix="resile-try-") as folder:
        store = MemoryStore()
        definition = codec.encode(workflow)
        row = create(store, workflow, definition, output=folder, directory=os.getcwd())
        state = new_state(workflow)
        notes: list[Note] = []

        def rehearsal(order: StartAttempt, step: Step) -> Outcome | None:
            """The step itself is not run: its first attempt fails as supposed, a later one passes."""
            if step.name != name or state.jobs[order.job].scope != 1:
                return None
            return Outcome(failure.exit_code, failure) if order.attempt == 1 else Outcome(exit_code=0)

        session = Session(store, row, state, env=os.environ, listener=lambda _state, more: notes.extend(more))
        capacity = measure(None, None, None, None)
        first = RunStarted(time.time(), capacity, given)
        status = session.drive(
            take(store, row.id),
            [first],
            parallel=capacity.parallel,
            launcher=None,
            ready=lambda engine: watcher.started(row.id, state, engine.interrupt),
            rehearsal=rehearsal,
        )
        document = run_document(row, state, status, time.time())
        verdict = _verdict(state, name)
        return {
            "step": name,
            "failure": msgspec.to_builtins(failure),
            "verdict": verdict,
            "exit_code": 4 if status == "parked" else 1 if verdict == "fail" else EXIT_CODES["completed"],
            "routes": [route for route in document["routes"] if route["trigger"] != "next"],
            "events": [event_document(row.id, note) for note in notes],
        }


def _verdict(state: State, name: str) -> str:
    """What the ladder decided last about the step."""
    decided = [route.action for route in state.routes if route.step == name and route.scope == "root"]
    return decided[-1] if decided else "fail"


def _stage(workflow: Workflow, name: str) -> Workflow:
    """The step alone: what it needs is only named, what its rules call for is real."""
    known = {step.name: step for step in workflow.steps}
    if name not in known:
        raise ResileError(
            "no-such-step",
            f"{workflow.name} has no step {name!r}",
            where=workflow.file,
            hint=f"its steps: {', '.join(known)}",
        )
    before: list[str] = []
    work = [name]
    while work:
        for need in known[work.pop()].needs:
            for other in need.any_of:
                if other not in before:
                    before.append(other)
                    work.append(other)
    kept: list[Step] = []
    for step in workflow.steps:
        if step.name == name:
            kept.append(msgspec.structs.replace(step, when=None, arcs=(), on_success=None))
        elif step.name in before:
            kept.append(Step(name=step.name, action=Noop(), needs=step.needs))
        elif step.called_only:
            kept.append(step)
    end = Step(name=workflow.end.name, action=Noop())
    return msgspec.structs.replace(workflow, steps=tuple(kept), end=end)
