"""The output of steps: read from the segment files, followed while steps run, exported under conventional names.

    logs             every attempt so far, by job: merges the streams of job rows and attempt rows
    follow_logs      the same, then the attempts that the run's events name, as they start, write and end
    attempt_output   one attempt that an event names, for a display that follows the run it drives

While following, only running attempts and new events are read; finished attempts are never read again.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from resile.commands.documents.answers import LogExport
from resile.commands.documents.remote import LogAttempt, LogIndex
from resile.commands.documents.runs import Event, event_of
from resile.commands.inspect import FOLLOW_SECONDS, standing
from resile.core.actions import Note
from resile.core.causal_history import causal_history
from resile.core.state import State
from resile.engine.log_files import export_attempt
from resile.engine.paths import epoch_folder
from resile.engine.replay import fold_log, is_current, row_of
from resile.errors import ResileError
from resile.executors.contract import EndedOutputReader, OutputLost, OutputReader, output_size
from resile.executors.contract import Stream as OutputStream
from resile.executors.output import open_output
from resile.model.failure import LogRange
from resile.model.nested import names_of, step_name, steps_within
from resile.store.contract import AttemptRow, JobRow, RunRow
from resile.store.server_tables import SharedStore

CHUNK_BYTES = 256 * 1024
LOST_SHOWN_MAX = 5
FILE_NAME_MAX = 150

Stream = Literal["both", "out", "err"]
STREAMS: dict[Stream, tuple[OutputStream, ...]] = {"both": ("out", "err"), "out": ("out",), "err": ("err",)}
# Events after which an attempt has more output to read, or has ended.
RUNNING_EVENTS = ("attempt_started", "attempt_adopted")
ATTEMPT_EVENTS = (*RUNNING_EVENTS, "attempt_succeeded", "attempt_failed", "attempt_lost")


class LogPart(Struct, frozen=True):
    """A piece of one attempt's output."""

    job: int
    step: str
    attempt: int
    stream: str
    data: bytes


class LogFilter(Struct, frozen=True):
    """Which output is wanted: of one step, one attempt, one stream; of attempts that had not ended at `since`.

    With `tail`, only so many lines at the end of each stream of each attempt; what is written later comes whole.
    """

    step: str | None = None
    attempt: int | None = None
    stream: Stream = "both"
    tail: int | None = None
    since: float = 0.0

    def accepts(self, tried: AttemptRow) -> bool:
        """Is the output of this attempt wanted?"""
        return self.attempt in (None, tried.attempt) and (tried.ended_at is None or tried.ended_at >= self.since)


class LogFile(Struct, frozen=True):
    """An attempt whose output can be exported: its step, and the beginning of the name that its files have by it."""

    step: str
    begin: str
    tried: AttemptRow


class AttemptOutput(Struct):
    """The output of one attempt, and how many bytes of it have been read, by stream."""

    name: str
    tried: AttemptRow
    seen: dict[OutputStream, int]
    tail: int | None = None

    def parts(self, row: RunRow, stream: Stream, lost: list[str]) -> Iterator[LogPart]:
        """The attempt's output beyond the bytes already read; with a tail, the first read gives only the last lines."""
        found = self._parts(row, stream, lost)
        if self.tail is not None:
            found, self.tail = last_lines(found, self.tail), None
        return found

    def _parts(self, row: RunRow, stream: Stream, lost: list[str]) -> Iterator[LogPart]:
        """The attempt's output beyond the bytes already read, in pieces; adds a step whose output is lost to `lost`."""
        if self.tried.log is None:
            return
        output = open_output(epoch_folder(row.output, row.id, self.tried.epoch))
        for one in STREAMS[stream]:
            while data := self._next(output, self.tried.log, one, lost):
                yield LogPart(self.tried.job, self.name, self.tried.attempt, one, data)

    def pieces(self, row: RunRow) -> Iterator[tuple[OutputStream, bytes]]:
        """The next piece of each stream, if there is one: an attempt that writes without end can't hold up the others.

        Lost output is left out here: the step fails, or the event of its end reports the loss.
        """
        if self.tried.log is not None:
            output = open_output(epoch_folder(row.output, row.id, self.tried.epoch))
            for one in STREAMS["both"]:
                if data := self._next(output, self.tried.log, one, []):
                    yield one, data

    def _next(self, output: OutputReader, log: LogRange, stream: OutputStream, lost: list[str]) -> bytes:
        """The next piece of a stream; empty if there is none yet, or no more."""
        try:
            data = _piece(output, log, self.tried, stream, self.seen.get(stream, 0))
        except OutputLost as problem:
            data = problem.data
            lost += [] if data else [self.name]
        self.seen[stream] = self.seen.get(stream, 0) + len(data)
        return data


