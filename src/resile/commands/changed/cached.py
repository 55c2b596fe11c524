"""`run --cached`: a new run that takes over the results of unchanged steps from the last completed run of its workflow.

    last completed run --> changes (compare.py) --> RunStarted(cached): values, exit codes, fingerprints
                       --> links to the output of its steps, in the folder of epoch 0 of the new run

Afterwards the new run no longer needs the earlier one, which may be deleted. Two kinds of results stay with the run
that made them: those of a map's items, and outputs captured as files. If a step that runs uses such results, the map or
step that made them runs again, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from resile.commands.changed.compare import Change, Now, below, document_of, find_changes
from resile.commands.changed.earlier import Earlier, read_earlier
from resile.commands.start.prepare import prepare
from resile.commands.start.uses import Uses
from resile.core.events import Cached, CachedStep
from resile.core.state import ROOT, Job, State
from resile.engine.journal import Journal
from resile.engine.paths import epoch_folder
from resile.executors.contract import STREAMS, OutputLost
from resile.executors.output import link_output, open_output
from resile.model.folders import make_folder, sync_folder
from resile.model.status import COMPLETED
from resile.model.workflow import FanOut, Step, Workflow
from resile.store.contract import AttemptRow, Lease, RunRow, Store

if TYPE_CHECKING:
    from resile.commands.documents.changes import Changes
    from resile.commands.load import Loaded
    from resile.commands.start.call import RunCall
    from resile.commands.store_handle import StoreHandle

EPOCH = 0
_RUNS_AT_ONCE = 100


class TakeOver:
    """The results that a new run takes over: a part of its first event, and the attempts whose output it links to."""

    def __init__(
        self, changes: list[Change], earlier: Earlier | None, workflow: Workflow, rows: dict[str, AttemptRow]
    ) -> None:
        self.changes = changes
        self._earlier = earlier
        self._rows = rows
        self.event = _event_of(earlier, workflow, {change.step for change in changes}) if earlier is not None else None

    def copy_outputs(self, store: Store, row: RunRow, state: State, lease: Lease) -> None:
        """Give the new run the output of the steps that it takes over: links, or copies on another file system."""
        if self._earlier is None or self.event is None:
            return
        folder = epoch_folder(row.output, row.id, EPOCH)
        make_folder(folder)
        numbers = {state.step_of(job).name: job.id for job in state.jobs.values() if job.scope == ROOT}
        rows = [
            replace(_link_output(self._earlier.row, self._rows[name], folder), job=numbers[name], epoch=EPOCH)
            for name in self.event.steps
            if name in self._rows
        ]
        sync_folder(folder)
        writer = store.writer()
        journal = Journal(writer, row.id, lease.token)
        journal.copy_attempts(rows)
        journal.write_row(row)
        journal.submit(state)
        writer.flush()
        writer.close()


def preview_cached(stores: StoreHandle, call: RunCall) -> Changes:
    """The steps that `run --cached` would run; nothing is written but the cache of digests."""
    store = stores.read() if stores.exists() else None
    loaded, inputs, _ = prepare(call, None)
    output = os.path.abspath(call.output or stores.default_output())
    return document_of(take_cached(store, call, loaded, inputs, output).changes)


def take_cached(store: Store | None, call: RunCall, loaded: Loaded, inputs: dict[str, Any], output: str) -> TakeOver:
    """Find the results that a run which is about to start takes over from an earlier run."""
    directory = call.directory or os.getcwd()
    workflow = loaded.workflow
    row = _last_completed(store, workflow, directory) if store is not None else None
    earlier = read_earlier(store, row) if store is not None and row is not None else None
    now = Now(workflow, inputs, loaded.source, directory, os.environ)
    changes = find_changes(earlier, now, output if row is None else row.output)
    rows: dict[str, AttemptRow] = {}
    if store is not None and earlier is not None:
        rows = _last_attempts(store, earlier)
        changes = _with_unmovable(workflow, changes, _lost_outputs(earlier, rows))
    return TakeOver(changes, earlier, workflow, rows)


def _last_completed(store: Store, workflow: Workflow, directory: str) -> RunRow | None:
    """The last run of this workflow in this folder that completed."""
    before: int | None = None
    while rows := store.runs(_RUNS_AT_ONCE, before):
        for row in rows:
            if (row.status, row.workflow, row.dialect) != ("completed", workflow.name, workflow.dialect):
                continue
            if row.directory == directory:
                return row
        before = rows[-1].id
    return None


def _last_attempts(store: Store, earlier: Earlier) -> dict[str, AttemptRow]:
    """For each step, the attempt whose output is the output of the step."""
    state = earlier.state
    jobs = {job.output_job or job.id: job for job in _root_jobs(state) if job.status is COMPLETED}
    return {
        state.step_of(jobs[row.job]).name: row
        for row in store.attempts(earlier.row.id)
        if row.job in jobs and row.log is not None
    }


def _lost_outputs(earlier: Earlier, rows: dict[str, AttemptRow]) -> list[str]:
    """The steps whose output is no longer on the disk."""
    lost = []
    for name, row in rows.items():
        reader = open_output(epoch_folder(earlier.row.output, earlier.row.id, row.epoch))
        try:
            for stream in STREAMS:
                reader.read_output(row.log, stream, -1)
        except OutputLost:
            lost.append(name)
    return lost


def _root_jobs(state: State) -> Iterator[Job]:
    return (job for job in state.jobs.values() if job.scope == ROOT and not state.is_end(job))


def _with_unmovable(workflow: Workflow, changes: list[Change], lost: list[str]) -> list[Change]:
    """The changes, and with them the steps whose results are needed by a step that runs but can't be taken over."""
    found = {change.step: change for change in changes}
    for name in lost:
        found.setdefault(name, Change(name, "outputs", "what it printed is lost"))
    fixed = {step.name for step in workflow.steps if _stays(step)}
    uses = Uses(workflow) if fixed else None
    while True:
        found = {change.step: change for change in below(workflow, found)}
        more: dict[str, Change] = {}
        for step in (*workflow.steps, workflow.end) if uses is not None else ():
            if uses is not None and (step.name in found or step is workflow.end):
                for name in uses.of_step(step) & fixed - found.keys():
                    more[name] = Change(name, "needs", f"{step.name} uses its results, which stay with their run")
        if not more:
            return list(found.values())
        found |= more


