"""Writes log files for people (`job_wf1_j2_r1_a1.o`), in a separate thread so that no launch waits for them."""

from __future__ import annotations

import os
from _queue import SimpleQueue
from contextlib import suppress
from typing import TYPE_CHECKING

from resile.core.state import State
from resile.engine.paths import named_logs
from resile.executors.contract import EndedOutputReader, OutputLost, OutputReader, Stream
from resile.model.failure import LogRange
from resile.model.folders import create_file, make_folder, put_in_place
from resile.model.limits import OUTPUT_PIECE_BYTES
from resile.model.nested import job_key
from resile.store.contract import AttemptRow

if TYPE_CHECKING:
    from threading import Thread

EVERY_ATTEMPT_JOBS_MAX = 1_000
_ENDINGS: dict[Stream, str] = {"out": ".o", "err": ".e"}


class LogFiles:
    """Exports finished attempts: all of them in runs of up to 1,000 jobs, failed ones always."""

    def __init__(self, output: OutputReader, folder: str, run: int, state: State, *, is_served: bool = False) -> None:
        """`output` reads the output of attempts; the files go into the folder of named logs below `folder`.

        Where a server drives the run, repairs find them also by the number that the job has there.
        """
        self._output = output
        self._folder = named_logs(folder)
        self._run = run
        self._state = state
        self._is_served = is_served
        self._queue: SimpleQueue[AttemptRow | None] = SimpleQueue()
        self._thread: Thread | None = None
        self.problem: OSError | OutputLost | None = None

    def write(self, row: AttemptRow, *, at_once: bool) -> None:
        """Export an attempt's output if it has any: queued, or at once if a repair is going to read it."""
        log = row.log
        if log is None or not (log.out_length or log.err_length):
            return
        if row.failure is None and self._state.last_job > EVERY_ATTEMPT_JOBS_MAX:
            return
        if at_once:
            self._export(row, keyed=self._is_served)
            return
        if self._thread is None:
            from threading import Thread

            self._thread = Thread(target=self._work, name="log files", daemon=True)
            self._thread.start()
        self._queue.put(row)

    def close(self) -> None:
        """Wait until everything queued is written."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _work(self) -> None:
        """Export the queued attempts; a full disk must not stop the run, the executor still has the output."""
        while (row := self._queue.get()) is not None:
            self._export(row)

    def _export(self, row: AttemptRow, *, keyed: bool = False) -> None:
        """Export one attempt; with `keyed` its files have second names, with the job's number among all jobs."""
        try:
            for path in export_attempt(self._output, self._run, row, self._folder):
                if keyed:
                    second = path.replace(f"_j{row.job}_r", f"_j{job_key(self._run, row.job)}_r")
                    with suppress(FileNotFoundError):
                        os.unlink(second)
                    os.link(path, second)
        except (OSError, OutputLost) as problem:
            self.problem = problem


def export_attempt(
    output: EndedOutputReader, run: int, row: AttemptRow, into: str, *, durable: bool = False
) -> list[str]:
    """Export the output of one attempt to `job_wf{W}_j{J}_r{R}_a{N}.o` and `.e`, both if it wrote anything.

    Returns the paths of the files.

    The copies that a run makes beside itself are not flushed: the log never reads them, and they can be made again.
    """
    begin = {stream: output.read_output(row.log, stream, 0, OUTPUT_PIECE_BYTES) for stream in _ENDINGS}
    if not any(begin.values()):
        return []
    make_folder(into)
    stem = os.path.join(into, f"job_wf{run}_j{row.job}_r{row.epoch}_a{row.attempt}")
    for stream, data in begin.items():
        _write(output, row.log, stream, data, stem + _ENDINGS[stream], durable)
    return [stem + ending for ending in _ENDINGS.values()]


def _write(
    output: EndedOutputReader, log: LogRange | None, stream: Stream, data: bytes, path: str, durable: bool
) -> None:
    """Write one stream, which begins with `data`, to a file, atomically."""
    part = f"{path}.part"
    with create_file(part) as file:
        while data:
            file.write(data)
            data = output.read_output(log, stream, file.tell(), OUTPUT_PIECE_BYTES)
        if durable:
            put_in_place(file, part, path)
            return
    os.rename(part, path)
