"""What `${...}` can name while a run goes on: inputs, environment, steps, captured names, errors, the execution.

Outputs are not kept in memory: they are read from the log segments when a text really names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from resile.core.event_log import STATUS_NAMES
from resile.core.scheduling.finish import execution
from resile.core.state import Job, Scope, State
from resile.engine.evaluation.templates import render_text
from resile.engine.paths import epoch_folder, worktree, worktree_branch
from resile.executors.contract import OutputReader, Stream
from resile.executors.output import open_output
from resile.languages.references import MISSING, ValueRefused, or_default, path_of, text_of
from resile.model.builtin_actions import Collect
from resile.model.fanout import FanOut
from resile.model.limits import VALUE_BYTES_MAX
from resile.model.status import Status
from resile.model.workflow import Child, Function
from resile.store.contract import AttemptRow, Store

if TYPE_CHECKING:
    from resile.languages.references import Lookup

Key = str | int
INDEX_DIGITS_MAX = 9
# Names of ours without entries to count: behind them a number in brackets speaks of an array of the shell.
_OBJECTS = ("inputs", "execution", "error")


class Values:
    """Looks names up for the jobs of one run."""

    def __init__(
        self,
        store: Store,
        run: int,
        output: str,
        state: State,
        env: Mapping[str, str],
        live: OutputReader | None = None,
    ) -> None:
        """`live` reads the output of the epoch that runs; without it that is read like any earlier epoch's."""
        self._live = live
        self._store = store
        self._run = run
        self._output = output
        self._state = state
        self._env = env
        self._making: dict[int, dict[str, str]] = {}
        self._capturers: dict[int, dict[str, str]] = {}
        self.languages: dict[str, Callable[[Job], Lookup]] = {}

    def of(self, job: Job) -> Lookup:
        """The lookup for the texts of one job: the value of `steps.build.output`, or MISSING where nobody knows it.

        It raises ValueRefused where the name is known and its path leads nowhere. Texts in another template language
        have a lookup of their own.
        """
        language = self.languages.get(self._state.workflow_of(job.scope).templates)
        return language(job) if language is not None else lambda name: self._insisted(name, job)

    def asked(self, job: Job) -> Lookup:
        """The lookup for the conditions of one job, in which what leads nowhere is MISSING as well."""
        language = self.languages.get(self._state.workflow_of(job.scope).templates)
        return language(job) if language is not None else lambda name: or_default(name, self.find(path_of(name), job))

    def _insisted(self, name: str, job: Job) -> Any:
        """The value of a reference; only what the workflow does not know by its first word may have none."""
        path = path_of(name)
        value = or_default(name, self.find(path, job))
        if value is not MISSING or len(path) == 1 or (path[0] in _OBJECTS and isinstance(path[1], int)):
            return value
        from resile.engine.evaluation.missing_values import capturer, lack_of

        if problem := lack_of(path, lambda part: self.find(part, job)):
            raise ValueRefused(problem)
        for frame in self.frames(job):
            if owner := capturer(self._state, frame.id, str(path[0]), self._capturers):
                raise ValueRefused(f"`{path[0]}` has no value: {owner!r} captures it and has not given one")
        return MISSING

    def find(self, path: Sequence[Key], job: Job) -> Any:
        """The value under a path, as one job sees it."""
        head, rest = path[0], path[1:]
        match head:
            case "inputs":
                return walk(self._inputs(job), rest)
            case "item" | "item_index" | "item_id":
                return self._item(str(head), rest, job)
            case "worktree" | "worktree_branch" if not rest:
                return self._worktree(head, job)
            case "env":
                return self.env_of(job).get(str(rest[0]), "") if len(rest) == 1 else MISSING
            case "steps":
                return self._step(rest, job)
            case "execution":
                return walk(execution(self._state, self._workflow_scope(job)), rest)
            case "error":
                failed = self.failed_job(job)
                return MISSING if failed is None else walk(self.error(failed), rest)
            case "shell" if rest[:1] == ("output",):
                failed = self.failed_job(job)
                if failed is not None:
                    return self._both_streams(failed)
        found = walk(self._named(str(head), job), path)
        return self._map(path, job) if found is MISSING else found

    def environment(self, job: Job) -> dict[str, str]:
        """What the workflow and the step add to the caller's variables: each sees those before it, and all below it."""
        workflow, step = self._state.workflow_of(job.scope), self._state.step_of(job)
        if not (workflow.env or step.env):
            return {}
        if job.id in self._making:
            return self._making[job.id]
        made = self._making[job.id] = {}
        try:
            lookup = self.of(job)
            for given in (workflow.env, step.env):
                for name, text in given.items():
                    made[name] = render_text(text, lookup)
        finally:
            del self._making[job.id]
        return made

    def env_of(self, job: Job) -> Mapping[str, str]:
        """The variables that a job's texts and code know; where its own can't be made, which fails it, the caller's."""
        try:
            added = self.environment(job)
        except ValueRefused:
            return self._env
        return {**self._env, **added} if added else self._env

    def _named(self, name: str, job: Job) -> dict[str, Any]:
        """The captured values among which a name is looked for: those of the nearest scope that has it."""
        for frame in self.frames(job):
            if name in frame.values:
                return frame.values
        return {}

    def frames(self, job: Job) -> Iterator[Scope]:
        """The scopes whose names a job sees, nearest first, as far as its workflow reaches."""
        frame: Scope | None = self._state.frame_of(job.scope)
        while frame is not None:
            yield frame
            around = self._state.around(frame) if frame.kind == "item" else None
            frame = None if around is None else self._state.frame_of(around.id)

    def _inputs(self, job: Job) -> dict[str, Any]:
        """The inputs of the workflow that a job is part of."""
        *_, last = self.frames(job)
        return last.inputs if last.kind == "child" else self._state.inputs

    def _workflow_scope(self, job: Job) -> int:
        """The scope of the workflow that a job is part of: a child's, or the root."""
        *_, last = self.frames(job)
        return last.id

    def _item(self, head: str, rest: Sequence[Key], job: Job) -> Any:
        """The item that a job runs for, or something about it."""
        scope = self.item_scope(job)
        if scope is None or scope.item is None:
            return MISSING
        if head == "item":
            # A text has no fields but one: what a file calls the `item` of a line that a command printed is that line.
            is_text = isinstance(scope.item.value, str) and tuple(rest) == ("item",)
            return scope.item.value if is_text else walk(scope.item.value, rest)
        from resile.core.fanout.naming import item_id

        if rest:
            return MISSING
        owner = self._state.jobs[scope.owner]
        return scope.item.index if head == "item_index" else item_id(self._state, owner, scope.item)

    def _worktree(self, head: str, job: Job) -> Any:
        """The worktree that a job works in, or its branch."""
        scope = self._isolated_scope(job)
        if scope is None or scope.item is None:
            return MISSING
        if head == "worktree":
            return worktree(self._output, self._run, scope.owner, scope.item.index)
        return worktree_branch(self._run, scope.owner, scope.item.index)

    def _isolated_scope(self, job: Job) -> Scope | None:
        """The nearest item around a job that works apart, whatever lies between."""
        scope: Scope | None = self._state.scopes[job.scope]
        while scope is not None:
            if scope.kind == "item":
                action = self._state.step_of(self._state.jobs[scope.owner]).action
                if isinstance(action, FanOut) and action.isolation == "worktree":
                    return scope
            scope = self._state.around(scope)
        return None

    def folder_of(self, job: Job) -> str:
        """The worktree that is a job's directory; empty where that is the caller's.

        An item's own worktree is made and merged from outside of it: by the first and the last of its jobs.
        """
        scope = self._isolated_scope(job)
        if scope is not None and job.scope == scope.id and job.step in (0, len(scope.waiting) - 1):
            scope = self._isolated_scope(self._state.jobs[scope.owner])
        if scope is None or scope.item is None:
            return ""
        return worktree(self._output, self._run, scope.owner, scope.item.index)

    def item_scope(self, job: Job) -> Scope | None:
        """The scope of the item that a job runs for."""
        return next((frame for frame in self.frames(job) if frame.kind == "item"), None)

    def _map(self, path: Sequence[Key], job: Job) -> Any:
        """The numbers of a fan-out, by the name of its step."""
        other = self._state.job_named(str(path[0]), job.scope)
        fan = None if other is None else self._state.fan_of(other)
        if other is None or fan is None or len(path) < 2:
            return MISSING
        if path[1] == "results":
            return walk(self.results(other), path[2:])
        if path[1] == "outcomes":
            return walk(self.outcomes(other), path[2:])
        from resile.core.fanout.naming import fan_name
        from resile.engine.map_statistics import letters_by_name, map_metrics

        # They are all on disk: a step that asks was started after the last of them was written.
        letters = self._store.letter_counts(self._run) if path[1] == "dead_letters" else []
        kept = letters_by_name(letters).get(fan_name(self._state, other), 0)
        return walk({**map_metrics(fan, kept), "total": fan.total}, path[1:])

    def results(self, job: Job) -> list[Any]:
        """What the last step of each item wrote, of those that succeeded, in the order of the items."""
        from resile.core.fanout.naming import fan_action
        from resile.engine.map_statistics import result_jobs

        last = result_jobs(self._state, job, self._store.jobs(self._run))
        if isinstance(fan_action(self._state, job).steps[-1].action, Function):
            from resile.engine.actions.function import results_of

            return results_of(self._store, self._run, last)
        found: list[Any] = []
        size = 0
        for number in last:
            text = self._text_of(number, "out")
            size += len(text)
            if size > VALUE_BYTES_MAX:
                raise ValueRefused(f"the results of {job_name(self._state, job)} are more than {VALUE_BYTES_MAX} bytes")
            found.append(parsed(text))
        return found

    def outcomes(self, job: Job) -> list[dict[str, Any]]:
        """What came of each item, in their order: its id, how it ended, all that its steps wrote, how it failed."""
        from resile.core.fanout.naming import fan_action, fan_name
        from resile.engine.map_statistics import ended, item_jobs, seconds_of

        name, action = fan_name(self._state, job), fan_action(self._state, job)
        letters = {letter.index: letter for letter in self._store.letters(self._run, name)}
        begun = item_jobs(self._state, job, self._store.jobs(self._run))
        own = {step.name for step in action.steps}
        is_dropped = action.policy.on_item_failure == "skip"
        found: list[dict[str, Any]] = []
        size = 0
        for index in sorted(begun.keys() | letters.keys()):
            rows = begun.get(index, [])
            output = "\n".join(text for row in rows if row.step in own and (text := self._text_of(row.id, "out")))
            status, error = ended(rows, letters.get(index), self._failure_of, is_dropped=is_dropped)
            told = {"item_id": f"{name}[{index}]", "status": status, "output": output, "error": error}
            size += len(text_of(told))
            if size > VALUE_BYTES_MAX:
                raise ValueRefused(f"the outcomes of {job_name(self._state, job)} are over {VALUE_BYTES_MAX} bytes")
            found.append({**told, "duration": seconds_of(rows)})
        return found

    def _failure_of(self, job: int) -> str:
        """What the last attempt of a job failed with."""
        *_, last = (None, *self._store.attempts(self._run, job))
        return last.failure.message if last is not None and last.failure is not None else ""

    def listed(self, step: str, job: Job) -> list[Any]:
        """The list that a step gave, for a fan-out over it; raises ValueRefused where it gave none."""
        other = self._state.job_named(step, job.scope)
        value = parsed(self.output(other)) if other is not None else None
        if not isinstance(value, list):
            raise ValueRefused(f"the output of {step!r} is not a list")
        return value

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
        if len(path) >= 2 and path[1] == "output" and (item := self.source_item(str(path[0]), job)) is not MISSING:
            return walk(item, path[2:])
        other = self._state.job_named(str(path[0]), job.scope) if len(path) >= 2 else None
        if other is None:
            return MISSING
        match path[1]:
            case "output":
                return walk(self.output(other), path[2:])
            case "stderr":
                return self._text(other, "err")
            case "exit_code":
                return other.exit_code
            case "status":
                return STATUS_NAMES[other.status]
            case "attempts":
                return other.attempts_started
            case "outputs":
                return walk(self._captured(other), path[2:])
        return self._map(path, job)

    def source_item(self, name: str, job: Job) -> Any:
        """Inside a fan-out over a step's list, that step's output is the item."""
        for frame in self.frames(job):
            if frame.kind == "item" and frame.item is not None:
                action = self._state.step_of(self._state.jobs[frame.owner]).action
                if isinstance(action, FanOut) and action.source.step == name:
                    return frame.item.value
        return MISSING

    def _captured(self, job: Job) -> dict[str, Any]:
        """The names that a step captures, with their values."""
        frame, step = self._state.frame_of(job.scope), self._state.step_of(job)
        if isinstance(step.action, Child) and not step.capture:
            return frame.outputs.get(step.name, {})
        return {capture.name: frame.values.get(capture.name) for capture in step.capture}

    def child_gave(self, job: Job) -> dict[str, Any]:
        """What a child workflow gave: the values of its own where it names some, else those of its steps."""
        step = self._state.step_of(job)
        assert isinstance(step.action, Child)
        found = self._state.frame_of(job.scope).outputs.get(step.name, {})
        last = step.action.workflow.end.action
        return {one.name: found.get(one.name) for one in last.values} if isinstance(last, Collect) else found

    def output(self, job: Job) -> Any:
        """The captured value where there is exactly one, else the trimmed stdout; of its fallback where it has one."""
        step = self._state.step_of(job)
        if job.output_job and len(step.capture) != 1:
            return self.output(self._state.jobs[job.output_job])
        if job.dependents_go_on and job.status is not Status.failed:
            # Whoever judged it gave one value, and every name that the step captures has that.
            name = step.capture[0].name if step.capture else step.name
            return self._state.frame_of(job.scope).values.get(name, "")
        captured = self._captured(job)
        if isinstance(step.action, Child) and not step.capture:
            return captured
        if len(captured) == 1:
            return next(iter(captured.values()))
        if job.id in self._state.fans:
            return self.results(job)
        return self._text(job, "out")

    def outputs_before(self, job: Job) -> list[str]:
        """What the jobs of a handler that came before this one wrote, in order."""
        first = self._state.scopes[job.scope].first
        return [self._text(self._state.jobs[number], "out") for number in range(first, job.id)]

    def history(self, job: Job) -> list[Any]:
        """What each successful attempt of a job wrote in this epoch, oldest first."""
        rows = self._store.attempts(self._run, job.id)
        return [self._read(row, "out") for row in rows if row.epoch == self._state.epoch and row.failure is None]

    def _both_streams(self, failed: Job) -> str:
        """stdout, then stderr, of the attempt that failed."""
        number = failed.error.attempt if failed.error is not None else failed.attempt
        for row in self._store.attempts(self._run, failed.id):
            if row.epoch == self._state.epoch and row.attempt == number:
                return "\n".join(text for stream in ("out", "err") if (text := self._read(row, stream)))
        return ""

    def _text(self, job: Job, stream: Stream) -> str:
        """What the last attempt of a job wrote, trimmed."""
        return self._text_of(job.id, stream)

    def _text_of(self, job: int, stream: Stream) -> str:
        """What the last attempt of a job wrote, also where the job is forgotten."""
        last: AttemptRow | None = None
        for row in self._store.attempts(self._run, job):
            last = row
        return "" if last is None else self._read(last, stream)

    def _read(self, row: AttemptRow, stream: Stream) -> str:
        """What one attempt wrote to one stream, trimmed."""
        reader = self._live if row.epoch == self._state.epoch else None
        if reader is None:
            reader = open_output(epoch_folder(self._output, self._run, row.epoch))
        return reader.read_output(row.log, stream, 0, VALUE_BYTES_MAX).decode("utf-8", "surrogateescape").strip()


def job_name(state: State, job: Job) -> str:
    """What a job is called in a message."""
    return repr(state.step_of(job).name)


def parsed(value: Any) -> Any:
    """Text that is a JSON object or list as its value; anything else as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return value
    return value


def walk(value: Any, path: Sequence[Key]) -> Any:
    """Follow field names and indexes into a value."""
    for key in path:
        if isinstance(value, dict) and str(key) in value:
            value = value[str(key)]
        elif isinstance(value, list) and (at := _index(key, len(value))) is not None:
            value = value[at]
        else:
            return MISSING
    return value


def _index(key: Key, length: int) -> int | None:
    """The entry of a list that a key means, `[1]` or `.1`; None where there is none."""
    if isinstance(key, str):
        if not (key.isascii() and key.isdigit() and len(key) <= INDEX_DIGITS_MAX):
            return None
        key = int(key)
    return key if -length <= key < length else None


def _iso(at: float) -> str:
    """A moment in UTC as RFC 3339 writes it."""
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
