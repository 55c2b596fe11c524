"""`script`, `memory`, `ask` and `collect` in the engine: the engine evaluates them itself."""

from __future__ import annotations

from resile.engine.launch import Attempt
from resile.model.failure import Outcome


def prepare(attempt: Attempt) -> Outcome:
    """The outcome of the step."""
    performer = attempt.performer
    return performer.evaluators.perform(attempt.job, attempt.step, performer.clock.now())
