"""The values of a run: inputs, environment, steps, captured names, items, errors, the execution, memory.

    find(path, job)    the value under ("steps", "build", "output") and the like, as one job sees it
    of(job)            the names that the texts of a job can use, in the language of its workflow

Outputs are not kept in memory: `Values` reads them from the log segments when a text names them. `Values` is the
`Run` of languages/contract.py: all that a template language may ask of a run.
"""

from __future__ import annotations

# `threading` would cost a hundredth of a short run.
from _thread import get_ident
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from resile.core.scheduling.finish import execution
from resile.core.state import Job, Scope, State
from resile.engine.evaluation.output_texts import OutputTexts
from resile.engine.paths import worktree, worktree_branch
from resile.engine.secrets import NOTHING_HIDDEN, Hidden, redact
from resile.languages.contract import render_text
from resile.languages.references import MISSING, ValueRefused, parse_json, walk
from resile.languages.registry import language_of
from resile.languages.surroundings import (
    error_fields,
    failed_job,
    frames,
    item_name,
    item_scope,
    source_item,
    workflow_frame,
)
from resile.model.builtin_actions import Collect
from resile.model.status import STATUS_NAMES
from resile.model.workflow import Child, FanOut
from resile.store.contract import JobRow, RunRow, Store

if TYPE_CHECKING:
    from resile.core.events import Event
    from resile.engine.evaluation.fanout_values import FanoutValues
    from resile.engine.evaluation.memory import Memories
    from resile.executors.contract import OutputReader
    from resile.languages.contract import Visible
    from resile.languages.javascript.evaluate import Sandbox
    from resile.languages.javascript.helpers import Helpers

Key = str | int


