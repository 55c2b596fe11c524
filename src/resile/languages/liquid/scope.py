"""The names that the texts and the code of a step can use in a workflow with Liquid templates.

    outputs.NAME           the value of a step; inside a fan-out over a step, that step's value is the item
    outputs_history.NAME   every value of it, oldest first          outputs_raw.NAME, outputs['NAME-raw']   whole lists
    inputs, args, env, steps.NAME.output, memory, event, step, error, forEach, ...

Values are read on first use. An unfinished step has no value, except for the steps that run because it called them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from resile.core.events import AttemptEnded, EpochStarted, ValueAnswered
from resile.core.fanout.naming import fan_name
from resile.languages.braces import Lazy
from resile.languages.liquid.filters import FOLDER, MEMORY
from resile.languages.liquid.templates import value_of
from resile.languages.references import MISSING, known_of, text_of
from resile.languages.surroundings import error_fields, failed_job, frames, scopes_seen, source_item
from resile.model.builtin_actions import Ask
from resile.model.failure import Kind
from resile.model.status import TERMINAL
from resile.model.workflow import Agent, Child, FanOut, Shell

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.languages.contract import Run
    from resile.model.failure import Failure
    from resile.model.workflow import Step

_RAW = "-raw"
_LEVELS = {f"{level}Issues": level for level in ("critical", "error", "warning", "info")}
PULL_REQUEST_NAMES = (
    "pr", "files", "fileCount", "branch", "baseBranch", "filesChanged", "filesCount", "hasChanges",
)  # fmt: skip
"""The names for the branch of the caller's folder and its files."""
ISSUE_NAMES = ("issues", "metadata", "schema", "group", *_LEVELS, "totalIssues")
"""The names for the issues of a step's own output."""
Given = tuple[int, Any, bool]
"""A job, the value of one of its attempts, and whether the attempt succeeded."""


