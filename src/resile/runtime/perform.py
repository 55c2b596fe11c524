"""Turns an order to start an attempt into something an executor can launch.

Rendering happens here and not in the core, because values are read from the log segments. A value that can't
be put where it stands fails the attempt (`contract`) before anything runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from resile.core.actions import StartAttempt
from resile.core.state import Job, State
from resile.dialects.interpolate import ValueRefused, render_text
from resile.dialects.shell import plain_argv, render_shell
from resile.executors.contract import Launch
from resile.model.failure import Failure, Outcome
from resile.model.workflow import Noop, Shell, Step
from resile.runtime.values import Values

if TYPE_CHECKING:
    from resile.dialects.interpolate import Lookup

# Linux takes at most 128 KiB in one argument, its closing NUL included.
ARGUMENT_BYTES_MAX = 128 * 1024 - 1


class Performer:
    """Renders the attempts of one run."""

    def __init__(self, state: State, values: Values, *, run: int, output: Path, folder: Path, directory: Path) -> None:
        self._state = state
        self._values = values
        self._directory = directory
        self._scripts = folder / "scripts"
        self._constant_env = tuple(
            (os.fsencode(name), os.fsencode(value))
            for name, value in (
                ("RESILE_WORKFLOW_ID", str(run)),
                ("RESILE_RUN_ID", str(state.epoch)),
                ("RESILE_OUTPUT_DIR", str(output)),
            )
        )

    def launch(self, order: StartAttempt) -> Launch | Outcome:
        """What to run for this attempt, or its outcome where nothing needs to run."""
        job = self._state.jobs[order.job]
        step = self._state.step_of(job)
        try:
            match step.action:
                case Noop():
                    return Outcome(exit_code=0)
                case Shell():
                    return self._shell(order, job, step, step.action)
        except ValueRefused as problem:
            return Outcome(failure=Failure("contract", str(problem), signature="contract: value refused"))
        kind = type(step.action).__name__.lower()
        return Outcome(failure=Failure("contract", f"this version does not run {kind} steps"))

    def _shell(self, order: StartAttempt, job: Job, step: Step, action: Shell) -> Launch:
        """A shell command: plain words directly, anything else through its shell."""
        lookup = self._values.lookup
        command = render_shell(action.command, lookup, action.program)
        program = os.fsencode(action.program)
        text = os.fsencode(command)
        through_shell: tuple[bytes, ...] = (program, b"-c", text)
        if len(text) > ARGUMENT_BYTES_MAX:
            through_shell = (program, self._script(order, text))
        plain = plain_argv(command) if action.program == "sh" and len(text) <= ARGUMENT_BYTES_MAX else None
        argv = through_shell if plain is None else tuple(map(os.fsencode, plain))
        grace = self._state.workflow.grace_seconds if step.grace_seconds is None else step.grace_seconds
        return Launch(
            order.job,
            order.attempt,
            argv,
            self._env(order, job, step, lookup),
            os.fsencode(self.directory_of(step)) if step.working_dir else b"",
            time_limit(step) or 0.0,
            grace,
            through_shell if plain is not None else (),
        )

    def directory_of(self, step: Step) -> Path:
        """Where a step runs."""
        return self._directory / render_text(step.working_dir, self._values.lookup)

    def outputs_of(self, step: Step) -> list[str]:
        """The files that a step must leave."""
        return [render_text(name, self._values.lookup) for name in step.outputs]

    def _env(self, order: StartAttempt, job: Job, step: Step, lookup: Lookup) -> tuple[tuple[bytes, bytes], ...]:
        """What a step's environment has beyond the caller's."""
        pairs = [
            *self._constant_env,
            (b"RESILE_JOB_ID", b"%d" % job.id),
            (b"RESILE_JOB_NAME", os.fsencode(step.name)),
            (b"RESILE_ATTEMPT_ID", b"%d" % order.attempt),
        ]
        if order.gpus:
            pairs.append((b"CUDA_VISIBLE_DEVICES", ",".join(map(str, order.gpus)).encode()))
        for given in (self._state.workflow.env, step.env):
            pairs += _rendered(given, lookup)
        return tuple(pairs)

    def _script(self, order: StartAttempt, text: bytes) -> bytes:
        """A command too long for one argument, as a file that only its owner can read."""
        self._scripts.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._scripts / f"job_j{order.job}_r{self._state.epoch}_a{order.attempt}.sh"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(text)
        return os.fsencode(path)


def time_limit(step: Step) -> float | None:
    """How long an attempt may run: the shorter of its timeout and of the runtime it asked for."""
    limits = (step.timeout_seconds, step.resources.runtime_seconds if step.resources is not None else None)
    return min((limit for limit in limits if limit is not None), default=None)


def _rendered(given: Mapping[str, str], lookup: Lookup) -> Sequence[tuple[bytes, bytes]]:
    """Environment variables with their values filled in."""
    return [(os.fsencode(name), os.fsencode(render_text(text, lookup))) for name, text in given.items()]
