"""One attempt as a step type prepares it: the order, its job and step, and what the performer does for every type."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resile.core.actions import StartAttempt
    from resile.core.state import Job, State
    from resile.engine.clock import Clock
    from resile.executors.contract import Launch
    from resile.languages.contract import Visible
    from resile.model.failure import Outcome
    from resile.model.workflow import Step

# Linux takes at most 128 KiB in one argument, its closing NUL included.
ARGUMENT_BYTES_MAX = 128 * 1024 - 1
# Runs a command with a file on standard input: $0 is the file, the rest the command.
_FROM_FILE = b'exec "$@" < "$0"'

Argv = tuple[bytes, ...]
Variables = tuple[tuple[bytes, bytes], ...]


class RunValues(Protocol):
    """The values of a run, as steps see them."""

    def of(self, job: Job) -> Visible:
        """What the texts of a job can name."""

    def find(self, path: Sequence[str | int], job: Job) -> Any:
        """The value under a path as a job sees it, or MISSING."""

    def list_of(self, step: str, job: Job) -> Sequence[Any]:
        """The list that another step printed."""


class BuiltinSteps(Protocol):
    """Evaluates steps inside the engine."""

    def perform(self, job: Job, step: Step, at: float) -> Outcome:
        """The outcome of a step."""


class Host(Protocol):
    """What step types ask of the performer of a run; `folder` is the run's own, `secrets` are never stored."""

    state: State
    clock: Clock
    folder: str
    secrets: tuple[str, ...]

    @property
    def values(self) -> RunValues:
        """The values of the run."""

    @property
    def evaluators(self) -> BuiltinSteps:
        """What evaluates steps inside the engine."""

    def directory_of(self, job: Job, step: Step, lookup: Visible) -> str:
        """Where a step runs."""

    def environment_of(self, order: StartAttempt, job: Job, step: Step) -> Variables:
        """The variables that a step has beyond its run's."""

    def write_attempt_file(self, order: StartAttempt, ending: str, text: bytes) -> bytes:
        """Write a file that belongs to one attempt; its path."""

    def launch_of(
        self, attempt: Attempt, argv: tuple[bytes, ...], fallback: tuple[bytes, ...], more: Variables
    ) -> Launch:
        """The launch of a command with its environment, place and limits."""


class Attempt:
    """One attempt that is about to start; `memory` is what its effects wrote when the step was entered."""

    def __init__(
        self, host: Host, order: StartAttempt, job: Job, step: Step, memory: dict[str, dict[str, Any]]
    ) -> None:
        self.host = host
        self.order = order
        self.job = job
        self.step = step
        self.memory = memory

    @cached_property
    def lookup(self) -> Visible:
        """What the texts of the job can name."""
        return self.host.values.of(self.job)

    @property
    def directory(self) -> str:
        """Where the step runs."""
        return self.host.directory_of(self.job, self.step, self.lookup)

    def write_file(self, ending: str, text: bytes) -> bytes:
        """Write a file that belongs to the attempt; its path."""
        return self.host.write_attempt_file(self.order, ending, text)

    def with_stdin(self, argv: Argv, ending: str, text: bytes) -> Argv:
        """The argv of a command that reads a text on standard input."""
        return (b"sh", b"-c", _FROM_FILE, self.write_file(ending, text), *argv)

    def launch(self, argv: Argv, fallback: Argv = (), variables: Variables = ()) -> Launch:
        """The launch of a command; `fallback` runs where there is no such program."""
        return self.host.launch_of(self, argv, fallback, variables)
