"""Handlers for events of fan-outs, child workflows and redrives: their timers, their items, and a resume."""

from __future__ import annotations

from resile.core.actions import SetTimer
from resile.core.events import GroupsRead, ItemsRead, Redriven, TimerFired
from resile.core.fanout import redrive
from resile.core.fanout.breaker import CIRCUIT, half_open
from resile.core.fanout.child_workflow import expire_child
from resile.core.fanout.fanout import expire_map, item_timer, pump, read_on
from resile.core.fanout.fanout import items_read as take_items
from resile.core.fanout.naming import fan_action
from resile.core.fanout.progress import Redrive
from resile.core.reaction import Reaction
from resile.core.state import Job


def repeat_orders_of_host(reaction: Reaction, job: Job, because: int) -> None:
    """Repeat the orders that a fan-out or a child workflow waits for."""
    state = reaction.state
    if job.timer_at:
        reaction.order(SetTimer(job.id, job.attempt, job.timer_at, because))
    fan = state.fans.get(job.id)
    if fan is None:
        return
    if fan.reading:
        reaction.order(read_on(job, fan, because))
    if fan.circuit == "open":
        reaction.order(SetTimer(job.id, job.attempt, fan.due, because, item=CIRCUIT))
    for index, waiting in fan.waiting.items():
        reaction.order(SetTimer(job.id, waiting.number, waiting.due, because, item=index))
    limit = fan_action(state, job).item_timeout_seconds
    if limit is not None:
        for index, number in fan.active.items():
            scope = state.scopes[number]
            reaction.order(SetTimer(job.id, scope.number, scope.started_at + limit, because, item=index))


def host_timer(reaction: Reaction, event: TimerFired, job: Job) -> None:
    """Handle the timer of an item, of an open circuit, or of a whole fan-out or child workflow."""
    fan = reaction.state.fans.get(job.id)
    if event.item >= 0:
        item_timer(reaction, job, event.item, event.attempt)
    elif event.item == CIRCUIT:
        if fan is not None and fan.circuit == "open" and event.at >= fan.due:
            half_open(reaction, job, fan)
            pump(reaction, job)
    elif job.timer_at and event.attempt == job.attempt:
        job.timer_at = 0.0
        if fan is not None:
            expire_map(reaction, job)
        else:
            expire_child(reaction, job)


def items_read(reaction: Reaction, event: ItemsRead) -> None:
    """Take another chunk of a fan-out's items, unless the fan-out no longer waits for it."""
    state = reaction.state
    job, fan = state.jobs.get(event.job), state.fans.get(event.job)
    if job is not None and fan is not None and job.hosting and fan.reading and fan.label == event.label:
        take_items(reaction, job, event.items, event.place, event.last)


def redriven(reaction: Reaction, event: Redriven) -> None:
    """Begin a redrive of an ended run's dead letters."""
    if reaction.state.phase == "ended":
        wanted = Redrive(event.map, event.total, event.label, event.parallel)
        redrive.begin(reaction, wanted, event.by)


def groups_read(reaction: Reaction, event: GroupsRead) -> None:
    """Take the next fan-outs of a redrive, unless it no longer waits for them."""
    found = reaction.state.redrive
    if found is not None and found.reading and found.label == event.label:
        redrive.groups_read(reaction, found, event.groups, event.place, event.last)
