"""Turns an order to start an attempt into something an executor can launch.

Rendering happens here and not in the core, because values are read from the output of other attempts. A value that
can't be rendered fails the attempt (`contract`) before anything runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, assert_never

from msgspec.structs import replace

from resile.core.actions import ReadGroups, ReadItems, StartAttempt
from resile.core.events import GroupsRead, ItemsRead
from resile.core.scheduling.reservations import granted
from resile.core.state import ROOT, Error, Job, State
from resile.engine.actions.git import head_of
from resile.engine.clock import Clock
from resile.engine.evaluation.values import Values
from resile.engine.resources import visible_gpus
from resile.engine.secrets import redact_value
from resile.executors.contract import Launch
from resile.languages.contract import render_data, render_shell, render_text
from resile.languages.references import ValueRefused, is_one_reference, parse_json, text_of
from resile.languages.shell.quoting import plain_argv
from resile.languages.surroundings import failed_job
from resile.model.builtin_actions import Ask, Collect, Log, Memory, Script
from resile.model.failure import Failure, Outcome
from resile.model.fanout import FanOut, Source
from resile.model.workflow import Agent, Child, Function, Http, Noop, Python, Query, Shell, Step, Validate, WriteFile

if TYPE_CHECKING:
    from resile.engine.evaluation.evaluators import Evaluators
    from resile.languages.contract import Visible

# Linux takes at most 128 KiB in one argument, its closing NUL included.
ARGUMENT_BYTES_MAX = 128 * 1024 - 1
# Runs an agent with its prompt on standard input: $0 is the file, the rest its command.
_FROM_FILE = b'exec "$@" < "$0"'

# In a rehearsal it gives the outcome of an attempt without running it.
Rehearsal = Callable[[StartAttempt, Step], Outcome | None]


class Performer:
    """Renders the attempts of one run."""

    def __init__(
        self,
        state: State,
        values: Values,
        *,
        run: int,
        output: str,
        folder: str,
        directory: str,
        clock: Clock,
        evaluators: Evaluators,
        secrets: tuple[str, ...] = (),
        rehearsal: Rehearsal | None = None,
    ) -> None:
        self._clock = clock
        self._secrets = secrets
        self._rehearsal = rehearsal
        self._launch_of: Callable[..., Launch] | None = None
        self._evaluators = evaluators
        self._gpus = visible_gpus(os.environ)
        self._state = state
        self._values = values
        self._directory = directory
        self._folder = folder
        self._scripts = os.path.join(folder, "scripts")
        self._run_env = identity(run, state.epoch, output)

    def launch(self, order: StartAttempt) -> Launch | Outcome:
        """What the executor is to run for this attempt, or its outcome where nothing needs to run."""
        job = self._state.jobs[order.job]
        step = self._state.step_of(job)
        if self._rehearsal is not None and (supposed := self._rehearsal(order, step)) is not None:
            return supposed
        variables: tuple[tuple[bytes, bytes], ...] = ()
        try:
            memory = self._evaluators.step_events.entered(job, step) if step.effects else {}
            if isinstance(step.action, Function):
                return self._launch_call(order, job, step, step.action)
            lookup = self._values.of(job)
            match step.action:
                case Shell() | Validate():
                    argv, fallback = self._shell_command(order, step.action.command, step.action.program, lookup)
                    if isinstance(step.action, Shell) and step.action.stdin:
                        argv, fallback = self._with_stdin(order, fallback or argv, step.action.stdin, lookup), ()
                case Noop():
                    return Outcome(exit_code=0)
                case WriteFile():
                    return self._write_file(job, step, step.action, lookup)
                case Log():
                    argv, fallback = self._log_command(order, job, step, step.action, lookup), ()
                case Script() | Memory() | Collect() | Ask():
                    return self._evaluators.perform(job, step, self._clock.now())
                case Agent():
                    argv, fallback = self._agent_command(order, step.action, lookup), ()
                case Http() | Python() | Query():
                    (argv, variables), fallback = self._program(order, job, step.name, step.action, lookup), ()
                case FanOut():
                    listed = self._list_items(order, job, step.action, lookup)
                    if isinstance(listed, Outcome):
                        return replace(listed, memory=memory) if memory else listed
                    (argv, variables), fallback = listed, ()
                case Child():
                    given = {**render_data(step.action.inputs, lookup), **lookup.args}
                    return Outcome(0, values=self._child_inputs(step.action, given), memory=memory)
                case _:
                    assert_never(step.action)
            if step.commit_required:
                self._keep_head(order, job, step, lookup)
            return self._launch(order, job, step, argv, fallback, lookup, variables)
        except ValueRefused as problem:
            return self._refuse(job, step, Failure("contract", str(problem), signature="contract: value refused"))
        except UnicodeError:
            message = "a value is no valid text: it holds half a character (a lone surrogate)"
            return self._refuse(job, step, Failure("contract", message, signature="contract: no valid text"))

    def _refuse(self, job: Job, step: Step, failure: Failure) -> Outcome:
        """The outcome of an attempt that can't start, after the step's cases; those of a loop are asked later."""
        outcome = Outcome(failure=failure)
        is_answered = bool(step.cases or step.effects) and not isinstance(step.action, FanOut)
        return self._evaluators.step_events.concluded(job, step, outcome) if is_answered else outcome

    def _launch(
        self,
        order: StartAttempt,
        job: Job,
        step: Step,
        argv: tuple[bytes, ...],
        fallback: tuple[bytes, ...],
        lookup: Visible,
        variables: tuple[tuple[bytes, bytes], ...],
    ) -> Launch:
        """The attempt with its environment, place and limits."""
        directory = self.directory_of(job, step, lookup)
        return Launch(
            order.job,
            order.attempt,
            argv,
            self._environment_of(order, job, step) + variables,
            b"" if directory == self._directory else os.fsencode(directory),
            time_limit(self._state, job) or 0.0,
            self._grace_of(job, step),
            fallback,
            after=order.after,
        )

    def _launch_call(self, order: StartAttempt, job: Job, step: Step, action: Function) -> Launch:
        """The launch of a function call; its worker knows the run, the call knows its job."""
        if self._launch_of is None:
            from resile.engine.actions.function import launch_of

            self._launch_of = launch_of
        state = self._state
        workflow = state.workflow if job.scope == ROOT else state.workflow_of(job.scope)
        env: tuple[tuple[bytes, bytes], ...] = ()
        if action.workers == "processes" and (step.env or workflow.env or order.gpus or failed_job(self._state, job)):
            env = self._environment_of(order, job, step)
        return self._launch_of(
            order,
            job,
            step,
            action,
            self._values,
            folder=workflow.folder,
            timeout_seconds=time_limit(state, job) or 0.0,
            grace_seconds=workflow.grace_seconds if step.grace_seconds is None else step.grace_seconds,
            env=env,
        )

    def _grace_of(self, job: Job, step: Step) -> float:
        """The time between SIGTERM and SIGKILL."""
        return self._state.workflow_of(job.scope).grace_seconds if step.grace_seconds is None else step.grace_seconds

    def _shell_command(
        self, order: StartAttempt, command: str, program: str, lookup: Visible
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """The argv of a shell command: plain words with the shell as fallback, anything else in its shell."""
        rendered = render_shell(command, lookup, program)
        text = os.fsencode(rendered)
        shell = os.fsencode(program)
        if len(text) > ARGUMENT_BYTES_MAX:
            return (shell, self._write_attempt_file(order, "sh", text)), ()
        plain = plain_argv(rendered) if program == "sh" else None
        if plain is None:
            return (shell, b"-c", text), ()
        return tuple(map(os.fsencode, plain)), (shell, b"-c", text)

    def _with_stdin(
        self, order: StartAttempt, argv: tuple[bytes, ...], stdin: str, lookup: Visible
    ) -> tuple[bytes, ...]:
        """The argv of a command that reads a text on standard input."""
        text = os.fsencode(render_text(stdin, lookup))
        return (b"sh", b"-c", _FROM_FILE, self._write_attempt_file(order, "stdin", text), *argv)

    def _log_command(
        self, order: StartAttempt, job: Job, step: Step, action: Log, lookup: Visible
    ) -> tuple[bytes, ...]:
        """The argv of a program that prints a text, with its level in front where that is not `info`."""
        text = render_text(action.message, lookup).strip()
        if action.with_outputs:
            names = [name for need in step.needs for name in need.any_of]
            text += "".join(f"\n{name}: {text_of(self._values.find(('steps', name, 'output'), job))}" for name in names)
        mark = "" if action.level == "info" else f"[{action.level}] "
        return (b"cat", self._write_attempt_file(order, "text", os.fsencode(f"{mark}{text}\n")))

    def _agent_command(self, order: StartAttempt, action: Agent, lookup: Visible) -> tuple[bytes, ...]:
        """The argv of an agent, with its prompt as the last argument, or on standard input where it is too long."""
        prompt = os.fsencode(render_text(action.prompt, lookup))
        command = tuple(map(os.fsencode, action.command))
        if action.prompt_by == "argument" and len(prompt) <= ARGUMENT_BYTES_MAX:
            return (*command, prompt)
        return (b"sh", b"-c", _FROM_FILE, self._write_attempt_file(order, "prompt", prompt), *command)

    def _list_items(
        self, order: StartAttempt, job: Job, action: FanOut, lookup: Visible
    ) -> Outcome | tuple[tuple[bytes, ...], tuple[tuple[bytes, bytes], ...]]:
        """List the items of a fan-out: at once where they are known, else by a program."""
        from resile.engine.actions.items import ItemsRefused, items_path, items_program, list_values, redact_items
        from resile.engine.actions.programs import VARIABLE

        path = items_path(self._folder, f"j{order.job}_r{self._state.epoch}_a{order.attempt}")
        source = action.source
        if source.path or source.command:
            folder, since = self._state.workflow_of(job.scope).folder, self._state.started_at
            argv, variables = items_program(source, path, folder, lookup, since)
            return argv, ((VARIABLE, variables),)
        try:
            values = self._known_items(source, job, lookup)
            count = list_values(path, values, source)
            redact_items(path, self._secrets)
            return Outcome(exit_code=0, values={"items": count})
        except ItemsRefused as problem:
            return Outcome(failure=Failure("contract", str(problem), signature="contract: items"))
        except OSError as error:
            return Outcome(failure=Failure("contract", f"can't list the items: {error.strerror}"))

    def _known_items(self, source: Source, job: Job, lookup: Visible) -> Sequence[Any]:
        """The items that the engine knows; raises ValueRefused where they are no list."""
        if source.values is not None:
            return source.values
        if not source.template:
            return self._values.listed(source.step, job)
        values = render_data(source.template, lookup)
        if is_one_reference(source.template):
            # JSON text that another step printed is its value.
            values = parse_json(values)
        if not isinstance(values, list):
            raise ValueRefused(f"`{source.template}` is not a list")
        return values

    def read_items(self, order: ReadItems, at: float) -> ItemsRead:
        """The next items of a fan-out."""
        from resile.engine.actions.items import items_path, read_items

        items, place, last = read_items(items_path(self._folder, order.label), order.place, order.count)
        return ItemsRead(at, order.job, order.label, items, place, last)

    def read_groups(self, order: ReadGroups, at: float) -> GroupsRead:
        """The next fan-outs of a redrive."""
        from resile.engine.actions.items import items_path, read_groups

        groups, place, last = read_groups(items_path(self._folder, order.label), order.place, order.count)
        return GroupsRead(at, order.label, groups, place, last)

    def _child_inputs(self, action: Child, given: dict[str, Any]) -> dict[str, Any]:
        """The inputs of a child workflow: what is given, else its defaults; they are stored, so none is a secret."""
        for name, value in given.items():
            if redact_value(value, self._secrets) != value:
                raise ValueRefused(f"input {name!r} holds the value of a secret, and inputs are stored")
        for name, declared in action.workflow.inputs.items():
            if name in given and declared.schema is not None:
                from resile.engine.actions.schemas import unmet

                if problem := unmet(declared.schema, given[name], f"input {name!r}"):
                    raise ValueRefused(problem)
        return {name: given.get(name, declared.default) for name, declared in action.workflow.inputs.items()}

    def _program(
        self, order: StartAttempt, job: Job, name: str, action: Http | Python | Query, lookup: Visible
    ) -> tuple[tuple[bytes, ...], tuple[tuple[bytes, bytes], ...]]:
        """The argv of a program of ours, and the variable that holds its settings."""
        from resile.engine.actions.programs import VARIABLE, launch_program

        folder = self._state.workflow_of(job.scope).folder
        program = lookup.language.program(action, name, folder, self._folder, lookup)
        argv, settings = launch_program(program, lambda data: self._write_attempt_file(order, "json", data))
        return argv, ((VARIABLE, settings),)

    def _write_file(self, job: Job, step: Step, action: WriteFile, lookup: Visible) -> Outcome:
        """Write a file that appears whole or not at all."""
        path = os.path.join(self.directory_of(job, step, lookup), render_text(action.path, lookup))
        folder, name = os.path.split(path)
        data = render_text(action.content, lookup).encode("utf-8", "surrogateescape")
        beside = os.path.join(folder, f".{name}.part")
        try:
            os.makedirs(folder, exist_ok=True)
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, action.mode), "wb") as file:
                file.write(data)
            os.replace(beside, path)
        except OSError as error:
            message = f"can't write {path}: {error.strerror}"
            return Outcome(1, Failure("exit", message, 1, signature=f"write_file: {error.strerror}"))
        return Outcome(exit_code=0)

    def directory_of(self, job: Job, step: Step, lookup: Visible) -> str:
        """Where a step runs."""
        base = self._values.folder_of(job) or self._directory
        return os.path.join(base, render_text(step.working_dir, lookup)) if step.working_dir else base

    def outputs_of(self, step: Step, lookup: Visible) -> list[str]:
        """The files that a step must leave."""
        return [render_text(name, lookup) for name in step.outputs]

    def _keep_head(self, order: StartAttempt, job: Job, step: Step, lookup: Visible) -> None:
        """Keep the commit that a step starts from in a file, which outlives a crash."""
        head = head_of(self.directory_of(job, step, lookup))
        if head is None:
            raise ValueRefused("commit_required: the step does not run inside a git repository")
        self._write_attempt_file(order, "head", head.encode())

    def head_before(self, job: int, attempt: int) -> str:
        """The commit that an attempt started from."""
        with open(self._path_of(job, attempt, "head")) as file:
            return file.read()

    def _environment_of(self, order: StartAttempt, job: Job, step: Step) -> tuple[tuple[bytes, bytes], ...]:
        """The variables that a step has beyond its run's; in a repair they describe the attempt that failed."""
        failed = failed_job(self._state, job)
        if failed is not None and failed.error is not None:
            pairs = self._repair_env(failed.id, failed.error)
        else:
            pairs = [
                (b"RESILE_JOB_ID", b"%d" % job.id),
                (b"RESILE_JOB_NAME", os.fsencode(step.name)),
                (b"RESILE_ATTEMPT_ID", b"%d" % order.attempt),
            ]
        if order.gpus:
            seen = self._gpus or [str(number) for number in range(max(order.gpus) + 1)]
            names = ",".join(seen[number % len(seen)] for number in order.gpus)
            pairs.append((b"CUDA_VISIBLE_DEVICES", os.fsencode(names)))
        pairs += _encode_env(self._values.environment(job))
        return tuple(pairs)

    def _repair_env(self, failed: int, error: Error) -> list[tuple[bytes, bytes]]:
        """The variables that describe the failed attempt to a repair, under our names and under Torc's."""
        code = error.failure.exit_code
        variables = {**self._run_env, "JOB_ID": str(failed), "JOB_NAME": error.step, "ATTEMPT_ID": str(error.attempt)}
        variables["RETURN_CODE"] = "" if code is None else str(code)
        prefixes = ("RESILE_", "TORC_")
        return [(os.fsencode(prefix + name), os.fsencode(variables[name])) for prefix in prefixes for name in variables]

    def _path_of(self, job: int, attempt: int, ending: str) -> str:
        """The path of a file that belongs to one attempt."""
        return os.path.join(self._scripts, f"job_j{job}_r{self._state.epoch}_a{attempt}.{ending}")

    def _write_attempt_file(self, order: StartAttempt, ending: str, text: bytes) -> bytes:
        """Write a file that belongs to one attempt, readable by its owner alone; its path."""
        os.makedirs(self._scripts, mode=0o700, exist_ok=True)
        path = self._path_of(order.job, order.attempt, ending)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text)
        return os.fsencode(path)