class LiquidScope:
    """Finds the values visible to the jobs of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._state = run.state

    def variables(self, job: Job) -> dict[str, Any]:
        """The variables of a template."""
        histories = self._for_steps_seen(job, self.history)
        found: dict[str, Any] = {
            "outputs": self._for_steps_seen(
                job, lambda name, _: histories if name == "history" else self.output(name, job)
            ),
            "outputs_history": histories,
            "outputs_raw": self._for_steps_seen(job, self.whole_value),
            "steps": self._for_steps_seen(job, self._step_fields_of),
            "inputs": self._run.find(("inputs",), job),
            "env": Lazy(lambda: list(self._environment(job)), lambda name: self._environment(job).get(name, MISSING)),
            "event": self._event(job),
            "item": self._run.find(("item",), job),
            "checkName": self._state.step_of(job).name,
            "error": self._error(job),
            "output": self._own_value(job),
            "attempt": job.attempt,
            **self._pull_request(),
            "memory": {"listNamespaces": list(self._run.memory.namespaces(job))},
            FOLDER: self._run.directory,
            MEMORY: {**self._run.memory.namespaces(job), "": self._state.workflow_of(job.scope).memory_namespace},
        }
        found = known_of(found)
        args = self._state.step_of(job).args
        return {**found, "args": render_all(args, found)} if args else found

    def names_in_code(self, job: Job, code: str) -> dict[str, Callable[[], Any]]:
        """The variables that code may mention beyond those of any workflow, each with a function that makes it."""
        return {
            "outputs": lambda: self._outputs(job, code),
            "outputs_history": lambda: self._histories(job, code),
            "outputs_raw": lambda: known_of(
                {name: self.whole_value(name, job) for name in self._names_mentioned(job, code)}
            ),
            "steps": lambda: {name: self._step_fields_of(name, job) for name in self._names_mentioned(job, code)},
            "error": lambda: self._error_in_code(job),
            "output": lambda: self._own_value(job),
            "args": lambda: self.variables(job).get("args", {}),
            "event": lambda: self._event(job),
            "step": lambda: self._step_fields(job),
            "forEach": lambda: self._foreach(job),
            "checkName": lambda: self._state.step_of(job).name,
            **{name: partial(self._of_pull_request, name) for name in PULL_REQUEST_NAMES},
            "debug": dict,
            **{name: partial(self._issue_name, job, name) for name in ISSUE_NAMES},
        }

    def _of_pull_request(self, name: str) -> Any:
        return self._pull_request()[name]

    def _pull_request(self) -> dict[str, Any]:
        """What git knew of the caller's folder when the run started; a run outside of a checkout has no files."""
        given = self._state.inputs.get("pull_request")
        known = given if isinstance(given, dict) else {}
        files = known.get("files", [])
        names = [file["filename"] for file in files]
        return {
            "pr": known,
            "files": files,
            "fileCount": len(files),
            "branch": known.get("branch", "unknown"),
            "baseBranch": known.get("base", "unknown"),
            "filesChanged": names,
            "filesCount": len(files),
            "hasChanges": bool(files),
        }

    def _issue_name(self, job: Job, name: str) -> Any:
        return self.issue_names(job, self._own_value(job))[name]

    def issue_names(self, job: Job, output: Any) -> dict[str, Any]:
        """The names for the issues in an output: the list, and how many of each severity there are."""
        step = self._state.step_of(job)
        given = output.get("issues") if isinstance(output, dict) else None
        issues = [issue for issue in given if isinstance(issue, dict)] if isinstance(given, list) else []
        counts = {name: sum(issue.get("severity") == level for issue in issues) for name, level in _LEVELS.items()}
        counts["totalIssues"] = len(issues)
        schema = step.transform.schema_name if step.transform is not None else ""
        about = {"checkName": step.name, "schema": schema, "group": step.group}
        pull_request = {name: value for name, value in self._pull_request().items() if name not in ("pr", "files")}
        metadata = {**pull_request, **about, **counts, "event": self._event(job)["name"]}
        return {"issues": issues, "metadata": metadata, "schema": schema, "group": step.group, **counts}

    def _for_steps_seen(self, job: Job, make: Callable[[str, Job], Any]) -> Lazy:
        return Lazy(lambda: self._names_seen(job), lambda name: make(name, job))

    def output(self, name: str, job: Job) -> Any:
        """The value of a step as this job sees it, or MISSING."""
        known, other = self._job_called(name, job)
        if other is None:
            fan = self._fan_with(known, job)
            if fan is not None:
                return self.results(fan, known)
            whole = name.removesuffix(_RAW)
            return self.whole_value(whole, job) if whole != name else MISSING
        if other is job and not isinstance(self._state.step_of(job).action, FanOut):
            # The step's own value, once it has one.
            value = self._run.output(job) if job.attempt else None
            return MISSING if value is None else value
        item = source_item(self._state, known, job)
        if item is not MISSING:
            # This holds even while the step that gave the list runs again.
            return item
        return self._value_of(known, other, job) if self._is_seen(other, job) else MISSING

    def _job_called(self, name: str, job: Job) -> tuple[str, Job | None]:
        """The step that a job calls by this name, and the job of that step, if that job is visible."""
        known = self._state.step_of(job).aliases.get(name, name)
        return known, self._state.job_named(known, job.scope)

    def _is_seen(self, other: Job, job: Job) -> bool:
        """Is a job over, or does the asking job run, directly or indirectly, because the other called it?"""
        if not other.attempt:
            return False
        if other.status in TERMINAL:
            return True
        asking: Job | None = job
        while asking is not None and asking is not other:
            scope = self._state.scopes[asking.scope]
            number = asking.callers[0] if asking.callers else scope.owner if scope.kind in ("repair", "item") else 0
            asking = self._state.jobs[number] if number else None
        return asking is other

    def _value_of(self, name: str, other: Job, job: Job) -> Any:
        """The value of a job that has ended, or that a handler asks for."""
        step = self._state.step_of(other)
        action = step.action
        if isinstance(action, FanOut):
            return self.results(other, _inner_name(action, name))
        if other.error is not None:
            # The captured value may be that of an earlier attempt.
            given = [value for _, value, _ in self.recorded_values(name, {other.id}, isinstance(action, Child))]
            return given[-1] if given else failed_value(other.error.failure)
        if isinstance(action, Child):
            return self._run.output(other)
        value = self._run.find(("steps", name, "output"), job)
        # An answer is text, even if it looks like a number.
        return text_of(value) or action.default if isinstance(action, Ask) else value

    def whole_value(self, name: str, job: Job) -> Any:
        """The whole value of a step, even if this job runs for one of its items; of a step inside items, all values."""
        known, other = self._job_called(name, job)
        if other is None:
            fan = self._fan_with(known, job)
            return MISSING if fan is None else self.results(fan, known)
        if not self._is_seen(other, job):
            return MISSING
        fans = isinstance(self._state.step_of(other).action, FanOut)
        return self._value_of(known, other, job) if fans or other.error is not None else self._run.output(other)

    def _own_value(self, job: Job) -> Any:
        """The value of the job itself; of a step for a job that follows it; the list, for a job that follows items."""
        scope = self._state.scopes[job.scope]
        subject = self._state.jobs[scope.owner] if scope.kind == "repair" else job
        subject = self._producer_of(subject) or subject
        return self._run.output(subject) if subject.attempt else MISSING

    def _producer_of(self, job: Job) -> Job | None:
        action = self._state.step_of(job).action
        over = action.source.step if isinstance(action, FanOut) else ""
        return self._state.job_named(over, job.scope) if over else None

    def _foreach(self, job: Job) -> dict[str, Any] | None:
        """What the code of a step with `forEach` sees of its list; None for other steps."""
        subject = self._producer_of(job) or job
        transform = self._state.step_of(subject).transform
        if transform is None or not transform.as_items:
            return None
        value = self._run.output(subject)
        items = value if isinstance(value, list) else []
        return {"is_parent": True, "last_wave_size": len(items), "last_items": items}

    def _fan_with(self, name: str, job: Job) -> Job | None:
        """The fan-out whose items run a step of this name, seen from outside."""
        for frame in frames(self._state, job):
            for number, step in enumerate(self._state.plan_of(frame.id).steps):
                if isinstance(step.action, FanOut) and any(inner.name == name for inner in step.action.steps):
                    return self._state.jobs[frame.first + number]
        return None

    def results(self, fan: Job, name: str) -> list[Any]:
        """The last value of a step for each item for which it succeeded, in the order of the items."""
        wave = self._state.fan_of(fan)
        places = {} if wave is None else self._jobs_of_items(fan, name, wave.after)
        last = {places[job]: value for job, value, worked in self._values_of_items(fan, name, set(places)) if worked}
        return [last[index] for index in sorted(last)]

    def _jobs_of_items(self, fan: Job, name: str, after: int = 0) -> dict[int, int]:
        """The jobs of a step in the items of a fan-out with a number above `after`, each with the item's index."""
        prefix = f"{fan_name(self._state, fan)}["
        return {
            row.id: int(row.scope[len(prefix) : -1])
            for row in self._run.job_rows()
            if row.id > after
            and row.step == name
            and row.scope.startswith(prefix)
            and row.scope[len(prefix) : -1].isdigit()
        }

    def _values_of_items(self, fan: Job, name: str, jobs: set[int]) -> list[Given]:
        """The values of a step in items, wave by wave and in the order of the items (by job number)."""
        action = self._state.step_of(fan).action
        assert isinstance(action, FanOut)
        is_child = any(step.name == name and gives_of_child(step) for step in action.steps)
        return sorted(self.recorded_values(name, jobs, is_child), key=lambda given: given[0])

    def history(self, name: str, job: Job) -> list[Any]:
        """Every value of a step, oldest first, including those of failed attempts; inside items, those of all items."""
        known, other = self._job_called(name, job)
        action = None if other is None else self._state.step_of(other).action
        fan = self._fan_with(known, job) if other is None else other if isinstance(action, FanOut) else None
        if fan is not None:
            inner = _inner_name(action, known) if isinstance(action, FanOut) else known
            return [value for _, value, _ in self._values_of_items(fan, inner, set(self._jobs_of_items(fan, inner)))]
        if other is None:
            return []
        is_child = gives_of_child(self._state.step_of(other))
        return [value for _, value, _ in self.recorded_values(known, {other.id}, is_child)]

    def recorded_values(self, name: str, jobs: set[int], is_child: bool = False) -> list[Given]:
        """The values of these jobs' attempts in this epoch, from the log: the job, the value, whether it succeeded."""
        found: list[Given] = []
        # The attempt that opens a child workflow gives the child's inputs, not a value.
        kind = ValueAnswered if is_child else AttemptEnded
        for event in self._run.events():
            if isinstance(event, EpochStarted) and not event.failed_only:
                found.clear()
            elif isinstance(event, kind) and event.job in jobs and not getattr(event, "canceled", False):
                failure, values = event.outcome.failure, event.outcome.values
                value = values.get(name) if failure is None or name in values else failed_value(failure)
                found.append((event.job, value, failure is None))
        return found

    def _names_seen(self, job: Job) -> list[str]:
        """The steps whose values are visible to a job."""
        steps = self._steps_seen(job)
        fans = [step.action for step in steps if isinstance(step.action, FanOut)]
        names = [step.name for step in steps] + [inner.name for fan in fans for inner in fan.steps]
        names += self._state.step_of(job).aliases
        return [name for name in dict.fromkeys(names) if self.output(name, job) is not MISSING]

    def _steps_seen(self, job: Job) -> list[Step]:
        scopes = scopes_seen(self._state, job)
        return [step for scope in scopes for step in self._state.plan_of(scope.id).steps]

    def _names_mentioned(self, job: Job, code: str) -> list[str]:
        """The steps that code mentions; all steps if it iterates over the mapping itself."""
        walks = "Object." in code or " in outputs" in code or "stringify(outputs" in code
        return [name for name in self._names_seen(job) if walks or name in code]

    def _outputs(self, job: Job, code: str) -> dict[str, Any]:
        """The outputs that code mentions, with their history if it mentions that."""
        found = {name: self.output(name, job) for name in self._names_mentioned(job, code)}
        found |= {f"{name}{_RAW}": self.whole_value(name, job) for name in found if f"{name}{_RAW}" in code}
        if "history" in code:
            found["history"] = self._histories(job, code)
        return known_of(found)

    def texts_in_code(self, job: Job, code: str) -> dict[str, str]:
        """The texts of the outputs that code mentions, where a step's value is the JSON in its output."""
        found: dict[str, str] = {}
        for name in self._names_mentioned(job, code):
            other = self._job_called(name, job)[1]
            if other is not None and other is not job and not isinstance(self.output(name, job), str):
                found |= {name: self._run.text(other)} if is_plain_output(self._state.step_of(other)) else {}
        if job.attempt and is_plain_output(self._state.step_of(job)):
            found[""] = self._run.text(job)
        return found

    def _histories(self, job: Job, code: str) -> dict[str, list[Any]]:
        names = {step.name for step in self._steps_seen(job) if step.name in code}
        return {name: self.history(name, job) for name in sorted(names | set(self._names_mentioned(job, code)))}

    def _step_fields_of(self, name: str, job: Job) -> Any:
        value = self.output(name, job)
        return MISSING if value is MISSING else {"output": value}

    def _step_fields(self, job: Job) -> dict[str, Any]:
        """The step itself; for a job that follows items, the step that gave their list."""
        step = self._state.step_of(self._producer_of(job) or job)
        return {"id": step.name, "tags": list(step.tags), "events": list(step.events), "group": step.group or None}

    def _event(self, job: Job) -> dict[str, Any]:
        """The triggering event; "manual" by default."""
        inputs = self._run.find(("inputs",), job)
        name = inputs.get("event", "all") if isinstance(inputs, dict) else "all"
        name = "manual" if name == "all" else name
        return {"name": name, "event_name": name}

    def _error(self, job: Job) -> Any:
        """The failure of the job, or the one that it repairs."""
        failed = job if job.error is not None else failed_job(self._state, job)
        if failed is None or failed.error is None:
            return MISSING
        return {**error_fields(failed), "message": message_of(failed.error.failure)}

    def _error_in_code(self, job: Job) -> Any:
        """The failure that is being handled, with the names of the RFC; null where there is none."""
        error = self._error(job)
        return None if error is MISSING else {**error, "code": error["exit_code"], "exitCode": error["exit_code"]}

    def _environment(self, job: Job) -> dict[str, str]:
        return {name: self._run.redact(value) for name, value in self._run.env_of(job).items()}


