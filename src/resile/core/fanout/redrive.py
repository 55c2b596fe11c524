"""Redrives: the dead letters of an ended run are run again; the run's verdict stays.

    begin --> take_groups --> the scopes around a fan-out are restored, its letters run --> end_group ---+
                  ^                                                                                      |
                  +------------------------- as many at a time as items may run <-----------------------+--> the end

A group is the selected letters of one fan-out. A map inside another has one fan-out for each item of the outer one, so
groups are read as a stream, and the scopes restored for a group are stored and dropped again when it is over.
"""

from __future__ import annotations

from resile.core.events import GroupsRead, Redriven
from resile.core.fanout.fanout import BY_CANCEL, pump, stop_items
from resile.core.fanout.progress import Redrive
from resile.core.fanout.redrive_groups import go_on, scopes_around
from resile.core.reaction import Reaction
from resile.core.scheduling.scopes import restore_scope
from resile.core.state import Job
from resile.model.items import LetterGroup


def begin(reaction: Reaction, event: Redriven) -> None:
    """Begin a redrive of selected dead letters."""
    state = reaction.state
    state.phase = "redriving"
    state.redrive = Redrive(event.map, event.total, event.label, event.parallel)
    # A cancel or a spent budget that ended the run does not stop its redrive.
    state.canceled, state.end_canceled, state.aborted = False, False, ""
    data = {"redrive": event.total, "map": event.map, "by": event.by, "actor": event.by}
    reaction.note_run("run_resumed", "running", state.seq, **data)
    go_on(reaction, state.redrive)


def take_groups(reaction: Reaction, redrive: Redrive, event: GroupsRead) -> None:
    """Take the next fan-outs of a redrive."""
    state = reaction.state
    redrive.reading = False
    redrive.place, redrive.last = event.place, event.last or redrive.stopped
    if not redrive.stopped:
        for group in event.groups:
            redrive.restored += [number for body in group.around if (number := restore_scope(state, body))]
            redrive.open.append(group.job)
        for group in event.groups:
            _begin_group(reaction, redrive, state.jobs[group.job], group)
    go_on(reaction, redrive)


def _begin_group(reaction: Reaction, redrive: Redrive, job: Job, group: LetterGroup) -> None:
    """Run the dead letters of one fan-out."""
    state = reaction.state
    fan = state.fans[job.id]
    fan.label, fan.parallel, fan.place, fan.taken = redrive.label, redrive.parallel, group.offset, 0
    fan.last, fan.stopped, fan.redrive, fan.expired = False, "", True, False
    fan.circuit, fan.streak = "closed", 0
    fan.goal, fan.done, fan.bad, fan.counted = group.total, 0, 0, {}
    for scope in scopes_around(state, job):
        scope.stopped = False
        if scope.error is not None:
            state.jobs[scope.owner].error = scope.error
    job.waits_for = "inner"
    reaction.note("redrive_started", job, {"total": group.total})
    pump(reaction, job)


def stop(reaction: Reaction) -> None:
    """Stop a redrive: start no more items and kill the attempts of those that run."""
    state = reaction.state
    redrive = state.redrive
    assert redrive is not None
    redrive.stopped = redrive.last = True
    for number in list(redrive.open):
        stop_items(reaction, state.jobs[number], BY_CANCEL)
