"""What an item came to, and what that means: counts, another try, a dead letter, the end of the fan-out.

item_over --> succeeded                                  --> breaker, next
          --> failed --> tries left: wait, again
                     --> kept or skipped --> breaker --> enough of it? stop
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.core.actions import Action, DropLetter, SetTimer
from resile.core.backoff import delay_seconds
from resile.core.breaker import passed, tripped
from resile.core.fan_names import fan_action, fan_name, item_id
from resile.core.fanout import counts, hold, keep, open_item, pump
from resile.core.fans import Fan, Waiting
from resile.core.flow import has_turn, stopping, wake
from resile.core.notes import note_job
from resile.core.reports import note_failure, report
from resile.core.scopes import close_scope, stop_scope, unstart_scope
from resile.core.state import Job, Scope, State
from resile.model.fanout import ErrorPolicy
from resile.model.letters import Item, ItemFailure, LetterReason
from resile.model.limits import ITEM_HISTORY_MAX, PROGRESS_NOTES
from resile.model.status import Status

FINE = (Status.completed, Status.skipped, Status.disabled)
_NOT_BEGUN = (Status.blocked, Status.ready, Status.disabled)


def item_over(state: State, out: list[Action], at: float, scope: Scope) -> None:
    """One execution of an item has come to its end; its scope is forgotten."""
    job = state.jobs[scope.owner]
    fan, policy, item = state.fans[job.id], fan_action(state, job).policy, scope.item
    assert item is not None
    worked = scope.broken is None and all(found.status in FINE for found in _jobs(state, scope))
    del fan.active[item.index]
    fan.gated = [number for number in fan.gated if number != scope.id]
    close_scope(state, out, scope)
    if worked:
        _succeeded(state, out, at, job, fan, policy, scope, item)
    elif scope.number == 1 and scope.broken is None and not any(found.tried for found in _jobs(state, scope)):
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
    _uncount(fan, item)
    fan.done += 1
    fan.successful += 1
    _drop_letter(state, out, job, item)
    if policy.breaker is not None:
        passed(state, out, at, job, fan, policy.breaker, scope.started_at)
    _progress(state, out, at, job, fan)


def _drop_letter(state: State, out: list[Action], job: Job, item: Item) -> None:
    """An item is a dead letter no more, if it was one: where it, or something around it, has run before."""
    again = state.epoch > 1
    inner: Job | None = job
    while inner is not None and not again:
        fan, scope = state.fans.get(inner.id), state.scopes[inner.scope]
        again = inner.attempt > 1 or scope.number > 1 or (fan is not None and fan.redrive)
        inner = state.jobs[scope.owner] if scope.owner else None
    if again:
        out.append(DropLetter(fan_name(state, job), item.index))


def _uncount(fan: Fan, item: Item) -> None:
    """An item of a redrive was counted before: as failed, or as held where it had never started."""
    if fan.redrive and item.history:
        fan.failed -= 1
    elif fan.redrive:
        fan.held -= 1


def _failed(
    state: State, out: list[Action], at: float, job: Job, fan: Fan, policy: ErrorPolicy, scope: Scope, item: Item
) -> None:
    """An execution of an item failed: try it again, keep it, or skip it; and see what that means for the others."""
    canceled = stopping(state, job) and (scope.broken is None or scope.broken.kind == "canceled")
    failure = scope.broken or ItemFailure(
        scope.number, at, "", "canceled", "ended before it was done", seconds=at - scope.started_at, epoch=state.epoch
    )
    history = (*item.history, failure)[-ITEM_HISTORY_MAX:]
    kept = replace(item, history=history)
    if not fan.stopped and not stopping(state, job) and scope.number < policy.attempts_max:
        _count_trip(state, out, at, job, fan, policy, scope.started_at)
        _again(state, out, at, job, fan, policy, kept, scope)
        return
    _uncount(fan, item)
    fan.done += 1
    fan.bad += 1
    name = item_id(state, job, item)
    note_failure(fan, name, failure)
    if policy.on_item_failure == "skip" and not canceled:
        fan.skipped += 1
        _drop_letter(state, out, job, item)
    else:
        fan.failed += 1
        reason: LetterReason = "canceled" if canceled else "stopped" if scope.broken is None else "failed"
        keep(state, out, at, job, kept, reason)
    report(state, out, at, job, fan, policy)
    _count_trip(state, out, at, job, fan, policy, scope.started_at)
    if not fan.stopped:
        _judge(state, out, at, job, fan, policy)
    _progress(state, out, at, job, fan)


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
    bad, processed = fan.bad, fan.done
    rate = bad / processed
    if policy.on_item_failure == "stop" or not policy.continue_on_failure:
        fan.stopped = f"stopped at the first failed item (of {fan.goal})"
    elif policy.failures_max and bad >= policy.failures_max:
        fan.stopped = f"{bad} items failed (max_failures {policy.failures_max})"
    elif processed >= policy.threshold_items_min and rate > policy.failure_threshold:
        fan.stopped = f"{bad} of {processed} items failed (failure_threshold {policy.failure_threshold:g})"
    if fan.stopped:
        for scope in _not_begun(state, fan):
            stop_scope(state, out, at, scope, job.noted)
        data = {"message": fan.stopped, "failed": bad, "processed": processed, "failure_rate": round(rate, 6)}
        note_job(state, out, at, "threshold_reached", job, data)


def _progress(state: State, out: list[Action], at: float, job: Job, fan: Fan) -> None:
    """Every so often the log says how far a fan-out has come."""
    step = max(1, fan.goal // PROGRESS_NOTES)
    if fan.done % step == 0 or fan.done == fan.goal:
        note_job(state, out, at, "map_progress", job, {"done": fan.done, "of": fan.goal, **counts(fan)})