def last_lines(parts: Iterator[LogPart], count: int) -> Iterator[LogPart]:
    """The last lines of each stream."""
    kept: dict[str, LogPart] = {}
    for part in parts:
        before = kept[part.stream].data if part.stream in kept else b""
        lines = (before + part.data).splitlines(keepends=True)
        kept[part.stream] = replace(part, data=b"".join(lines[len(lines) - count :] if count < len(lines) else lines))
    yield from (part for part in kept.values() if part.data)


def logs(store: SharedStore, number: int, wanted: LogFilter = LogFilter()) -> Iterator[LogPart]:
    """The output of a run's (or one step's) attempts, in the order of the jobs; after a rerun, of the last epoch."""
    row = row_of(store, number)
    state = fold_log(store, row)
    step = wanted.step
    _check(store, state, row, step, wanted.attempt)
    lost: list[str] = []
    for job, tried in _attempts(store, state, row, step):
        if wanted.accepts(tried):
            yield from AttemptOutput(name_of(job), tried, {}, wanted.tail).parts(row, wanted.stream, lost)
    _refuse_lost(lost, row)


def follow_logs(store: SharedStore, number: int, wanted: LogFilter = LogFilter()) -> Iterator[LogPart]:
    """Like `logs`, then the output that is still being written, until no engine drives the run any more."""
    row = row_of(store, number)
    step, attempt, stream = wanted.step, wanted.attempt, wanted.stream
    running: dict[tuple[int, int], AttemptOutput] = {}
    lost: list[str] = []
    with store.reading():
        state = fold_log(store, row)
        _check(store, state, row, step, None)
        for job, tried in _attempts(store, state, row, step):
            if wanted.accepts(tried):
                reader = AttemptOutput(name_of(job), tried, {}, wanted.tail)
                yield from reader.parts(row, stream, lost)
                if tried.ended_at is None:
                    running[tried.job, tried.attempt] = reader
    after = state.seq
    while True:
        driven = standing(store, row_of(store, number)) == "running"
        if store.has_changed() or not driven:
            after = _look(store, row, state, after, step, attempt, running)
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


def log_index(store: SharedStore, number: int, wanted: LogFilter, *, follow: bool) -> LogIndex:
    """The attempts whose output `logs` would read, for a reader elsewhere."""
    with store.reading():
        row = row_of(store, number)
        is_driven = standing(store, row) == "running"
        state = fold_log(store, row)
        _check(store, state, row, wanted.step, None if follow and is_driven else wanted.attempt)
        found = [
            LogAttempt(
                tried.job,
                name_of(job),
                tried.attempt,
                tried.ended_at is not None,
                output_size(tried.log, "out"),
                output_size(tried.log, "err"),
            )
            for job, tried in _attempts(store, state, row, wanted.step)
            if tried.log is not None and wanted.accepts(tried)
        ]
    return LogIndex(is_driven, found)


def _look(
    store: SharedStore,
    row: RunRow,
    state: State,
    after: int,
    step: str | None,
    attempt: int | None,
    running: dict[tuple[int, int], AttemptOutput],
) -> int:
    """Update the readers with attempts that started or ended after an event; return the number of the last event."""
    changed: dict[tuple[int, int], str] = {}
    for note in store.notes(row.id, after):
        after = note.seq
        if note.type in ATTEMPT_EVENTS and attempt in (None, note.attempt):
            job = JobRow(note.job, note.step, note.scope, 0)
            if is_meant(state, job, step):
                changed[note.job, note.attempt] = name_of(job)
    for key, name in changed.items():
        for tried in [found for found in store.attempts(row.id, key[0]) if found.attempt == key[1]][-1:]:
            reader = running.setdefault(key, AttemptOutput(name, tried, {}))
            reader.tried = tried
    return after


def attempt_output(store: SharedStore, run: int, note: Note) -> AttemptOutput | None:
    """The output of the attempt that an event names; None if the event names none."""
    found = [tried for tried in store.attempts(run, note.job) if tried.attempt == note.attempt]
    return AttemptOutput(step_name(note.scope, note.step), found[-1], {}) if found else None


def log_files(store: SharedStore, number: int) -> list[LogFile]:
    """Every attempt of a run that has ended, of all its epochs, and how its files begin."""
    names = {job.id: name_of(job) for job in store.jobs(number)}
    files = _file_names(names)
    return [
        LogFile(
            names[tried.job],
            f"{files[tried.job]}{f'_r{tried.epoch}' if tried.epoch > 1 else ''}_a{tried.attempt}",
            tried,
        )
        for tried in store.attempts(number)
        if tried.ended_at is not None
    ]


def export_logs(store: SharedStore, number: int, folder: str) -> LogExport:
    """Write every attempt's output into a folder; count the files."""
    refuse_file(folder)
    row = row_of(store, number)

    def output_of(tried: AttemptRow) -> OutputReader:
        """The output of the attempts of its epoch."""
        return open_output(epoch_folder(row.output, number, tried.epoch))

    return write_log_files(number, log_files(store, number), output_of, folder, row.output)


