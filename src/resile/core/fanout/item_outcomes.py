"""What an item came to, and what that means: counts, another try, a dead letter, the end of the fan-out.

item_over --> succeeded                                  --> breaker, next
          --> failed --> tries left: wait, again
                     --> kept or skipped --> breaker --> enough of it? stop
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.core.actions import Action, DropLetter, SetTimer
from resile.core.event_log import note_job
from resile.core.fanout.breaker import passed, tripped
from resile.core.fanout.failure_reports import note_failure, report, uncount
from resile.core.fanout.fanout import CANCELED, counts, hold, keep, open_item, pump, ran_before
from resile.core.fanout.naming import fan_action, fan_name, item_id
from resile.core.fanout.progress import Fan, Waiting
from resile.core.recovery.backoff import delay_seconds
from resile.core.scheduling.dependencies import has_turn, stopping, wake
from resile.core.scheduling.scopes import close_scope, stop_scope, unstart_scope
from resile.core.state import Job, Scope, State
from resile.model.failure import Kind
from resile.model.fanout import ErrorPolicy
from resile.model.items import Item, ItemFailure
from resile.model.limits import ITEM_HISTORY_MAX, PROGRESS_NOTES
from resile.model.status import Status

FINE = (Status.completed, Status.skipped, Status.disabled)
_NOT_BEGUN = (Status.blocked, Status.ready, Status.disabled)


def item_over(state: State, out: list[Action], at: float, scope: Scope) -> None:
    """One execution of an item has come to its end; its scope is forgotten."""
    job = state.jobs[scope.owner]
    fan, policy, item = state.fans[job.id], fan_action(state, job).policy, scope.item
    assert item is not None
    worked = scope.first_failure is None and all(found.status in FINE for found in _jobs(state, scope))
    del fan.active[item.index]
    fan.gated = [number for number in fan.gated if number != scope.id]
    close_scope(state, out, scope)
    if worked:
        _succeeded(state, out, at, job, fan, policy, scope, item)
    elif (
        scope.number == 1
        and scope.first_failure is None
        and not any(found.attempts_started for found in _jobs(state, scope))
    ):
        hold(state, out, at, job, fan, item)
    else:
        _failed(state, out, at, job, fan, policy, scope, item)
    if fan.held_back:
        _next_in_order(state, out, fan)
    pump(state, out, at, job)


def _jobs(state: State, scope: Scope) -> list[Job]:
    """The jobs of an item."""
    return [state.jobs[number] for number in range(scope.first, scope.first + len(scope.waiting))]


def _next_in_order(state: State, out: list[Action], fan: Fan) -> None:
    """An item is over: the job that waited for it, if any, has its turn."""
    for number in [fan.held_back[turn] for turn in sorted(fan.held_back)]:
        waiting = state.jobs.get(number)
        if waiting is not None and waiting.status is Status.blocked and has_turn(state, waiting):
            wake(state, out, waiting, waiting.because)


def _succeeded(
    state: State, out: list[Action], at: float, job: Job, fan: Fan, policy: ErrorPolicy, scope: Scope, item: Item
) -> None:
    """An item is done."""
    if uncount(fan, item_id(state, job, item), item):
        fan.successful += 1
    fan.done += 1
    _drop_letter(state, out, job, item)
    if policy.breaker is not None:
        passed(state, out, at, job, fan, policy.breaker, scope.started_at)
    if not fan.stopped:
        _judge_rate(state, out, at, job, fan, policy)
    _progress(state, out, at, job, fan)


def _drop_letter(state: State, out: list[Action], job: Job, item: Item) -> None:
    """An item is a dead letter no more, if it was one: where it, or something around it, has run before."""
    if ran_before(state, job):
        out.append(DropLetter(fan_name(state, job), item.index, item.value))


def _failed(
    state: State, out: list[Action], at: float, job: Job, fan: Fan, policy: ErrorPolicy, scope: Scope, item: Item
) -> None:
    """An execution of an item failed: try it again, keep it, or skip it; and see what that means for the others."""
    stopped = stopping(state, job) or fan.stopped == CANCELED
    canceled = stopped and (scope.first_failure is None or scope.first_failure.kind == Kind.CANCELED)
    failure = scope.first_failure or _cut_short(state, at, scope)
    history = (*item.history, failure)[-ITEM_HISTORY_MAX:]
    kept = replace(item, history=history)
    if not fan.stopped and not stopped and scope.number < policy.attempts_max:
        _count_trip(state, out, at, job, fan, policy, scope.started_at)
        _again(state, out, at, job, fan, policy, kept, scope)
        return
    name = item_id(state, job, item)
    counts = uncount(fan, name, item)
    fan.done += 1
    if canceled:
        # Neither a success nor a failure: it is kept, to be run again.
        fan.held += counts
        keep(state, out, at, job, kept, "canceled")
        _progress(state, out, at, job, fan)
        return
    fan.bad += 1
    if counts:
        note_failure(fan, name, failure)
    if policy.on_item_failure == "skip":
        fan.skipped += counts
        _drop_letter(state, out, job, item)
    else:
        fan.failed += counts
        keep(state, out, at, job, kept, "stopped" if scope.first_failure is None else "failed")
    report(state, out, at, job, fan, policy)
    _count_trip(state, out, at, job, fan, policy, scope.started_at)
    if not fan.stopped:
        _judge(state, out, at, job, fan, policy)
    _progress(state, out, at, job, fan)


def _cut_short(state: State, at: float, scope: Scope) -> ItemFailure:
    """What an item failed of that was ended from outside: the step that was under way."""
    ended = next((job for job in _jobs(state, scope) if job.status is Status.terminated), None)
    return ItemFailure(
        scope.number,
        at,
        state.step_of(ended).name if ended is not None else "",
        "canceled",
        "ended before it was done",
        seconds=at - scope.started_at,
        job=ended.id if ended is not None else 0,
        attempt=ended.attempt if ended is not None else 0,
        epoch=state.epoch,
    )


def _count_trip(
    state: State, out: list[Action], at: float, job: Job, fan: Fan, policy: ErrorPolicy, began: float
) -> None:
    """Tell the breaker of a failure."""
    if policy.breaker is not None and not fan.stopped:
        was = fan.circuit
        tripped(state, out, at, job, fan, policy.breaker, began)
        if fan.circuit == "open" and was != "open":
            _gate(state, fan)


def _gate(state: State, fan: Fan) -> None:
    """The circuit has opened: items that are open and have not begun, because others took the slots, wait for it."""
    for scope in _not_begun(state, fan):
        unstart_scope(state, scope)
        fan.gated.append(scope.id)


def _not_begun(state: State, fan: Fan) -> list[Scope]:
    """The open items of which nothing has been ordered to start."""
    scopes = [state.scopes[number] for number in fan.active.values()]
    return [scope for scope in scopes if all(found.status in _NOT_BEGUN for found in _jobs(state, scope))]


def _again(
    state: State, out: list[Action], at: float, job: Job, fan: Fan, policy: ErrorPolicy, item: Item, scope: Scope
) -> None:
    """Run an item once more, after its wait; while it waits it holds no slot."""
    number, turn = scope.number, scope.turn
    name = item_id(state, job, item)
    delay = delay_seconds(policy.backoff, number, f"{state.workflow.name}/{name}") if policy.backoff else 0.0
    data = {"item": name, "delay_seconds": delay, "next_attempt": number + 1, "message": item.history[-1].message}
    seq = note_job(state, out, at, "retry_scheduled", job, data)
    if delay <= 0 and fan.circuit == "closed":
        open_item(state, out, at, job, fan, item, number + 1, turn)
        return
    fan.waiting = {**fan.waiting, item.index: Waiting(item, number + 1, at + delay, turn)}
    out.append(SetTimer(job.id, number + 1, at + delay, seq, item=item.index))


def _judge(state: State, out: list[Action], at: float, job: Job, fan: Fan, policy: ErrorPolicy) -> None:
    """Has enough failed to end the fan-out?"""
    if policy.on_item_failure == "stop" or not policy.continue_on_failure:
        _stop(state, out, at, job, fan, f"stopped at the first failed item (of {fan.goal})")
    elif policy.failures_max and fan.bad >= policy.failures_max:
        _stop(state, out, at, job, fan, f"{fan.bad} items failed (max_failures {policy.failures_max})")
    else:
        _judge_rate(state, out, at, job, fan, policy)


def _judge_rate(state: State, out: list[Action], at: float, job: Job, fan: Fan, policy: ErrorPolicy) -> None:
    """Has too large a share failed, now that there are enough to tell?"""
    if fan.done >= policy.threshold_items_min and fan.bad / fan.done > policy.failure_threshold:
        why = f"{fan.bad} of {fan.done} items failed (failure_threshold {policy.failure_threshold:g})"
        _stop(state, out, at, job, fan, why)


def _stop(state: State, out: list[Action], at: float, job: Job, fan: Fan, why: str) -> None:
    """The fan-out ends: nothing more begins."""
    fan.stopped = why
    for scope in _not_begun(state, fan):
        stop_scope(state, out, at, scope, job.last_event_seq)
    rate = round(fan.bad / fan.done, 6)
    data = {"message": why, "failed": fan.bad, "processed": fan.done, "failure_rate": rate}
    note_job(state, out, at, "threshold_reached", job, data)


def _progress(state: State, out: list[Action], at: float, job: Job, fan: Fan) -> None:
    """Every so often the log says how far a fan-out has come."""
    step = max(1, fan.goal // PROGRESS_NOTES)
    if fan.done % step == 0 or fan.done == fan.goal:
        note_job(state, out, at, "map_progress", job, {"done": fan.done, "of": fan.goal, **counts(fan)})
