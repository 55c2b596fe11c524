"""`on_success`: steps that run after an attempt succeeded, and a jump back after a success.

A `validate` among the steps belongs to the attempt: if it fails, the job's rules answer, and a further attempt runs the
command and these steps again.
"""

from __future__ import annotations

from resile.core.reaction import Reaction
from resile.core.recovery.ladder import climb
from resile.core.recovery.repair import ask, begin_repair, close_repair, valid_target
from resile.core.scheduling.arcs import fail, spend, succeed
from resile.core.scheduling.goto import jump
from resile.core.scheduling.scopes import validates_attempt
from resile.core.state import NO_RULE, SUCCESS, Job, State
from resile.model.failure import Failure, Kind
from resile.model.status import COMPLETED, SKIPPED
from resile.model.workflow import Validate


def attempt_succeeded(reaction: Reaction, job: Job) -> None:
    """Run the `on_success` of a job whose attempt succeeded, then settle the job."""
    state = reaction.state
    actions = state.step_of(job).on_success
    if actions is None or state.is_stopping(job):
        succeed(reaction, job)
        return
    job.rule = SUCCESS
    if actions.calls_js:
        ask(reaction, job, "calls")
    else:
        _run_steps(reaction, job, actions.calls)


def _run_steps(reaction: Reaction, job: Job, calls: tuple[str, ...]) -> None:
    """Run the steps of `on_success`, or go on to its jump where there are none."""
    state = reaction.state
    actions = state.step_of(job).on_success
    assert actions is not None
    job.calls = calls if state.options.failure_routing else ()
    runs = bool(actions.steps or job.calls)
    if runs and actions.run_cost and not spend(reaction, job, actions.run_cost, "on_success", "run"):
        return
    if not runs:
        _jump_or_succeed(reaction, job)
        return
    problem = begin_repair(reaction, job, actions.steps, None)
    if problem is not None:
        after_success_steps(reaction, job, problem)


def after_success_steps(reaction: Reaction, job: Job, problem: str) -> None:
    """After the steps of `on_success`: go on to its jump, or fail the job if one of them failed.

    A failed `validate` is a failure of the attempt.
    """
    if not close_repair(reaction, job, problem):
        return
    if problem and (failure := _failed_check(reaction.state, job, problem)) is not None:
        said = {"kind": failure.kind, "message": failure.message, "signature": failure.signature}
        reaction.note("attempt_failed", job, {"after": "on_success", "exit_code": failure.exit_code, **said})
        climb(reaction, job, failure)
    elif problem:
        reaction.summarize_route(job, "on_success", "fail", None, "on_success")
        fail(reaction, job, problem)
    else:
        _jump_or_succeed(reaction, job)


def _failed_check(state: State, job: Job, problem: str) -> Failure | None:
    """The failure of the `validate` that failed among the steps after a success, if the job has rules to answer it."""
    step, scope = state.step_of(job), state.scopes.get(job.repair_scope)
    if scope is None or scope.expired or not step.rules or not validates_attempt(state, scope):
        return None
    failed = next((inner for inner in state.jobs_in(scope) if inner.status not in (COMPLETED, SKIPPED)), None)
    if failed is None or not isinstance(state.step_of(failed).action, Validate):
        return None
    found = scope.first_failure
    if found is None:
        return Failure(Kind.CHECK, problem, failed.exit_code)
    message = f"{problem}: {found.message}"
    return Failure(Kind.CHECK, message, failed.exit_code, stderr=found.stderr, signature=found.signature)


def _jump_or_succeed(reaction: Reaction, job: Job) -> None:
    """Jump where `on_success` says so, else settle the job."""
    state = reaction.state
    actions = state.step_of(job).on_success
    assert actions is not None
    if state.options.failure_routing:
        if actions.target_js or actions.transitions:
            ask(reaction, job, "target")
            return
        if actions.target:
            _jump(reaction, job, actions.target, actions.cost)
            return
    job.rule = NO_RULE
    succeed(reaction, job)


def _jump(reaction: Reaction, job: Job, target: str, cost: int) -> None:
    if spend(reaction, job, cost, "on_success", "goto"):
        reaction.note_route(job, "on_success", "goto", target, "on_success goto")
        jump(reaction, job, target)


def apply_success_answer(
    reaction: Reaction, job: Job, about: str, calls: tuple[str, ...] | None, target: str, stop: bool
) -> None:
    """Take the answer of `on_success`'s code: run the steps, or go to the step, that it names."""
    actions = reaction.state.step_of(job).on_success
    assert actions is not None
    if about == "calls":
        _run_steps(reaction, job, tuple(dict.fromkeys((*actions.calls, *(calls or ())))))
        return
    where = "" if stop else valid_target(reaction, job, target, actions.target)
    if where:
        _jump(reaction, job, where, actions.cost)
    else:
        job.rule = NO_RULE
        succeed(reaction, job)