def refuse_file(folder: str) -> None:
    """Refuse to write log files to a path that is no folder."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ResileError("not-a-folder", f"{folder} is not a folder", where=folder, hint="name one for the log files")


def write_log_files(
    number: int,
    found: list[LogFile],
    output_of: Callable[[AttemptRow], EndedOutputReader],
    folder: str,
    where: str,
) -> LogExport:
    """Write the output of these attempts into a folder; count the files. What is lost is an error after the rest.

    Each file has two names: `job_wf{W}_j{J}_r{R}_a{N}.o` or `.e`, and one that begins with its step.
    """
    written = 0
    lost: list[str] = []
    for one in found:
        try:
            paths = export_attempt(output_of(one.tried), number, one.tried, folder, durable=True)
        except OutputLost:
            lost.append(one.step)
            continue
        for path in paths:
            _link(path, os.path.join(folder, one.begin + os.path.splitext(path)[1]))
        written += len(paths)
    if lost:
        raise lost_error(lost, where)
    return LogExport(run=number, folder=folder, files=written)


def _file_names(names: dict[int, str]) -> dict[int, str]:
    """The beginning of a file's name for each job: its own, without characters that a path or a shell gives a meaning.

    The number of the job follows long names, and names that several jobs would share.
    """
    found = {job: re.sub(r"[^A-Za-z0-9._\[\]-]", "_", name).lstrip(".") for job, name in names.items()}
    count = Counter(found.values())
    return {
        job: f"{name[:FILE_NAME_MAX]}_j{job}" if count[name] > 1 or len(name) > FILE_NAME_MAX or not name else name
        for job, name in found.items()
    }


def _link(path: str, name: str) -> None:
    """Give a file a second name, in place of a file that has it; a copy where the file system has no links."""
    with suppress(FileNotFoundError):
        os.unlink(name)
    try:
        os.link(path, name)
    except OSError:
        import shutil

        shutil.copyfile(path, name)


def story(store: SharedStore, number: int, step: str) -> Iterator[Event]:
    """The events of the jobs that `step` names, and of all that caused them, causes first."""
    row = row_of(store, number)
    state = fold_log(store, row)
    _check(store, state, row, step, None)
    jobs = {job.id for job in _jobs(store, state, row, step)}
    return (event_of(number, note) for note in causal_history(store.notes(number), jobs))


def _refuse_lost(steps: list[str], row: RunRow) -> None:
    """Raise an error that names the steps whose output can't be read whole, after everything else was shown."""
    if steps:
        raise lost_error(steps, row.output)


def lost_error(steps: list[str], where: str = "") -> ResileError:
    """The error that names the steps whose output can't be read whole."""
    names = " and ".join(repr(step) for step in dict.fromkeys(steps[:LOST_SHOWN_MAX]))
    more = f" and of {len(steps) - LOST_SHOWN_MAX} more attempts" if len(steps) > LOST_SHOWN_MAX else ""
    hint = "the disk was full, or the files were removed or cut; only the steps can write it again"
    return ResileError("output-lost", f"the output of {names}{more} is lost", where=where, hint=hint)


def name_of(job: JobRow) -> str:
    """The name of a job in a run."""
    return step_name(job.scope, job.step)


def is_meant(state: State, job: JobRow, step: str | None) -> bool:
    """Does `step` name this job: by step, or if no step has this name, by id, scope (an item) or full name?"""
    if step is None or step == job.step:
        return True
    by_place = step in (str(job.id), job.scope, *names_of(job.scope, job.step))
    return by_place and all(found.name != step for found in steps_within((*state.workflow.steps, state.workflow.end)))


def _jobs(store: SharedStore, state: State, row: RunRow, step: str | None) -> Iterator[JobRow]:
    """The jobs of a run that `step` names; jobs of inner scopes only if they belong to the current epoch."""
    for job in store.jobs(row.id):
        if (job.id in state.jobs or is_current(state, job)) and is_meant(state, job, step):
            yield job


def _attempts(store: SharedStore, state: State, row: RunRow, step: str | None) -> Iterator[tuple[JobRow, AttemptRow]]:
    """The attempts of the jobs that `step` names, for each job those of its last epoch."""
    rows = store.attempts(row.id)
    tried = next(rows, None)
    for job in _jobs(store, state, row, step):
        own: list[AttemptRow] = []
        while tried is not None and tried.job <= job.id:
            own = [*own, tried] if tried.job == job.id else own
            tried = next(rows, None)
        yield from ((job, found) for found in own if found.epoch == own[-1].epoch)


def _check(store: SharedStore, state: State, row: RunRow, step: str | None, attempt: int | None) -> None:
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
