"""What fan-outs, child workflows and redrives are told: their timers, their items, and that a new engine is there."""

from __future__ import annotations

from resile.core.actions import Action, SetTimer
from resile.core.events import GroupsRead, ItemsRead, Redriven, TimerFired
from resile.core.fanout import redrive
from resile.core.fanout.breaker import CIRCUIT, half_open
from resile.core.fanout.child_workflow import expire_child
from resile.core.fanout.fanout import expire_map, item_timer, pump, read_on
from resile.core.fanout.fanout import items_read as take_items
from resile.core.fanout.naming import fan_action
from resile.core.fanout.progress import Redrive
from resile.core.state import Job, State


def host_again(state: State, out: list[Action], job: Job, because: int) -> None:
    """What a fan-out or a child workflow waits for is asked for again."""
    if job.timer_at:
        out.append(SetTimer(job.id, job.attempt, job.timer_at, because))
    fan = state.fans.get(job.id)
    if fan is None:
        return
    if fan.reading:
        out.append(read_on(job, fan, because))
    if fan.circuit == "open":
        out.append(SetTimer(job.id, job.attempt, fan.due, because, item=CIRCUIT))
    for index, waiting in fan.waiting.items():
        out.append(SetTimer(job.id, waiting.number, waiting.due, because, item=index))
    limit = fan_action(state, job).item_timeout_seconds
    if limit is not None:
        for index, number in fan.active.items():
            scope = state.scopes[number]
            out.append(SetTimer(job.id, scope.number, scope.started_at + limit, because, item=index))


def host_timer(state: State, event: TimerFired, out: list[Action], job: Job) -> None:
    """Something of a fan-out or a child workflow is due."""
    fan = state.fans.get(job.id)
    if event.item >= 0:
        item_timer(state, out, event.at, job, event.item, event.attempt)
    elif event.item == CIRCUIT:
        if fan is not None and fan.circuit == "open" and event.at >= fan.due:
            half_open(state, out, event.at, job, fan)
            pump(state, out, event.at, job)
    elif job.timer_at and event.attempt == job.attempt:
        job.timer_at = 0.0
        if fan is not None:
            expire_map(state, out, event.at, job)
        else:
            expire_child(state, out, event.at, job)


def items_read(state: State, event: ItemsRead, out: list[Action]) -> None:
    """Another chunk of a fan-out's items, unless nobody waits for it any more."""
    job, fan = state.jobs.get(event.job), state.fans.get(event.job)
    if job is not None and fan is not None and job.hosting and fan.reading and fan.label == event.label:
        take_items(state, out, event.at, job, event.items, event.place, event.last)


def redriven(state: State, event: Redriven, out: list[Action]) -> None:
    """Dead letters of a run that has ended are tried again."""
    if state.phase == "ended":
        wanted = Redrive(event.map, event.total, event.label, event.parallel)
        redrive.begin(state, out, event.at, wanted, event.by)


def groups_read(state: State, event: GroupsRead, out: list[Action]) -> None:
    """The next fan-outs of a redrive, unless nobody waits for them any more."""
    found = state.redrive
    if found is not None and found.reading and found.label == event.label:
        redrive.groups_read(state, out, event.at, found, event.groups, event.place, event.last)
