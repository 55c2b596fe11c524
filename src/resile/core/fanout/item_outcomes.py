"""The end of an item: count it, run it again, write a dead letter, or stop the fan-out.

end_item --> succeeded                                  --> breaker, next
          --> failed --> tries left: wait, again
                     --> kept or skipped --> breaker --> too many failed? stop
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.core.actions import DropLetter, SetTimer
from resile.core.fanout import breaker
from resile.core.fanout.failure_reports import count_and_report_failure, report_if_due, uncount
from resile.core.fanout.fanout import (
    BY_CANCEL,
    counts,
    dead_letter,
    excess_reason,
    keep_unstarted,
    may_have_letters,
    note_threshold,
    open_item,
    pump,
    tries_all,
)
from resile.core.fanout.naming import fan_action, fan_name, item_id
from resile.core.fanout.progress import Fan, Waiting
from resile.core.reaction import Reaction, has_turn
from resile.core.recovery.backoff import delay_seconds
from resile.core.scheduling.scopes import close_scope, item_failure, stop_scope, unstart_scope
from resile.core.state import Job, Scope, State
from resile.model.failure import Kind
from resile.model.fanout import ErrorPolicy
from resile.model.items import Item
from resile.model.limits import ITEM_HISTORY_MAX, PROGRESS_NOTES
from resile.model.status import BLOCKED, COMPLETED, DISABLED, READY, SKIPPED, TERMINATED

FINE = (COMPLETED, SKIPPED, DISABLED)
_NOT_BEGUN = (BLOCKED, READY, DISABLED)


def end_item(reaction: Reaction, scope: Scope) -> None:
    """Conclude one execution of an item and drop its scope."""
    state = reaction.state
    job = state.jobs[scope.owner]
    fan, policy, item = state.fans[job.id], fan_action(state, job).policy, scope.item
    assert item is not None
    worked = scope.first_failure is None and all(
        found.status in FINE or found.tolerated for found in state.jobs_in(scope)
    )
    del fan.active[item.index]
    fan.gated = [number for number in fan.gated if number != scope.id]
    close_scope(reaction, scope, keep=not worked and _can_go_on(state, job, scope))
    if worked:
        _count_success(reaction, job, fan, policy, scope, item)
    elif (
        scope.number == 1
        and scope.first_failure is None
        and not any(found.attempts_started for found in state.jobs_in(scope))
    ):
        keep_unstarted(reaction, job, fan, item)
    else:
        _answer_failure(reaction, job, fan, policy, scope, item)
    if fan.held_back:
        _wake_next_in_order(reaction, fan)
    pump(reaction, job)


def _can_go_on(state: State, job: Job, scope: Scope) -> bool:
    """Can a rerun go on with a failed item where it failed? One with a worktree of its own starts over, in another."""
    if fan_action(state, job).isolation == "worktree":
        return False
    jobs = state.jobs_in(scope)
    has_more = len(jobs) > 1 or scope.nested
    return has_more and any(found.status not in (COMPLETED, DISABLED) for found in jobs)


def _wake_next_in_order(reaction: Reaction, fan: Fan) -> None:
    """Wake the next job that waited for earlier items to end, if there is one."""
    state = reaction.state
    for number in [fan.held_back[turn] for turn in sorted(fan.held_back)]:
        waiting = state.jobs.get(number)
        if waiting is not None and waiting.status is BLOCKED and has_turn(state, waiting):
            reaction.wake(waiting, waiting.because)


def _count_success(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy, scope: Scope, item: Item) -> None:
    """Count an item that succeeded."""
    state = reaction.state
    if uncount(fan, item_id(state, job, item), item):
        fan.successful += 1
    fan.done += 1
    _drop_letter(reaction, job, item)
    if policy.breaker is not None:
        breaker.count_success(reaction, job, fan, policy.breaker, scope.started_at)
    if not fan.stopped and not tries_all(state, fan):
        _stop_at_rate(reaction, job, fan, policy)
    _note_progress(reaction, job, fan)


def _drop_letter(reaction: Reaction, job: Job, item: Item) -> None:
    """Delete the dead letter of a finished item, where an earlier execution may have left one."""
    state = reaction.state
    if may_have_letters(state, job):
        reaction.order(DropLetter(fan_name(state, job), item.index, item.value))


def _answer_failure(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy, scope: Scope, item: Item) -> None:
    """Run a failed item again, skip it, or make a dead letter of it; and stop the fan-out where too many failed."""
    state = reaction.state
    stopped = state.is_stopping(job) or fan.stopped == BY_CANCEL
    canceled = stopped and (scope.first_failure is None or scope.first_failure.kind == Kind.CANCELED)
    failure = scope.first_failure
    if failure is None:
        # The item was stopped from outside, at its running step.
        ended = next((found for found in state.jobs_in(scope) if found.status is TERMINATED), None)
        failure = item_failure(reaction, scope, ended, Kind.CANCELED, "ended before it was done")
    history = (*item.history, failure)[-ITEM_HISTORY_MAX:]
    kept = replace(item, history=history)
    if not fan.stopped and not stopped and scope.number < policy.attempts_max:
        _count_for_breaker(reaction, job, fan, policy, scope.started_at)
        _retry_item(reaction, job, fan, policy, kept, scope)
        return
    name = item_id(state, job, item)
    counts = uncount(fan, name, item)
    fan.done += 1
    if canceled:
        # Neither a success nor a failure: the item is kept for a redrive.
        fan.held += counts
        dead_letter(reaction, job, kept, "canceled")
        _note_progress(reaction, job, fan)
        return
    fan.bad += 1
    if counts:
        count_and_report_failure(fan, name, failure)
    if policy.on_item_failure == "skip":
        fan.skipped += counts
        _drop_letter(reaction, job, item)
    else:
        fan.failed += counts
        dead_letter(reaction, job, kept, "stopped" if scope.first_failure is None else "failed")
    report_if_due(reaction, job, fan, policy)
    _count_for_breaker(reaction, job, fan, policy, scope.started_at)
    if not fan.stopped and not tries_all(state, fan):
        _stop_at_limit(reaction, job, fan, policy)
    _note_progress(reaction, job, fan)


def _count_for_breaker(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy, began: float) -> None:
    """Count a failure for the circuit breaker, and hold items back where it opens."""
    state = reaction.state
    if policy.breaker is not None and not fan.stopped:
        was = fan.circuit
        breaker.count_failure(reaction, job, fan, policy.breaker, began)
        if fan.circuit == "open" and was != "open":
            # Open items that have not started wait for the circuit to close.
            for scope in _unstarted_items(state, fan):
                unstart_scope(state, scope)
                fan.gated.append(scope.id)


def _unstarted_items(state: State, fan: Fan) -> list[Scope]:
    scopes = [state.scopes[number] for number in fan.active.values()]
    return [scope for scope in scopes if all(found.status in _NOT_BEGUN for found in state.jobs_in(scope))]


def _retry_item(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy, item: Item, scope: Scope) -> None:
    """Run an item once more after its backoff; while it waits it holds no slot."""
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


def _stop_at_limit(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy) -> None:
    """Stop the fan-out if enough items have failed."""
    if policy.on_item_failure == "stop" or not policy.continue_on_failure:
        _stop(reaction, job, fan, f"stopped at the first failed item (of {fan.goal})")
    elif policy.failures_max and fan.bad >= policy.failures_max:
        _stop(reaction, job, fan, f"{fan.bad} items failed (max_failures {policy.failures_max})")
    else:
        _stop_at_rate(reaction, job, fan, policy)


def _stop_at_rate(reaction: Reaction, job: Job, fan: Fan, policy: ErrorPolicy) -> None:
    """Stop the fan-out if too large a share of its items has failed, once `threshold_items_min` items are done."""
    why = excess_reason(fan, policy) if fan.done >= policy.threshold_items_min else ""
    if why:
        _stop(reaction, job, fan, why)


def _stop(reaction: Reaction, job: Job, fan: Fan, why: str) -> None:
    """Stop a fan-out: no more items begin."""
    state = reaction.state
    fan.stopped = why
    for scope in _unstarted_items(state, fan):
        stop_scope(reaction, scope, job.last_event_seq)
    note_threshold(reaction, job, fan, why)


def _note_progress(reaction: Reaction, job: Job, fan: Fan) -> None:
    """Note the progress of a fan-out after each share (1 / PROGRESS_NOTES) of its items."""
    step = max(1, fan.goal // PROGRESS_NOTES)
    if fan.done % step == 0 or fan.done == fan.goal:
        reaction.note("map_progress", job, {"done": fan.done, "of": fan.goal, **counts(fan)})
