"""The parts of an engine that evaluate, each made when it is first needed.

    Evaluators --> conditions         the answers to what the core asks (questions.py)
               --> perform, complete  steps that run inside the engine, and the values of outputs (builtin_steps.py)
               --> step_events        the cases and effects of steps in workflows with Jinja templates

A run of plain commands makes only the first, and imports none of the other modules.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from resile.engine.evaluation.questions import Conditions
from resile.engine.secrets import Hidden

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.engine.evaluation.builtin_steps import BuiltinSteps
    from resile.engine.evaluation.values import Values
    from resile.languages.jinja.step_events import StepEvents
    from resile.model.failure import Outcome
    from resile.model.workflow import Step


class Evaluators:
    """Evaluates for one run; `secrets` are the texts to redact."""

    def __init__(self, values: Values, secrets: Hidden) -> None:
        self._values = values
        self.conditions = Conditions(values, lambda: self.step_events, self.complete, secrets)

    def perform(self, job: Job, step: Step, at: float) -> Outcome:
        """The outcome of a step that runs inside the engine."""
        return self._builtin.perform(job, step, at)

    def complete(self, job: Job, step: Step, outcome: Outcome, value: Any, at: float) -> Outcome:
        """The outcome with the step's value, after its checks; of a failed step, with the value that others see."""
        if outcome.failure is not None:
            return self._builtin.failure_outcome(step, outcome.failure)
        return self._builtin.complete(job, step, outcome, value, at)

    @cached_property
    def step_events(self) -> StepEvents:
        """Evaluates the cases of steps, and carries out their effects."""
        from resile.languages.jinja.step_events import StepEvents

        return StepEvents(self._values)

    @cached_property
    def _builtin(self) -> BuiltinSteps:
        from resile.engine.evaluation.builtin_steps import BuiltinSteps

        return BuiltinSteps(self._values)
