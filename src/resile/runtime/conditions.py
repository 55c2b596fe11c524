"""Answers to what the core asks about values: `when`, the conditions on arcs, the code of rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resile.core.actions import AnswerArcs, AnswerCondition, AnswerRoute
from resile.core.answers import ladder_of
from resile.core.events import ArcsAnswered, ConditionAnswered, RouteAnswered
from resile.core.state import SUCCESS, Job, State
from resile.dialects.interpolate import MISSING, is_one_reference
from resile.model.workflow import Condition
from resile.runtime.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable

    from resile.runtime.expressions import Expressions

_FALSE_TEXTS = ("", "0", "false", "null")


class Conditions:
    """Evaluates conditions for one run; the sandbox is only fetched when there is code to run."""

    def __init__(self, state: State, values: Values, expressions: Callable[[], Expressions]) -> None:
        self._state = state
        self._values = values
        self._make = expressions
        self._made: Expressions | None = None

    def answer(self, order: AnswerCondition, at: float) -> ConditionAnswered:
        """Does a step's `when` hold?"""
        job = self._state.jobs[order.job]
        condition = self._state.step_of(job).when
        assert condition is not None
        value, problem = self._holds(condition, job, at)
        return ConditionAnswered(at, order.job, value, problem)

    def answer_arcs(self, order: AnswerArcs, at: float) -> ArcsAnswered:
        """Which of a step's arcs hold?"""
        job = self._state.jobs[order.job]
        answers = [
            (True, "") if arc.when is None else self._holds(arc.when, job, at) for arc in self._state.step_of(job).arcs
        ]
        problem = "; ".join(problem for _, problem in answers if problem)
        return ArcsAnswered(at, order.job, tuple(value for value, _ in answers), problem)

    def answer_route(self, order: AnswerRoute, at: float) -> RouteAnswered:
        """What does the code of a rule, or of `on_success`, say?"""
        job = self._state.jobs[order.job]
        step = self._state.step_of(job)
        actions = step.on_success if order.rule == SUCCESS else ladder_of(step)[order.rule]
        assert actions is not None
        if order.about == "target":
            target, stop, problems = self._expressions.target(actions.transitions, actions.target_js, job, at)
            return RouteAnswered(at, order.job, "target", None, target, stop, problems)
        repair = step.on_success if order.rule == SUCCESS else ladder_of(step)[order.rule].repair
        assert repair is not None
        calls, problems = self._expressions.steps_to_run(repair.calls_js, job, at)
        return RouteAnswered(at, order.job, "calls", calls, problems=problems)

    def close(self) -> None:
        """Let the sandbox go, if there was one."""
        if self._made is not None:
            self._made.close()

    @property
    def _expressions(self) -> Expressions:
        """The sandbox, from the first time on that it is needed."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def _holds(self, condition: Condition, job: Job, at: float) -> tuple[bool, str]:
        """One condition: a literal, one reference whose value is judged, or code."""
        if condition.language == "js":
            return self._expressions.holds(condition.source, job, at)
        source = condition.source.strip()
        if is_one_reference(source):
            return truthy(self._values.of(job)(source[2:-1])), ""
        return source == "true", ""


def truthy(value: Any) -> bool:
    """Empty, 0, false and null are false, as values and as text."""
    if value is MISSING or value is None:
        return False
    if isinstance(value, str):
        return value.strip() not in _FALSE_TEXTS
    return bool(value)
