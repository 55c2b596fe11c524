"""`resile db check`: is the database whole, and does each run's log agree with its tables and its output?

    the store's own findings     broken pages, rows without their run, events that a lost WAL took along
    log --fold--> state          compared with the snapshot that a resume starts from, and with the rows of jobs
    attempts --> output          the end of each recorded range can be read

The check changes nothing, unless the caller accepts the database as it is. It reads each run from one snapshot of the
database, so it can also check runs that are being driven.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resile.commands.documents.answers import DatabaseCheck, RunCheck
from resile.commands.store_handle import StoreHandle
from resile.core.react import fold
from resile.core.state import State, new_state
from resile.engine.journal import job_row
from resile.engine.paths import epoch_folder
from resile.engine.replay import fold_log, last_seq, missing, row_of
from resile.engine.session import first_rows
from resile.errors import ResileError
from resile.executors.contract import OutputLost, Stream
from resile.executors.output import open_output
from resile.model import codec
from resile.model.status import Status
from resile.store.contract import Entry, RunRow, Store
from resile.store.errors import StoreDamaged

_STREAMS: tuple[Stream, ...] = ("out", "err")
_NAMES = {"out": "stdout", "err": "stderr"}
RUNS_MAX = 1_000_000


def check_database(stores: StoreHandle, runs: Sequence[int] = (), *, accept: bool = False) -> DatabaseCheck:
    """Check the database and these of its runs, or all; `accept` makes it usable although events of it are lost."""
    problems: list[str] = []
    found: list[RunCheck] = []
    identity = ""
    try:
        store = stores.read_unverified()
        problems += store.find_damage()
        identity = store.identity()
        for row in [row_of(store, run) for run in runs] or store.runs(RUNS_MAX)[::-1]:
            with store.reading():
                found.append(RunCheck(row.id, row.workflow, row.status, list(_problems_of(store, row))))
        if accept:
            store.accept_damage()
    except StoreDamaged as error:
        problems.append(error.message)
    is_whole = not problems and not any(run.problems for run in found)
    return DatabaseCheck(identity=identity, is_whole=is_whole, problems=list(dict.fromkeys(problems)), runs=found)


def _problems_of(store: Store, row: RunRow) -> Iterator[str]:
    """What is wrong with one run."""
    try:
        definition = store.definition(row.definition)
        if codec.content_hash(definition) != row.definition:
            yield "its definition is not the one that it was made with"
            return
        entries = list(store.entries(row.id))
        yield from _gaps(entries)
        state = fold(new_state(codec.decode(definition)), (entry.event for entry in entries))
        yield from _differences(store, row, state)
        yield from _lost_output(store, row)
    except ResileError as error:
        yield error.message
    except Exception as error:
        yield f"its log can't be replayed: {type(error).__name__}: {error}"


def _gaps(entries: list[Entry]) -> Iterator[str]:
    """The events that are missing between others."""
    known = 0
    for entry in entries:
        if entry.seq > known + 1:
            yield missing(known + 1, entry.seq)
        known = last_seq(entry)


def _differences(store: Store, row: RunRow, state: State) -> Iterator[str]:
    """The jobs whose rows, or whose state in the snapshot, differ from the log."""
    resumed = fold_log(store, row)
    rows = {found.id: found for found in store.jobs(row.id)}
    expected = [job_row(state, job) for job in state.jobs.values()]
    snapshot = {number: job_row(resumed, job) for number, job in resumed.jobs.items()}
    if state.phase == "new":
        # No engine has begun the run: its rows are those of its creation.
        expected = first_rows(state)
        snapshot = {job.id: job for job in expected}
    for job in expected:
        for name, found in (("table", rows.get(job.id)), ("snapshot", snapshot.get(job.id))):
            if found is None or (found.status, found.attempts) != (job.status, job.attempts):
                has = "nothing" if found is None else f"{Status(found.status).name}, {found.attempts} attempts"
                log = f"{Status(job.status).name}, {job.attempts} attempts"
                yield f"job {job.id} ({job.step}): the log says {log}, the {name} {has}"


def _lost_output(store: Store, row: RunRow) -> Iterator[str]:
    """How many attempts have output that can't be read to its end."""
    lost: list[str] = []
    for tried in store.attempts(row.id):
        output = open_output(epoch_folder(row.output, row.id, tried.epoch))
        for stream in _STREAMS:
            log = tried.log
            if log is None or tried.ended_at is None or not (log.out_length if stream == "out" else log.err_length):
                continue
            try:
                output.read_output(log, stream, -1, 1)
            except (OutputLost, OSError):
                lost.append(f"{_NAMES[stream]} of job {tried.job}, attempt {tried.attempt}")
    if lost:
        yield f"output is gone or cut: {lost[0]}" + (f", and {len(lost) - 1} more" if lost[1:] else "")
