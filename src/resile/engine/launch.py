"""Turns an order to start an attempt into a launch for an executor.

    StartAttempt --> Attempt --prepare of its step type (actions/)--> Launch, or an Outcome if nothing needs to run

Rendering happens here and not in the core, because values are read from the output of other attempts. A value that
can't be rendered fails the attempt (`contract`) before anything runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec.structs import replace

from resile.core.actions import ReadGroups, ReadItems, StartAttempt
from resile.core.events import GroupsRead, ItemsRead
from resile.core.state import Error, Job, State
from resile.engine.actions.registry import prepare_of
from resile.engine.clock import Clock
from resile.engine.evaluation.values import Values
from resile.engine.resources import share_of, time_limit, visible_gpus, watched_memory
from resile.engine.secrets import NOTHING_HIDDEN, Hidden
from resile.executors.contract import Launch
from resile.languages.contract import render_text
from resile.languages.references import ValueRefused, write_text
from resile.languages.surroundings import failed_job
from resile.model.failure import Failure, Fingerprint, Outcome, contract_failure
from resile.model.folders import create_file, make_folder, put_in_place
from resile.model.nested import job_key
from resile.model.workflow import FanOut, Function, Noop, Python, Query, Shell, Step, Validate

if TYPE_CHECKING:
    from resile.engine.evaluation.evaluators import Evaluators
    from resile.engine.fingerprints.record import Recorder
    from resile.languages.contract import Visible

# The folders of attempts' files (the second is that of the functions' executor, whose import takes long); the ending of
# the file with the commit that an attempt started from.
SCRIPTS, CALLS, HEAD = "scripts", "functions", "head"
# Linux takes at most 128 KiB in one argument, its closing NUL included.
ARGUMENT_BYTES_MAX = 128 * 1024 - 1
# Runs a command with a file on standard input: $0 is the file, the rest the command.
_FROM_FILE = b'exec "$@" < "$0"'
# Actions that may name files to read; actions that name no variable of the environment; actions that are commands.
_NAME_FILES = frozenset((Python, Query, FanOut))
_NAME_NOTHING = frozenset((Noop, Function))
_COMMANDS = frozenset((Shell, Validate))

Argv = tuple[bytes, ...]
Variables = tuple[tuple[bytes, bytes], ...]
# In a rehearsal: returns the outcome of an attempt without running it.
Rehearsal = Callable[[StartAttempt, Step], Outcome | None]


class Attempt:
    """One attempt that is about to start; `memory` holds what the step's effects wrote on entering the step."""

    def __init__(
        self, performer: Performer, order: StartAttempt, job: Job, step: Step, memory: dict[str, dict[str, Any]]
    ) -> None:
        self.performer = performer
        self.order = order
        self.job = job
        self.step = step
        self.memory = memory
        self._lookup: Visible | None = None

    @property
    def lookup(self) -> Visible:
        """The names and values that the texts of the job can use."""
        # functools.cached_property takes a lock, and every attempt calls this.
        if self._lookup is None:
            self._lookup = self.performer.values.of(self.job)
        return self._lookup

    @property
    def directory(self) -> str:
        """The directory in which the step runs."""
        return self.performer.directory_of(self.job, self.step)

    def write_file(self, ending: str, content: bytes | Callable[[BinaryIO], None]) -> bytes:
        """Write a file that belongs to the attempt, readable by its owner only; return its path.

        A large content may be a function that writes it. The engine removes the file when the attempt ends, because it
        may hold values; it keeps the file with a HEAD.
        """
        job, attempt = self.order.job, self.order.attempt
        path = self.performer.path_of(job, attempt, ending)
        if ending != HEAD:
            self.performer.files.setdefault((job, attempt), []).append(path)
        make_folder(os.path.dirname(path))
        part = f"{path}.part" if ending == HEAD else path
        with create_file(part) as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            if ending == HEAD:
                put_in_place(file, part, path)
        return os.fsencode(path)

    def with_stdin(self, argv: Argv, ending: str, content: bytes | Callable[[BinaryIO], None]) -> Argv:
        """The argv that runs a command with a content on its standard input."""
        return (b"sh", b"-c", _FROM_FILE, self.write_file(ending, content), *argv)

    def write_text(self, text: str, file: BinaryIO) -> None:
        """Write a text with its values to a file; in a native file a value may have any size."""
        if self.lookup.language.has_references:
            write_text(text, self.lookup, file)
        else:
            file.write(render_text(text, self.lookup).encode("utf-8", "surrogateescape"))

    def launch(self, argv: Argv, fallback: Argv = (), variables: Variables = ()) -> Launch:
        """The launch of a command with its environment, directory and limits.

        `fallback` runs if the program of `argv` does not exist.
        """
        order, job, step, state = self.order, self.job, self.step, self.performer.state
        directory = self.directory
        if step.commit_required:
            self._keep_head(directory)
        return Launch(
            order.job,
            order.attempt,
            argv,
            self.performer.environment_of(order, job, step) + variables,
            b"" if directory == self.performer.directory else os.fsencode(directory),
            time_limit(state, job) or 0.0,
            state.workflow_of(job.scope).grace_seconds if step.grace_seconds is None else step.grace_seconds,
            fallback,
            after=order.after,
            memory_bytes=watched_memory(state, job),
            labels=step.runs_on,
            share=share_of(state, job),
            step=step.name,
        )

    def _keep_head(self, directory: str) -> None:
        """Store the commit that a step starts from in a file, which survives a crash."""
        from resile.engine.actions.git import head_of

        self.write_file(HEAD, head_of(directory).encode())


