"""What an item came to, and what that means: counts, another try, a dead letter, the end of the fan-out.

item_over --> succeeded                                  --> breaker, next
          --> failed --> tries left: wait, again
                     --> kept or skipped --> breaker --> enough of it? stop
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.core.actions import DropLetter, SetTimer
from resile.core.fanout import breaker
from resile.core.fanout.failure_reports import count_and_report_failure, report, uncount
from resile.core.fanout.fanout import BY_CANCEL, counts, hold, keep, open_item, pump, ran_before
from resile.core.fanout.naming import fan_action, fan_name, item_id
from resile.core.fanout.progress import Fan, Waiting
from resile.core.reaction import Reaction, has_turn
from resile.core.recovery.backoff import delay_seconds
from resile.core.scheduling.scopes import close_scope, stop_scope, unstart_scope
from resile.core.state import Job, Scope, State
from resile.model.failure import Kind
from resile.model.fanout import ErrorPolicy
from resile.model.items import Item, ItemFailure
from resile.model.limits import ITEM_HISTORY_MAX, PROGRESS_NOTES
from resile.model.status import BLOCKED, COMPLETED, DISABLED, READY, SKIPPED, TERMINATED

FINE = (COMPLETED, SKIPPED, DISABLED)
_NOT_BEGUN = (BLOCKED, READY, DISABLED)


def item_over(reaction: Reaction, scope: Scope) -> None:
    """One execution of an item has come to its end; its scope is forgotten."""
    state = reaction.state
    job = state.jobs[scope.owner]
    fan, policy, item = state.fans[job.id], fan_action(state, job).policy, scope.item
    assert item is not None
    worked = scope.first_failure is None and all(found.status in FINE for found in state.jobs_in(scope))
    del fan.active[item.index]
    fan.gated = [number for number in fan.gated if number != scope.id]
    close_scope(reaction, scope)
    if worked:
        _succeeded(reaction, job, fan, policy, scope, item)
    elif (
        scope.number == 1
        and scope.first_failure is None
        and not any(found.attempts_started for found in state.jobs_in(scope))
    ):
        hold(reaction, job, fan, item)
    else:
        _failed(reaction, job, fan, policy, scope, item)
    if fan.held_back:
        _next_in_order(reaction, fan)
    pump(reaction, job)


def _next_in_order(reaction: Reaction, fan: Fan) -> None:
    """An item is over: the job that waited for it, if any, has its turn."""
    state = reaction.state
    for number in [fan.held_back[turn] for turn in sorted(fan.held_back)]:
        waiting = state.jobs.get(number)
        if waiting is not None and waiting.status is BLOCKED and has_turn(state, waiting):
            reaction.wake(waiting, waiting.because)


def _succeeded(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy, scope: Scope, item: Item) -> None:
    """An item is done."""
    state = reaction.state
    if uncount(fan, item_id(state, job, item), item):
        fan.successful += 1
    fan.done += 1
    _drop_letter(reaction, job, item)
    if policy.breaker is not None:
        breaker.count_success(reaction, job, fan, policy.breaker, scope.started_at)
    if not fan.stopped:
        _judge_rate(reaction, job, fan, policy)
    _progress(reaction, job, fan)


def _drop_letter(reaction: Reaction, job: Job, item: Item) -> None:
    """An item is a dead letter no more, if it was one: where it, or something around it, has run before."""
    state = reaction.state
    if ran_before(state, job):
        reaction.order(DropLetter(fan_name(state, job), item.index, item.value))


def _failed(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy, scope: Scope, item: Item) -> None:
    """An execution of an item failed: try it again, keep it, or skip it; and see what that means for the others."""
    state = reaction.state
    stopped = state.is_stopping(job) or fan.stopped == BY_CANCEL
    canceled = stopped and (scope.first_failure is None or scope.first_failure.kind == Kind.CANCELED)
    failure = scope.first_failure or _cut_short(state, reaction.at, scope)
    history = (*item.history, failure)[-ITEM_HISTORY_MAX:]
    kept = replace(item, history=history)
    if not fan.stopped and not stopped and scope.number < policy.attempts_max:
        _count_trip(reaction, job, fan, policy, scope.started_at)
        _again(reaction, job, fan, policy, kept, scope)
        return
    name = item_id(state, job, item)
    counts = uncount(fan, name, item)
    fan.done += 1
    if canceled:
        # Neither a success nor a failure: it is kept, to be run again.
        fan.held += counts
        keep(reaction, job, kept, "canceled")
        _progress(reaction, job, fan)
        return
    fan.bad += 1
    if counts:
        count_and_report_failure(fan, name, failure)
    if policy.on_item_failure == "skip":
        fan.skipped += counts
        _drop_letter(reaction, job, item)
    else:
        fan.failed += counts
        keep(reaction, job, kept, "stopped" if scope.first_failure is None else "failed")
    report(reaction, job, fan, policy)
    _count_trip(reaction, job, fan, policy, scope.started_at)
    if not fan.stopped:
        _judge(reaction, job, fan, policy)
    _progress(reaction, job, fan)


def _cut_short(state: State, at: float, scope: Scope) -> ItemFailure:
    """What an item failed of that was ended from outside: the step that was under way."""
    ended = next((job for job in state.jobs_in(scope) if job.status is TERMINATED), None)
    return ItemFailure(
        scope.number,
        at,
        state.step_of(ended).name if ended is not None else "",
        Kind.CANCELED,
        "ended before it was done",
        seconds=at - scope.started_at,
        job=ended.id if ended is not None else 0,
        attempt=ended.attempt if ended is not None else 0,
        epoch=state.epoch,
    )


def _count_trip(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy, began: float) -> None:
    """Tell the breaker of a failure."""
    state = reaction.state
    if policy.breaker is not None and not fan.stopped:
        was = fan.circuit
        breaker.count_failure(reaction, job, fan, policy.breaker, began)
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
    return [scope for scope in scopes if all(found.status in _NOT_BEGUN for found in state.jobs_in(scope))]


def _again(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy, item: Item, scope: Scope) -> None:
    """Run an item once more, after its wait; while it waits it holds no slot."""
    state = reaction.state
    number, turn = scope.number, scope.turn
    name = item_id(state, job, item)
    delay = delay_seconds(policy.backoff, number, f"{state.workflow.name}/{name}") if policy.backoff else 0.0
    data = {"item": name, "delay_seconds": delay, "next_attempt": number + 1, "message": item.history[-1].message}
    seq = reaction.note("retry_scheduled", job, data)
    if delay <= 0 and fan.circuit == "closed":
        open_item(reaction, job, fan, item, number + 1, turn)
        return
    fan.waiting = {**fan.waiting, item.index: Waiting(item, number + 1, reaction.at + delay, turn)}
    reaction.order(SetTimer(job.id, number + 1, reaction.at + delay, seq, item=item.index))


def _judge(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy) -> None:
    """Has enough failed to end the fan-out?"""
    if policy.on_item_failure == "stop" or not policy.continue_on_failure:
        _stop(reaction, job, fan, f"stopped at the first failed item (of {fan.goal})")
    elif policy.failures_max and fan.bad >= policy.failures_max:
        _stop(reaction, job, fan, f"{fan.bad} items failed (max_failures {policy.failures_max})")
    else:
        _judge_rate(reaction, job, fan, policy)


def _judge_rate(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy) -> None:
    """Has too large a share failed, now that there are enough to tell?"""
    if fan.done >= policy.threshold_items_min and fan.bad / fan.done > policy.failure_threshold:
        why = f"{fan.bad} of {fan.done} items failed (failure_threshold {policy.failure_threshold:g})"
        _stop(reaction, job, fan, why)


def _stop(reaction: Reaction, job: Job, fan: Fan, why: str) -> None:
    """The fan-out ends: nothing more begins."""
    state = reaction.state
    fan.stopped = why
    for scope in _not_begun(state, fan):
        stop_scope(reaction, scope, job.last_event_seq)
    rate = round(fan.bad / fan.done, 6)
    data = {"message": why, "failed": fan.bad, "processed": fan.done, "failure_rate": rate}
    reaction.note("threshold_reached", job, data)


def _progress(reaction: Reaction, job: Job, fan: Fan) -> None:
    """Every so often the log says how far a fan-out has come."""
    step = max(1, fan.goal // PROGRESS_NOTES)
    if fan.done % step == 0 or fan.done == fan.goal:
        reaction.note("map_progress", job, {"done": fan.done, "of": fan.goal, **counts(fan)})
