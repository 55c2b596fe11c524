"""One attempt, as a step type prepares it: the order, its job and step, and the services that every type uses."""

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
        """The names and values that the texts of a job can use."""

    def find(self, path: Sequence[str | int], job: Job) -> Any:
        """The value under a path as a job sees it, or MISSING."""

    def list_of(self, step: str, job: Job) -> Sequence[Any]:
        """The list that another step printed."""


class BuiltinSteps(Protocol):
    """Evaluates steps inside the engine."""

    def perform(self, job: Job, step: Step, at: float) -> Outcome:
        """The outcome of a step."""


class Host(Protocol):
    """The services that the performer of a run offers to step types; `folder` is the run's own, `secrets` are never
    stored.
    """

    state: State
    clock: Clock
    folder: str
    secrets: tuple[str, ...]

    @property
    def values(self) -> RunValues:
        """The values of the run."""

    @property
    def evaluators(self) -> BuiltinSteps:
        """The evaluator of steps that run inside the engine."""

    def directory_of(self, job: Job, step: Step, lookup: Visible) -> str:
        """The directory in which a step runs."""

    def environment_of(self, order: StartAttempt, job: Job, step: Step) -> Variables:
        """The variables of a step, beyond those of its run."""

    def write_attempt_file(self, order: StartAttempt, ending: str, text: bytes) -> bytes:
        """Write a file that belongs to one attempt; return its path."""

    def launch_of(
        self, attempt: Attempt, argv: tuple[bytes, ...], fallback: tuple[bytes, ...], more: Variables
    ) -> Launch:
        """The launch of a command with its environment, place and limits."""


class Attempt:
    """One attempt that is about to start; `memory` holds what the step's effects wrote on entering the step."""

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
        """The names and values that the texts of the job can use."""
        return self.host.values.of(self.job)

    @property
    def directory(self) -> str:
        """The directory in which the step runs."""
        return self.host.directory_of(self.job, self.step, self.lookup)

    def write_file(self, ending: str, text: bytes) -> bytes:
        """Write a file that belongs to the attempt; return its path."""
        return self.host.write_attempt_file(self.order, ending, text)

    def with_stdin(self, argv: Argv, ending: str, text: bytes) -> Argv:
        """The argv that runs a command with a text on its standard input."""
        return (b"sh", b"-c", _FROM_FILE, self.write_file(ending, text), *argv)

    def launch(self, argv: Argv, fallback: Argv = (), variables: Variables = ()) -> Launch:
        """The launch of a command; `fallback` runs if the program of `argv` does not exist."""
        return self.host.launch_of(self, argv, fallback, variables)
