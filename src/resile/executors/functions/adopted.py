"""A call that a worker of an earlier engine is still making: this engine watches its spool and enforces its limits.

    worker alive, in time --> None          over its time, or killed --> SIGTERM, grace time, SIGKILL
    worker gone           --> by its spool: Returned; Ended if we terminated it; else Lost

The worker is not our child, so its exit status is unknown; the report has the last signal that we sent instead. A
thread that an earlier engine of this process abandoned can't be terminated: it goes on.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from resile.executors.contract import Adopted, Ended, Lost, Report, Withdrawn
from resile.executors.functions import spool
from resile.executors.functions.calls import Begun, Done, Dropped, Record
from resile.executors.functions.reports import log_of, returned_report, segment_of, terminated_report
from resile.model.failure import LogRange


class AdoptedCall:
    """One call that a worker of an earlier engine makes."""

    def __init__(self, base: str, begun: Begun) -> None:
        self.base = base
        self._begun = begun
        self._pid, self._kind = spool.writer_of(base)
        self._reason = ""
        self._terminated_at = self._kill_at = 0.0
        self._sent = 0

    def adopted_report(self) -> Adopted:
        """Report that it still runs."""
        begun = self._begun
        log = LogRange(segment_of(self.base), begun.out, 0, begun.err, 0)
        return Adopted(begun.job, begun.attempt, begun.at, self._pid, log)

    def terminate(self, reason: str, now: float) -> None:
        """Send SIGTERM; SIGKILL follows after the grace time."""
        if not self._reason:
            self._reason, self._terminated_at, self._kill_at = reason, now, now + self._begun.grace_seconds
            self._send(signal.SIGTERM)

    def check(self, now: float) -> Report | None:
        """Enforce the limits of the call; return its last report, or None while it runs."""
        begun = self._begun
        if spool.is_alive(self.base):
            if begun.timeout_seconds and now - begun.at >= begun.timeout_seconds:
                self.terminate("timeout", now)
            if self._kill_at and now >= self._kill_at:
                self._kill_at = 0.0
                self._send(signal.SIGKILL)
            return self._terminated_report(now) if self._reason and self._kind == "thread" else None
        key = (begun.job, begun.attempt)
        last = [record for record in spool.records_of(self.base) if (record.job, record.attempt) == key][-1]
        if not self._reason:
            return settle(self.base, last)
        if not isinstance(last, Done):
            return self._terminated_report(now)
        return (
            terminated_report(last, self.base, self._reason, 0)
            if last.at >= self._terminated_at
            else returned_report(last, self.base, 0)
        )

    def _terminated_report(self, now: float) -> Ended:
        begun = self._begun
        log = log_of(begun, self.base)
        return Ended(begun.job, begun.attempt, begun.at, now, self._sent, 0.0, 0, log, self._reason)

    def _send(self, number: int) -> None:
        """Signal the worker and everything it started, while it holds its lock."""
        self._sent = number
        if self._kind == "process" and spool.is_alive(self.base):
            with suppress(ProcessLookupError):
                os.killpg(self._pid, number)


def settle(base: str, record: Record) -> Report:
    """The report of a call whose worker has exited, from its last record."""
    match record:
        case Done():
            return returned_report(record, base, 0)
        case Begun():
            return Lost(record.job, record.attempt, time.time(), "its worker is gone, and nobody saw how it ended")
        case Dropped():
            return Withdrawn(record.job, record.attempt, time.time())
