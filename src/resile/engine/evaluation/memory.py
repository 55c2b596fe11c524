"""The memory of a run: values by key, in namespaces, written by steps and recorded with the attempts that wrote them.

    state.memory (folded from the log)  --+
    the workflow's memory file, if any ---+--> Memories.of(namespace) <--> steps that run inside the engine

The engine evaluates such steps one after the other, so each sees at once what the previous one wrote, even before its
event is folded. A child workflow has namespaces of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from resile.engine.secrets import Hidden, redact_value
from resile.languages.references import ValueRefused
from resile.languages.surroundings import host_of, workflow_frame
from resile.model.folders import put_in_place
from resile.model.limits import VALUE_BYTES_MAX

if TYPE_CHECKING:
    from resile.core.state import Job, State
    from resile.languages.contract import Namespaces


class Memories:
    """The memory of a run, as its engine sees it."""

    def __init__(self, state: State, directory: str, secrets: Hidden) -> None:
        self._secrets = secrets
        self._state = state
        self._directory = directory
        self._data: Namespaces | None = None

    def namespaces(self, job: Job) -> Namespaces:
        """All namespaces that a job can use."""
        prefix = self._prefix(job)
        data = self._load()
        return {name.removeprefix(prefix): values for name, values in data.items() if name.startswith(prefix)}

    def write(self, job: Job, changed: Namespaces) -> Namespaces:
        """Apply changed namespaces, with secrets redacted; return what the outcome records of them."""
        prefix = self._prefix(job)
        recorded = {prefix + name: values for name, values in changed.items()}
        if self._secrets:
            recorded = redact_value(recorded, self._secrets)
        try:
            size = len(msgspec.json.encode(recorded))
        except UnicodeEncodeError as error:
            raise ValueRefused("a value is no valid text, so it can't be remembered") from error
        if size > VALUE_BYTES_MAX:
            raise ValueRefused(f"the memory would have more than {VALUE_BYTES_MAX} bytes")
        self._load().update(recorded)
        self._save()
        return recorded

    def _prefix(self, job: Job) -> str:
        """The prefix of the namespaces of a child workflow; empty for those of the run itself."""
        while (host := host_of(self._state, job)) is not None:
            job = host
        frame = workflow_frame(self._state, job)
        return f"{frame.name}/" if frame.kind == "child" else ""

    def _load(self) -> Namespaces:
        """All namespaces; the memory file is read on first use, and the log overrides it."""
        if self._data is None:
            self._data = {**self._from_file(), **self._state.memory}
        return self._data

    def _path(self) -> str:
        file = self._state.workflow.memory_file
        return os.path.join(self._directory, file.path) if file is not None else ""

    def _from_file(self) -> Namespaces:
        """The memory that earlier runs saved; a file that does not exist is an empty memory."""
        file = self._state.workflow.memory_file
        if file is None or not file.load:
            return {}
        try:
            with open(self._path(), "rb") as opened:
                return msgspec.json.decode(opened.read(VALUE_BYTES_MAX + 1), type=dict[str, dict[str, Any]])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no JSON of namespaces and keys"
            raise ValueRefused(f"the memory file {file.path!r} can't be read: {reason}") from error

    def _save(self) -> None:
        """Save the memory for later runs, atomically."""
        file = self._state.workflow.memory_file
        if file is None or not file.save:
            return
        path = self._path()
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(f"{path}.part", "wb") as opened:
                opened.write(msgspec.json.format(msgspec.json.encode(self._load())))
                put_in_place(opened, f"{path}.part", path)
        except OSError as error:
            raise ValueRefused(f"the memory file {file.path!r} can't be written: {error.strerror}") from error