class Performer:
    """Renders and prepares the attempts of one run; `run_env` are the variables that `identity` makes."""

    def __init__(
        self,
        state: State,
        values: Values,
        *,
        run_env: dict[str, str],
        folder: str,
        directory: str,
        clock: Clock,
        evaluators: Evaluators,
        secrets: Hidden = NOTHING_HIDDEN,
        rehearsal: Rehearsal | None = None,
    ) -> None:
        self.clock = clock
        self.secrets = secrets
        self._rehearsal = rehearsal
        self.evaluators = evaluators
        self._gpus = visible_gpus(os.environ)
        self.state = state
        self.values = values
        self.directory = directory
        self.folder = folder
        self._run_env = run_env
        self._recorder: Recorder | None = None
        # The files with values, by attempt; an earlier engine may have left some.
        self.files = {} if state.phase == "new" else _files_left_in(folder)

    def launch(self, order: StartAttempt) -> Launch | Outcome:
        """The launch of an attempt, or its outcome if nothing needs to run."""
        job = self.state.jobs[order.job]
        step = self.state.step_of(job)
        if self._rehearsal is not None and (supposed := self._rehearsal(order, step)) is not None:
            return supposed
        if order.refused:
            return self._refuse(job, step, contract_failure(order.refused, "output lost"))
        self.values.texts.lost = ""
        try:
            memory = self.evaluators.step_events.enter(job, step) if step.effects else {}
            prepared = prepare_of(type(step.action))(Attempt(self, order, job, step, memory))
            if step.reads or type(step.action) in _NAME_FILES:
                self.recorder.begin(job, order.attempt, step)
            self.values.texts.refuse_lost()
            return prepared
        except ValueRefused as problem:
            return self._refuse(job, step, contract_failure(str(problem), "value refused"))
        except UnicodeError:
            message = "a value is no valid text: it holds half a character (a lone surrogate)"
            return self._refuse(job, step, contract_failure(message, "no valid text"))

    @property
    def recorder(self) -> Recorder:
        """Makes fingerprints; imported with the first step that has one."""
        if self._recorder is None:
            from resile.engine.fingerprints.record import Recorder

            self._recorder = Recorder(self, self._run_env["OUTPUT_DIR"])
        return self._recorder

    def fingerprint_of(self, number: int, attempt: int, *, succeeded: bool) -> Fingerprint | None:
        """What the results of an attempt depend on beyond its definition, at its end."""
        job = self.state.jobs.get(number)
        if job is None or not (_has_fingerprint(self.state.step_of(job)) or self.state.workflow_of(job.scope).env):
            return None
        if not succeeded:
            self.recorder.forget(number, attempt)
            return None
        return self.recorder.end(job, attempt, self.state.step_of(job), self.values.public_env, self.secrets)

    def _refuse(self, job: Job, step: Step, failure: Failure) -> Outcome:
        """The outcome of an attempt that can't start, after the step's cases; a loop's cases are evaluated later."""
        outcome = Outcome(failure=failure)
        is_answered = bool(step.cases or step.effects) and not isinstance(step.action, FanOut)
        return self.evaluators.step_events.conclude(job, step, outcome) if is_answered else outcome

    def read_items(self, order: ReadItems, at: float) -> ItemsRead:
        """The next items of a fan-out."""
        from resile.engine.items.listing import items_path, read_items

        items, place, last = read_items(items_path(self.folder, order.label), order.place, order.count)
        fan = self.state.fans.get(order.job)
        if fan is None or not fan.again or fan.redrive:
            return ItemsRead(at, order.job, order.label, items, place, last)
        from resile.engine.items.left import kept_scopes

        kept = kept_scopes(self.values.store, self.values.id, items)
        # A letter of an item that fails again goes on with the history of the letter that the store has.
        items = tuple(replace(item, history=()) for item in items)
        return ItemsRead(at, order.job, order.label, items, place, last, kept)

    def read_groups(self, order: ReadGroups, at: float) -> GroupsRead:
        """The next fan-outs of a redrive."""
        from resile.engine.items.listing import items_path, read_groups

        groups, place, last = read_groups(items_path(self.folder, order.label), order.place, order.count)
        return GroupsRead(at, order.label, groups, place, last)

    def directory_of(self, job: Job, step: Step) -> str:
        """The directory in which a step runs."""
        base = self.values.folder_of(job) or self.directory
        return os.path.join(base, render_text(step.working_dir, self.values.of(job))) if step.working_dir else base

    def is_head_unchanged(self, job: int, attempt: int, directory: str) -> bool:
        """Does the folder have the commit checked out that the attempt started from?"""
        from resile.engine.actions.git import head_of

        with open(self.path_of(job, attempt, HEAD)) as file:
            return head_of(directory) == file.read()

    def environment_of(self, order: StartAttempt, job: Job, step: Step) -> Variables:
        """The variables of a step, beyond those of its run; in a repair they describe the failed attempt."""
        failed = failed_job(self.state, job)
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
        for name, text in self.values.environment(job).items():
            pair = os.fsencode(name), os.fsencode(text)
            # Linux limits a variable as it limits an argument.
            if len(pair[0]) + len(pair[1]) >= ARGUMENT_BYTES_MAX:
                limit = f"an environment variable takes {ARGUMENT_BYTES_MAX}: `stdin` and `write_file` take any size"
                raise ValueRefused(f"env {name} has {len(pair[1])} bytes, {limit}")
            pairs.append(pair)
        return tuple(pairs)

    def _repair_env(self, failed: int, error: Error) -> list[tuple[bytes, bytes]]:
        """The variables that describe the failed attempt to a repair, with our prefix and with Torc's."""
        code = error.failure.exit_code
        variables = {**self._run_env, "JOB_ID": str(failed), "JOB_NAME": error.step, "ATTEMPT_ID": str(error.attempt)}
        variables["RETURN_CODE"] = "" if code is None else str(code)
        # A failure after exit 0, such as a missing output file, has the code 1 in Torc.
        of_torc = {**variables, "RETURN_CODE": "1"} if code == 0 else dict(variables)
        if variables["API_URL"]:
            of_torc["JOB_ID"] = str(job_key(int(variables["WORKFLOW_ID"]), failed))
        both = (("RESILE_", variables), ("TORC_", of_torc))
        return [(os.fsencode(prefix + name), os.fsencode(text)) for prefix, of in both for name, text in of.items()]

    def path_of(self, job: int, attempt: int, ending: str) -> str:
        """The path of a file that belongs to one attempt."""
        return os.path.join(self.folder, SCRIPTS, f"job_j{job}_r{self.state.epoch}_a{attempt}.{ending}")

    def remove_files(self, job: int, attempt: int) -> None:
        """Remove the files that held values of an attempt: it has ended, or never starts."""
        for path in self.files.pop((job, attempt), ()):
            with suppress(FileNotFoundError):
                os.unlink(path)


