"""Dead letters of a run that has ended, at work again; its verdict stays.

    begin --> groups_read --> the scopes around a fan-out are restored, its letters run --> group_over --+
                  ^                                                                                      |
                  +------------------------- as many at a time as items may run <-----------------------+--> the end

A group is what is selected of one fan-out. A map inside of another has as many fan-outs as the other has items, so the
groups come as a stream, and what is restored for one is written down and forgotten again when it is over.
"""

from __future__ import annotations

from collections.abc import Iterator

from resile.core.actions import Action, ReadGroups, StopEngine
from resile.core.event_log import note_job, note_run
from resile.core.fanout.fanout import CANCELED, pump, stop_items
from resile.core.fanout.progress import Redrive
from resile.core.scheduling.scopes import close_scope, restore_scope
from resile.core.state import Job, Scope, State
from resile.model.items import LetterGroup


def begin(state: State, out: list[Action], at: float, redrive: Redrive, by: str) -> None:
    """Selected letters are to run again."""
    state.phase = "redriving"
    state.redrive = redrive
    # Whatever ended the run then does not hold the letters back now.
    state.canceled, state.aborted = False, ""
    note_run(state, out, at, "run_resumed", "running", state.seq, redrive=redrive.total, map=redrive.map, by=by)
    _go_on(state, out, redrive)


def groups_read(
    state: State,
    out: list[Action],
    at: float,
    redrive: Redrive,
    groups: tuple[LetterGroup, ...],
    place: int,
    last: bool,
) -> None:
    """Which fan-outs come next is known."""
    redrive.reading = False
    redrive.place, redrive.last = place, last or redrive.stopped
    if not redrive.stopped:
        for group in groups:
            redrive.restored += [number for body in group.around if (number := restore_scope(state, body))]
            redrive.open.append(group.job)
        for group in groups:
            _begin_group(state, out, at, redrive, state.jobs[group.job], group)
    _go_on(state, out, redrive)


def _begin_group(state: State, out: list[Action], at: float, redrive: Redrive, job: Job, group: LetterGroup) -> None:
    """The letters of one fan-out run."""
    fan = state.fans[job.id]
    fan.label, fan.parallel, fan.place, fan.taken = redrive.label, redrive.parallel, group.offset, 0
    fan.last, fan.stopped, fan.redrive, fan.expired = False, "", True, False
    fan.circuit, fan.streak, fan.passed, fan.probes = "closed", 0, 0, 0
    fan.goal, fan.done, fan.bad, fan.counted = group.total, 0, 0, {}
    for scope in _around(state, job):
        scope.stopped = False
        if scope.error is not None:
            state.jobs[scope.owner].error = scope.error
    job.hosting = True
    note_job(state, out, at, "redrive_started", job, {"total": group.total})
    pump(state, out, at, job)


def group_over(state: State, out: list[Action], job: Job) -> None:
    """The letters of one fan-out have had their turn: what was restored for them alone goes, and others come."""
    redrive = state.redrive
    assert redrive is not None
    fan = state.fans[job.id]
    redrive.done, redrive.bad = redrive.done + fan.done, redrive.bad + fan.bad
    redrive.open.remove(job.id)
    needed = {scope.id for number in redrive.open for scope in _around(state, state.jobs[number])}
    for scope in [found for found in _around(state, job) if found.id not in needed]:
        if scope.error is not None:
            state.jobs[scope.owner].error = None
        if scope.id in redrive.restored:
            redrive.restored.remove(scope.id)
            close_scope(state, out, scope)
    _go_on(state, out, redrive)


def stop(state: State, out: list[Action], at: float) -> None:
    """Start nothing more and kill what runs."""
    redrive = state.redrive
    assert redrive is not None
    redrive.stopped = redrive.last = True
    for number in list(redrive.open):
        stop_items(state, out, at, state.jobs[number], CANCELED)


def read_more(state: State, redrive: Redrive) -> ReadGroups:
    """Ask for the next fan-outs."""
    return ReadGroups(redrive.label, redrive.place, redrive.parallel - len(redrive.open), state.seq)


def _go_on(state: State, out: list[Action], redrive: Redrive) -> None:
    """Read on while there is room, and end when nothing is left."""
    if redrive.reading:
        return
    if not redrive.last and len(redrive.open) < redrive.parallel:
        redrive.reading = True
        out.append(read_more(state, redrive))
    elif redrive.last and not redrive.open:
        state.redrive = None
        state.phase = "ended"
        out.append(StopEngine(state.verdict or "failed", state.seq))


def _around(state: State, job: Job) -> Iterator[Scope]:
    """The scopes that a job lies in, innermost first."""
    scope: Scope | None = state.scopes[job.scope]
    while scope is not None:
        yield scope
        scope = state.around(scope)