def _inner_name(fan: FanOut, name: str) -> str:
    """The step of the items that the name of a fan-out means: the one of this name, else the last."""
    return name if any(step.name == name for step in fan.steps) else fan.steps[-1].name


def is_plain_output(step: Step) -> bool:
    """Is a step's value what its command printed, parsed and not computed?"""
    made = step.transform
    return (
        isinstance(step.action, Shell | Agent) and made is not None and not (made.template or made.code or made.first)
    )


def gives_of_child(step: Step) -> bool:
    """Is a step's value made from the values of a child workflow?"""
    return isinstance(step.action, Child) and step.transform is not None


def message_of(failure: Failure) -> str:
    """The message of a failure in Visor's files: the end of what a failed command wrote to stderr, else our own."""
    return (failure.stderr.strip() if failure.kind == Kind.EXIT else "") or failure.message


def failed_value(failure: Failure) -> dict[str, Any]:
    """The value of a failed step, for steps that run in spite of the failure."""
    return {
        "error": True,
        "exit_code": failure.exit_code,
        "message": message_of(failure),
        "stdout": failure.stdout.strip(),
        "stderr": failure.stderr.strip(),
        "timeout": failure.kind == "timeout",
    }


def render_all(data: Any, variables: Mapping[str, Any]) -> Any:
    """Data with its templates rendered; a text that is one output keeps the type of its value."""
    if isinstance(data, str):
        return value_of(data, variables)
    if isinstance(data, list):
        return [render_all(item, variables) for item in data]
    if isinstance(data, dict):
        return {name: render_all(value, variables) for name, value in data.items()}
    return data
