"""Finds the steps that must run again: those that changed since an earlier run, and all steps below them.

    new       the earlier file did not have it, or it did not complete
    command   its command (shape.py) or its environment has changed
    reads     the contents of a file that it reads have changed
    outputs   a file that it wrote is missing, or its output is lost
    needs     a step that it needs runs again, or it needs other steps than before

A step without `reads` and `outputs` depends on the steps that it needs, so it also changes when its needs change.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from resile.commands.changed.earlier import Done, Earlier
from resile.commands.changed.helpers import helper_steps
from resile.commands.changed.shape import Shapes
from resile.commands.documents.changes import ChangedStep, Changes
from resile.core.state import ROOT, Job
from resile.engine.fingerprints.digests import Digests
from resile.engine.fingerprints.record import hash_variables, paths_read, texts_in, variables_in, variables_named
from resile.engine.secrets import surroundings_of
from resile.languages.registry import language_of
from resile.model.status import COMPLETED, FAILED, SKIPPED, STATUS_NAMES, status_clause
from resile.model.workflow import Child, FanOut, Function, Step, Workflow

Reason = Literal["command", "reads", "outputs", "needs", "new"]


class Change(NamedTuple):
    """Why a step runs again."""

    step: str
    reason: Reason
    detail: str


class Now(NamedTuple):
    """The workflow, inputs and environment of now; `source` is the hash of the workflow file."""

    workflow: Workflow
    inputs: Mapping[str, Any]
    source: str
    directory: str
    env: Mapping[str, str]


def find_changes(earlier: Earlier | None, now: Now, folder: str) -> list[Change]:
    """The steps that run again, in the order of the file; `folder` has the cache of digests."""
    comparison = _Comparison(earlier, now, folder)
    found = {change.step: change for change in below(now.workflow, comparison.own_changes())}
    for step in now.workflow.steps:
        if step.name in comparison.not_started and step.name in found:
            # The step did not run because of a step that it needs; name that step as the reason.
            needed = [name for need in step.needs for name in need.any_of if name in found]
            if needed:
                found[step.name] = Change(step.name, "needs", f"{needed[0]} runs again")
    return list(found.values())


def document_of(changes: list[Change]) -> Changes:
    """The changes as a document."""
    return Changes(steps=[ChangedStep(*change) for change in changes])


class _Comparison:
    """Compares the steps of a workflow with those of an earlier run."""

    def __init__(self, earlier: Earlier | None, now: Now, folder: str) -> None:
        self._now = now
        # The steps that did not start, or did not end; none of them failed.
        self.not_started: set[str] = set()
        self._done = earlier.done if earlier is not None else {}
        self._jobs: dict[str, Job] = {}
        self._run = ""
        if earlier is not None:
            state = earlier.state
            self._run = f"run {earlier.row.id}"
            self._jobs = {state.step_of(job).name: job for job in state.jobs.values() if job.scope == ROOT}
            self._fans = {name: state.fans[job.id] for name, job in self._jobs.items() if job.id in state.fans}
            self._last = Shapes(state.workflow, state.inputs)
            self._last_steps = {step.name: step for step in state.workflow.steps}
        self._shapes = Shapes(now.workflow, now.inputs)
        self._helper_steps = helper_steps(now.workflow)
        self._env, _, self._hidden = surroundings_of(now.workflow, now.env)
        self._digests = Digests(folder)
        self._mark = language_of(now.workflow).mark

    def own_changes(self) -> dict[str, Change]:
        """The steps that changed themselves, without those that only follow a changed step."""
        steps = [step for step in self._now.workflow.steps if not step.called_only]
        found = {step.name: change for step in steps if (change := self._change_of(step)) is not None}
        rest = [step for step in steps if step.name not in found and step.name in self._done]
        return found | self._changes_of_files([step for step in rest if self._jobs[step.name].status is COMPLETED])

    def _change_of(self, step: Step) -> Change | None:
        """The change of a step, apart from files."""
        job, done = self._jobs.get(step.name), self._done.get(step.name)
        if job is None:
            return Change(step.name, "new", "the file did not have it" if self._run else "no run has completed yet")
        if job.status is SKIPPED and not job.accepted:
            return self._change_of_skipped(step)
        if job.status is not COMPLETED:
            changed = done is None and step.name in self._last_steps and self._differs_from_last(step)
            status = status_clause(STATUS_NAMES[job.status])
            if changed or (done is not None and self._differs(step, done)):
                return Change(
                    step.name, "command", f"its command differs from the one in {self._run}, where it {status}"
                )
            if job.status is not FAILED:
                self.not_started.add(step.name)
            return Change(step.name, "new", f"in {self._run} it {status}")
        fan = self._fans.get(step.name)
        if fan is not None and (fan.failed or fan.held):
            return Change(step.name, "new", f"in {self._run} items of it failed")
        if done is None:
            return Change(step.name, "new", f"in {self._run} it did not pass by itself")
        return self._change_of_done(step, job, done)

    def _change_of_done(self, step: Step, job: Job, done: Done) -> Change | None:
        """The change of a step that completed, apart from files."""
        helpers = self._helpers_of(done)
        for folder, action in _functions_of([step, *(one for _, one in helpers)], self._now.workflow):
            if problem := self._changed_code(action, folder, done):
                return Change(step.name, "command", problem)
        if self._differs(step, done):
            return Change(step.name, "command", "what it runs is not what it ran")
        before = done.fingerprint
        for one, env in [(step, before.env), *((one, before.helpers[name]) for name, one in helpers)]:
            names = variables_in(one, self._now.workflow.env)
            if names and hash_variables(names, self._env, self._hidden) != env:
                return Change(step.name, "command", f"the environment has changed: {', '.join(names)}")
        if job.output_lost:
            return Change(step.name, "outputs", "what it printed is lost")
        depends_on_needs = not (step.reads or step.outputs)
        if depends_on_needs and self._shapes.needs(step) != self._shapes.needs(done.step):
            return Change(step.name, "needs", "it needs other steps than it did")
        return None

    def _change_of_skipped(self, step: Step) -> Change | None:
        """The change of a step that was skipped; the new run or epoch decides anew whether to skip it."""
        before = self._last_steps[step.name]
        if names := variables_named(texts_in(msgspec.to_builtins(step.when))):
            # A step that did not run has no record of the environment.
            return Change(step.name, "command", f"whether it runs depends on the environment: {', '.join(names)}")
        if self._differs_from_last(step):
            return Change(step.name, "command", "what it runs, or when, is not what it was")
        if self._shapes.needs(step) != self._shapes.needs(before):
            return Change(step.name, "needs", "it needs other steps than it did")
        return None

    def _helpers_of(self, done: Done) -> list[tuple[str, Step]]:
        """The present definitions of the helpers that ran for a completed step, with their names."""
        return [(name, step) for name in done.fingerprint.helpers for step in self._helper_steps.get(name, ())]

    def _differs(self, step: Step, done: Done) -> bool:
        """Does the command of a step, or of one of its helpers, differ from that of the step's last success?"""
        helpers = done.fingerprint.helpers
        before = Shapes(done.workflow, done.inputs).command(done.step, helpers)
        return bool(self._shapes.command(step, helpers) != before)

    def _differs_from_last(self, step: Step) -> bool:
        """Does the command of a step that has not succeeded differ from that in the earlier run?"""
        return bool(self._shapes.command(step) != self._last.command(self._last_steps[step.name]))

    def _changed_code(self, action: Function, folder: str, done: Done) -> str:
        """Why the code of a function counts as changed; empty if it has not changed."""
        workflow = self._now.workflow
        is_own = (folder, os.path.basename(action.file)) == (workflow.folder, os.path.basename(workflow.file))
        if not self._now.source or action.module or not is_own:
            return "its code is not in the workflow file, and only that is compared"
        return "the workflow file with its code has changed" if self._now.source != done.source else ""

    def _changes_of_files(self, steps: list[Step]) -> dict[str, Change]:
        """The changes of the files that steps read and write; all digests are computed together."""
        reads = {step.name: self._paths_of(step) for step in steps}
        digests = self._digests.of(dict.fromkeys(path for paths in reads.values() for path in paths))
        found: dict[str, Change] = {}
        for step in steps:
            before = self._done[step.name].fingerprint
            changed = [path for path in reads[step.name] if before.reads.get(path) != digests[path]]
            missing = [path for path in self._outputs_of(step) if not os.path.lexists(path)]
            if changed:
                parts = [
                    (self._list_paths([path for path in changed if digests[path]]), "changed"),
                    (self._list_paths([path for path in changed if not digests[path]]), "is missing"),
                ]
                text = ", ".join(f"{paths} {verb}" for paths, verb in parts if paths)
                found[step.name] = Change(step.name, "reads", text)
            elif missing:
                found[step.name] = Change(step.name, "outputs", f"{self._list_paths(missing)} is missing")
        return found

    def _paths_of(self, step: Step) -> list[str]:
        """The paths that a step would read now. If only a run can compute them, the paths that the step read before."""
        before = self._done[step.name]
        texts = (step.working_dir, *step.reads)
        known = [self._shapes.text(text) for text in texts]
        inner = list(before.fingerprint.reads)
        if any(self._mark in text for text in known):
            same = texts == (before.step.working_dir, *before.step.reads)
            return inner if same else [*inner, *(os.path.join(self._now.directory, text) for text in known[1:])]
        directory = os.path.join(self._now.directory, known[0])
        own = paths_read(step, self._shapes.text, self._now.workflow.folder, directory)
        # The steps inside a map or a child workflow, and the helpers of a step, have read files, too.
        has_others = isinstance(step.action, FanOut | Child) or before.fingerprint.helpers
        return list(dict.fromkeys((*own, *inner))) if has_others else own

    def _outputs_of(self, step: Step) -> list[str]:
        """The files that a step and its helpers have written."""
        before = self._done[step.name]
        written = list(before.fingerprint.outputs)
        own = self._outputs_named(step)
        for name, one in self._helpers_of(before):
            # Other helpers compute their paths when they run: the fingerprint has those.
            if one.name == name:
                written += self._outputs_named(one)
        return own if own and not before.fingerprint.helpers else [*own, *written]

    def _outputs_named(self, step: Step) -> list[str]:
        """The files that a step's definition says it writes; none if only a run can compute the paths."""
        known = [self._shapes.text(text) for text in (step.working_dir, *step.outputs)]
        if any(self._mark in text for text in known):
            return []
        directory = os.path.join(self._now.directory, known[0])
        return [os.path.abspath(os.path.join(directory, text)) for text in known[1:]]

    def _list_paths(self, paths: list[str]) -> str:
        """A few paths, as seen from the folder of the run."""
        shown = [os.path.relpath(path, self._now.directory) for path in paths[:3]]
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        return ", ".join(path if not path.startswith("../..") else paths[at] for at, path in enumerate(shown)) + more


