"""The stdout and stderr of attempts, read from the log segments and trimmed."""

from __future__ import annotations

# `threading` would cost a hundredth of a short run.
from _thread import _local
from typing import TYPE_CHECKING, BinaryIO

from resile.engine.paths import epoch_folder
from resile.executors.contract import OutputLost, OutputReader, Stream, output_size
from resile.executors.output import open_output
from resile.languages.references import ValueRefused, ValueTooLarge
from resile.model.failure import LogRange, output_lost
from resile.model.limits import OUTPUT_PIECE_BYTES, VALUE_BYTES_MAX

if TYPE_CHECKING:
    from resile.core.state import Job, State
    from resile.store.contract import AttemptRow, RunRow, Store


class OutputTexts(_local):
    """Reads the output of one run's attempts; `live` reads the output of the current epoch while that runs.

    `lost` is the message about an output that a value needed and that is gone or too large. It stays until the caller
    clears it, because a template language may take the exception for a value that is missing. Each thread has its own,
    so that one evaluation does not see the message of another.
    """

    def __init__(self, store: Store, row: RunRow, state: State, live: OutputReader | None = None) -> None:
        self._store = store
        self._run = row.id
        self._output = row.output
        self._state = state
        self._live = live
        self.lost = ""

    def last(self, job: int, stream: Stream) -> str:
        """The output of a job's last attempt, even if the state has dropped the job."""
        last: AttemptRow | None = None
        for row in self._store.attempts(self._run, job):
            last = row
        return "" if last is None else self._read(last, stream)

    def outputs_before(self, job: Job) -> list[str]:
        """The outputs of the jobs that precede this one in its handler, in order."""
        first = self._state.scopes[job.scope].first
        return [self.last(number, "out") for number in range(first, job.id)]

    def history(self, job: Job) -> list[str]:
        """The output of each successful attempt of a job in this epoch, oldest first."""
        rows = self._store.attempts(self._run, job.id)
        return [self._read(row, "out") for row in rows if row.epoch == self._state.epoch and row.failure is None]

    def of_failure(self, failed: Job) -> str:
        """stdout, then stderr, of the attempt that failed."""
        number = failed.error.attempt if failed.error is not None else failed.attempt
        for row in self._store.attempts(self._run, failed.id):
            if row.epoch == self._state.epoch and row.attempt == number:
                return "\n".join(text for stream in ("out", "err") if (text := self._read(row, stream)))
        return ""

    def _read(self, row: AttemptRow, stream: Stream) -> str:
        """The output of one attempt on one stream."""
        reader = self._live if row.epoch == self._state.epoch else None
        if reader is None:
            reader = open_output(epoch_folder(self._output, self._run, row.epoch))
        size = output_size(row.log, stream)
        if row.log is not None and size > VALUE_BYTES_MAX:
            raise self._too_large(reader, row.job, row.log, stream)
        try:
            data = reader.read_output(row.log, stream)
        except OutputLost:
            raise self.lose(row.job) from None
        return data.decode("utf-8", "surrogateescape").strip()

    def _too_large(self, reader: OutputReader, job: int, log: LogRange, stream: Stream) -> ValueTooLarge:
        """The error about an output that is larger than a value may be."""
        size = output_size(log, stream)
        ways = "`stdin`, `write_file`, the `input` of a map and `capture: {NAME: file}` take any size"
        message = f"the output of {self._name_of(job)!r} has {size} bytes, here a value has {VALUE_BYTES_MAX}: {ways}"

        def copy(file: BinaryIO) -> None:
            self.lost = "" if self.lost == message else self.lost
            copy_trimmed(reader, log, stream, file)

        self.lost = self.lost or message
        return ValueTooLarge(message, copy)

    def lose(self, job: int) -> ValueRefused:
        """The error about a lost output that a value needs."""
        self.lost = output_lost(self._name_of(job))
        return ValueRefused(self.lost)

    def _name_of(self, job: int) -> str:
        """The name of a job's step, even if the state has dropped the job."""
        found = self._state.jobs.get(job)
        if found is not None:
            return self._state.step_of(found).name
        return next(row.step for row in self._store.jobs(self._run) if row.id == job)

    def refuse_lost(self) -> None:
        """Raise ValueRefused if, since `lost` was cleared, a value needed an output that is gone or too large."""
        if self.lost:
            raise ValueRefused(self.lost)


def copy_trimmed(reader: OutputReader, log: LogRange, stream: Stream, file: BinaryIO) -> None:
    """Copy an output of any size to a file, without the whitespace around it."""
    start, end = 0, output_size(log, stream)
    while start < end and not (piece := reader.read_output(log, stream, start, OUTPUT_PIECE_BYTES)).lstrip():
        start += len(piece)
    start += len(piece) - len(piece.lstrip()) if start < end else 0
    while start < end:
        first = max(start, end - OUTPUT_PIECE_BYTES)
        piece = reader.read_output(log, stream, first, end - first)
        end = first + len(piece.rstrip())
        if end > first:
            break
    while start < end:
        piece = reader.read_output(log, stream, start, min(OUTPUT_PIECE_BYTES, end - start))
        file.write(piece)
        start += len(piece)
