"""The entry point: `react(state, event) -> (state, actions)`. Run state changes here and nowhere else.

The table HANDLERS maps each event to its handler; docs/state-machine.md is generated from it. The state is changed in
place and returned, because a run of 100,000 jobs can't be copied for each event; `react` is pure all the same: no
clock, no IO, no chance, and the same events always give the same state and actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from resile.core.actions import (
    Action,
    AnswerArcs,
    AnswerCondition,
    AnswerRoute,
    AnswerValue,
    FindAttempt,
    KillAttempt,
    SetTimer,
    StopEngine,
)
from resile.core.answers import (
    on_arcs_answered,
    on_condition_answered,
    on_judged,
    on_route_answered,
    on_timer_fired,
    on_value_answered,
)
from resile.core.attempts import on_attempt_adopted, on_attempt_ended, on_attempt_started, on_attempt_withdrawn
from resile.core.events import (
    ArcsAnswered,
    AttemptAdopted,
    AttemptEnded,
    AttemptStarted,
    AttemptWithdrawn,
    CancelRequested,
    Capacity,
    ConditionAnswered,
    EpochStarted,
    Event,
    GroupsRead,
    ItemsRead,
    Judged,
    Redriven,
    RouteAnswered,
    RunResumed,
    RunStarted,
    TimerFired,
    ValueAnswered,
)
from resile.core.reaction import Reaction
from resile.core.scheduling.epochs import begin_epoch, open_root
from resile.core.scheduling.finish import converge, end_job
from resile.core.scheduling.ready_queue import dispatch
from resile.core.scheduling.scopes import stop_scope
from resile.core.state import ROOT, Job, State
from resile.model.status import PENDING, RECOVERING, RUNNING


def react(state: State, event: Event) -> tuple[State, list[Action]]:
    """Fold one event into the state; return the actions that the engine must take because of it."""
    reaction = Reaction(state, event.at)
    before = state.seq
    if state.scopes_to_drop:
        for scope in state.scopes_to_drop:
            state.forget(scope)
        state.scopes_to_drop = []
    HANDLERS[type(event)](reaction, event)
    if reaction.wakeups:
        # Here and below: modules that only repairs, fan-outs and child workflows need are imported on first use.
        from resile.core.scheduling.wakeups import follow_up

        while reaction.wakeups:
            follow_up(reaction, state.jobs[reaction.wakeups.pop(0)])
    # The start of a reserved attempt frees no slot and makes no job ready.
    if type(event) is not AttemptStarted:
        dispatch(reaction)
        converge(reaction)
        if state.phase == "ending":
            dispatch(reaction)
    state.last_at = event.at
    if state.seq == before:
        # An event without a note still takes a number in the log.
        state.seq += 1
    return state, reaction.actions


def _run_started(reaction: Reaction, event: RunStarted) -> None:
    """Open the root scope and wake every step that waits for nothing."""
    state = reaction.state
    state.started_at = event.at
    state.inputs = event.inputs
    state.options = event.options
    state.phase = "running"
    _use_capacity(state, event.capacity)
    seq = reaction.note_run("playbook_started", "running", 0, workflow=state.workflow.name)
    seq = reaction.note_run("workflow_initialized", "running", seq, steps=len(state.workflow.steps))
    open_root(reaction, seq)
    if state.canceled:
        # Canceled before the start: cancel every job; `end` runs.
        stop_scope(reaction, state.scopes[ROOT], seq)


def _run_resumed(reaction: Reaction, event: RunResumed) -> None:
    """Take up the run with a new engine: repeat every order that is still unanswered."""
    state = reaction.state
    if state.phase == "ended":
        reaction.order(StopEngine(state.verdict or "failed", state.seq))
        return
    fresh_epoch = state.capacity is None
    _use_capacity(state, event.capacity)
    because = state.seq
    if not fresh_epoch:
        because = reaction.note_run("run_resumed", "running", state.seq, engine=event.engine)
    if state.redrive is not None and state.redrive.reading:
        from resile.core.fanout.redrive_groups import read_more

        reaction.order(read_more(state, state.redrive))
    for job in state.jobs.values():
        _repeat_order(reaction, job, because)
    in_flight = [job for job in state.jobs.values() if job.runs_attempt]
    # In the order of their reservation: reports about early attempts come after those about the attempts they need.
    in_flight.sort(key=lambda job: job.queue_number)
    for job in in_flight:
        reaction.order(FindAttempt(job.id, job.attempt, because))


def _repeat_order(reaction: Reaction, job: Job, because: int) -> None:
    """Repeat the question, the timer or the read that a job waits for."""
    match job.waits_for:
        case "when":
            reaction.order(AnswerCondition(job.id, because))
        case "arcs":
            reaction.order(AnswerArcs(job.id, because))
        case "value":
            reaction.order(AnswerValue(job.id, job.attempt, because))
        case "rule" | "calls" | "target" as about:
            reaction.order(AnswerRoute(job.id, job.rule, about, because))
        case "inner":
            from resile.core.fanout.timers_and_items import repeat_orders_of_host

            repeat_orders_of_host(reaction, job, because)
        case "" if job.status is RECOVERING and job.timer_at:
            reaction.order(SetTimer(job.id, job.attempt, job.timer_at, because, repair=not job.active))


def _use_capacity(state: State, capacity: Capacity) -> None:
    """Use the capacity of this engine."""
    state.capacity = capacity
    taken = {gpu for job in state.jobs.values() for gpu in job.gpus}
    state.gpus_free = [gpu for gpu in range(capacity.gpus) if gpu not in taken]


def _items_read(reaction: Reaction, event: ItemsRead) -> None:
    """Take another chunk of a fan-out's items."""
    from resile.core.fanout.timers_and_items import items_read

    items_read(reaction, event)


