"""JavaScript in a workflow with Liquid templates: more names, memory and a log, and steps that are code themselves.

Expressions (javascript/expressions.py)   when, run_js, goto_js, transitions
LiquidCode                                the same, with the names of scope.py, memory to read, and a log
    run_script                            a step: it may write memory
    value                                 a value of a step: transform_js, value_js, outputs of a workflow
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from resile.languages.javascript.evaluate import Evaluation
from resile.languages.javascript.expressions import Expressions
from resile.languages.liquid.prelude import prelude_for, program_parts, uses_text
from resile.languages.liquid.scope import LiquidScope
from resile.languages.references import MISSING
from resile.model.limits import SCRIPT_BYTES_MAX

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.languages.contract import Run


class LiquidCode(Expressions):
    """Evaluates code for the jobs of one run; a `${...}` in it is no reference."""

    # Our own code around the user's does not count towards its limit.
    bytes_max = SCRIPT_BYTES_MAX + 8 * 1024

    def __init__(self, run: Run) -> None:
        super().__init__(run, lambda _name, _job: MISSING)
        self._scope = LiquidScope(run)

    def run_script(self, code: str, namespace: str, job: Job, at: float) -> Evaluation:
        """Run a script; the result has its value, the memory that it changed and its log."""
        return self._evaluate("script", code, job, at, "body", around=program_parts(code, namespace))

    def value(
        self,
        what: str,
        code: str,
        job: Job,
        at: float,
        *,
        output: Any = None,
        text: str = "",
        outputs: dict[str, Any] | None = None,
    ) -> Evaluation:
        """Evaluate code to a value; `output`, read from `text`, is its input; `outputs` add to those of the steps."""
        more: dict[str, Any] = {} if output is None else {"output": output, "$texts": {"": text} if text else {}}
        if outputs and "outputs" in code:
            more["outputs"] = {**self._makers(code, job)["outputs"](), **outputs}
        return self._evaluate(what, code, job, at, "body", more)

    def _prelude(self, code: str, job: Job) -> str:
        return prelude_for(code, self._state.workflow_of(job.scope).memory_namespace)

    def _context(self, code: str, job: Job, at: float, more: Mapping[str, Any]) -> dict[str, Any]:
        """The variables that code mentions, and those that the code around it needs."""
        # The code around a script needs the memory, even if the script does not mention it.
        around: dict[str, Any] = {"$memory": self._run.memory.namespaces(job)}
        if "Date" in code:
            around["$now"] = int(at * 1e3)
        if uses_text(code):
            around["$texts"] = {**self._scope.texts_in_code(job, code), **more.get("$texts", {})}
        return {**super()._context(code, job, at, more), **around}

    def _makers(self, code: str, job: Job) -> dict[str, Callable[[], Any]]:
        return {**super()._makers(code, job), **self._scope.names_in_code(job, code)}
