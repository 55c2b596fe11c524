"""What the texts and the code of a step see in a workflow with Liquid templates: names for everything around it.

    outputs.NAME           the value of a step; inside a fan-out over a step, that step's is the item
    outputs_history.NAME   every value of it, oldest first          outputs_raw.NAME, outputs['NAME-raw']   whole lists
    inputs, args, env, steps.NAME.output, memory, event, step, error, ...

Only what is asked for is read. A step that has not run has no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resile.core.events import AttemptEnded, EpochStarted, ValueAnswered
from resile.dialects.interpolate import MISSING, text_of
from resile.dialects.liquid import value_of
from resile.dialects.liquid_filters import FOLDER, MEMORY
from resile.model.fanout import FanOut
from resile.model.inside import Ask
from resile.model.status import TERMINAL
from resile.model.workflow import Child
from resile.runtime.secrets import redact

if TYPE_CHECKING:
    from resile.core.state import Job, State
    from resile.model.failure import Failure
    from resile.model.workflow import Step
    from resile.runtime.memory import Memories
    from resile.runtime.values import Values
    from resile.store.contract import Store

_RAW = "-raw"


class Lazy(Mapping[str, Any]):
    """A mapping whose values are made when they are asked for."""

    def __init__(self, names: Callable[[], list[str]], make: Callable[[str], Any]) -> None:
        self._names = names
        self._make = make

    def __getitem__(self, name: str) -> Any:
        """The value, where there is one."""
        value = self._make(name)
        if value is MISSING:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        """The names that have a value."""
        return iter(self._names())

    def __len__(self) -> int:
        """How many there are."""
        return len(self._names())


class Known:
    """Answers for the jobs of one run."""

    def __init__(
        self,
        state: State,
        values: Values,
        memories: Memories,
        store: Store,
        run: int,
        env: Mapping[str, str],
        secrets: tuple[str, ...],
        folder: str,
    ) -> None:
        self._state = state
        self._values = values
        self._memories = memories
        self._store = store
        self._run = run
        self._env = env
        self._secrets = secrets
        self._folder = folder

    def variables(self, job: Job) -> dict[str, Any]:
        """The variables of a template."""
        found: dict[str, Any] = {
            "outputs": Lazy(lambda: self._names(job), lambda name: self.output(name, job, history=True)),
            "outputs_history": Lazy(lambda: self._names(job), lambda name: self.history(name, job)),
            "outputs_raw": Lazy(lambda: self._names(job), lambda name: self.whole(name, job)),
            "steps": Lazy(lambda: self._names(job), lambda name: self._step(name, job)),
            "inputs": self._values.find(("inputs",), job),
            "env": self._environment(),
            "event": self._event(job),
            "item": self._values.find(("item",), job),
            "checkName": self._state.step_of(job).name,
            "error": self._error(job),
            "output": self._own(job),
            "attempt": job.attempt,
            "pr": {},
            "files": [],
            "fileCount": 0,
            "memory": {"listNamespaces": list(self._memories.seen(job))},
            FOLDER: self._folder,
            MEMORY: {**self._memories.seen(job), "": self._state.workflow_of(job.scope).memory_namespace},
        }
        found = {name: value for name, value in found.items() if value is not MISSING}
        args = self._state.step_of(job).args
        return {**found, "args": rendered(args, found)} if args else found

    def names_in_code(self, job: Job, code: str) -> dict[str, Callable[[], Any]]:
        """The variables that code may mention, each made when it does."""
        return {
            "outputs": lambda: self._outputs(job, code),
            "outputs_history": lambda: self._histories(job, code),
            "outputs_raw": lambda: {name: self.whole(name, job) for name in self._mentioned(job, code)},
            "steps": lambda: {name: self._step(name, job) for name in self._mentioned(job, code)},
            "output": lambda: self._own(job),
            "args": lambda: self.variables(job).get("args", {}),
            "inputs": lambda: self._values.find(("inputs",), job),
            "event": lambda: self._event(job),
            "step": lambda: self._about(job),
            "checkName": lambda: self._state.step_of(job).name,
            "metadata": lambda: {"checkName": self._state.step_of(job).name},
            "branch": lambda: "unknown",
            "baseBranch": lambda: "unknown",
            "filesChanged": list,
            "filesCount": int,
            "issues": list,
            "debug": dict,
            "$memory": lambda: self._memories.seen(job),
        }

    def output(self, name: str, job: Job, *, history: bool = False) -> Any:
        """The value of a step as this job sees it, or MISSING."""
        if history and name == "history":
            return Lazy(lambda: self._names(job), lambda other: self.history(other, job))
        known = self._state.step_of(job).aliases.get(name, name)
        other = self._state.job_named(known, job.scope)
        if other is None:
            fan = self._fan_with(known, job)
            if fan is not None:
                return self.results(fan, known)
            whole = name.removesuffix(_RAW)
            return self.whole(whole, job) if whole != name else MISSING
        if other is job:
            # Its own value, once it has one.
            value = self._values.output(job) if job.attempt else None
            return MISSING if value is None else value
        item = self._values.source_item(known, job)
        if item is not MISSING:
            # Also while the step whose list it is runs once more.
            return item
        if not other.attempt or other.status not in TERMINAL:
            return MISSING
        return self._value(known, other, job)

    def _value(self, name: str, other: Job, job: Job) -> Any:
        """The value of a job that has ended."""
        action = self._state.step_of(other).action
        if isinstance(action, FanOut):
            return self.results(other, action.steps[-1].name)
        if isinstance(action, Child):
            return self._values.output(other)
        value = self._values.find(("steps", name, "output"), job)
        # What somebody answers is text, also where it looks like a number.
        return text_of(value) or action.default if isinstance(action, Ask) else value

    def whole(self, name: str, job: Job) -> Any:
        """The value of a step, also where an item of it is what this job runs for."""
        other = self._state.job_named(self._state.step_of(job).aliases.get(name, name), job.scope)
        if other is None or not other.attempt or other.status not in TERMINAL:
            return MISSING
        return self._values.output(other)

    def _own(self, job: Job) -> Any:
        """The value of the job itself; in what follows a step, of that step."""
        scope = self._state.scopes[job.scope]
        subject = self._state.jobs[scope.owner] if scope.kind == "repair" else job
        return self._values.output(subject) if subject.attempt else MISSING

    def _fan_with(self, name: str, job: Job) -> Job | None:
        """The fan-out around whose items a step of this name runs, seen from outside."""
        for frame in self._values.frames(job):
            for number, step in enumerate(self._state.plan_of(frame.id).steps):
                if isinstance(step.action, FanOut) and any(inner.name == name for inner in step.action.steps):
                    return self._state.jobs[frame.first + number]
        return None

    def results(self, fan: Job, name: str) -> list[Any]:
        """What a step gave for each item that it succeeded for, in the order of the items."""
        action = self._state.step_of(fan).action
        assert isinstance(action, FanOut)
        scope = self._state.scopes[fan.scope]
        prefix = f"{scope.name}/" if scope.owner else ""
        prefix += f"{action.scope or self._state.step_of(fan).name}["
        places: dict[int, int] = {}
        for row in self._store.jobs(self._run):
            if row.step == name and row.scope.startswith(prefix) and row.scope[len(prefix) : -1].isdigit():
                places[row.id] = int(row.scope[len(prefix) : -1])
        last: dict[int, Any] = {}
        is_child = any(step.name == name and gives_of_child(step) for step in action.steps)
        for job, value in self.recorded(name, set(places), is_child):
            last[places[job]] = value
        return [last[index] for index in sorted(last)]

    def history(self, name: str, job: Job) -> list[Any]:
        """Every value that a step gave, oldest first."""
        other = self._state.job_named(self._state.step_of(job).aliases.get(name, name), job.scope)
        if other is None:
            fan = self._fan_with(name, job)
            return [] if fan is None else self.results(fan, name)
        return [value for _, value in self.recorded(name, {other.id}, gives_of_child(self._state.step_of(other)))]

    def recorded(self, name: str, jobs: set[int], is_child: bool = False) -> Iterator[tuple[int, Any]]:
        """The values that attempts of these jobs gave in this epoch, as the log has them."""
        found: list[tuple[int, Any]] = []
        # The attempt that opens a child workflow gives the inputs of that, and no value.
        kind = ValueAnswered if is_child else AttemptEnded
        for entry in self._store.entries(self._run):
            event = entry.event
            if isinstance(event, EpochStarted) and not event.failed_only:
                found.clear()
            elif isinstance(event, kind) and event.job in jobs and event.outcome.failure is None:
                found.append((event.job, event.outcome.values.get(name)))
        yield from found

    def _names(self, job: Job) -> list[str]:
        """The steps whose values a job can see."""
        scopes = [self._state.scopes[job.scope], *self._values.frames(job)]
        names = [step.name for scope in scopes for step in self._state.plan_of(scope.id).steps]
        inner = [
            other.name
            for scope in scopes
            for step in self._state.plan_of(scope.id).steps
            if isinstance(step.action, FanOut)
            for other in step.action.steps
        ]
        aliases = list(self._state.step_of(job).aliases)
        return [name for name in dict.fromkeys(names + inner + aliases) if self.output(name, job) is not MISSING]

    def _mentioned(self, job: Job, code: str) -> list[str]:
        """The steps that code speaks of; all of them where it walks over the mapping itself."""
        names = self._names(job)
        named = [name for name in names if name in code]
        walks = "Object." in code or " in outputs" in code or "stringify(outputs" in code
        return names if walks else named

    def _outputs(self, job: Job, code: str) -> dict[str, Any]:
        """The outputs that code speaks of, with their history where it says so."""
        found = {name: self.output(name, job) for name in self._mentioned(job, code)}
        found |= {
            f"{name}{_RAW}": self.whole(name, job) for name in found if f"{name}{_RAW}" in code
        }  # fmt: skip
        if "history" in code:
            found["history"] = self._histories(job, code)
        return {name: value for name, value in found.items() if value is not MISSING}

    def _histories(self, job: Job, code: str) -> dict[str, list[Any]]:
        """Every value of the steps that code speaks of."""
        scopes = [self._state.scopes[job.scope], *self._values.frames(job)]
        names = {step.name for scope in scopes for step in self._state.plan_of(scope.id).steps if step.name in code}
        return {name: self.history(name, job) for name in sorted(names | set(self._mentioned(job, code)))}

    def _step(self, name: str, job: Job) -> Any:
        """A step as code of a workflow's outputs sees it."""
        value = self.output(name, job)
        return MISSING if value is MISSING else {"output": value}

    def _about(self, job: Job) -> dict[str, Any]:
        """The step itself."""
        step = self._state.step_of(job)
        return {"id": step.name, "tags": list(step.tags), "events": list(step.events), "group": step.group or None}

    def _event(self, job: Job) -> dict[str, Any]:
        """What the run is for; a run by hand where nobody said."""
        inputs = self._values.find(("inputs",), job)
        name = inputs.get("event", "all") if isinstance(inputs, dict) else "all"
        name = "manual" if name == "all" else name
        return {"name": name, "event_name": name}

    def _error(self, job: Job) -> Any:
        """The failure that is being answered, if there is one."""
        failed = job if job.error is not None else self._values.failed_job(job)
        return MISSING if failed is None else self._values.error(failed)

    def _environment(self) -> Mapping[str, str]:
        """The caller's variables, without secrets."""
        return {name: redact(value, self._secrets) for name, value in self._env.items()}


def gives_of_child(step: Step) -> bool:
    """Is a step's value made of what a child workflow gave?"""
    return isinstance(step.action, Child) and step.transform is not None


def failed_value(failure: Failure) -> dict[str, Any]:
    """What a failed step gives to those that go on without its success."""
    return {
        "error": True,
        "exit_code": failure.exit_code,
        "message": failure.message,
        "stdout": failure.stdout.strip(),
        "stderr": failure.stderr.strip(),
        "timeout": failure.kind == "timeout",
    }


def rendered(data: Any, variables: Mapping[str, Any]) -> Any:
    """Data with its templates rendered; a text that is one output keeps the type of its value."""
    if isinstance(data, str):
        return value_of(data, variables)
    if isinstance(data, list):
        return [rendered(item, variables) for item in data]
    if isinstance(data, dict):
        return {name: rendered(value, variables) for name, value in data.items()}
    return data