def identity(run: int, epoch: int, output: str) -> dict[str, str]:
    """The variables that name a run to everything that it starts; each with `RESILE_` in front."""
    return {"WORKFLOW_ID": str(run), "RUN_ID": str(epoch), "OUTPUT_DIR": output, "API_URL": ""}


def time_limit(state: State, job: Job) -> float | None:
    """How long an attempt may run: the shorter of its timeout and of the runtime it was granted."""
    step = state.step_of(job)
    if step.resources is None and not job.runtime_seconds:
        return step.timeout_seconds
    resources = granted(state, job)
    written = step.resources.runtime_seconds if step.resources is not None else None
    # More time than the file says, granted by a rule or a judge, replaces the timeout too.
    timeout = step.timeout_seconds if job.runtime_seconds <= (written or 0.0) else None
    limits = (timeout, resources.runtime_seconds if resources is not None else None)
    return min((limit for limit in limits if limit is not None), default=None)


def _encode_env(given: Mapping[str, str]) -> Sequence[tuple[bytes, bytes]]:
    """Encode environment variables; Linux limits each as it limits an argument."""
    pairs = [(os.fsencode(name), os.fsencode(text)) for name, text in given.items()]
    for name, value in pairs:
        if len(name) + len(value) >= ARGUMENT_BYTES_MAX:
            text = f"env {os.fsdecode(name)} has {len(value)} bytes, an environment variable takes {ARGUMENT_BYTES_MAX}"
            raise ValueRefused(text)
    return pairs