def _functions_of(steps: Iterable[Step], workflow: Workflow) -> Iterator[tuple[str, Function]]:
    """The functions that steps call, also in items or child workflows, with the folders of their files."""
    work = [(step, workflow) for step in steps]
    while work:
        one, around = work.pop()
        if isinstance(one.action, Function):
            yield around.folder, one.action
        elif isinstance(one.action, FanOut):
            work += [(inner, around) for inner in one.action.steps]
        elif isinstance(one.action, Child):
            child = one.action.workflow
            work += [(inner, child) for inner in (*child.steps, child.end)]
        if one.on_success is not None:
            work += [(inner, around) for inner in one.on_success.steps]


def below(workflow: Workflow, found: dict[str, Change]) -> list[Change]:
    """The changes with those of all steps below, in the order of the file.

    Several steps may have arcs to one step. If one of these sources runs again, all of them do, because the log does
    not say which of them led there.
    """
    onward: dict[str, list[str]] = {step.name: [] for step in workflow.steps}
    sources: dict[str, list[str]] = {}
    for step in workflow.steps:
        for arc in step.arcs:
            if arc.step in onward:
                onward[step.name].append(arc.step)
                sources.setdefault(arc.step, []).append(step.name)
        for name in (name for need in step.needs for name in need.any_of):
            onward[name].append(step.name)
    called = {step.name for step in workflow.steps if step.called_only}
    work = deque(found)
    while work:
        name = work.popleft()
        beside = [other for target in onward[name] for other in sources.get(target, ()) if name in sources[target]]
        for other in (*onward[name], *beside):
            if other not in found and other not in called:
                found[other] = Change(other, "needs", f"{name} runs again")
                work.append(other)
    return [found[step.name] for step in workflow.steps if step.name in found]