def _redriven(reaction: Reaction, event: Redriven) -> None:
    """Begin a redrive of an ended run's dead letters."""
    from resile.core.fanout.timers_and_items import redriven

    redriven(reaction, event)


def _groups_read(reaction: Reaction, event: GroupsRead) -> None:
    """Take the next groups of a redrive."""
    from resile.core.fanout.timers_and_items import groups_read

    groups_read(reaction, event)


def _cancel_requested(reaction: Reaction, event: CancelRequested) -> None:
    """Stop everything but `end`; a second cancel while `end` runs stops that too."""
    state = reaction.state
    if state.phase == "ended":
        return
    if state.phase == "redriving":
        from resile.core.fanout.redrive import stop

        stop(reaction)
        return
    again = state.canceled
    state.canceled = True
    because = reaction.note_run("cancel_requested", "running", state.seq, by=event.by, reason=event.reason)
    if state.phase == "running":
        stop_scope(reaction, state.scopes[ROOT], because)
    elif again and end_job(state).status in (PENDING, RUNNING):
        reaction.order(KillAttempt(end_job(state).id, end_job(state).attempt, because))


def _epoch_started(reaction: Reaction, event: EpochStarted) -> None:
    """Start the next epoch of the run; budgets and attempt numbers start from the beginning."""
    begin_epoch(reaction, event.failed_only, event.by)


HANDLERS: dict[type, Callable[[Reaction, Any], None]] = {
    RunStarted: _run_started,
    RunResumed: _run_resumed,
    AttemptStarted: on_attempt_started,
    AttemptEnded: on_attempt_ended,
    AttemptAdopted: on_attempt_adopted,
    AttemptWithdrawn: on_attempt_withdrawn,
    ConditionAnswered: on_condition_answered,
    ArcsAnswered: on_arcs_answered,
    TimerFired: on_timer_fired,
    ItemsRead: _items_read,
    CancelRequested: _cancel_requested,
    RouteAnswered: on_route_answered,
    ValueAnswered: on_value_answered,
    EpochStarted: _epoch_started,
    Judged: on_judged,
    Redriven: _redriven,
    GroupsRead: _groups_read,
}
