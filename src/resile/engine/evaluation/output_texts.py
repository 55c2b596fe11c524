"""The stdout and stderr of attempts, read from the log segments and trimmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resile.engine.paths import epoch_folder
from resile.executors.contract import OutputLost, OutputReader, Stream
from resile.executors.output import open_output
from resile.languages.references import ValueRefused
from resile.model.failure import output_lost
from resile.model.limits import VALUE_BYTES_MAX

if TYPE_CHECKING:
    from resile.core.state import Job, State
    from resile.store.contract import AttemptRow, RunRow, Store


class OutputTexts:
    """Reads the output of one run's attempts; `live` reads the output of the current epoch while that runs.

    `lost` is the message about an output that was needed and is gone. It stays until the caller clears it, because a
    template language may take the exception for a value that is missing.
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
        try:
            data = reader.read_output(row.log, stream, 0, VALUE_BYTES_MAX)
        except OutputLost:
            raise self.lose(row.job) from None
        return data.decode("utf-8", "surrogateescape").strip()

    def lose(self, job: int) -> ValueRefused:
        """The error about the output of a job, which is needed and lost."""
        found = self._state.jobs.get(job)
        if found is not None:
            name = self._state.step_of(found).name
        else:
            name = next(row.step for row in self._store.jobs(self._run) if row.id == job)
        self.lost = output_lost(name)
        return ValueRefused(self.lost)

    def refuse_lost(self) -> None:
        """Raise ValueRefused if an output was needed and lost since `lost` was cleared."""
        if self.lost:
            raise ValueRefused(self.lost)
