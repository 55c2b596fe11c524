"""The output of steps: read from the segment files, followed while steps run, exported under conventional names.

    logs          every attempt so far, by job: merges the streams of job rows and attempt rows
    follow_logs   the same, then the attempts that the run's events name, as they start, write and end

While following, only running attempts and new events are read; finished attempts are never read again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from resile.commands.documents.answers import LogExport
from resile.commands.inspect import FOLLOW_SECONDS, standing
from resile.core.state import State
from resile.engine.log_files import export_attempt
from resile.engine.paths import epoch_folder
from resile.engine.replay import fold_log, row_of
from resile.errors import ResileError
from resile.executors.contract import OutputLost, OutputReader
from resile.executors.contract import Stream as OutputStream
from resile.executors.output import open_output
from resile.model.failure import LogRange
from resile.model.nested import steps_within
from resile.store.contract import AttemptRow, JobRow, RunRow, Store

CHUNK_BYTES = 256 * 1024
LOST_SHOWN_MAX = 5

Stream = Literal["both", "out", "err"]
_STREAMS: dict[Stream, tuple[OutputStream, ...]] = {"both": ("out", "err"), "out": ("out",), "err": ("err",)}
# Events after which an attempt has more output to read, or has ended.
_ATTEMPT_EVENTS = ("attempt_started", "attempt_adopted", "attempt_succeeded", "attempt_failed", "attempt_lost")


class LogPart(Struct, frozen=True):
    """A piece of one attempt's output."""

    job: int
    step: str
    attempt: int
    stream: str
    data: bytes


class _Reader(Struct):
    """How many bytes of one attempt have been read, by stream."""

    name: str
    tried: AttemptRow
    seen: dict[OutputStream, int]

    def parts(self, row: RunRow, stream: Stream, lost: list[str]) -> Iterator[LogPart]:
        """The attempt's output beyond the bytes already read, in pieces; adds a step whose output is lost to `lost`."""
        if self.tried.log is None:
            return
        output = open_output(epoch_folder(row.output, row.id, self.tried.epoch))
        for one in _STREAMS[stream]:
            data = b"?"
            while data:
                try:
                    data = _piece(output, self.tried.log, self.tried, one, self.seen.get(one, 0))
                except OutputLost as problem:
                    data = problem.data
                    lost += [] if data else [self.name]
                if data:
                    self.seen[one] = self.seen.get(one, 0) + len(data)
                    yield LogPart(self.tried.job, self.name, self.tried.attempt, one, data)


def logs(
    store: Store, number: int, step: str | None = None, attempt: int | None = None, stream: Stream = "both"
) -> Iterator[LogPart]:
    """The output of a run's (or one step's) attempts, in the order of the jobs; after a rerun, of the last epoch."""
    row = row_of(store, number)
    state = fold_log(store, row)
    _check(store, state, row, step, attempt)
    lost: list[str] = []
    for job, tried in _attempts(store, state, row, step):
        if attempt in (None, tried.attempt):
            yield from _Reader(name_of(job), tried, {}).parts(row, stream, lost)
    _refuse_lost(lost, row)


def follow_logs(
    store: Store, number: int, step: str | None = None, attempt: int | None = None, stream: Stream = "both"
) -> Iterator[LogPart]:
    """Like `logs`, then the output that is still being written, until no engine drives the run any more."""
    row = row_of(store, number)
    running: dict[tuple[int, int], _Reader] = {}
    lost: list[str] = []
    with store.reading():
        state = fold_log(store, row)
        _check(store, state, row, step, None)
        for job, tried in _attempts(store, state, row, step):
            if attempt in (None, tried.attempt):
                reader = _Reader(name_of(job), tried, {})
                yield from reader.parts(row, stream, lost)
                if tried.ended_at is None:
                    running[tried.job, tried.attempt] = reader
    after = state.seq
    while True:
        driven = standing(store, row_of(store, number)) == "running"
        if store.has_changed() or not driven:
            after = _look(store, row, after, step, attempt, running)
        for key, reader in list(running.items()):
            yield from reader.parts(row, stream, lost)
            if reader.tried.ended_at is not None:
                del running[key]
        if not driven:
            if attempt is not None:
                _check(store, fold_log(store, row), row, step, attempt)
            _refuse_lost(lost, row)
            return
        time.sleep(FOLLOW_SECONDS)