class Values:
    """Looks values up for the jobs of one run.

    `env` are the caller's variables with the secrets, `public_env` those without; `secrets` are the texts to redact.
    `live` reads the output of the epoch that runs. `debug` takes a line for each evaluation of code. `helpers` are the
    processes that evaluate code, if other runs use them as well.
    """

    def __init__(
        self,
        store: Store,
        row: RunRow,
        state: State,
        env: Mapping[str, str],
        live: OutputReader | None = None,
        *,
        public_env: Mapping[str, str] | None = None,
        secrets: Hidden = NOTHING_HIDDEN,
        debug: Callable[[str], None] | None = None,
        helpers: Helpers | None = None,
    ) -> None:
        self.id = row.id
        self.state = state
        self.directory = row.directory
        self.public_env = env if public_env is None else public_env
        self.debug = debug
        self.texts = OutputTexts(store, row, state, live)
        self.store = store
        self._output = row.output
        self._env = env
        self._secrets = secrets
        self._helpers = helpers
        # By thread: two evaluations can make the variables of a job at the same time.
        self._making: dict[tuple[int, int], dict[str, str]] = {}
        self._capturers: dict[int, dict[str, str]] = {}

    @cached_property
    def memory(self) -> Memories:
        """The memory of the run."""
        from resile.engine.evaluation.memory import Memories

        return Memories(self.state, self.directory, self._secrets)

    @cached_property
    def sandbox(self) -> Sandbox:
        """The sandbox for JavaScript; its process starts with the first code."""
        from resile.languages.javascript.evaluate import Sandbox

        return Sandbox(self._helpers)

    @cached_property
    def _fanouts(self) -> FanoutValues:
        from resile.engine.evaluation.fanout_values import FanoutValues

        return FanoutValues(self.store, self.id, self.state, self.texts)

    def close(self) -> None:
        """End the sandbox, if code started it."""
        if "sandbox" in self.__dict__:
            self.sandbox.close()

    def of(self, job: Job) -> Visible:
        """The names that the texts of a job can use, in the language of its workflow."""
        visible: Visible = language_of(self.state.workflow_of(job.scope)).visible(self, job)
        return visible

    def find(self, path: Sequence[Key], job: Job) -> Any:
        """The value under a path, as one job sees it."""
        head, rest = path[0], path[1:]
        match head:
            case "inputs":
                return walk(self._inputs(job), rest)
            case "item" | "item_index" | "item_id":
                return self._item(str(head), rest, job)
            case "workflow" if tuple(rest) == ("folder",):
                return self.state.workflow_of(job.scope).folder
            case "worktree" | "worktree_branch" if not rest:
                return self._worktree(head, job)
            case "env":
                return self.env_of(job).get(str(rest[0]), "") if len(rest) == 1 else MISSING
            case "steps":
                return self._step(rest, job)
            case "execution":
                return walk(execution(self.state, workflow_frame(self.state, job).id), rest)
            case "error":
                failed = failed_job(self.state, job)
                return MISSING if failed is None else walk(error_fields(failed), rest)
            case "shell" if rest[:1] == ("output",):
                failed = failed_job(self.state, job)
                if failed is not None:
                    return self.texts.of_failure(failed)
        found = walk(self._frame_values(str(head), job), path)
        if found is MISSING and (owner := self._lost_capturer(str(head), job)) is not None:
            raise self.texts.lose(owner.id)
        return self._fanout(path, job) if found is MISSING else found

    def _lost_capturer(self, name: str, job: Job) -> Job | None:
        """The job that would have captured this name if its output had not been lost."""
        step = self.capturer(name, job) if any(other.output_lost for other in self.state.jobs.values()) else ""
        other = self.state.job_named(step, job.scope) if step else None
        return other if other is not None and other.output_lost else None

    def environment(self, job: Job) -> dict[str, str]:
        """The variables that the workflow and the step add to the caller's; each text sees those above it."""
        workflow, step = self.state.workflow_of(job.scope), self.state.step_of(job)
        if not (workflow.env or step.env):
            return {}
        key = get_ident(), job.id
        if key in self._making:
            return self._making[key]
        made = self._making[key] = {}
        try:
            visible = self.of(job)
            for given in (workflow.env, step.env):
                for name, text in given.items():
                    made[name] = render_text(text, visible)
        finally:
            del self._making[key]
        return made

    def env_of(self, job: Job) -> Mapping[str, str]:
        """The variables that a job's texts and code know; only the caller's if those of the job can't be rendered."""
        try:
            added = self.environment(job)
        except ValueRefused:
            return self._env
        return {**self._env, **added} if added else self._env

    def capturer(self, name: str, job: Job) -> str:
        """The step that captures a name visible to a job; empty if none does."""
        for frame in frames(self.state, job):
            steps = self.state.plan_of(frame.id).steps
            # Cache them: texts may contain very many names of shell variables, and workflows very many steps.
            if id(steps) not in self._capturers:
                from resile.languages.missing_values import capturers

                self._capturers[id(steps)] = capturers(steps)
            if owner := self._capturers[id(steps)].get(name, ""):
                return owner
        return ""

    def job_rows(self) -> Iterator[JobRow]:
        """Every job of the run, including those the state has dropped."""
        return self.store.jobs(self.id)

    def events(self) -> Iterator[Event]:
        """The log of the run."""
        return (entry.event for entry in self.store.entries(self.id))

    def history(self, job: Job) -> list[Any]:
        """The output of each successful attempt of a job in this epoch, oldest first."""
        return list(self.texts.history(job))

    def redact(self, text: str) -> str:
        """The text without secrets."""
        return redact(text, self._secrets)

    def _frame_values(self, name: str, job: Job) -> dict[str, Any]:
        """The captured values of the nearest scope that has this name, or the item if its map gives items this name."""
        for frame in frames(self.state, job):
            if name in frame.values:
                return frame.values
            if frame.kind == "item" and frame.item is not None and item_name(self.state, frame) == name:
                return {name: frame.item.value}
        return {}

    def _item(self, head: str, rest: Sequence[Key], job: Job) -> Any:
        """The item that a job runs for, its index or its id."""
        scope = item_scope(self.state, job)
        if scope is None or scope.item is None:
            return MISSING
        if head == "item":
            # `${item.item}` on a plain-text item means the text itself.
            is_text = isinstance(scope.item.value, str) and tuple(rest) == ("item",)
            return scope.item.value if is_text else walk(scope.item.value, rest)
        from resile.core.fanout.naming import item_id

        if rest:
            return MISSING
        owner = self.state.jobs[scope.owner]
        return scope.item.index if head == "item_index" else item_id(self.state, owner, scope.item)

    def _worktree(self, head: str, job: Job) -> Any:
        """The worktree of a job's item, or its branch."""
        scope = self._isolated_scope(job)
        if scope is None or scope.item is None:
            return MISSING
        if head == "worktree":
            return worktree(self._output, self.id, scope.owner, scope.item.index)
        return self._branch(self.state.jobs[scope.owner], scope.item.index)

    def _branch(self, owner: Job, index: int) -> str:
        """The branch of an item of a fan-out."""
        action = self.state.step_of(owner).action
        begins = action.branch if isinstance(action, FanOut) else ""
        return worktree_branch(self.store.identity(self.id), self.id, owner.id, index, begins)

    def _isolated_scope(self, job: Job) -> Scope | None:
        """The nearest item around a job that has its own worktree."""
        scope: Scope | None = self.state.scopes[job.scope]
        while scope is not None:
            if scope.kind == "item":
                action = self.state.step_of(self.state.jobs[scope.owner]).action
                if isinstance(action, FanOut) and action.isolation == "worktree":
                    return scope
            scope = self.state.scope_around(scope)
        return None

    def folder_of(self, job: Job) -> str:
        """The worktree that is a job's directory; empty if the job runs in the caller's directory.

        The first and the last job of an item create and merge its worktree, so they run outside of it.
        """
        scope = self._isolated_scope(job)
        if scope is not None and job.scope == scope.id and job.step in (0, len(scope.waiting) - 1):
            scope = self._isolated_scope(self.state.jobs[scope.owner])
        if scope is None or scope.item is None:
            return ""
        return worktree(self._output, self.id, scope.owner, scope.item.index)

    def _inputs(self, job: Job) -> dict[str, Any]:
        frame = workflow_frame(self.state, job)
        return frame.inputs if frame.kind == "child" else self.state.inputs

    def _fanout(self, path: Sequence[Key], job: Job) -> Any:
        """A value of a fan-out, by the name of its step."""
        other = self.state.job_named(str(path[0]), job.scope)
        fan = None if other is None else self.state.fan_of(other)
        if other is None or fan is None or len(path) < 2:
            return MISSING
        if tuple(path[1:]) == ("branches",):
            # Join them to one text with blanks, because the name of a branch has no blank.
            return " ".join(self._branch(other, index) for index in self._fanouts.successful(other))
        return self._fanouts.find(path[1:], other, fan)

    def list_of(self, step: str, job: Job) -> list[Any]:
        """The list that a step printed, for a fan-out over it; raises ValueRefused if it is no list."""
        other = self.state.job_named(step, job.scope)
        value = parse_json(self.output(other)) if other is not None else None
        if not isinstance(value, list):
            has_lines = isinstance(value, str) and "\n" in value
            hint = ": `capture: {NAME: lines}` there makes a list of its lines, `${NAME}`" if has_lines else ""
            raise ValueRefused(f"the output of {step!r} is not a list{hint}")
        return value

    def _step(self, path: Sequence[Key], job: Job) -> Any:
        """A property of another step, which is looked up in the job's own scope and then in those around it."""
        if (
            len(path) >= 2
            and path[1] == "output"
            and (item := source_item(self.state, str(path[0]), job)) is not MISSING
        ):
            return walk(item, path[2:])
        other = self.state.job_named(str(path[0]), job.scope) if len(path) >= 2 else None
        if other is None or (other.accepted == "left_out" and path[1] not in ("status", "attempts")):
            return MISSING
        match path[1]:
            case "output":
                return walk(self.output(other), path[2:])
            case "stderr":
                return self.texts.last(other.id, "err")
            case "exit_code":
                return other.exit_code
            case "status":
                return STATUS_NAMES[other.status]
            case "attempts":
                return other.attempts_started
            case "outputs":
                return walk(self._captures_of(other), path[2:])
        return self._fanout(path, job)

    def _captures_of(self, job: Job) -> dict[str, Any]:
        """The names that a step captures, with their values."""
        frame, step = self.state.frame_of(job.scope), self.state.step_of(job)
        if job.output_lost and step.capture:
            raise self.texts.lose(job.id)
        if isinstance(step.action, Child) and not step.capture:
            return frame.outputs.get(step.name, {})
        return {capture.name: frame.values.get(capture.name) for capture in step.capture}

    def child_values(self, job: Job) -> dict[str, Any]:
        """The values of a child workflow: its own outputs if it declares any, else those of its steps."""
        step = self.state.step_of(job)
        assert isinstance(step.action, Child)
        found = self.state.frame_of(job.scope).outputs.get(step.name, {})
        last = step.action.workflow.end.action
        return {one.name: found.get(one.name) for one in last.values} if isinstance(last, Collect) else found

    def text(self, job: Job) -> str:
        """What the last attempt of a job wrote to stdout."""
        return self.texts.last(job.id, "out")

    def output(self, job: Job) -> Any:
        """The captured value if there is exactly one, else the trimmed stdout; that of its fallback if one ran."""
        step = self.state.step_of(job)
        if isinstance(step.action, Child) and step.action.result and not step.capture:
            return self._result_of_child(job, step.action, self.state.frame_of(job.scope).outputs.get(step.name, {}))
        if job.output_job and len(step.capture) != 1:
            other = self.state.jobs.get(job.output_job)
            # A later epoch has dropped the jobs of the fallback.
            return self.texts.last(job.output_job, "out") if other is None else self.output(other)
        if job.accepted == "judged":
            # The judge gave one value: every name that the step captures gets it.
            name = step.capture[0].name if step.capture else step.name
            return self.state.frame_of(job.scope).values.get(name, "")
        captured = self._captures_of(job)
        if isinstance(step.action, Child) and not step.capture:
            return captured
        if len(captured) == 1:
            return next(iter(captured.values()))
        if job.id in self.state.fans:
            return self._fanouts.results(job)
        return self.texts.last(job.id, "out")

    def _result_of_child(self, job: Job, action: Child, captured: Mapping[str, Any]) -> Any:
        """The output of the step that a child workflow's `result` names: its one captured value, else its stdout."""
        workflow = action.workflow
        named = next(step for step in (*workflow.steps, workflow.end) if step.name == action.result)
        if len(named.capture) == 1:
            return captured.get(named.capture[0].name, "")
        # In a run that took the step over, the output of the result is stored under the step's own number.
        number = job.output_job or (job.id if job.cached else 0)
        return self.texts.last(number, "out") if number else ""
