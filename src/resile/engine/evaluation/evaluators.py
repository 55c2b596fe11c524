"""The parts of an engine that evaluate code and other template languages, each made when it is first needed.

    Evaluators --> conditions   what the core asks (conditions.py)
               --> expressions  the sandbox: of its own kind for workflows with Liquid templates (codes.py)
               --> perform, complete    steps that run inside the engine, and what becomes of outputs (inside.py)
               --> cases        what answers for workflows with Jinja templates (cases.py)
               --> the texts of a job, in the language of its workflow (templates.py, jinja.py)

A run of plain commands makes none of them but the first, and imports none of their modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from resile.engine.evaluation.questions import Conditions

if TYPE_CHECKING:
    from resile.core.state import Job, State
    from resile.engine.actions.builtin import Inside
    from resile.engine.evaluation.expressions import Expressions
    from resile.engine.evaluation.liquid_code import Codes
    from resile.engine.evaluation.liquid_scope import Known
    from resile.engine.evaluation.memory import Memories
    from resile.engine.evaluation.step_events import Cases
    from resile.engine.evaluation.values import Values
    from resile.languages.references import Lookup
    from resile.model.failure import Failure, Outcome
    from resile.model.workflow import Step, Templates
    from resile.store.contract import RunRow, Store


class Evaluators:
    """What evaluates for one run."""

    def __init__(
        self,
        store: Store,
        row: RunRow,
        state: State,
        values: Values,
        env: Mapping[str, str],
        hidden: tuple[str, ...],
        debug: Callable[[str], None] | None,
    ) -> None:
        self._store = store
        self._row = row
        self._state = state
        self._values = values
        self._env = env
        self._hidden = hidden
        self._debug = debug
        self.conditions = Conditions(state, values, self._expressions, self.cases, self.complete, hidden)
        values.languages["liquid"] = self._lookup
        values.languages["jinja"] = lambda job: self.cases().texts(job)

    def perform(self, job: Job, step: Step, at: float) -> Outcome:
        """What a step that runs inside the engine comes to."""
        return self._inside.perform(job, step, at)

    def complete(self, job: Job, step: Step, outcome: Outcome, value: Any, at: float) -> Outcome:
        """An outcome with the value of the step, which must meet its conditions; of a failed one, with what is left."""
        if outcome.failure is not None:
            return self._inside.failed(step, outcome.failure)
        return self._inside.complete(job, step, outcome, value, at)

    def failed_value(self, failure: Failure) -> dict[str, Any]:
        """What a failed step gives to those that go on without its success."""
        from resile.engine.evaluation.liquid_scope import failed_value

        return failed_value(failure)

    def cases(self) -> Cases:
        """What answers for workflows with Jinja templates."""
        return self._made_cases

    def _lookup(self, job: Job) -> Lookup:
        """The texts of a job in Liquid."""
        from resile.engine.evaluation.templates import Templated

        return Templated(lambda: self._known.variables(job))

    def _expressions(self, templates: Templates) -> Expressions:
        """A sandbox, with the names that code knows beside these templates."""
        if templates == "liquid":
            from resile.engine.evaluation.liquid_code import Codes

            return Codes(self._state, self._values, self._hidden, self._debug, self._known)
        from resile.engine.evaluation.expressions import Expressions

        return Expressions(self._state, self._values, self._hidden, self._debug)

    def _codes(self) -> Codes:
        """The sandbox for steps and values that are code, whatever the language of the texts beside it."""
        from resile.engine.evaluation.liquid_code import Codes

        made = self.conditions.expressions("liquid")
        assert isinstance(made, Codes)
        return made

    @cached_property
    def _memories(self) -> Memories:
        """The run's memory."""
        from resile.engine.evaluation.memory import Memories

        return Memories(self._state, self._values, self._row.directory, self._hidden)

    @cached_property
    def _known(self) -> Known:
        """What texts and code see."""
        from resile.engine.evaluation.liquid_scope import Known

        row = self._row
        return Known(self._state, self._values, self._memories, self._store, row.id, self._hidden, row.directory)

    @cached_property
    def _inside(self) -> Inside:
        """Made once."""
        from resile.engine.actions.builtin import Inside

        return Inside(self._known, self._memories, self._codes, self._values.of)

    @cached_property
    def _made_cases(self) -> Cases:
        """Made once."""
        from resile.engine.evaluation.jinja_scope import Names
        from resile.engine.evaluation.step_events import Cases

        names = Names(self._state, self._values, self._memories, self._hidden, self._store, self._row.id, self._env)
        return Cases(self._state, names, self._memories)
