"""The stdout and stderr of attempts, read from the log segments and trimmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resile.engine.paths import epoch_folder
from resile.executors.contract import OutputReader, Stream
from resile.executors.output import open_output
from resile.model.limits import VALUE_BYTES_MAX

if TYPE_CHECKING:
    from resile.core.state import Job, State
    from resile.store.contract import AttemptRow, RunRow, Store


class OutputTexts:
    """Reads the output of one run's attempts; `live` reads the output of the current epoch while that runs."""

    def __init__(self, store: Store, row: RunRow, state: State, live: OutputReader | None = None) -> None:
        self._store = store
        self._run = row.id
        self._output = row.output
        self._state = state
        self._live = live

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
        return reader.read_output(row.log, stream, 0, VALUE_BYTES_MAX).decode("utf-8", "surrogateescape").strip()