def _has_fingerprint(step: Step) -> bool:
    """May the results of a step depend on more than its definition? For plain commands a quick check is enough."""
    action = step.action
    if step.when or step.arcs or step.on_success or step.transform or step.checks or step.cases or step.effects:
        # Conditions and code may name variables.
        return True
    if type(action) not in _COMMANDS or step.reads or step.outputs or step.env or step.working_dir:
        return type(action) not in _NAME_NOTHING or bool(step.reads or step.env)
    return "env" in action.command or (type(action) is Shell and "env" in action.stdin)  # type: ignore[union-attr]


def _files_left_in(folder: str) -> dict[tuple[int, int], list[str]]:
    """The files with values that an earlier engine left in a run's folder: scripts, inputs, and calls of functions."""
    found: dict[tuple[int, int], list[str]] = {}
    for part in (SCRIPTS, CALLS):
        try:
            names = os.listdir(os.path.join(folder, part))
        except OSError:
            continue
        for name in names:
            words = name.partition(".")[0].split("_")
            if words[0] in ("job", "call") and not name.endswith("." + HEAD):
                key = int(words[1].removeprefix("j")), int(words[-1].removeprefix("a"))
                found.setdefault(key, []).append(os.path.join(folder, part, name))
    return found


def identity(run: int, epoch: int, output: str, api_url: str = "", database: str = "") -> dict[str, str]:
    """The variables that identify a run to every process it starts, without their `RESILE_` prefix."""
    ids = {"WORKFLOW_ID": str(run), "RUN_ID": str(epoch)}
    return {**ids, "OUTPUT_DIR": output, "API_URL": api_url, "DATABASE": database, "PYTHON": sys.executable}
