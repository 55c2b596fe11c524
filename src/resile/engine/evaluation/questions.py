"""Answers to what the core asks about values: `when`, the conditions on arcs, the code of rules, what children gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from resile.core.actions import AnswerArcs, AnswerCondition, AnswerRoute, AnswerValue
from resile.core.events import ArcsAnswered, ConditionAnswered, RouteAnswered, ValueAnswered
from resile.core.recovery.matching import ladder_of
from resile.core.state import SUCCESS, Job, State
from resile.engine.evaluation.values import Values
from resile.engine.secrets import redact, redact_outcome, redact_value
from resile.languages.references import MISSING, ValueRefused, is_one_reference
from resile.model.failure import Outcome
from resile.model.fanout import FanOut
from resile.model.workflow import Condition

if TYPE_CHECKING:
    from collections.abc import Callable

    from resile.engine.evaluation.expressions import Expressions
    from resile.engine.evaluation.step_events import Cases
    from resile.model.workflow import Arc, Step, Templates

_FALSE_TEXTS = ("", "0", "false", "null")


class Conditions:
    """Evaluates conditions for one run; the sandbox is only fetched when there is code to run."""

    def __init__(
        self,
        state: State,
        values: Values,
        expressions: Callable[[Templates], Expressions],
        cases: Callable[[], Cases],
        complete: Callable[[Job, Step, Outcome, Any, float], Outcome],
        secrets: tuple[str, ...],
    ) -> None:
        self._secrets = secrets
        self._state = state
        self._values = values
        self._make = expressions
        self._made: dict[Templates, Expressions] = {}
        self._cases = cases
        self._complete = complete

    def answer(
        self, order: AnswerCondition | AnswerArcs | AnswerRoute | AnswerValue, at: float
    ) -> ConditionAnswered | ArcsAnswered | RouteAnswered | ValueAnswered:
        """Whatever the core asks."""
        match order:
            case AnswerCondition():
                return self._answer_when(order, at)
            case AnswerArcs():
                return self._answer_arcs(order, at)
            case AnswerRoute():
                return self._answer_route(order, at)
            case AnswerValue():
                return self._answer_value(order, at)
        assert_never(order)

    def _answer_when(self, order: AnswerCondition, at: float) -> ConditionAnswered:
        """Does a step's `when` hold?"""
        job = self._state.jobs[order.job]
        condition = self._state.step_of(job).when
        assert condition is not None
        value, problem = self._holds(condition, job, at)
        return ConditionAnswered(at, order.job, value, redact(problem, self._secrets))

    def _answer_arcs(self, order: AnswerArcs, at: float) -> ArcsAnswered:
        """Which of a step's arcs hold, and what do they carry?"""
        job = self._state.jobs[order.job]
        step = self._state.step_of(job)
        try:
            memory = self._cases().after_loop(job, step) if isinstance(step.action, FanOut) and step.effects else {}
            answers = [(True, "") if arc.when is None else self._holds(arc.when, job, at) for arc in step.arcs]
            taken: list[Arc] = []
            for number, arc in enumerate(step.arcs):
                by_case = arc.when is not None and arc.when.language == "case"
                if by_case and any(other.step == arc.step for other in taken):
                    # Two cases that lead to one step lead there once.
                    answers[number] = (False, "")
                if answers[number][0]:
                    taken.append(arc)
            given = self._cases().carried(job, taken) if any(arc.args for arc in taken) else {}
        except ValueRefused as problem:
            refused = redact(problem.message, self._secrets)
            return ArcsAnswered(at, order.job, (False,) * len(step.arcs), refused=refused)
        said = redact("; ".join(problem for _, problem in answers if problem), self._secrets)
        given = redact_value(given, self._secrets) if self._secrets else given
        return ArcsAnswered(at, order.job, tuple(value for value, _ in answers), said, given, memory)

    def _answer_route(self, order: AnswerRoute, at: float) -> RouteAnswered:
        """What does the code of a rule, or of `on_success`, say?"""
        job = self._state.jobs[order.job]
        step = self._state.step_of(job)
        if order.about == "rule":
            when = ladder_of(step)[order.rule].when
            assert when is not None
            value, problem = self._holds(when, job, at)
            return RouteAnswered(at, order.job, "rule", stop=not value, problems=(problem,) if problem else ())
        actions = step.on_success if order.rule == SUCCESS else ladder_of(step)[order.rule]
        assert actions is not None
        if order.about == "target":
            target, stop, problems = self._for(job).target(actions.transitions, actions.target_js, job, at)
            return RouteAnswered(at, order.job, "target", None, target, stop, problems)
        repair = step.on_success if order.rule == SUCCESS else ladder_of(step)[order.rule].repair
        assert repair is not None
        calls, problems = self._for(job).steps_to_run(repair.calls_js, job, at)
        return RouteAnswered(at, order.job, "calls", calls, problems=problems)

    def _answer_value(self, order: AnswerValue, at: float) -> ValueAnswered:
        """What does the value of a child workflow come to?"""
        job = self._state.jobs[order.job]
        step = self._state.step_of(job)
        error = job.error
        if error is not None and self._state.workflow_of(job.scope).templates == "jinja":
            outcome = self._cases().concluded(job, step, Outcome(1, error.failure))
        elif error is not None:
            outcome = self._complete(job, step, Outcome(1, error.failure), None, at)
        elif step.cases or step.effects:
            outcome = self._cases().hosted(job, step)
        else:
            outcome = self._complete(job, step, Outcome(0), self._values.child_gave(job), at)
        return ValueAnswered(at, order.job, order.attempt, redact_outcome(outcome, self._secrets))

    def close(self) -> None:
        """Let go of every sandbox that there was."""
        for made in self._made.values():
            made.close()

    def expressions(self, templates: Templates) -> Expressions:
        """The sandbox with the names that code has beside these templates, from the first time on that it is needed."""
        if templates not in self._made:
            self._made[templates] = self._make(templates)
        return self._made[templates]

    def _for(self, job: Job) -> Expressions:
        """The sandbox for the code of a job: a child workflow may be of another language than the run."""
        return self.expressions(self._state.workflow_of(job.scope).templates)

    def _holds(self, condition: Condition, job: Job, at: float) -> tuple[bool, str]:
        """A condition and those besides it, as far as they must be asked."""
        if condition.language == "none":
            found = [self._holds(one, job, at) for one in condition.besides]
            return not any(value for value, _ in found), ""
        value, problem = self._one_holds(condition, job, at)
        for one in condition.besides:
            if value:
                value, problem = self._holds(one, job, at)
        return value, problem

    def _one_holds(self, condition: Condition, job: Job, at: float) -> tuple[bool, str]:
        """One condition: a literal, one reference whose value is judged, or code."""
        if condition.language == "js":
            return self._for(job).holds(condition.source, job, at)
        if condition.language == "code":
            return self._for(job).check("condition", condition.source, job, at)
        if condition.language in ("jinja", "case"):
            return self._cases().holds(condition, job)
        source = condition.source.strip()
        if is_one_reference(source):
            return truthy(self._values.asked(job)(source[2:-1])), ""
        return source == "true", ""


def truthy(value: Any) -> bool:
    """Empty, 0, false and null are false, as values and as text."""
    if value is MISSING or value is None:
        return False
    if isinstance(value, str):
        return value.strip() not in _FALSE_TEXTS
    return bool(value)
