"""What steps wrote: read from the segments, followed while they run, exported under the names people look for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from resile.errors import ResileError
from resile.executors.segments import Stream as Ending
from resile.executors.segments import place, read_from, spooled_end
from resile.model.failure import LogRange
from resile.runtime.folders import epoch_folder
from resile.runtime.logfiles import export_attempt
from resile.runtime.past import row_of
from resile.store.contract import AttemptRow, JobRow, RunRow, Store
from resile.store.open import open_store
from resile.surfaces.verbs.look import FOLLOW_SECONDS, standing

CHUNK_BYTES = 256 * 1024

Stream = Literal["both", "out", "err"]
_ENDINGS: dict[Stream, tuple[Ending, ...]] = {"both": ("o", "e"), "out": ("o",), "err": ("e",)}
_NAMES: dict[Ending, str] = {"o": "out", "e": "err"}


class LogPart(Struct, frozen=True):
    """A piece of what one attempt wrote."""

    job: int
    step: str
    attempt: int
    stream: str
    data: bytes


def logs(
    number: int, *, db: str | None, step: str | None = None, attempt: int | None = None, stream: Stream = "both"
) -> Iterator[LogPart]:
    """What the attempts of a run (or of one step) wrote, in the order of the jobs; of a rerun, the last epoch."""
    store = open_store(db, readonly=True)
    try:
        row = row_of(store, number)
        _check_attempt(store, row, step, attempt)
        for job in _jobs(store, row, step):
            for tried in _attempts(store, row, job, attempt):
                for ending in _ENDINGS[stream]:
                    yield from _parts(row, job, tried, ending, 0)
    finally:
        store.close()


def follow_logs(
    number: int, *, db: str | None, step: str | None = None, attempt: int | None = None, stream: Stream = "both"
) -> Iterator[LogPart]:
    """The same, and what is still being written, until nobody drives the run any more."""
    store = open_store(db, readonly=True)
    seen: dict[tuple[int, int, int, str], int] = {}
    try:
        row = row_of(store, number)
        while True:
            driven = standing(store, row_of(store, number), time.time()) == "running"
            for job in _jobs(store, row, step):
                for tried in _attempts(store, row, job, attempt):
                    for ending in _ENDINGS[stream]:
                        key = (job.id, tried.epoch, tried.attempt, ending)
                        for part in _parts(row, job, tried, ending, seen.get(key, 0)):
                            seen[key] = seen.get(key, 0) + len(part.data)
                            yield part
            if not driven:
                if not seen:
                    _check_attempt(store, row, step, attempt)
                return
            time.sleep(FOLLOW_SECONDS)
    finally:
        store.close()


def export_logs(number: int, folder: str, *, db: str | None) -> int:
    """Write every attempt's output as `job_wf{W}_j{J}_r{R}_a{N}.o` and `.e` into a folder; how many files."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ResileError("not-a-folder", f"{folder} is not a folder", where=folder, hint="name one for the log files")
    store = open_store(db, readonly=True)
    try:
        row = row_of(store, number)
        written = 0
        for tried in store.attempts(number):
            export_attempt(row.output, number, tried, folder)
            if tried.log is not None:
                written += bool(tried.log.out_length) + bool(tried.log.err_length)
        return written
    finally:
        store.close()


def _jobs(store: Store, row: RunRow, step: str | None) -> Iterator[JobRow]:
    """The jobs of a run, or those of one step, item or step of an item (by name or id)."""
    found = False
    for job in store.jobs(row.id):
        if step is None or step in (job.step, str(job.id), job.scope, name_of(job)):
            found = True
            yield job
    if not found and step is not None:
        raise ResileError(
            "no-such-step", f"run {row.id} has no step {step!r}", hint=f"`resile status {row.id}` lists its steps"
        )


def name_of(job: JobRow) -> str:
    """What a job is called among all of a run: its step, with its scope in front where that is not the run itself."""
    return job.step if job.scope == "root" else f"{job.scope}/{job.step}"


def _check_attempt(store: Store, row: RunRow, step: str | None, attempt: int | None) -> None:
    """Refuse a number that no attempt has; an attempt that wrote nothing has one too."""
    if attempt is None:
        return
    last = 0
    for job in _jobs(store, row, step):
        for tried in _attempts(store, row, job, None):
            last = max(last, tried.attempt)
    if attempt > last:
        who = f"step {step!r} of run {row.id}" if step is not None else f"run {row.id}"
        hint = f"its attempts: 1 to {last}" if last > 1 else "its only attempt: 1" if last else "nothing has started"
        raise ResileError("no-such-attempt", f"{who} has no attempt {attempt}", hint=hint)


def _attempts(store: Store, row: RunRow, job: JobRow, attempt: int | None) -> Iterator[AttemptRow]:
    """The attempts of a job in the run's present epoch."""
    epoch = 0
    rows = list(store.attempts(row.id, job.id))
    for tried in rows:
        epoch = max(epoch, tried.epoch)
    for tried in rows:
        if tried.epoch == epoch and (attempt is None or tried.attempt == attempt) and tried.log is not None:
            yield tried


def _parts(row: RunRow, job: JobRow, tried: AttemptRow, ending: Ending, skip: int) -> Iterator[LogPart]:
    """What one attempt wrote to one stream beyond the bytes already seen, in pieces."""
    folder = epoch_folder(row.output, row.id, tried.epoch)
    log = tried.log
    assert log is not None
    while data := _piece(folder, log, tried, ending, skip):
        skip += len(data)
        yield LogPart(job.id, name_of(job), tried.attempt, _NAMES[ending], data)


def _piece(folder: str, log: LogRange, tried: AttemptRow, ending: Ending, skip: int) -> bytes:
    """The next bytes of one stream.

    While an attempt runs everything behind its offset is its own; its end stands in the spool before another
    attempt can add to the segment, so the end is asked for after the read and what lies behind it is cut off.
    """
    if tried.ended_at is not None:
        return read_from(folder, log, ending, skip, min(CHUNK_BYTES, place(log, ending)[1] - skip))
    data = read_from(folder, log, ending, skip, CHUNK_BYTES)
    final = spooled_end(folder, log, tried.job, tried.attempt)
    return data if final is None else data[: max(0, place(final, ending)[1] - skip)]
