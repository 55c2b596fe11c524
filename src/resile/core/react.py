"""The entry point: `react(state, event) -> (state, actions)`. Run state changes here and nowhere else.

The table HANDLERS maps each event to its handler; docs/reference/state-machine.md is generated from it. The state is
changed in place and returned, because a run of 100,000 jobs can't be copied for each event; `react` is pure all the
same: no clock, no IO, no randomness, and the same events always give the same state and actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from resile.core import actions, answers, attempts, events
from resile.core.epochs.begin import begin_epoch, open_root
from resile.core.reaction import Reaction
from resile.core.scheduling.arcs import pass_over
from resile.core.scheduling.finish import converge
from resile.core.scheduling.ready_queue import dispatch
from resile.core.scheduling.scopes import stop_end, stop_scope
from resile.core.state import ROOT, Job, State
from resile.model.status import RECOVERING, RUNNING, TERMINAL

_BY_USERS = frozenset((events.CancelRequested, events.Judged, events.RetryRequested))


def react(state: State, event: events.Event) -> tuple[State, list[actions.Action]]:
    """Fold one event into the state; return the actions that the engine must take because of it."""
    reaction = Reaction(state, event.at)
    before = state.seq
    if state.scopes_to_drop:
        for scope in state.scopes_to_drop:
            state.forget(scope)
        state.scopes_to_drop = []
    HANDLERS[type(event)](reaction, event)
    _follow_up(reaction)
    # The start of a reserved attempt frees no slot and makes no job ready.
    if type(event) is not events.AttemptStarted:
        # Without an engine that could start it no attempt is reserved: so every reserved one may have started.
        driven = type(event) not in _BY_USERS or not event.offline  # type: ignore[union-attr]
        if driven:
            dispatch(reaction)
        converge(reaction)
        while reaction.left_out:
            # A step that no arc reached was skipped, and one that the run leaves out came after it.
            _follow_up(reaction)
            if driven:
                dispatch(reaction)
            converge(reaction)
        if state.phase == "ending" and driven:
            dispatch(reaction)
        if state.blocks is not None:
            from resile.core.scheduling.blocks import follow_triggers

            follow_triggers(reaction, state.blocks)
    state.last_at = event.at
    if state.seq == before:
        # An event without a note still takes a number in the log.
        state.seq += 1
    return state, reaction.actions


def _follow_up(reaction: Reaction) -> None:
    """Continue what waits for settled jobs, and pass over the jobs that the run leaves out, until none is left."""
    while reaction.wakeups or reaction.left_out:
        if reaction.left_out:
            pass_over(reaction, reaction.left_out.pop(0))
        else:
            # Here and below: modules that only repairs, fan-outs and child workflows need are imported on first use.
            from resile.core.scheduling.wakeups import follow_up

            follow_up(reaction, reaction.state.jobs[reaction.wakeups.pop(0)])


def fold(state: State, log: Iterable[events.Event]) -> State:
    """The state after these events. The orders are dropped: a resume repeats those that are still open."""
    for event in log:
        state, _ = react(state, event)
        state.touched.clear()
    return state


def _run_started(reaction: Reaction, event: events.RunStarted) -> None:
    """Open the root scope and wake every step that waits for nothing."""
    state = reaction.state
    state.started_at = event.at
    state.inputs, state.source = event.inputs, event.source
    state.options = event.options
    state.phase = "running"
    _use_machine(state, event.machine)
    _use_capacity(state, event.capacity)
    started: dict[str, Any] = {"workflow": state.workflow.name, **({"actor": event.by} if event.by else {})}
    if event.learned:
        started["learned_memory_bytes"] = event.learned
    seq = reaction.note_run("playbook_started", "running", 0, **started)
    seq = reaction.note_run("workflow_initialized", "running", seq, steps=len(state.workflow.steps))
    if state.workflow.cluster is not None:
        from resile.core.scheduling.blocks import begin_blocks

        begin_blocks(reaction, seq)
    open_root(reaction, seq, event.cached)
    if state.canceled:
        # Canceled before the start: cancel every job; `end` runs.
        stop_scope(reaction, state.scopes[ROOT], seq)


def _run_resumed(reaction: Reaction, event: events.RunResumed) -> None:
    """Continue the run with a new engine: repeat every order that has no answer yet."""
    state = reaction.state
    in_doubt = event.records_lost or _has_rebooted(state, event.machine)
    _use_machine(state, event.machine)
    if state.phase == "ended":
        reaction.order(actions.StopEngine(state.verdict or "failed", state.seq))
        return
    fresh_epoch = state.capacity is None
    _use_capacity(state, event.capacity)
    because = state.seq
    if not fresh_epoch:
        who = {"by": event.by, "actor": event.by} if event.by else {}
        because = reaction.note_run("run_resumed", "running", state.seq, engine=event.engine, **who)
    if state.redrive is not None and state.redrive.reading:
        from resile.core.fanout.redrive_groups import read_more

        reaction.order(read_more(state, state.redrive))
    if state.blocks is not None:
        from resile.core.scheduling.blocks import repeat_orders

        repeat_orders(reaction, state.blocks, because)
    for job in state.jobs.values():
        _repeat_order(reaction, job, because)
    in_flight = [job for job in state.jobs.values() if job.runs_attempt]
    # In the order of their reservation: reports about early attempts come after those about the attempts they need.
    in_flight.sort(key=lambda job: job.queue_number)
    for job in in_flight:
        job.in_doubt = job.in_doubt or in_doubt
        started = job.status is RUNNING
        reaction.order(actions.FindAttempt(job.id, job.attempt, because, job.in_doubt or started))


def _repeat_order(reaction: Reaction, job: Job, because: int) -> None:
    """Repeat the question, the timer or the read that a job waits for."""
    match job.waits_for:
        case "when":
            reaction.order(actions.AnswerCondition(job.id, because))
        case "arcs":
            reaction.order(actions.AnswerArcs(job.id, because))
        case "value":
            reaction.order(actions.AnswerValue(job.id, job.attempt, because))
        case "rule" | "calls" | "target" as about:
            reaction.order(actions.AnswerRoute(job.id, job.rule, about, because))
        case "inner":
            from resile.core.fanout.timers import repeat_orders_of_host

            repeat_orders_of_host(reaction, job, because)
        case "" if job.status is RECOVERING and job.timer_at:
            reaction.order(actions.SetTimer(job.id, job.attempt, job.timer_at, because, repair=not job.active))


def _has_rebooted(state: State, machine: events.Machine | None) -> bool:
    """Has the machine been started again, or the run moved, since the last engine?"""
    return machine is not None and state.machine is not None and machine.boot != state.machine.boot


def _use_machine(state: State, machine: events.Machine | None) -> None:
    if machine is not None:
        state.machine = machine


def _use_capacity(state: State, capacity: events.Capacity) -> None:
    state.capacity = capacity
    state.gpus_taken = [gpu for job in state.jobs.values() for gpu in job.gpus]


def _items_read(reaction: Reaction, event: events.ItemsRead) -> None:
    """Take another chunk of a fan-out's items, unless the fan-out no longer waits for it."""
    state = reaction.state
    job, fan = state.jobs.get(event.job), state.fans.get(event.job)
    if job is not None and fan is not None and job.hosting and fan.reading and fan.label == event.label:
        from resile.core.fanout.fanout import take_items

        take_items(reaction, job, event)


