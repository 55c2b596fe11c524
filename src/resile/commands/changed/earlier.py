"""What an earlier run knows of its steps: read from its log, epoch by epoch.

    RunStarted, EpochStarted   the definition and the inputs from there on
    AttemptEnded               the last success of each step, with its fingerprint

A step that a run took over from another run (`run --cached`) has the fingerprint that it had there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from resile.core.events import AttemptEnded, EpochStarted, RunStarted
from resile.core.state import State
from resile.engine.replay import fold_log
from resile.model import codec
from resile.model.failure import CHANGING, Fingerprint
from resile.model.nested import path_part
from resile.model.workflow import Child, FanOut, Step, Workflow
from resile.store.contract import Entry, RunRow, Store


class Done(Struct):
    """The last success of a step: its definition and its inputs then, and its fingerprint.

    The fingerprint of a map or a child workflow has all that the steps inside it read and wrote.
    """

    step: Step
    workflow: Workflow
    inputs: Mapping[str, Any]
    source: str
    fingerprint: Fingerprint


class Earlier(Struct):
    """A run: its row, its state, and the last success of each of its steps."""

    row: RunRow
    state: State
    done: dict[str, Done]


class _Reader:
    """Reads one log."""

    def __init__(self, workflow: Workflow) -> None:
        self.done: dict[str, Done] = {}
        self._inputs: Mapping[str, Any] = {}
        self._source = ""
        self._places: dict[int, tuple[str, str]] = {}
        self._follow(workflow)

    def _follow(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._steps = {step.name: step for step in workflow.steps}
        self._hosts = {_scope_of(step): step.name for step in workflow.steps if isinstance(step.action, FanOut | Child)}

    def read(self, entry: Entry) -> None:
        """Read one entry of the log."""
        event = entry.event
        # By job, because not every entry about an attempt has a note.
        self._places |= {note.job: (note.scope, note.step) for note in entry.notes if note.job}
        match event:
            case RunStarted():
                self._inputs, self._source = event.inputs, event.source
                for name, kept in event.cached.steps.items() if event.cached is not None else ():
                    self._add(name, kept.fingerprint)
            case EpochStarted():
                if event.inputs is not None:
                    self._inputs = event.inputs
                if event.definition:
                    self._follow(codec.decode(event.definition.encode()))
                # The code in a file may be other while its definition is the same.
                self._source = event.source or self._source
            case AttemptEnded():
                if event.outcome.failure is None and not event.canceled and event.job in self._places:
                    self._add_attempt(event, *self._places[event.job])

    def _add_attempt(self, event: AttemptEnded, scope: str, step: str) -> None:
        """An attempt of a step succeeded, or one inside a map or a child workflow."""
        if scope == "root":
            if event.outcome.values.get("again") or event.outcome.kept is not None:
                self._go_on(step, event.fingerprint)
            else:
                self._add(step, event.fingerprint)
            return
        host = self._hosts.get(_first_part(scope))
        known = self.done.get(host) if host is not None else None
        if known is not None and event.fingerprint is not None:
            known.fingerprint = _join(known.fingerprint, event.fingerprint)

    def _go_on(self, name: str, fingerprint: Fingerprint | None) -> None:
        """A map or child goes on where it was: what ran in it before counts with what runs now.

        With other inputs than before no single command says what it ran, so it counts as not known.
        """
        known = self.done.get(name)
        if known is None or known.inputs != self._inputs:
            self.done.pop(name, None)
            return
        found = fingerprint or Fingerprint()
        joined = _join(known.fingerprint, found)
        known.fingerprint = joined if found.env == joined.env else replace(joined, env=CHANGING)

    def _add(self, name: str, fingerprint: Fingerprint | None) -> None:
        """Remember the success of a step; that of a map or child before the steps inside it begin."""
        if name in self._steps:
            found = fingerprint or Fingerprint()
            self.done[name] = Done(self._steps[name], self._workflow, self._inputs, self._source, found)


def read_earlier(store: Store, row: RunRow) -> Earlier:
    """Read what a run knows of its steps."""
    reader = _Reader(codec.decode(store.definition(row.definition)))
    for entry in store.entries(row.id):
        reader.read(entry)
    return Earlier(row, fold_log(store, row), reader.done)


def _join(one: Fingerprint, other: Fingerprint) -> Fingerprint:
    """What two attempts depend on; a file that they read in different states matches no state."""
    reads = {**one.reads, **other.reads}
    for path in one.reads.keys() & other.reads.keys():
        if one.reads[path] != other.reads[path]:
            reads[path] = CHANGING
    return replace(one, reads=reads, outputs=tuple({*one.outputs, *other.outputs}))


def _scope_of(step: Step) -> str:
    """How the names of the scopes inside a step begin."""
    scope = step.action.scope if isinstance(step.action, FanOut) else ""
    return path_part(scope or step.name)


def _first_part(scope: str) -> str:
    """The part of a scope's name that names the step of the run itself."""
    at = 0
    while at < len(scope):
        if scope[at] == "\\":
            at += 2
            continue
        if scope[at] in "/[":
            return scope[:at]
        at += 1
    return scope
