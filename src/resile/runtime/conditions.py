"""Answers to `when` and to the conditions on arcs."""

from __future__ import annotations

from typing import Any

from resile.core.actions import AnswerArcs, AnswerCondition, AnswerRoute
from resile.core.events import ArcsAnswered, ConditionAnswered, RouteAnswered
from resile.core.state import Job, State
from resile.dialects.interpolate import MISSING, is_one_reference
from resile.model.workflow import Condition
from resile.runtime.values import Values

_FALSE_TEXTS = ("", "0", "false", "null")


class Conditions:
    """Evaluates conditions for one run."""

    def __init__(self, state: State, values: Values) -> None:
        self._state = state
        self._values = values

    def answer(self, order: AnswerCondition, at: float) -> ConditionAnswered:
        """Does a step's `when` hold?"""
        job = self._state.jobs[order.job]
        step = self._state.step_of(job)
        assert step.when is not None
        return ConditionAnswered(at, order.job, self._holds(step.when, job))

    def answer_arcs(self, order: AnswerArcs, at: float) -> ArcsAnswered:
        """Which of a step's arcs hold?"""
        job = self._state.jobs[order.job]
        arcs = self._state.step_of(job).arcs
        return ArcsAnswered(at, order.job, tuple(arc.when is None or self._holds(arc.when, job) for arc in arcs))

    def answer_route(self, order: AnswerRoute, at: float) -> RouteAnswered:
        """What does the code of a rule, or of `on_success`, say?"""
        problem = "expressions need the sandbox"
        return RouteAnswered(at, order.job, order.about, problems=(problem,))

    def _holds(self, condition: Condition, job: Job) -> bool:
        """One condition: a literal, or one reference whose value is judged."""
        source = condition.source.strip()
        if is_one_reference(source):
            return truthy(self._values.of(job)(source[2:-1]))
        return source == "true"


def truthy(value: Any) -> bool:
    """Empty, 0, false and null are false, as values and as text."""
    if value is MISSING or value is None:
        return False
    if isinstance(value, str):
        return value.strip() not in _FALSE_TEXTS
    return bool(value)
