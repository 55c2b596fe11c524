"""Shared by the ladder and `on_success`: questions to a rule's code, and the text of a rule."""

from __future__ import annotations

from typing import Literal

from resile.core.actions import AnswerRoute
from resile.core.reaction import Reaction
from resile.core.scheduling.goto import is_ancestor
from resile.core.scheduling.reservations import mark_active
from resile.core.state import Job, State
from resile.core.transitions import set_status
from resile.model.status import RECOVERING
from resile.model.workflow import Rule


def ask(reaction: Reaction, job: Job, about: Literal["rule", "calls", "target"]) -> None:
    """Have the code of a job's rule evaluated: whether it applies, which steps to run, or where to go."""
    mark_active(reaction.state, job)
    set_status(job, RECOVERING)
    job.waits_for = about
    reaction.order(AnswerRoute(job.id, job.rule, about, job.last_event_seq))


def valid_target(reaction: Reaction, job: Job, asked: str, static: str) -> str:
    """The target that code returned, if it is an ancestor; otherwise note that, and return the static target."""
    if asked and is_ancestor(reaction.state, job, asked):
        return asked
    if asked:
        problem = f"goto_js: {asked!r} is no ancestor of this step"
        reaction.note("expression_rejected", job, {"problem": problem})
    return static


def origin_text(state: State, job: Job, rule: Rule) -> str:
    """The position and text of a job's rule, as the summary prints them."""
    origin = rule.origin
    file = origin.file or state.workflow_of(job.scope).file
    return f"{file}:{origin.line}:{origin.column} {rule.text}" if origin.line else rule.text
