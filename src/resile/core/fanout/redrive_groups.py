"""The progress of a redrive: which fan-outs are at work, which come next, and when none is left.

redrive.py begins the fan-outs; fanout.py calls `end_group` when the dead letters of a fan-out have run.
"""

from __future__ import annotations

from collections.abc import Iterator

from resile.core.actions import ReadGroups, StopEngine
from resile.core.fanout.progress import Redrive
from resile.core.reaction import Reaction
from resile.core.scheduling.scopes import close_scope
from resile.core.state import Job, Scope, State
from resile.core.transitions import set_status
from resile.model.status import COMPLETED, FAILED


def end_group(reaction: Reaction, job: Job) -> None:
    """Close a fan-out whose dead letters have run, with the scopes restored for it alone, and read the next."""
    state = reaction.state
    redrive = state.redrive
    assert redrive is not None
    fan = state.fans[job.id]
    redrive.done, redrive.bad = redrive.done + fan.done, redrive.bad + fan.bad
    redrive.open.remove(job.id)
    if state.workflow.edition > 1 and job.status is FAILED and not fan.failed and not fan.held:
        # A rerun of what failed keeps the map and goes on with the steps that need it.
        job.exit_code, job.error = 0, None
        set_status(job, COMPLETED)
        reaction.note("step_completed", job, {})
    needed = {scope.id for number in redrive.open for scope in scopes_around(state, state.jobs[number])}
    for scope in [found for found in scopes_around(state, job) if found.id not in needed]:
        if scope.error is not None:
            state.jobs[scope.owner].error = None
        if scope.id in redrive.restored:
            redrive.restored.remove(scope.id)
            close_scope(reaction, scope)
    go_on(reaction, redrive)


def read_more(state: State, redrive: Redrive) -> ReadGroups:
    """The order to read the next fan-outs."""
    return ReadGroups(redrive.label, redrive.place, redrive.parallel - len(redrive.open), state.seq)


def go_on(reaction: Reaction, redrive: Redrive) -> None:
    """Read more fan-outs while there is room, and end the redrive when none is left."""
    state = reaction.state
    if redrive.reading:
        return
    if not redrive.last and len(redrive.open) < redrive.parallel:
        redrive.reading = True
        reaction.order(read_more(state, redrive))
    elif redrive.last and not redrive.open:
        state.redrive = None
        state.phase = "ended"
        reaction.order(StopEngine(state.verdict or "failed", state.seq))


def scopes_around(state: State, job: Job) -> Iterator[Scope]:
    """The scopes that a job lies in, innermost first."""
    scope: Scope | None = state.scopes[job.scope]
    while scope is not None:
        yield scope
        scope = state.scope_around(scope)
