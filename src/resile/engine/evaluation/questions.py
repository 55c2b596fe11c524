"""Answers what the core asks about values: `when`, conditions on arcs, code of rules, values of child workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from resile.core.actions import AnswerArcs, AnswerCondition, AnswerRoute, AnswerValue, Question
from resile.core.events import ArcsAnswered, ConditionAnswered, RouteAnswered, ValueAnswered
from resile.core.recovery.matching import ladder_of
from resile.core.state import SUCCESS, Job
from resile.engine.evaluation.values import Values
from resile.engine.secrets import Hidden, redact, redact_outcome, redact_value
from resile.errors import shorten
from resile.languages.references import ValueRefused
from resile.languages.registry import language_of, language_of_condition
from resile.languages.surroundings import is_of_end
from resile.model.failure import Outcome, contract_failure
from resile.model.workflow import Condition, FanOut

if TYPE_CHECKING:
    from collections.abc import Callable

    from resile.languages.contract import Code
    from resile.languages.jinja.step_events import StepEvents
    from resile.model.workflow import Arc, Step

CONDITION_CHARACTERS_MAX = 200


class Conditions:
    """Answers the core's questions for one run; the sandbox starts only when there is code to run."""

    def __init__(
        self,
        values: Values,
        step_events: Callable[[], StepEvents],
        complete: Callable[[Job, Step, Outcome, Any, float], Outcome],
        secrets: Hidden,
    ) -> None:
        self._values = values
        self._state = values.state
        self._step_events = step_events
        self._complete = complete
        self._secrets = secrets

    def answer(self, order: Question, at: float) -> ConditionAnswered | ArcsAnswered | RouteAnswered | ValueAnswered:
        """The answer to a question of the core."""
        match order:
            case AnswerCondition():
                return self._answer_when(order, at)
            case AnswerArcs():
                return self._answer_arcs(order, at)
            case AnswerRoute():
                try:
                    return self._answer_route(order, at)
                except ValueRefused as lost:
                    problems = (redact(lost.message, self._secrets),)
                    return RouteAnswered(at, order.job, order.about, stop=order.about == "rule", problems=problems)
            case AnswerValue():
                return self._answer_value(order, at)
        assert_never(order)

    def _answer_when(self, order: AnswerCondition, at: float) -> ConditionAnswered:
        """Does a step's `when` hold?"""
        job = self._state.jobs[order.job]
        condition = self._state.step_of(job).when
        assert condition is not None
        try:
            value, problem = self._holds(condition, job, at)
        except ValueRefused as lost:
            return ConditionAnswered(at, order.job, False, refused=redact(lost.message, self._secrets))
        if problem and self._fails(job):
            refused = redact(self._place_of(condition, job, problem), self._secrets)
            return ConditionAnswered(at, order.job, False, refused=refused)
        return ConditionAnswered(at, order.job, value, redact(problem, self._secrets))

    def _fails(self, job: Job) -> bool:
        """Does a condition that throws fail its step? Not for `end`, which always runs."""
        return not is_of_end(self._state, job) and self._state.workflow_of(job.scope).condition_errors == "fail"

    def _place_of(self, condition: Condition, job: Job, problem: str) -> str:
        """The problem of a condition with the expression and its place."""
        origin = condition.origin
        file = origin.file or self._state.workflow_of(job.scope).file
        where = f" at {file}:{origin.line}:{origin.column}" if origin.line else ""
        source = shorten(condition.source, CONDITION_CHARACTERS_MAX)
        return f"`when: {source}`{where}: {problem.removeprefix('when: ')}"

    def _answer_arcs(self, order: AnswerArcs, at: float) -> ArcsAnswered:
        """Which of a step's arcs hold, and what do they carry?"""
        job = self._state.jobs[order.job]
        step = self._state.step_of(job)
        try:
            memory = (
                self._step_events().conclude_loop(job, step) if isinstance(step.action, FanOut) and step.effects else {}
            )
            answers = [(True, "") if arc.when is None else self._holds(arc.when, job, at) for arc in step.arcs]
            if self._fails(job):
                for arc, (_, problem) in zip(step.arcs, answers, strict=True):
                    if problem and arc.when is not None:
                        raise ValueRefused(self._place_of(arc.when, job, problem))
            taken: list[Arc] = []
            for number, arc in enumerate(step.arcs):
                by_case = arc.when is not None and arc.when.language == "case"
                if by_case and any(other.step == arc.step for other in taken):
                    # If two cases lead to the same step, only the first arc is taken.
                    answers[number] = (False, "")
                if answers[number][0]:
                    taken.append(arc)
            given = self._step_events().arguments_of_arcs(job, taken) if any(arc.args for arc in taken) else {}
        except ValueRefused as problem:
            refused = redact(problem.message, self._secrets)
            return ArcsAnswered(at, order.job, (False,) * len(step.arcs), refused=refused)
        problems = redact("; ".join(problem for _, problem in answers if problem), self._secrets)
        given = redact_value(given, self._secrets) if self._secrets else given
        return ArcsAnswered(at, order.job, tuple(value for value, _ in answers), problems, given, memory)

    def _answer_route(self, order: AnswerRoute, at: float) -> RouteAnswered:
        """What does the code of a rule, or of `on_success`, return?"""
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
            target, stop, problems = self._code(job).target(actions.transitions, actions.target_js, job, at)
            return RouteAnswered(at, order.job, "target", None, target, stop, problems)
        repair = step.on_success if order.rule == SUCCESS else ladder_of(step)[order.rule].repair
        assert repair is not None
        calls, problems = self._code(job).steps_to_run(repair.calls_js, job, at)
        return RouteAnswered(at, order.job, "calls", calls, problems=problems)

    def _answer_value(self, order: AnswerValue, at: float) -> ValueAnswered:
        """What is the value of a child workflow?"""
        job = self._state.jobs[order.job]
        step = self._state.step_of(job)
        error = job.error
        try:
            if step.cases or step.effects:
                events = self._step_events()
                failed = None if error is None else Outcome(1, error.failure)
                outcome = events.conclude_child(job, step) if failed is None else events.conclude(job, step, failed)
            elif error is not None:
                outcome = self._complete(job, step, Outcome(1, error.failure), None, at)
            else:
                outcome = self._complete(job, step, Outcome(0), self._values.child_values(job), at)
        except ValueRefused as lost:
            outcome = Outcome(1, contract_failure(lost.message, "output lost"))
        return ValueAnswered(at, order.job, order.attempt, redact_outcome(outcome, self._secrets))

    def close(self) -> None:
        """Close the sandbox."""
        self._values.close()

    def _code(self, job: Job) -> Code:
        """The evaluator of a job's code: a child workflow may be in another language than the run."""
        return language_of(self._state.workflow_of(job.scope)).code(self._values)

    def _holds(self, condition: Condition, job: Job, at: float) -> tuple[bool, str]:
        """Return whether a condition and all its `besides` hold, and the problem if one can't be evaluated.

        Raises ValueRefused if an output that they need is lost: nothing is known then.
        """
        if condition.language == "none":
            found = [self._holds(one, job, at) for one in condition.besides]
            return not any(value for value, _ in found), ""
        language = language_of_condition(condition, self._state.workflow_of(job.scope))
        self._values.texts.lost = ""
        value, problem = language.condition(condition, self._values, job, at)
        self._values.texts.refuse_lost()
        for one in condition.besides:
            if value:
                value, problem = self._holds(one, job, at)
        return value, problem
