"""JavaScript in a workflow: the variables that it can use, and the meaning of its result. It runs in the sandbox.

A variable is only made if the code mentions its name, because outputs are read from disk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from resile.core.fanout.naming import short_name
from resile.languages.javascript.evaluate import VALUES, Evaluation, Form, expand_values, holds
from resile.languages.references import MISSING, ValueRefused, known_of, names, parse_json
from resile.languages.surroundings import error_fields, failed_job, item_scope, scopes_seen, source_item
from resile.model.limits import EXPRESSION_BYTES_MAX
from resile.model.rules import Transition
from resile.model.status import TERMINAL

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.languages.contract import Run
    from resile.model.workflow import Condition

OUTPUT_STEPS_MAX = 200
SHOWN_CHARACTERS_MAX = 200

Find = Callable[[str, "Job"], Any]
"""Returns the value of a `${...}` reference for a job, or MISSING."""


class Expressions:
    """Evaluates code for the jobs of one run."""

    bytes_max = EXPRESSION_BYTES_MAX

    def __init__(self, run: Run, find: Find) -> None:
        self._run = run
        self._state = run.state
        self._find = find

    def decide(self, condition: Condition, job: Job, at: float) -> tuple[bool, str]:
        """Does a JavaScript condition hold? And what is its problem?

        Raises ValueRefused where the variables are too large and errors of conditions only skip their steps: the limit
        is ours and no fault of the code, so the step must fail.
        """
        if condition.language == "js":
            return self.holds(condition.source, job, at)
        answer = self._evaluate("condition", condition.source, job, at, "body")
        return self._is_met(answer, job), answer.problem

    def holds(self, source: str, job: Job, at: float) -> tuple[bool, str]:
        """Does a `when` hold? A `${x}` in it means the value; code that can't be evaluated does not hold."""
        references = names(source)
        found = [self._find(name.removeprefix("raw:"), job) for name, _ in references]
        given = [None if value is MISSING else value for value in found]
        code = expand_values(source, references)
        answer = self._evaluate("when", code, job, at, "expression", {VALUES: given})
        near = self._nearest_to(answer.problem, source, job) if answer.problem else ""
        return self._is_met(answer, job), answer.problem + near

    def _is_met(self, answer: Evaluation, job: Job) -> bool:
        """Does the answer of a condition mean yes?"""
        if answer.kind == "too_large" and self._state.workflow_of(job.scope).condition_errors == "skip":
            raise ValueRefused(answer.problem)
        return holds(answer.value) and not answer.problem

    def _nearest_to(self, problem: str, code: str, job: Job) -> str:
        """A hint with the name that was probably meant where code names a variable or a step that there is not."""
        if found := re.search(r"ReferenceError: '?([\w$]+)'? is not defined", problem):
            if found[1] == "steps":
                # Texts call it `steps.NAME.output`.
                return "; a step's output is `outputs.NAME`"
            return _suggestion("", found[1], self._makers(code, job))
        steps = self._jobs_seen(job)
        for name in re.findall(r"\boutputs\.([A-Za-z_$][\w$]*)", code):
            if name not in steps and (near := _suggestion("outputs.", name, steps)):
                return near
        inputs = self._run.find(("inputs",), job)
        for name in re.findall(r"\binputs\.([A-Za-z_$][\w$]*)", code):
            if isinstance(inputs, dict) and name not in inputs and (near := _suggestion("inputs.", name, inputs)):
                return near
        return ""

    def check(
        self, what: str, code: str, job: Job, at: float, more: Mapping[str, Any] | None = None
    ) -> tuple[bool, str]:
        """Does a condition without references hold? Code that can't be evaluated does not."""
        answer = self._evaluate(what, code, job, at, "body", more)
        return holds(answer.value) and not answer.problem, answer.problem

    def steps_to_run(self, code: str, job: Job, at: float) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """The steps that `run_js` names, or None with the problem: one unknown name rejects the whole list."""
        answer = self._evaluate("run_js", code, job, at, "body")
        if answer.problem:
            return None, (answer.problem,)
        value = [] if answer.value is None else answer.value
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            return None, (f"run_js must give a list of step names, not {_beginning_of(value)}",)
        known = self._state.plan_of(job.scope).index
        unknown = [name for name in value if name not in known]
        if unknown:
            return None, (f"run_js names {unknown[0]!r}, which is no step here",)
        return tuple(value), ()

    def target(
        self, transitions: tuple[Transition, ...], code: str, job: Job, at: float
    ) -> tuple[str, bool, tuple[str, ...]]:
        """The step to go to: from the first transition that holds, else from `goto_js`; empty if neither names one.

        The second part is True if a transition says to stop.
        """
        problems: list[str] = []
        for transition in transitions:
            answer = self._evaluate("transition", transition.when, job, at, "expression")
            if answer.problem:
                problems.append(answer.problem)
            elif holds(answer.value):
                return transition.to or "", transition.to is None, tuple(problems)
        target: Any = None
        if code:
            answer = self._evaluate("goto_js", code, job, at, "body")
            target = answer.value
            if answer.problem:
                problems.append(answer.problem)
            elif target is not None and not isinstance(target, str):
                problems.append(f"goto_js must give a step's name or null, not {_beginning_of(target)}")
        return target if isinstance(target, str) else "", False, tuple(problems)

    def _evaluate(
        self,
        what: str,
        code: str,
        job: Job,
        at: float,
        form: Form,
        more: Mapping[str, Any] | None = None,
        around: tuple[str, str] | None = None,
    ) -> Evaluation:
        """Run code in the sandbox with the variables it mentions; redact secrets from its problems.

        `more` are further variables; `around` replaces our own code before and after the user's.
        """
        context = self._context(code, job, at, more or {})
        before, after = around or (self._prelude(code, job), "")
        if form == "expression" and before:
            # After other code an expression is the last statement of a body.
            form, before, after = "body", f"{before}(", "\n)"
        name = self._state.step_of(job).name
        seed = f"{self._state.workflow.name}/{name}/{job.attempt}"
        answer = self._run.sandbox.evaluate(
            before + code + after,
            context,
            now=at,
            seed=seed,
            form=form,
            bytes_max=self.bytes_max,
            before=len(before),
        )
        if self._run.debug is not None:
            said = answer.problem or _beginning_of(answer.value)
            self._run.debug(self._run.redact(f"{what} of {name}: {said} ({answer.milliseconds:.1f} ms)"))
        if answer.problem:
            return msgspec.structs.replace(answer, problem=self._run.redact(f"{what}: {answer.problem}"))
        return answer

    def _prelude(self, code: str, job: Job) -> str:
        """The source before code: none, unless a language has more names."""
        del code, job
        return ""

    def _context(self, code: str, job: Job, at: float, more: Mapping[str, Any]) -> dict[str, Any]:
        """The variables that code mentions, and `more`, which replace others of the same name."""
        del at
        makers = self._makers(code, job).items()
        made = known_of({name: make() for name, make in makers if name in code and name not in more})
        return {**made, **more}

    def _makers(self, code: str, job: Job) -> dict[str, Callable[[], Any]]:
        """All variables that code may mention, each with a function that makes it."""
        return {
            "step": lambda: {"id": self._state.step_of(job).name, "tags": [], "group": None},
            "attempt": lambda: job.error.attempt if job.error is not None else job.attempt,
            "loop": lambda: self._state.scopes[job.scope].loops,
            "error": lambda: self._error(job),
            "foreach": lambda: self._foreach(job),
            "item": lambda: self._run.find(("item",), job),
            "output": lambda: parse_json(self._run.output(job)),
            "outputs": lambda: self._outputs(job, code, decode=True) | {"history": self._history(job, code)},
            "outputs_raw": lambda: self._outputs(job, code, decode=False),
            "outputs_history": lambda: self._history(job, code),
            "env": lambda: {name: self._run.redact(value) for name, value in self._run.env_of(job).items()},
            "inputs": lambda: self._run.find(("inputs",), job),
            "event": lambda: {"name": "manual"},
            "pr": dict,
            "files": list,
        }

    def _foreach(self, job: Job) -> dict[str, Any] | None:
        """The item of a fan-out that a job runs for, if any."""
        scope = item_scope(self._state, job)
        if scope is None or scope.item is None:
            return None
        owner = self._state.jobs[scope.owner]
        return {
            "key": f"{short_name(self._state, owner)}[{scope.item.index}]",
            "index": scope.item.index,
            "total": self._state.fans[owner.id].total,
            "path": scope.name,
        }

    def _error(self, job: Job) -> dict[str, Any] | None:
        """The failure that is being handled, also under the names in Visor's files."""
        failed = job if job.error is not None else failed_job(self._state, job)
        if failed is None:
            return None
        error = error_fields(failed)
        return {**error, "code": error.get("exit_code"), "exitCode": error.get("exit_code")}

    def _jobs_seen(self, job: Job) -> dict[str, Job]:
        """The jobs visible to a job, by step: those around it, the nearest of each name."""
        found: dict[str, Job] = {}
        for scope in scopes_seen(self._state, job):
            for number, step in enumerate(self._state.plan_of(scope.id).steps):
                found.setdefault(step.name, self._state.jobs[scope.first + number])
        return found

    def _outputs(self, job: Job, code: str, *, decode: bool) -> dict[str, Any]:
        """The outputs of steps that have ended: those that the code names.

        Where it may name one in another way, as in `outputs[x]`, all, unless there are very many.
        """
        found: dict[str, Any] = {}
        wanted = outputs_named(code)
        done = {
            name: other
            for name, other in self._jobs_seen(job).items()
            if (other.attempt and other.status in TERMINAL) or source_item(self._state, name, job) is not MISSING
        }
        for name, other in done.items():
            if name in code if wanted is None and len(done) > OUTPUT_STEPS_MAX else wanted is None or name in wanted:
                value = self._run.find(("steps", name, "output"), job) if other is not job else self._run.output(job)
                found[name] = parse_json(value) if decode else value
        return found

    def _history(self, job: Job, code: str) -> dict[str, list[Any]]:
        """Every output of the steps that the code names, oldest first."""
        if "history" not in code:
            return {}
        return {
            name: [parse_json(value) for value in self._run.history(other)]
            for name, other in self._jobs_seen(job).items()
            if name in code
        }


def outputs_named(code: str) -> set[str] | None:
    """The steps whose outputs code uses, by `outputs.x`, `outputs?.x` and `outputs["x"]`; None if it may use any."""
    if "\\" in code or "`" in code:
        return None
    member = r"""\s*(?:(?:\?\.|\.)\s*([A-Za-z_$][\w$]*)|(?:\?\.)?\s*\[\s*(?:"([^"]*)"|'([^']*)')\s*\])"""
    uses = re.findall(rf"(?<![\w$])outputs(?:_raw|_history)?(?![\w$])(?:{member})?", code)
    names = {a or b or c for a, b, c in uses}
    return None if "" in names else names - {"history"} if "history" not in code else None


def _suggestion(root: str, name: str, known: Iterable[str]) -> str:
    """A hint with the known name that is nearest to a name, if one is near."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean `{root}{near[0]}`?" if near else ""


def _beginning_of(value: Any) -> str:
    return repr(value)[:SHOWN_CHARACTERS_MAX]
