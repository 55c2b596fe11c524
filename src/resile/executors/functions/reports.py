"""Turns the records of workers into reports.

Done, by itself        --> Returned          Done, after we terminated it --> Ended, with the reason
Begun, worker gone     --> Ended, with its exit status; Lost if that is unknown
Dropped                --> Withdrawn
"""

from __future__ import annotations

import os

from msgspec.structs import astuple

from resile.executors.contract import Ended, Lost, Report, Returned, Withdrawn
from resile.executors.functions.calls import Begun, Done, Dropped, Record
from resile.executors.functions.spool import FOLDER
from resile.model.failure import LogRange

NO_LOG = LogRange("")
NO_RECORD = "the machine stopped, or its records are gone"


def segment_of(base: str) -> str:
    """The name of a worker's segment in log ranges."""
    return f"{FOLDER}/{os.path.basename(base)}"


def log_start_of(begun: Begun, base: str) -> LogRange:
    """The log range of a call that still runs, without its lengths."""
    return LogRange(segment_of(base), begun.out, 0, begun.err, 0)


def log_of(begun: Begun, base: str) -> LogRange:
    """The log range of a call that will not return."""
    out, err = (_growth_of(base + ending, before) for ending, before in ((".o", begun.out), (".e", begun.err)))
    return LogRange(segment_of(base), begun.out, out, begun.err, err)


def returned_report(done: Done, base: str, pid: int, log: LogRange | None = None) -> Returned:
    """Report a call that returned normally; `log` overrides the log range in the record."""
    # Up to its log, a report has the fields of a record.
    shared = astuple(done)[: Returned.__struct_fields__.index("log")]
    fields = (*shared, log or _log_of_done(done, base), pid)
    return Returned(*fields)


def terminated_report(done: Done, base: str, reason: str, pid: int) -> Ended:
    """Report a call that ended after SIGTERM, whatever it returned or raised."""
    status, log = done.exit_code << 8, _log_of_done(done, base)
    usage = (done.cpu_seconds, done.rss_bytes_max)
    return Ended(done.job, done.attempt, done.started_at, done.at, status, *usage, log, reason, pid=pid)


def settle(base: str, record: Record, now: float) -> Report:
    """The report of a call whose worker has exited, from its last record."""
    match record:
        case Done():
            return returned_report(record, base, 0)
        case Begun():
            return Lost(record.job, record.attempt, now, "its worker is gone, and nobody saw how it ended")
        case Dropped():
            return Withdrawn(record.job, record.attempt, now)


def _log_of_done(done: Done, base: str) -> LogRange:
    if not done.out_length and not done.err_length:
        return NO_LOG
    return LogRange(segment_of(base), done.out, done.out_length, done.err, done.err_length)


def _growth_of(path: str, before: int) -> int:
    """The number of bytes by which a file has grown beyond a size."""
    try:
        return max(0, os.path.getsize(path) - before)
    except OSError:
        return 0
