"""The parts of an engine that evaluate, each made when it is first needed.

    Evaluators --> conditions         the answers to what the core asks (questions.py)
               --> perform, complete  steps that run inside the engine, and the values of outputs (builtin_steps.py)
               --> step_events        the cases and effects of steps in workflows with Jinja templates

A run of plain commands makes only the first, and imports none of the other modules.

The functions at the end tell which evaluations may wait for another process (beside.py runs these), and which write
the memory of the run (these run one after the other).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from resile.core.actions import AnswerCondition, AnswerRoute, Question
from resile.engine.evaluation.questions import Conditions
from resile.engine.evaluation.values import Values
from resile.engine.secrets import Hidden
from resile.languages.registry import language_of
from resile.model.builtin_actions import Ask, Collect, Memory, Script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from resile.core.state import Job, State
    from resile.engine.evaluation.builtin_steps import BuiltinSteps
    from resile.executors.contract import OutputReader
    from resile.languages.javascript.helpers import Helpers
    from resile.languages.jinja.step_events import StepEvents
    from resile.model.failure import Outcome
    from resile.model.workflow import Step
    from resile.store.contract import RunRow, Store

_BUILTIN = frozenset((Ask, Collect, Memory, Script))
_WRITING = frozenset((Memory, Script))


class Evaluators:
    """Evaluates for one run; `secrets` are the texts to redact."""

    def __init__(self, values: Values, secrets: Hidden) -> None:
        self.values = values
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

        return StepEvents(self.values)

    @cached_property
    def _builtin(self) -> BuiltinSteps:
        from resile.engine.evaluation.builtin_steps import BuiltinSteps

        return BuiltinSteps(self.values)


def make_evaluators(
    store: Store,
    row: RunRow,
    state: State,
    output: OutputReader,
    env: Mapping[str, str],
    secrets: Mapping[str, str],
    hidden: Hidden,
    *,
    debug: Callable[[str], None] | None,
    helpers: Helpers | None,
) -> Evaluators:
    """The evaluators of a run; `env` are the caller's variables, and `hidden` the texts to redact."""
    known = {**env, **secrets}
    values = Values(store, row, state, known, output, public_env=env, secrets=hidden, debug=debug, helpers=helpers)
    return Evaluators(values, hidden)


def question_may_wait(state: State, question: Question) -> bool:
    """Does the answer to a question of the core take code or templates?"""
    if not isinstance(question, AnswerCondition):
        return True
    when = state.step_of(state.jobs[question.job]).when
    return when is None or when.language != "value" or bool(when.besides)


def start_may_wait(state: State, job: Job, step: Step) -> bool:
    """Does the start of an attempt take code, templates that are not `${...}`, or git?"""
    if step.effects or step.commit_required or type(step.action) in _BUILTIN:
        return True
    return language_of(state.workflow_of(job.scope)).may_wait


def end_may_wait(state: State, job: Job, step: Step) -> bool:
    """Does the outcome of an attempt take code, templates that are not `${...}`, a schema, git, or what files hold?"""
    if step.transform is not None or step.checks or step.cases or step.effects or step.commit_required or step.reads:
        return True
    if step.outputs:
        return language_of(state.workflow_of(job.scope)).may_wait
    # A fallback gives its value to the steps that it replaces.
    scope = state.scopes[job.scope]
    while scope.kind == "repair":
        owner = state.jobs[scope.owner]
        if state.step_of(owner).transform is not None:
            return True
        scope = state.scopes[owner.scope]
    return False


def writes_memory(step: Step) -> bool:
    """May the evaluation of a step read the memory and write it back?"""
    return bool(step.cases or step.effects) or type(step.action) in _WRITING


def answer_writes_memory(state: State, question: Question) -> bool:
    """May the answer to a question read the memory and write it back?"""
    if isinstance(question, AnswerCondition | AnswerRoute):
        return False
    return writes_memory(state.step_of(state.jobs[question.job]))
