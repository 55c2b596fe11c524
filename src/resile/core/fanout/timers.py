"""The timers of fan-outs and child workflows, and the orders that a resume repeats for them."""

from __future__ import annotations

from resile.core.actions import SetTimer
from resile.core.events import TimerFired
from resile.core.fanout.breaker import CIRCUIT, half_open
from resile.core.fanout.child_workflow import expire_child
from resile.core.fanout.fanout import expire_map, item_timer, pump, read_order
from resile.core.fanout.naming import fan_action
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
        reaction.order(read_order(job, fan, because))
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
