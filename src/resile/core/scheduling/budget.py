"""The loop budget of a scope: jumps back and arcs back spend it; an exhausted budget ends the scope."""

from __future__ import annotations

from resile.core.event_log import STATUS_NAMES
from resile.core.reaction import Reaction
from resile.core.scheduling.dependencies import settle_and_inform
from resile.core.scheduling.scopes import failure_data, keep_first_failure, stop_if_critical, stop_scope
from resile.core.state import Cause, Failed, Job, State
from resile.model.failure import Kind
from resile.model.rules import Trigger
from resile.model.status import FAILED, TERMINAL
from resile.model.workflow import FanOut


def loops_max(state: State, job: Job) -> int:
    """The loop budget in force."""
    asked = state.options.loops_max
    return state.workflow_of(job.scope).loops_max if asked is None else asked


def spend(reaction: Reaction, job: Job, cost: int, trigger: Trigger, action: str) -> bool:
    """Spend from the loop budget; False where it is exhausted, which fails the item, the child workflow or the run."""
    scope = reaction.state.scopes[job.scope]
    if scope.loops + cost <= loops_max(reaction.state, job):
        scope.loops += cost
        return True
    _exceed(reaction, job, trigger, action)
    return False


def _exceed(reaction: Reaction, job: Job, trigger: Trigger, action: str) -> None:
    """Fail the job that would exceed the budget, and stop its item, its child workflow or the run."""
    state, limit = reaction.state, loops_max(reaction.state, job)
    word: str = state.workflow_of(job.scope).failure_key if trigger == "on_failure" else trigger
    step = state.step_of(job)
    if trigger in ("on_failure", "on_success") and isinstance(step.action, FanOut) and step.action.scope:
        # A producer calls this key `on_finish`.
        word = "on_finish"
    message = f"Routing loop budget exceeded (max_loops={limit}) during {word} {action}"
    frame = state.frame_of(job.scope)
    if frame.owner:
        frame.aborted = message
    else:
        state.aborted = message
    seq = reaction.note("loop_budget_exceeded", job, {"message": message})
    reaction.summarize_route(job, trigger, "budget", None, f"max_loops={limit}")
    if job.status in TERMINAL:
        state.scopes[job.scope].open += 1
    if state.first_failure is None:
        state.first_failure = Failed(step.name, job.attempt, Kind.CONTRACT, None, message)
    keep_first_failure(reaction, job, message)
    settle_and_inform(reaction, job, FAILED, failure_data(step, message))
    stop_if_critical(reaction, job)
    stop_scope(reaction, frame, seq, Cause(step.name, job.id, STATUS_NAMES[job.status]))
