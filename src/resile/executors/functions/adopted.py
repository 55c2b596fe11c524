"""A call that a worker of an earlier engine is still making: watched by its spool, ended as any other.

    held, in time --> None          over its time, or killed --> SIGTERM, grace time, SIGKILL
    let go        --> what its spool says of it: Returned; Ended where we ended it; else Lost

Its exit status is the system's, not ours, so what we sent last stands for it. A thread that another engine of this
process has left behind can't be ended: it is left to itself.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from resile.executors.contract import Adopted, Ended, Lost, Report, Withdrawn
from resile.executors.functions import spool
from resile.executors.functions.calls import Begun, Done, Dropped, Record
from resile.executors.functions.reports import log_of, obeyed, returned, segment_of
from resile.model.failure import LogRange


class AdoptedCall:
    """One call, of a worker that lives."""

    def __init__(self, base: str, begun: Begun) -> None:
        self.base = base
        self._begun = begun
        self._pid, self._kind = spool.writer_of(base)
        self._cut = ""
        self._cut_at = self._kill_at = 0.0
        self._sent = 0

    def found(self) -> Adopted:
        """Tell that it still runs."""
        begun = self._begun
        log = LogRange(segment_of(self.base), begun.out, 0, begun.err, 0)
        return Adopted(begun.job, begun.attempt, begun.at, self._pid, log)

    def end(self, cut: str, now: float) -> None:
        """Begin to end it."""
        if not self._cut:
            self._cut, self._cut_at, self._kill_at = cut, now, now + self._begun.grace_seconds
            self._send(signal.SIGTERM)

    def look(self, now: float) -> Report | None:
        """What became of it; nothing as long as it goes on."""
        begun = self._begun
        if spool.is_held(self.base):
            if begun.timeout_seconds and now - begun.at >= begun.timeout_seconds:
                self.end("timeout", now)
            if self._kill_at and now >= self._kill_at:
                self._kill_at = 0.0
                self._send(signal.SIGKILL)
            return self._ended(now) if self._cut and self._kind == "thread" else None
        key = (begun.job, begun.attempt)
        last = [record for record in spool.records(self.base) if (record.job, record.attempt) == key][-1]
        if not self._cut:
            return settled(self.base, last)
        if not isinstance(last, Done):
            return self._ended(now)
        return obeyed(last, self.base, self._cut, 0) if last.at >= self._cut_at else returned(last, self.base, 0)

    def _ended(self, now: float) -> Ended:
        """We ended it."""
        begun = self._begun
        log = log_of(begun, self.base)
        return Ended(begun.job, begun.attempt, begun.at, now, self._sent, 0.0, 0, log, self._cut)

    def _send(self, number: int) -> None:
        """Send a signal to its worker and everything that this started; whoever holds the lock is that worker."""
        self._sent = number
        if self._kind == "process" and spool.is_held(self.base):
            with suppress(ProcessLookupError):
                os.killpg(self._pid, number)


def settled(base: str, record: Record) -> Report:
    """What became of a call of a worker that is gone, by the last record of it."""
    match record:
        case Done():
            return returned(record, base, 0)
        case Begun():
            return Lost(record.job, record.attempt, time.time(), "its worker is gone, and nobody saw how it ended")
        case Dropped():
            return Withdrawn(record.job, record.attempt, time.time())
