"""What `${...}` can name while a run goes on: inputs, environment, steps, captured names, the execution.

Outputs are not kept in memory: they are read from the log segments when a text really names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from resile.core.converge import execution
from resile.core.notes import STATUS_NAMES
from resile.core.state import ROOT, Job, State
from resile.dialects.interpolate import MISSING, path_of
from resile.executors.segments import Stream, read
from resile.model.limits import VALUE_BYTES_MAX
from resile.runtime.folders import epoch_folder
from resile.store.contract import AttemptRow, Store

Key = str | int


class Values:
    """Looks names up for one run."""

    def __init__(self, store: Store, run: int, output: Path, state: State, env: Mapping[str, str]) -> None:
        self._store = store
        self._run = run
        self._output = output
        self._state = state
        self._env = env

    def lookup(self, name: str) -> Any:
        """The value of a name such as `steps.build.output`, or MISSING where the workflow does not know it."""
        path = path_of(name)
        head, rest = path[0], path[1:]
        match head:
            case "inputs":
                return walk(self._state.inputs, rest)
            case "env":
                return self._env.get(str(rest[0]), MISSING) if len(rest) == 1 else MISSING
            case "steps":
                return self._step(rest)
            case "execution":
                return walk(execution(self._state), rest)
        return walk(self._state.scopes[ROOT].values, path)

    def _step(self, path: Sequence[Key]) -> Any:
        """A property of another step."""
        job = self._state.job_named(str(path[0])) if len(path) >= 2 else None
        if job is None:
            return MISSING
        match path[1]:
            case "output":
                return walk(self._output_of(job), path[2:])
            case "stderr":
                return self._text(job, "e")
            case "exit_code":
                return job.exit_code
            case "status":
                return STATUS_NAMES[job.status]
            case "attempts":
                return job.attempt
            case "outputs":
                return walk(self._captured(job), path[2:])
        return MISSING

    def _captured(self, job: Job) -> dict[str, Any]:
        """The names that a step captures, with their values."""
        values = self._state.scopes[ROOT].values
        return {capture.name: values.get(capture.name) for capture in self._state.step_of(job).capture}

    def _output_of(self, job: Job) -> Any:
        """The captured value where there is exactly one, else the trimmed stdout."""
        captured = self._captured(job)
        if len(captured) == 1:
            return next(iter(captured.values()))
        return self._text(job, "o")

    def _text(self, job: Job, stream: Stream) -> str:
        """What the last attempt of a job wrote, trimmed."""
        last: AttemptRow | None = None
        for row in self._store.attempts(self._run, job.id):
            last = row
        if last is None or last.log is None:
            return ""
        data = read(str(epoch_folder(self._output, self._run, last.epoch)), last.log, stream, VALUE_BYTES_MAX)
        return data.decode("utf-8", "surrogateescape").strip()


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
