"""What `${...}` can name while a run goes on: inputs, environment, steps, captured names, errors, the execution.

Outputs are not kept in memory: they are read from the log segments when a text really names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resile.core.converge import execution
from resile.core.notes import STATUS_NAMES
from resile.core.state import ROOT, Job, State
from resile.dialects.interpolate import MISSING, path_of
from resile.executors.segments import Stream, read
from resile.model.limits import VALUE_BYTES_MAX
from resile.runtime.folders import epoch_folder
from resile.store.contract import AttemptRow, Store

if TYPE_CHECKING:
    from resile.dialects.interpolate import Lookup

Key = str | int


class Values:
    """Looks names up for the jobs of one run."""

    def __init__(self, store: Store, run: int, output: str, state: State, env: Mapping[str, str]) -> None:
        self._store = store
        self._run = run
        self._output = output
        self._state = state
        self._env = env

    def of(self, job: Job) -> Lookup:
        """The lookup for the texts of one job: the value of `steps.build.output`, or MISSING where nobody knows it."""
        return lambda name: self.find(path_of(name), job)

    def find(self, path: Sequence[Key], job: Job) -> Any:
        """The value under a path, as one job sees it."""
        head, rest = path[0], path[1:]
        match head:
            case "inputs":
                return walk(self._state.inputs, rest)
            case "env":
                return self._env.get(str(rest[0]), "") if len(rest) == 1 else MISSING
            case "steps":
                return self._step(rest, job)
            case "execution":
                return walk(execution(self._state), rest)
            case "error":
                failed = self.failed_job(job)
                return MISSING if failed is None else walk(self.error(failed), rest)
            case "shell" if rest[:1] == ("output",):
                failed = self.failed_job(job)
                if failed is not None:
                    return self._both_streams(failed)
        return walk(self._state.scopes[ROOT].values, path)

    def failed_job(self, job: Job) -> Job | None:
        """The failed job that this one repairs, if it is part of a repair."""
        if job.callers:
            return self._state.jobs[job.callers[0]]
        scope = self._state.scopes.get(job.scope)
        while scope is not None and scope.owner:
            owner = self._state.jobs[scope.owner]
            if owner.error is not None:
                return owner
            scope = self._state.scopes.get(owner.scope)
        return None

    def error(self, failed: Job) -> dict[str, Any]:
        """What a repair can say about the failure it answers."""
        error = failed.error
        if error is None:
            return {}
        failure = error.failure
        return {
            "message": failure.message,
            "exit_code": failure.exit_code,
            "step": error.step,
            "timestamp": _iso(error.at),
            "stdout": failure.stdout.strip(),
            "stderr": failure.stderr.strip(),
            "kind": failure.kind,
            "attempt": error.attempt,
            "signal": failure.signal,
        }

    def _step(self, path: Sequence[Key], job: Job) -> Any:
        """A property of another step, found in the job's own scope or in those around it."""
        other = self._state.job_named(str(path[0]), job.scope) if len(path) >= 2 else None
        if other is None:
            return MISSING
        match path[1]:
            case "output":
                return walk(self.output(other), path[2:])
            case "stderr":
                return self._text(other, "e")
            case "exit_code":
                return other.exit_code
            case "status":
                return STATUS_NAMES[other.status]
            case "attempts":
                return other.tried
            case "outputs":
                return walk(self._captured(other), path[2:])
        return MISSING

    def _captured(self, job: Job) -> dict[str, Any]:
        """The names that a step captures, with their values."""
        values = self._state.scopes[ROOT].values
        return {capture.name: values.get(capture.name) for capture in self._state.step_of(job).capture}

    def output(self, job: Job) -> Any:
        """The captured value where there is exactly one, else the trimmed stdout; of its fallback where it has one."""
        if job.output_job:
            return self.output(self._state.jobs[job.output_job])
        captured = self._captured(job)
        if len(captured) == 1:
            return next(iter(captured.values()))
        if job.excused:
            return self._state.scopes[ROOT].values.get(self._state.step_of(job).name, "")
        return self._text(job, "o")

    def outputs_before(self, job: Job) -> list[str]:
        """What the jobs of a handler that came before this one wrote, in order."""
        first = self._state.scopes[job.scope].first
        return [self._text(self._state.jobs[number], "o") for number in range(first, job.id)]

    def history(self, job: Job) -> list[Any]:
        """What each successful attempt of a job wrote in this epoch, oldest first."""
        rows = self._store.attempts(self._run, job.id)
        return [self._read(row, "o") for row in rows if row.epoch == self._state.epoch and row.failure is None]

    def _both_streams(self, failed: Job) -> str:
        """stdout, then stderr, of the attempt that failed."""
        number = failed.error.attempt if failed.error is not None else failed.attempt
        for row in self._store.attempts(self._run, failed.id):
            if row.epoch == self._state.epoch and row.attempt == number:
                return "\n".join(text for stream in ("o", "e") if (text := self._read(row, stream)))
        return ""

    def _text(self, job: Job, stream: Stream) -> str:
        """What the last attempt of a job wrote, trimmed."""
        last: AttemptRow | None = None
        for row in self._store.attempts(self._run, job.id):
            last = row
        return "" if last is None else self._read(last, stream)

    def _read(self, row: AttemptRow, stream: Stream) -> str:
        """What one attempt wrote to one stream, trimmed."""
        folder = epoch_folder(self._output, self._run, row.epoch)
        return read(folder, row.log, stream, VALUE_BYTES_MAX).decode("utf-8", "surrogateescape").strip()


def walk(value: Any, path: Sequence[Key]) -> Any:
    """Follow field names and indexes into a value."""
    for key in path:
        if isinstance(value, dict) and str(key) in value:
            value = value[str(key)]
        elif isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
            value = value[key]
        else:
            return MISSING
    return value


def _iso(at: float) -> str:
    """A moment in UTC as RFC 3339 writes it."""
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
