"""What code in a workflow can see, and what is made of its answer. The code itself runs in the sandbox.

Only what an expression mentions is put together for it: outputs are read from disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from resile.core.state import ROOT, Job, State
from resile.dialects.interpolate import MISSING, names
from resile.model.rules import Transition
from resile.model.status import TERMINAL
from resile.runtime.secrets import redact
from resile.runtime.values import Values
from resile.sandbox.evaluate import VALUES, Evaluation, Form, Sandbox, expand_values, holds

OUTPUT_STEPS_MAX = 200
SHOWN_CHARACTERS_MAX = 200

Debug = Callable[[str], None]


class Expressions:
    """Evaluates code for the jobs of one run."""

    def __init__(
        self,
        state: State,
        values: Values,
        env: Mapping[str, str],
        secrets: tuple[str, ...],
        debug: Debug | None,
    ) -> None:
        self._state = state
        self._values = values
        self._env = env
        self._secrets = secrets
        self._debug = debug
        self._sandbox = Sandbox()

    def close(self) -> None:
        """Let the sandbox go."""
        self._sandbox.close()

    def holds(self, source: str, job: Job, at: float) -> tuple[bool, str]:
        """Does a `when` hold? A `${x}` in it stands for the value; what can't be evaluated does not hold."""
        lookup = self._values.of(job)
        references = names(source)
        found = [lookup(name.removeprefix("raw:")) for name, _ in references]
        given = [None if value is MISSING else value for value in found]
        code = expand_values(source, references)
        answer = self._evaluate("when", code, job, at, "expression", {VALUES: given})
        return holds(answer.value) and not answer.problem, answer.problem

    def steps_to_run(self, code: str, job: Job, at: float) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """The steps that `run_js` names, or None with what is wrong: one unknown name drops the whole answer."""
        answer = self._evaluate("run_js", code, job, at, "body")
        if answer.problem:
            return None, (answer.problem,)
        value = [] if answer.value is None else answer.value
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            return None, (f"run_js must give a list of step names, not {_shown(value)}",)
        known = self._state.plan_of(job.scope).index
        unknown = [name for name in value if name not in known]
        if unknown:
            return None, (f"run_js names {unknown[0]!r}, which is no step here",)
        return tuple(value), ()

    def target(
        self, transitions: tuple[Transition, ...], code: str, job: Job, at: float
    ) -> tuple[str, bool, tuple[str, ...]]:
        """Where to go: the first transition that holds, else what `goto_js` says; empty where neither names one.

        The second part is True where a transition says to stop.
        """
        problems: list[str] = []
        for transition in transitions:
            answer = self._evaluate("transition", transition.when, job, at, "expression")
            if answer.problem:
                problems.append(answer.problem)
            elif holds(answer.value):
                return transition.to or "", transition.to is None, tuple(problems)
        if not code:
            return "", False, tuple(problems)
        answer = self._evaluate("goto_js", code, job, at, "body")
        if answer.problem:
            return "", False, (*problems, answer.problem)
        if answer.value is None:
            return "", False, tuple(problems)
        if not isinstance(answer.value, str):
            return "", False, (*problems, f"goto_js must give a step's name or null, not {_shown(answer.value)}")
        return answer.value, False, tuple(problems)

    def _evaluate(
        self, what: str, code: str, job: Job, at: float, form: Form, more: Mapping[str, Any] | None = None
    ) -> Evaluation:
        """Run code in the sandbox with what it mentions; its problems are cleaned of secrets."""
        context = {**self._context(code, job), **(more or {})}
        seed = f"{self._state.workflow.name}/{self._state.step_of(job).name}/{job.attempt}"
        answer = self._sandbox.evaluate(code, context, now=at, seed=seed, form=form)
        if self._debug is not None:
            said = answer.problem or _shown(answer.value)
            name = self._state.step_of(job).name
            text = f"{what} of {name}: {said} ({answer.milliseconds:.1f} ms)"
            self._debug(redact(text, self._secrets))
        if answer.problem:
            return msgspec.structs.replace(answer, problem=redact(f"{what}: {answer.problem}", self._secrets))
        return answer

    def _context(self, code: str, job: Job) -> dict[str, Any]:
        """The variables that code mentions."""
        makers: dict[str, Callable[[], Any]] = {
            "step": lambda: {"id": self._state.step_of(job).name, "tags": [], "group": None},
            "attempt": lambda: job.error.attempt if job.error is not None else job.attempt,
            "loop": lambda: self._state.scopes[job.scope].loops,
            "error": lambda: self._error(job),
            "foreach": lambda: None,
            "output": lambda: _parsed(self._values.output(job)),
            "outputs": lambda: self._outputs(code, parsed=True) | {"history": self._history(code)},
            "outputs_raw": lambda: self._outputs(code, parsed=False),
            "outputs_history": lambda: self._history(code),
            "env": lambda: {name: redact(value, self._secrets) for name, value in self._env.items()},
            "inputs": lambda: self._state.inputs,
            "event": lambda: {"name": "manual"},
            "pr": dict,
            "files": list,
        }
        return {name: make() for name, make in makers.items() if name in code}

    def _error(self, job: Job) -> dict[str, Any] | None:
        """The failure that is being answered, under the names that Visor's files use as well."""
        failed = job if job.error is not None else self._values.failed_job(job)
        if failed is None:
            return None
        error = self._values.error(failed)
        return {**error, "code": error.get("exit_code"), "exitCode": error.get("exit_code")}

    def _outputs(self, code: str, *, parsed: bool) -> dict[str, Any]:
        """Outputs of steps that have ended; of many steps only those that the code names."""
        found: dict[str, Any] = {}
        done = [
            job for job in self._state.jobs.values() if job.scope == ROOT and job.attempt and job.status in TERMINAL
        ]
        for job in done:
            name = self._state.step_of(job).name
            if len(done) <= OUTPUT_STEPS_MAX or name in code:
                value = self._values.output(job)
                found[name] = _parsed(value) if parsed else value
        return found

    def _history(self, code: str) -> dict[str, list[Any]]:
        """Every output of the steps that the code names, oldest first."""
        if "history" not in code:
            return {}
        found: dict[str, list[Any]] = {}
        for job in self._state.jobs.values():
            name = self._state.step_of(job).name
            if job.scope == ROOT and name in code:
                found[name] = [_parsed(value) for value in self._values.history(job)]
        return found


def _parsed(value: Any) -> Any:
    """Text that is a JSON object or list as its value; anything else as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return value
    return value


def _shown(value: Any) -> str:
    """A value in a message."""
    return repr(value)[:SHOWN_CHARACTERS_MAX]
