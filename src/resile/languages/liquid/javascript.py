"""JavaScript in a workflow with Liquid templates: more names, memory and a log, and steps that are code themselves.

Expressions (javascript/expressions.py)   when, run_js, goto_js, transitions
LiquidCode                                the same, with the names of scope.py, memory to read, and a log
    run_script                            a step: it may write memory
    value                                 a value of a step: transform_js, value_js, outputs of a workflow
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from resile.languages.javascript.evaluate import Evaluation, Form
from resile.languages.javascript.expressions import Expressions
from resile.languages.liquid.prelude import prelude_for, program_parts
from resile.languages.liquid.scope import LiquidScope
from resile.languages.references import MISSING
from resile.model.limits import SCRIPT_BYTES_MAX

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.languages.contract import Run

# Our own code around the user's does not count towards its limit.
_AROUND_BYTES_MAX = 8 * 1024


class LiquidCode(Expressions):
    """Evaluates code for the jobs of one run; a `${...}` in it is no reference."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, lambda _name, _job: MISSING)
        self._scope = LiquidScope(run)

    def run_script(self, code: str, namespace: str, job: Job, at: float) -> Evaluation:
        """Run a script; the result has its value, the memory that it changed and its log."""
        before, after = program_parts(code, namespace)
        return self._evaluate_after("script", code + after, job, at, "body", self._variables(code, job, at), before)

    def value(
        self,
        what: str,
        code: str,
        job: Job,
        at: float,
        *,
        output: Any = None,
        outputs: dict[str, Any] | None = None,
    ) -> Evaluation:
        """Evaluate code to a value; `output` is its input, `outputs` are added to those of the steps."""
        more = self._variables(code, job, at)
        if output is not None:
            more |= {"output": output}
        if outputs and "outputs" in code:
            more["outputs"] = {**more.get("outputs", {}), **outputs}
        return self._evaluate_after(what, code, job, at, "body", more, prelude_for(code, self._namespace(job)))

    def _evaluate(
        self, what: str, code: str, job: Job, at: float, form: Form, more: Mapping[str, Any] | None = None
    ) -> Evaluation:
        """Run code with the variables it mentions, a memory to read, and a log that is discarded."""
        variables = {**self._variables(code, job, at), **(more or {})}
        before = prelude_for(code, self._namespace(job))
        if form == "expression" and before:
            return self._evaluate_after(what, f"{code}\n)", job, at, "body", variables, f"{before}(")
        return self._evaluate_after(what, code, job, at, form, variables, before)

    def _evaluate_after(
        self, what: str, code: str, job: Job, at: float, form: Form, variables: Mapping[str, Any], before: str
    ) -> Evaluation:
        """Run code with exactly these variables, after the code `before` it."""
        return self._evaluate_with(what, code, job, at, form, variables, SCRIPT_BYTES_MAX + _AROUND_BYTES_MAX, before)

    def _namespace(self, job: Job) -> str:
        """The default namespace of the memory."""
        return self._state.workflow_of(job.scope).memory_namespace

    def _variables(self, code: str, job: Job, at: float) -> dict[str, Any]:
        """The variables that code mentions, and those that the code around it needs."""
        context = self._context(code, job)
        # Always pass the memory, even if the script does not mention it.
        context["$memory"] = self._scope.names_in_code(job, code)["$memory"]()
        if "Date" in code:
            context["$now"] = int(at * 1e3)
        return context

    def _makers(self, code: str, job: Job) -> dict[str, Callable[[], Any]]:
        """The variables that code may mention: those of any workflow, and those of this language."""
        return {**super()._makers(code, job), **self._scope.names_in_code(job, code)}
