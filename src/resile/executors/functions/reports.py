"""What the engine is told of a call, from what its worker has written down of it.

Done, by itself        --> Returned          Done, after we told it to end --> Ended, and why we did
Begun, worker gone     --> Ended, as its exit status says; Lost where nobody knows that
"""

from __future__ import annotations

import os

from resile.executors.contract import Ended, Returned
from resile.executors.functions.calls import Begun, Done
from resile.executors.functions.spool import FOLDER
from resile.model.failure import LogRange

NO_LOG = LogRange("")


def segment_of(base: str) -> str:
    """The name that the log of a worker has in the run's folder."""
    return f"{FOLDER}/{os.path.basename(base)}"


def log_of(begun: Begun, base: str) -> LogRange:
    """What a call has printed, as long as it is being made or where its worker died of it."""
    out, err = (_grown(base + ending, before) for ending, before in ((".o", begun.out), (".e", begun.err)))
    return LogRange(segment_of(base), begun.out, out, begun.err, err)


def returned(done: Done, base: str, pid: int, log: LogRange | None = None) -> Returned:
    """A call that came to its end by itself; its log is where it says, unless somebody knows better."""
    return Returned(
        done.job,
        done.attempt,
        done.started_at,
        done.at,
        done.value,
        done.kind,
        done.message,
        done.types,
        done.traceback,
        done.exit_code,
        done.cpu_seconds,
        done.rss_bytes_max,
        log or _log_of_done(done, base),
        pid,
    )


def obeyed(done: Done, base: str, cut: str, pid: int) -> Ended:
    """A call that came to its end because it was told to: that is what counts, whatever it gave or raised."""
    return Ended(
        done.job,
        done.attempt,
        done.started_at,
        done.at,
        done.exit_code << 8,
        done.cpu_seconds,
        done.rss_bytes_max,
        _log_of_done(done, base),
        cut,
        pid=pid,
    )


def _log_of_done(done: Done, base: str) -> LogRange:
    """What a call has printed."""
    if not done.out_length and not done.err_length:
        return NO_LOG
    return LogRange(segment_of(base), done.out, done.out_length, done.err, done.err_length)


def _grown(path: str, before: int) -> int:
    """How much a file has grown."""
    try:
        return max(0, os.path.getsize(path) - before)
    except OSError:
        return 0