def _stays(step: Step) -> bool:
    """Do the results of a step stay with the run that made them?"""
    return isinstance(step.action, FanOut) or any(capture.form == "file" for capture in step.capture)


def _event_of(earlier: Earlier, workflow: Workflow, again: set[str]) -> Cached:
    """The part of the new run's first event that describes the steps that it takes over."""
    state = earlier.state
    root = state.scopes[ROOT]
    jobs = {state.step_of(job).name: job for job in _root_jobs(state)}
    led_to = {arc.step for step in workflow.steps if step.name in again for arc in step.arcs}
    targets = {arc.step for step in workflow.steps for arc in step.arcs}
    steps: dict[str, CachedStep] = {}
    reached: list[str] = []
    for step in workflow.steps:
        job = jobs.get(step.name)
        if job is not None and job.status is COMPLETED and step.name not in again and not step.called_only:
            names = [name for name in (step.name, *(one.name for one in step.capture)) if name in root.values]
            steps[step.name] = CachedStep(
                job.cached or earlier.row.id,
                job.exit_code,
                {name: root.values[name] for name in names},
                root.outputs.get(step.name, {}),
                earlier.done[step.name].fingerprint,
            )
        elif job is not None and (job.attempt or job.cached) and step.name in targets - led_to:
            reached.append(step.name)
    arguments = {name: given for name, given in root.arc_arguments.items() if name in reached}
    return Cached(steps, tuple(reached), arguments, state.memory)


def _link_output(run: RunRow, row: AttemptRow, folder: str) -> AttemptRow:
    """Link the output files of another run's attempt into this folder; return the row of the linked attempt."""
    assert row.log is not None
    source = epoch_folder(run.output, run.id, row.epoch)
    return replace(row, log=link_output(source, row.log, folder, f"r{row.epoch}"))
