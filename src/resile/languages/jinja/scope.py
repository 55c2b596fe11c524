"""The names that the texts of a playbook's step can use, and their lookup.

    args of the arc > args of the step > the item > variables > steps > workload > common names

    workload, vars, ctx, payload, args, env, keychain, execution_id, job, execution, now()
    NAME                 the result of the step of this name; undefined if it has not run, and false in a condition
    item, loop, LOOP     the item of a loop, also under the name that the loop gives it
    result, response     the result of the step that led here; in a case, the result of the step itself
    event, error         in a case: the event and the failure

Only names that a text uses are looked up. Variables are the namespace `vars` of the run's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from resile.core.scheduling.finish import execution
from resile.languages.braces import Lazy
from resile.languages.jinja.loop_results import LoopResults
from resile.languages.jinja.plain_values import as_result, plain_data
from resile.languages.jinja.templates import is_of_groups, render_data
from resile.languages.references import MISSING
from resile.languages.surroundings import host_of, is_of_end, item_scope, utc_time, workflow_frame
from resile.model.status import Status
from resile.model.workflow import Child, FanOut, Noop

if TYPE_CHECKING:
    from resile.core.state import Job, Scope
    from resile.languages.contract import Language, Run
    from resile.model.failure import Failure

VARS = "vars"
AGAIN = "again"
"""Namespaces of the memory: variables, and the settings of a requested further attempt."""
COLLECTED = "collected"
SECRET = "secret_name"
"""The argument of a step that fetches a secret: the name of its keychain entry."""
ITER = "iter"
PREVIOUS = "_prev"
"""The values that the tools of a pipeline share, and the name of the previous tool."""
BATCH = "batch"
"""Another name for the item of a loop whose items are groups."""
CONTEXT = (
    "workload", "vars", "ctx", "payload", "args", "execution_id", "catalog_id", "job", "execution", "attempt",
    "item", "loop", "loop_index", "result", "response",
)  # fmt: skip
"""The names that code with a `context` parameter gets, besides steps, variables and the workload."""

Maker = Callable[[], Any]


class JinjaNames:
    """The names that the texts of one job can use; it caches values while the job is rendered."""

    language: Language[JinjaNames]

    def __init__(
        self,
        scope: JinjaScope,
        job: Job,
        more: Mapping[str, Any] | None = None,
        args: dict[str, Any] | None = None,
    ) -> None:
        self._args = args
        self.scope = scope
        self.job = job
        self._more = more or {}
        self._found: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        """MISSING: a `${...}` in a playbook belongs to the shell."""
        del name
        return MISSING

    def find(self, name: str) -> Any:
        """The value of a name, or MISSING."""
        if name in self._more:
            return self._more[name]
        if name not in self._found:
            self._found[name] = self.scope.find(name, self.job)
        return self._found[name]

    @property
    def serves_end(self) -> bool:
        """Does the job belong to the `end` of its workflow: is it that step, one of its tools, items or sinks?"""
        return is_of_end(self.scope.run.state, self.scope.subject_of(self.job))

    @property
    def args(self) -> dict[str, Any]:
        """The arguments of the step."""
        return self.scope.args(self.job) if self._args is None else self._args


class JinjaScope:
    """Looks names up for the jobs of one run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.loops = LoopResults(run)
        self._state = run.state

    def subject_of(self, job: Job) -> Job:
        """The job that another one refers to: a job that follows a step refers to that step."""
        scope = self._state.scopes[job.scope]
        return self._state.jobs[scope.owner] if scope.kind == "repair" else job

    def find(self, name: str, job: Job) -> Any:
        """The value of a name as a job sees it, or MISSING."""
        job = self.subject_of(job)
        given, own = self.arc_arguments(job), self._state.step_of(job).args
        if name in given:
            return given[name]
        if name in own:
            return render_data(own[name], lambda other: self._behind_args(other, job))
        return self.args(job) if name == "args" else self._behind_args(name, job)

    def args(self, job: Job) -> dict[str, Any]:
        """The arguments of a step: those of the arc that led to it override its own."""
        job = self.subject_of(job)
        host = host_of(self._state, job)
        names = dict.fromkeys([*self._state.step_of(job).args, *self.arc_arguments(job)])
        return {**(self.args(host) if host is not None else {}), **{name: self.find(name, job) for name in names}}

    def arc_arguments(self, job: Job) -> dict[str, Any]:
        """The arguments of the arc that led to a step, and those of a further attempt; for an item, of its loop."""
        scope = self._state.scopes[job.scope]
        step = self._state.step_of(job)
        if scope.kind == "item":
            found = self.arc_arguments(self._state.jobs[scope.owner])
        else:
            found = scope.arc_arguments.get(step.name, {})
        if not any(effect.kind == "again" for effect in step.effects):
            return found
        return {**found, **self.repeat_settings(job).get("args", {})}

    def scratch(self, job: Job) -> dict[str, Any]:
        """The values that the tools of a pipeline share."""
        found: dict[str, Any] = self._state.frame_of(job.scope).values.get(ITER, {})
        return found

    def _of_pipeline(self, name: str, job: Job, host: Job) -> Any:
        """A name as a tool of a pipeline sees it: the other tools by their labels, else the names of the step."""
        if name == ITER:
            around = self.find(ITER, host)
            return {**(around if isinstance(around, Mapping) else {}), **self.scratch(job)}
        if name == PREVIOUS:
            before = self.scratch(job).get(PREVIOUS, "")
            return self.step_result(before, job) if before else None
        if name in self._state.plan_of(self._state.frame_of(job.scope).id).index and name != "end":
            return self.step_result(name, job)
        return {"_task": self._state.step_of(job).name, "attempt": job.attempt}.get(name) or self.find(name, host)

    def _behind_args(self, name: str, job: Job) -> Any:
        """A name as the arguments themselves see it: of those, only the arguments of the arc."""
        host = host_of(self._state, job)
        if host is not None and name not in self.arc_arguments(job):
            return self._of_pipeline(name, job, host)
        for place in (self.arc_arguments(job), self._item(job), self.variables(job)):
            if name in place:
                return place[name]
        value = self.step_result(name, job)
        if value is not MISSING:
            return value
        if name in self._inputs(job):
            return self._workload(job)[name]
        maker = self._makers(job).get(name)
        return MISSING if maker is None else maker()

    def repeat_settings(self, job: Job) -> dict[str, Any]:
        """The settings that differ in this attempt."""
        found: dict[str, Any] = self.run.memory.namespaces(job).get(AGAIN, {}).get(self.memory_key(job), {})
        return found

    def memory_key(self, job: Job) -> str:
        """The key of a job in the memory."""
        return f"{self._state.scopes[job.scope].name}/{self._state.step_of(job).name}"

    def variables(self, job: Job) -> dict[str, Any]:
        """The variables of the playbook."""
        return self.run.memory.namespaces(job).get(VARS, {})

    def _item(self, job: Job) -> dict[str, Any]:
        """The names of the item that a job runs for."""
        scope = item_scope(self._state, job)
        if scope is None or scope.item is None:
            return {}
        owner = self._state.jobs[scope.owner]
        action, fan = self._state.step_of(owner).action, self._state.fans.get(owner.id)
        assert isinstance(action, FanOut)
        index, total = scope.item.index, fan.total if fan is not None else 0
        loop = {"index": index, "first": not index, "last": index == total - 1, "length": total, "done": False}
        grouped = BATCH if is_of_groups(action.source.template) else ""
        named = {name: scope.item.value for name in (grouped, action.item_name) if name}
        return {"item": scope.item.value, "loop": loop, "loop_index": index, ITER: {**named, "index": index}, **named}

    def step_result(self, name: str, job: Job) -> Any:
        """The result of the step of this name, MISSING if there is no such step; undefined if it has not run."""
        other = self._state.job_named(name, job.scope)
        if other is None:
            return MISSING
        value = self._secret_of(other)
        if value is MISSING:
            value = self.result_of(other)
        if value is MISSING:
            from resile.languages.jinja.undefined import result_not_there

            return result_not_there(name)
        return as_result(value)

    def _secret_of(self, job: Job) -> Any:
        """The value of the secret that a step has fetched, or MISSING; it is looked up, because none is stored."""
        step = self._state.step_of(job)
        if not isinstance(step.action, Noop) or SECRET not in step.args or job.status is not Status.completed:
            return MISSING
        return self._keychain(job).get(step.args[SECRET], MISSING)

    def result_of(self, job: Job) -> Any:
        """The result of a job, or MISSING."""
        step, frame = self._state.step_of(job), self._state.frame_of(job.scope)
        match step.action:
            case FanOut():
                return self.loops.results(job) if job.id in self._state.fans else MISSING
            case Child() if step.name not in frame.values:
                return self.child_result(job)
        value = frame.values.get(step.name, MISSING)
        if value is MISSING and job.output_lost:
            return self.run.output(job)
        if job.status is Status.failed and isinstance(value, dict) and value.get("error") is True:
            return self._failed_result(job, value.get("message", ""))
        return value

    def _failed_result(self, job: Job, message: str) -> dict[str, Any]:
        return {"id": self.memory_key(job), "status": "error", "error": message}

    def own_names(self, job: Job, value: Any, failure: Failure | None) -> dict[str, Any]:
        """The step under its own name, with the value it has just given; empty if the name means something else."""
        scope, step = self._state.scopes[job.scope], self._state.step_of(job)
        named = self._state.step_of(self._state.jobs[scope.owner]) if scope.kind == "item" else step
        if failure is not None and not isinstance(value, list):
            value = self._failed_result(job, failure.message)
        before = (self.arc_arguments(job), step.args, self._item(job), self.variables(job))
        names = [name for name in (named.name, *named.aliases) if not any(name in place for place in before)]
        return {} if value is MISSING else dict.fromkeys(names, as_result(value))

    def child_result(self, job: Job) -> Any:
        """The result of a step's child playbook, or MISSING."""
        step = self._state.step_of(job)
        assert isinstance(step.action, Child)
        found = self._state.frame_of(job.scope).outputs.get(step.name)
        if found is None:
            return MISSING
        if step.action.shares:
            return found.get(found.get(ITER, {}).get(PREVIOUS, ""))
        return found.get(step.action.result, MISSING) if step.action.result else dict(found)

    def _workload(self, job: Job) -> Mapping[str, Any]:
        """The inputs of the playbook; defaults are templates, rendered on first use, all other inputs are data."""
        inputs, declared = self._inputs(job), self._state.workflow_of(job.scope).inputs

        def make(name: str) -> Any:
            """One input; a value from the caller is not rendered, unless it equals the default in the file."""
            if name not in declared or inputs[name] != declared[name].default:
                return inputs[name]
            return render_data(inputs[name], lambda other: self._behind_workload(other, name, job))

        return Lazy(lambda: list(inputs), lambda name: make(name) if name in inputs else MISSING)

    def _inputs(self, job: Job) -> dict[str, Any]:
        found: dict[str, Any] = self.run.find(("inputs",), job)
        return found

    def _behind_workload(self, name: str, asking: str, job: Job) -> Any:
        """A name as the workload itself sees it; no entry sees itself."""
        others = {key: value for key, value in self._inputs(job).items() if key != asking}
        if name in ("workload", "payload"):
            return others
        if name in others:
            return others[name]
        maker = self._makers(job).get(name)
        return MISSING if maker is None or name in (VARS, "ctx", "args") else maker()

    def _makers(self, job: Job) -> dict[str, Maker]:
        """The names that every step can use, each with a function that makes its value."""
        return {
            "workload": lambda: self._workload(job),
            "payload": lambda: self._workload(job),
            "vars": lambda: self._all_variables(job),
            "ctx": lambda: self._all_variables(job),
            "args": lambda: self.arc_arguments(job),
            "env": lambda: dict(self.run.public_env),
            "keychain": lambda: self._keychain(job),
            "token": lambda: lambda name, *_: self._keychain(job)[name]["token"],
            "execution_id": lambda: str(self.run.id),
            "catalog_id": lambda: str(self.run.id),
            "job": lambda: {"id": self.run.id, "uuid": _uuid(f"{self.run.id}/{self._state.started_at}")},
            "execution": lambda: self._execution(job),
            "failed_steps": lambda: self._execution(job)["failed_steps"],
            "results": lambda: self._execution(job)["results"],
            "attempt": lambda: job.attempt,
            "_retry": lambda: dict.fromkeys(("index", "count"), job.error.attempt if job.error else job.attempt),
            "now": lambda: lambda: utc_time(self._state.last_at or self._state.started_at),
            "result": lambda: self._result_before(job),
            "response": lambda: self._result_before(job),
        }

    def _all_variables(self, job: Job) -> Mapping[str, Any]:
        """The variables, with the workload as fallback."""
        own, workload = self.variables(job), self._workload(job)
        return Lazy(
            lambda: list(dict.fromkeys([*own, *workload])),
            lambda name: own[name] if name in own else workload.get(name, MISSING),
        )

    def _keychain(self, job: Job) -> dict[str, dict[str, str]]:
        """The secrets of the playbook, by name and field."""
        found: dict[str, dict[str, str]] = {}
        for name in self._state.workflow_of(job.scope).secrets:
            entry, _, field = name.partition(".")
            value = self.run.find(("env", name), job)
            if value is not MISSING:
                # An optional one may be missing.
                found.setdefault(entry, {})[field] = value
        return found

    def _execution(self, job: Job) -> dict[str, Any]:
        """The state of the playbook so far, with the results of its steps."""
        frame = workflow_frame(self._state, job)
        found = execution(self._state, frame.id)
        results: dict[str, Any] = {}
        failed: list[tuple[int, str]] = []
        for name in found["results"]:
            other = self._state.job_named(name, frame.id)
            value = self.result_of(other) if other is not None else MISSING
            if value is not MISSING:
                results[name] = value
            if name in found["failed_steps"] and other is not None:
                # The last event of a failed step is its failure.
                failed.append((other.last_event_seq, name))
        first, broken = min(failed)[1] if failed else None, found["first_failure"]
        for step in self._state.plan_of(frame.id).steps:
            if broken is not None and isinstance(step.action, FanOut) and broken["step"] == step.action.steps[-1].name:
                # A step that runs for an item has a name that the file does not use.
                found["first_failure"] = {**broken, "step": step.name}
        return {**found, "id": str(self.run.id), "results": results, "original_failed_step": first}

    def _result_before(self, job: Job) -> Any:
        """The result of the step that led to this job."""
        scope: Scope = self._state.scopes[job.scope]
        if scope.kind == "item":
            return self._result_before(self._state.jobs[scope.owner])
        name = self._state.step_of(job).name
        for route in reversed(self._state.routes):
            if route.trigger == "next" and route.target == name and route.scope == scope.name:
                return self.step_result(route.step, job)
        return MISSING

    def context(self, job: Job, find: Callable[[str], Any]) -> dict[str, Any]:
        """Everything that a job sees, as data."""
        host = host_of(self._state, job)
        if host is not None:
            tools = self._state.plan_of(self._state.frame_of(job.scope).id).index
            own = {name: value for name in (*tools, ITER, PREVIOUS) if (value := as_data(find(name))) is not MISSING}
            return {**self.context(host, find), **own}
        frame = workflow_frame(self._state, job)
        steps = [step.name for step in self._state.plan_of(frame.id).steps]
        names = [*self._workload(job), *steps, *self.variables(job), *self._item(job), *self.args(job), *CONTEXT]
        return {name: value for name in names if (value := as_data(find(name))) is not MISSING}


def as_data(value: Any) -> Any:
    """A value as data; MISSING for a step that has not run."""
    from jinja2 import Undefined

    return MISSING if value is MISSING or isinstance(value, Undefined) else plain_data(value)


def _uuid(text: str) -> str:
    """A text in the form of a UUID, the same for the same run."""
    from resile.model.codec import sha256_hex

    digits = sha256_hex(text.encode())
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"
