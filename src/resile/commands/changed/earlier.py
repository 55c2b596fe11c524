"""The last success of each step of an earlier run, read from its log, epoch by epoch.

    RunStarted, EpochStarted   the definition and the inputs of all later entries
    AttemptEnded               the last success of each step, with its fingerprint
    notes of repairs           the steps that ran for another one (helpers.py)

A step that a run took over from another run (`run --cached`) keeps its fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from resile.commands.changed.helpers import as_helper, helper_scopes, join
from resile.core.actions import Note
from resile.core.events import AttemptEnded, EpochStarted, RunStarted
from resile.core.state import State
from resile.engine.replay import fold_log
from resile.model import codec
from resile.model.failure import CHANGING, Fingerprint
from resile.model.nested import path_part, step_name
from resile.model.workflow import Child, FanOut, Step, Workflow
from resile.store.contract import Entry, RunRow, Store


class Done(Struct):
    """The last success of a step: its definition and inputs at that time, and its fingerprint.

    The fingerprint of a map or a child workflow has all files that its inner steps read and wrote.
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
        # For each step since its start: what its helpers depend on. Then, whether the step has passed.
        self._helped: dict[str, Fingerprint] = {}
        self._calls: dict[str, list[str]] = {}
        self._passed: set[str] = set()
        self._follow(workflow)

    def _follow(self, workflow: Workflow) -> None:
        """Use this definition for the following entries."""
        self._workflow = workflow
        self._steps = {step.name: step for step in workflow.steps}
        self._hosts = {_scope_of(step): step.name for step in workflow.steps if isinstance(step.action, FanOut | Child)}
        self._helper_scopes = helper_scopes(workflow)

    def read(self, entry: Entry) -> None:
        """Read one entry of the log."""
        event = entry.event
        # Remember the step of each job, because not every entry about an attempt has a note.
        self._places |= {note.job: (note.scope, note.step) for note in entry.notes if note.job}
        # One entry may have both the start and the end of an attempt.
        ends_at = next((at for at, note in enumerate(entry.notes) if note.type == "attempt_succeeded"), 0)
        for note in entry.notes[:ends_at]:
            self._follow_helpers(note)
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
                # The code in a file may change while the definition stays the same.
                self._source = event.source or self._source
            case AttemptEnded():
                if event.outcome.failure is None and not event.canceled and event.job in self._places:
                    self._add_attempt(event, *self._places[event.job])
        for note in entry.notes[ends_at:]:
            self._follow_helpers(note)

    def _add_attempt(self, event: AttemptEnded, scope: str, step: str) -> None:
        """Add the success of an attempt: of a step, of a helper, or inside a map or a child workflow."""
        if scope == "root":
            if event.outcome.values.get("again") or event.outcome.kept is not None:
                self._go_on(step, event.fingerprint)
            else:
                self._add(step, event.fingerprint)
            return
        host = self._hosts.get(_first_part(scope))
        if host is None and (helped := self._helper_scopes.get(_first_part(scope))) is not None:
            self._help(helped, as_helper(step_name(scope, step), event.fingerprint))
            return
        known = self.done.get(host) if host is not None else None
        if known is not None and event.fingerprint is not None:
            known.fingerprint = join(known.fingerprint, event.fingerprint)

    def _go_on(self, name: str, fingerprint: Fingerprint | None) -> None:
        """Join the earlier fingerprint of a map or child workflow, which goes on where it was, with the new one.

        If the inputs have changed, no single command describes what ran, so the success is forgotten.
        """
        known = self.done.get(name)
        if known is None or known.inputs != self._inputs:
            self.done.pop(name, None)
            return
        found = fingerprint or Fingerprint()
        joined = join(known.fingerprint, found)
        known.fingerprint = joined if found.env == joined.env else replace(joined, env=CHANGING)

    def _add(self, name: str, fingerprint: Fingerprint | None) -> None:
        """Remember the success of a step; a map or a child workflow succeeds before its inner steps begin."""
        if name in self._steps:
            found = join(fingerprint or Fingerprint(), self._helped.get(name) or Fingerprint())
            self._passed.add(name)
            self.done[name] = Done(self._steps[name], self._workflow, self._inputs, self._source, found)

    def _follow_helpers(self, note: Note) -> None:
        """Note which helpers run for which steps."""
        if note.scope != "root":
            return
        if note.type == "step_started":
            self._helped.pop(note.step, None)
            self._passed.discard(note.step)
        elif note.type == "repair_started":
            self._calls[note.step] = note.data["calls"]
        elif note.type == "repair_finished":
            for name in self._calls.pop(note.step, ()):
                known = self.done.get(name)
                self._help(note.step, as_helper(name, known.fingerprint if known is not None else None))

    def _help(self, name: str, found: Fingerprint) -> None:
        """Add what a helper of this step depends on; it may run before the step's success or after."""
        self._helped[name] = join(self._helped.get(name) or Fingerprint(), found)
        if name in self._passed:
            self.done[name].fingerprint = join(self.done[name].fingerprint, found)


def read_earlier(store: Store, row: RunRow) -> Earlier:
    """Read the last success of each step of a run."""
    reader = _Reader(codec.decode(store.definition(row.definition)))
    for entry in store.entries(row.id):
        reader.read(entry)
    return Earlier(row, fold_log(store, row), reader.done)


def _scope_of(step: Step) -> str:
    """The beginning of the names of all scopes inside a step."""
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