def _redriven(reaction: Reaction, event: events.Redriven) -> None:
    """Begin a redrive of an ended run's dead letters."""
    if reaction.state.phase == "ended":
        from resile.core.fanout.redrive import begin

        begin(reaction, event)


def _groups_read(reaction: Reaction, event: events.GroupsRead) -> None:
    """Take the next groups of a redrive, unless it no longer waits for them."""
    redrive = reaction.state.redrive
    if redrive is not None and redrive.reading and redrive.label == event.label:
        from resile.core.fanout.redrive import take_groups

        take_groups(reaction, redrive, event)


def _cancel_requested(reaction: Reaction, event: events.CancelRequested) -> None:
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
    data = {"by": event.by, "actor": event.by, "reason": event.reason}
    because = reaction.note_run("cancel_requested", "running", state.seq, **data)
    if state.phase == "running":
        stop_scope(reaction, state.scopes[ROOT], because)
    elif again and (end := state.end_of(state.scopes[ROOT])).status not in TERMINAL:
        state.end_canceled = True
        stop_end(reaction, end, because)


def _retry_requested(reaction: Reaction, event: events.RetryRequested) -> None:
    """Run a job again on the request of a user; a run that has ended goes on."""
    from resile.core.scheduling.retries import retry

    retry(reaction, event)


def _epoch_started(reaction: Reaction, event: events.EpochStarted) -> None:
    """Start the next epoch of the run; budgets and attempt numbers start from the beginning."""
    if event.inputs is not None:
        reaction.state.inputs = event.inputs
    begin_epoch(reaction, event)


def _block_changed(reaction: Reaction, event: Any) -> None:
    """Note what became of a block of nodes."""
    from resile.core.scheduling.blocks import take_block_event

    take_block_event(reaction, event)


HANDLERS: dict[type, Callable[[Reaction, Any], None]] = {
    events.RunStarted: _run_started,
    events.RunResumed: _run_resumed,
    events.AttemptStarted: attempts.on_attempt_started,
    events.AttemptEnded: attempts.on_attempt_ended,
    events.AttemptAdopted: attempts.on_attempt_adopted,
    events.AttemptWithdrawn: attempts.on_attempt_withdrawn,
    events.ConditionAnswered: answers.on_condition_answered,
    events.ArcsAnswered: answers.on_arcs_answered,
    events.TimerFired: answers.on_timer_fired,
    events.ItemsRead: _items_read,
    events.CancelRequested: _cancel_requested,
    events.RouteAnswered: answers.on_route_answered,
    events.ValueAnswered: answers.on_value_answered,
    events.EpochStarted: _epoch_started,
    events.Judged: answers.on_judged,
    events.RetryRequested: _retry_requested,
    events.Redriven: _redriven,
    events.GroupsRead: _groups_read,
    events.BlockSubmitted: _block_changed,
    events.WorkerStarted: _block_changed,
    events.BlockEnded: _block_changed,
}
