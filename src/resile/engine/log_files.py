"""Writes the log files that people look for (`job_wf1_j2_r1_a1.o`), off the launch path, in a thread of its own."""

from __future__ import annotations

from _queue import SimpleQueue
from threading import Thread

from resile.core.state import State
from resile.engine.paths import epoch_folder, named_logs
from resile.executors.local.segments import export
from resile.store.contract import AttemptRow

EVERY_ATTEMPT_JOBS_MAX = 1_000


class LogFiles:
    """Exports finished attempts: all of them in runs of up to 1,000 jobs, failed ones always."""

    def __init__(self, output: str, run: int, state: State) -> None:
        self._output = output
        self._run = run
        self._state = state
        self._queue: SimpleQueue[AttemptRow | None] = SimpleQueue()
        self._thread: Thread | None = None
        self.problem: OSError | None = None

    def write(self, row: AttemptRow, *, at_once: bool) -> None:
        """Export an attempt's output where it has any: queued, or at once where a repair is going to read it."""
        log = row.log
        if log is None or not (log.out_length or log.err_length):
            return
        if row.failure is None and self._state.last_job > EVERY_ATTEMPT_JOBS_MAX:
            return
        if at_once:
            self._export(row)
            return
        if self._thread is None:
            self._thread = Thread(target=self._work, name="log files", daemon=True)
            self._thread.start()
        self._queue.put(row)

    def close(self) -> None:
        """Wait until everything queued is written."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _work(self) -> None:
        """One attempt after the other; a full disk must not stop the run, the segments have it all."""
        while (row := self._queue.get()) is not None:
            self._export(row)

    def _export(self, row: AttemptRow) -> None:
        """Export one attempt."""
        try:
            export_attempt(self._output, self._run, row, named_logs(self._output))
        except OSError as problem:
            self.problem = problem


def export_attempt(output: str, run: int, row: AttemptRow, into: str) -> None:
    """Write what one attempt wrote as `job_wf{W}_j{J}_r{R}_a{N}.o` and `.e`, where it wrote anything."""
    folder = epoch_folder(output, run, row.epoch)
    export(folder, row.log, run, row.job, row.epoch, row.attempt, into)