def _look(
    store: Store,
    row: RunRow,
    after: int,
    step: str | None,
    attempt: int | None,
    running: dict[tuple[int, int], _Reader],
) -> int:
    """Update the readers with attempts that started or ended after an event; return the number of the last event."""
    changed: dict[tuple[int, int], str] = {}
    for note in store.notes(row.id, after):
        after = note.seq
        if note.type in _ATTEMPT_EVENTS and attempt in (None, note.attempt):
            job = JobRow(note.job, note.step, note.scope, 0)
            if _is_meant(job, step):
                changed[note.job, note.attempt] = name_of(job)
    for key, name in changed.items():
        for tried in [found for found in store.attempts(row.id, key[0]) if found.attempt == key[1]][-1:]:
            reader = running.setdefault(key, _Reader(name, tried, {}))
            reader.tried = tried
    return after


def export_logs(store: Store, number: int, folder: str) -> LogExport:
    """Write every attempt's output as `job_wf{W}_j{J}_r{R}_a{N}.o` and `.e` into a folder; count the files."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ResileError("not-a-folder", f"{folder} is not a folder", where=folder, hint="name one for the log files")
    row = row_of(store, number)
    written = 0
    lost: list[str] = []
    names = {job.id: name_of(job) for job in store.jobs(number)}
    for tried in store.attempts(number):
        output = open_output(epoch_folder(row.output, number, tried.epoch))
        try:
            export_attempt(output, number, tried, folder, durable=True)
        except OutputLost:
            lost.append(names[tried.job])
            continue
        if tried.log is not None:
            written += bool(tried.log.out_length) + bool(tried.log.err_length)
    _refuse_lost(lost, row)
    return LogExport(run=number, folder=folder, files=written)


def _refuse_lost(steps: list[str], row: RunRow) -> None:
    """Raise an error that names the steps whose output can't be read whole, after everything else was shown."""
    if steps:
        names = " and ".join(repr(step) for step in dict.fromkeys(steps[:LOST_SHOWN_MAX]))
        more = f" and of {len(steps) - LOST_SHOWN_MAX} more attempts" if len(steps) > LOST_SHOWN_MAX else ""
        hint = "the disk was full, or the files were removed or cut; only the steps can write it again"
        raise ResileError("output-lost", f"the output of {names}{more} is lost", where=row.output, hint=hint)


def name_of(job: JobRow) -> str:
    """The unique name of a job in a run: its step, after its scope unless that is the root."""
    return job.step if job.scope == "root" else f"{job.scope}/{job.step}"


def _is_meant(job: JobRow, step: str | None) -> bool:
    """Does `step` name this job: by step, id, scope (an item) or full name?"""
    return step is None or step in (job.step, str(job.id), job.scope, name_of(job))


def _jobs(store: Store, state: State, row: RunRow, step: str | None) -> Iterator[JobRow]:
    """The jobs of a run that `step` names; jobs of inner scopes only if they belong to the current epoch."""
    for job in store.jobs(row.id):
        if (job.id in state.jobs or job.id > state.jobs_before) and _is_meant(job, step):
            yield job


def _attempts(store: Store, state: State, row: RunRow, step: str | None) -> Iterator[tuple[JobRow, AttemptRow]]:
    """The attempts of the jobs that `step` names, for each job those of its last epoch."""
    rows = store.attempts(row.id)
    tried = next(rows, None)
    for job in _jobs(store, state, row, step):
        own: list[AttemptRow] = []
        while tried is not None and tried.job <= job.id:
            own = [*own, tried] if tried.job == job.id else own
            tried = next(rows, None)
        yield from ((job, found) for found in own if found.epoch == own[-1].epoch)


def _check(store: Store, state: State, row: RunRow, step: str | None, attempt: int | None) -> None:
    """Refuse a step that the run does not have and will not have, and an attempt number that no attempt has."""
    if step is not None and next(_jobs(store, state, row, step), None) is None:
        # The jobs of inner scopes are created while the run goes.
        to_come = steps_within(state.workflow.steps) if state.phase != "ended" else ()
        if all(found.name != step for found in to_come):
            hint = f"`resile status {row.id}` lists its steps"
            raise ResileError("no-such-step", f"run {row.id} has no step {step!r}", hint=hint)
    if attempt is None:
        return
    last = max((tried.attempt for _, tried in _attempts(store, state, row, step)), default=0)
    if attempt > last:
        who = f"step {step!r} of run {row.id}" if step is not None else f"run {row.id}"
        hint = f"its attempts: 1 to {last}" if last > 1 else "its only attempt: 1" if last else "nothing has started"
        raise ResileError("no-such-attempt", f"{who} has no attempt {attempt}", hint=hint)


def _piece(output: OutputReader, log: LogRange, tried: AttemptRow, stream: OutputStream, skip: int) -> bytes:
    if tried.ended_at is not None:
        return output.read_output(log, stream, skip, CHUNK_BYTES)
    return output.follow_output(log, stream, skip, CHUNK_BYTES, job=tried.job, attempt=tried.attempt)
