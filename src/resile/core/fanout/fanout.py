"""Fan-outs: one scope for each item, a bounded number at a time, each dropped when it is over.

    attempt (lists the items) --> begin_items --> pump: read, open --> items run --> end_item (item_outcomes.py)
                                                    ^                                   |
                                                    +------------ until all are done <--+--> finish

Items are read from the items file in chunks, so the queue in memory is bounded. They start in the order of the input.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.core.actions import KeepLetter, ReadItems, SetTimer
from resile.core.epochs.begin import take_up_scope
from resile.core.events import ItemsRead
from resile.core.fanout.breaker import holds_back, may_start
from resile.core.fanout.failure_reports import count_failure, report, uncount
from resile.core.fanout.naming import fan_action, fan_name, item_id, map_name, short_name
from resile.core.fanout.progress import Fan
from resile.core.fanout.redrive_groups import end_group
from resile.core.fanout.worktrees import steps_with_worktree
from resile.core.reaction import Reaction
from resile.core.recovery.ladder import climb
from resile.core.recovery.on_success import attempt_succeeded
from resile.core.scheduling.arcs import settle_or_revisit
from resile.core.scheduling.goto import reopen_if_stale
from resile.core.scheduling.reservations import mark_active, mark_idle
from resile.core.scheduling.scopes import is_parked, item_failure, open_scope, start_scope, stop_scope
from resile.core.state import Error, Job, Scope, State
from resile.core.transitions import set_status
from resile.model.failure import Failure, Kind
from resile.model.fanout import ErrorPolicy
from resile.model.items import DeadLetter, Item, ItemFailure, LetterReason
from resile.model.limits import ITEMS_PER_READ
from resile.model.status import PENDING, RECOVERING, RUNNING, SKIPPED, TERMINATED
from resile.model.workflow import FanOut

# The reason for stopping a fan-out whose run, scope or redrive was canceled.
BY_CANCEL = "canceled"


def begin_items(
    reaction: Reaction, job: Job, count: int, began: float, *, goes_on: bool = False, remarks: tuple[str, ...] = ()
) -> None:
    """Run the items that an attempt listed in place of the job; the step's timeout counts from `began`.

    A fan-out that `goes_on` keeps the items that succeeded in an earlier epoch; the attempt listed the `count` others.
    """
    state = reaction.state
    label = f"j{job.id}_r{state.epoch}_a{job.attempt}"
    parallel = fan_action(state, job).max_parallel or 0
    before = state.fans.get(job.id)
    fan = Fan(count, label, state.epoch, state.last_job, parallel, listed=label, listed_at=reaction.at)
    data: dict[str, Any] = {"total": count}
    if remarks:
        data["remarks"] = list(remarks)
    if before is not None and goes_on:
        fan.total, fan.after, fan.listed, fan.listed_at = before.total, before.after, before.listed, before.listed_at
        fan.again, data = True, {"total": fan.total, "kept": fan.total - count}
    fan.goal = fan.total
    fan.successful = fan.done = fan.taken = fan.total - count
    state.items += fan.total
    if before is not None and before.epoch == state.epoch and not goes_on:
        state.items -= before.total
    state.fans[job.id] = fan
    job.again = 0
    job.waits_for = "inner"
    job.exit_code = None
    set_status(job, RUNNING)
    seq = reaction.note("items_listed", job, data)
    limit = state.step_of(job).timeout_seconds
    if limit is not None:
        job.timer_at = began + limit
        reaction.order(SetTimer(job.id, job.attempt, job.timer_at, seq))
    pump(reaction, job)


def take_items(reaction: Reaction, job: Job, event: ItemsRead) -> None:
    """Take another chunk of items."""
    fan = reaction.state.fans[job.id]
    fan.reading = False
    fan.place = event.place
    fan.taken += len(event.items)
    # In a redrive the file may also hold, after these, the dead letters of another fan-out.
    fan.last = event.last or fan.taken >= fan.goal
    fan.queue.extend(event.items)
    if event.kept:
        fan.kept = {**fan.kept, **{body["scope"]["item"][0]: body for body in event.kept}}
    pump(reaction, job)


def pump(reaction: Reaction, job: Job) -> None:
    """Start the items that may start, read more where the queue runs low, and finish when none is left."""
    state = reaction.state
    fan, action = state.fans[job.id], fan_action(state, job)
    if fan.stopped:
        _drain(reaction, job, fan)
    else:
        _open_next(reaction, job, fan, action)
    if not fan.reading and not fan.last and len(fan.queue) <= ITEMS_PER_READ // 2:
        fan.reading = True
        reaction.order(read_order(job, fan, job.last_event_seq))
    timed = any(waiting.due > reaction.at for waiting in fan.waiting.values())
    is_held = fan.circuit == "open" and not fan.stopped and (state.workflow.edition == 1 or _has_more(fan))
    if fan.reading or timed or is_held:
        mark_active(state, job)
        return
    mark_idle(state, job)
    if fan.last and not fan.queue and not fan.active and not fan.waiting:
        finish(reaction, job, fan)


def _has_more(fan: Fan) -> bool:
    """Is there an item that waits for the open circuit?"""
    return bool(fan.queue or fan.gated or fan.waiting or not fan.last)


def tries_all(state: State, fan: Fan) -> bool:
    """Does the fan-out run every item, however many fail? A redrive does, except in runs of edition 1."""
    return fan.redrive and state.workflow.edition > 1


def excess_reason(fan: Fan, policy: ErrorPolicy) -> str:
    """The reason to fail a fan-out if the share of failed items is over its threshold, else empty."""
    if not fan.done or fan.bad / fan.done <= policy.failure_threshold:
        return ""
    return f"{fan.bad} of {fan.done} items failed (failure_threshold {policy.failure_threshold:g})"


def note_threshold(reaction: Reaction, job: Job, fan: Fan, why: str) -> None:
    """Note that too many items failed."""
    rate = round(fan.bad / fan.done, 6)
    data = {"message": why, "failed": fan.bad, "processed": fan.done, "failure_rate": rate}
    reaction.note("threshold_reached", job, data)


def read_order(job: Job, fan: Fan, because: int) -> ReadItems:
    """The order to read the next items."""
    return ReadItems(job.id, fan.label, fan.place, min(ITEMS_PER_READ, fan.goal - fan.taken), because)


def _open_next(reaction: Reaction, job: Job, fan: Fan, action: FanOut) -> None:
    """Open items while there is room: first gated items, then items whose backoff is over, then new items in order."""
    state = reaction.state
    limit = _limit(state, action, fan)
    idle = sum(is_parked(state, state.scopes[number]) for number in fan.active.values()) if state.parked else 0
    due = [waiting for waiting in fan.waiting.values() if waiting.due <= reaction.at] if fan.waiting else []
    while (fan.gated or due or fan.queue) and may_start(fan, action.policy.breaker):
        if fan.gated:
            _begin_item(reaction, job, fan, state.scopes[fan.gated.pop(0)])
            continue
        # Items that are held back wait for an earlier item, so they must not take the slot of one that is due.
        if len(fan.active) - (len(fan.held_back) if due else 0) - idle >= limit:
            return
        if due:
            again = due.pop(0)
            del fan.waiting[again.item.index]
            open_item(reaction, job, fan, again.item, again.number, again.turn)
        else:
            item = fan.queue.pop(0)
            # A dead letter of an earlier listing belongs to another list of items, so the counts do not include it.
            if fan.redrive and all(_is_counted(state, fan, failure) for failure in item.history[-1:]):
                fan.counted[item.index] = item.history[-1:]
            open_item(reaction, job, fan, item, 1)


def _is_counted(state: State, fan: Fan, failure: ItemFailure) -> bool:
    """Do the counts of a fan-out include this failure: did the item fail after the fan-out listed its items?"""
    return failure.epoch == state.epoch or 0 < fan.listed_at <= failure.at


def _limit(state: State, action: FanOut, fan: Fan) -> int:
    """How many items may be open at a time.

    Where every item is one attempt and no failure can hold others back, a few more items are opened than can run: their
    attempts are reserved, so the executor never waits for a commit. A step with rules may go on after its attempt, and
    then the next item has to wait for it.
    """
    capacity = state.capacity
    assert capacity is not None
    asked = fan.parallel or capacity.parallel
    if action.item_timeout_seconds is not None or holds_back(action.policy):
        # An item's timeout counts from its opening, and every open item will start: so open none that has to wait.
        return min(asked, capacity.parallel)
    first = action.steps[0]
    is_one_attempt = len(steps_with_worktree(action)) == 1 and not first.rules and first.on_success is None
    if is_one_attempt and asked >= capacity.parallel:
        return max(asked, capacity.parallel + capacity.ahead)
    return asked


def open_item(reaction: Reaction, job: Job, fan: Fan, item: Item, number: int, turn: int = 0) -> None:
    """Start one execution of an item; a new item takes the next turn. One that failed in an earlier epoch goes on."""
    state = reaction.state
    if not turn:
        fan.opened += 1
        turn = fan.opened
    kept = fan.kept.pop(item.index, None) if fan.kept else None
    if kept is not None:
        scope = take_up_scope(state, kept)
        scope.item, scope.number, scope.turn = item, number, turn
    else:
        name = f"{short_name(state, job)}[{item.index}]"
        scope = open_scope(state, job, "item", name, item=item, number=number, turn=turn)
    fan.active[item.index] = scope.id
    _begin_item(reaction, job, fan, scope)


def _begin_item(reaction: Reaction, job: Job, fan: Fan, scope: Scope) -> None:
    """Wake the first steps of an item, and start the clock of its timeout."""
    state = reaction.state
    item, limit = scope.item, fan_action(state, job).item_timeout_seconds
    assert item is not None
    scope.started_at = reaction.at
    if fan.circuit == "half_open":
        fan.probes += 1
    if limit is not None:
        reaction.order(SetTimer(job.id, scope.number, reaction.at + limit, job.last_event_seq, item=item.index))
    start_scope(reaction, scope, job.last_event_seq)


def item_timer(reaction: Reaction, job: Job, index: int, number: int) -> None:
    """Handle an item's timer: its backoff is over, or its timeout."""
    state = reaction.state
    fan = state.fans[job.id]
    if index in fan.waiting:
        pump(reaction, job)
        return
    scope = state.scopes.get(fan.active.get(index, 0))
    limit = fan_action(state, job).item_timeout_seconds
    if scope is None or scope.number != number or scope.id in fan.gated:
        return
    # A backoff's timer may fire after another event has opened the item already: that is not its timeout.
    if limit is not None and reaction.at >= scope.started_at + limit:
        expire_item(reaction, job, scope)


def expire_item(reaction: Reaction, job: Job, scope: Scope) -> None:
    """Kill the attempts of an item that timed out; the item fails when they have ended."""
    state = reaction.state
    limit = fan_action(state, job).item_timeout_seconds or 0.0
    under_way = (PENDING, RUNNING, RECOVERING)
    running = next((found for found in state.jobs_in(scope) if found.status in under_way), None)
    message = f"the item timed out after {limit:g}s"
    scope.first_failure = replace(
        item_failure(reaction, scope, running, Kind.TIMEOUT, message), signature="timeout: item"
    )
    stop_scope(reaction, scope, job.last_event_seq)


def expire_map(reaction: Reaction, job: Job) -> None:
    """Kill the attempts of a fan-out that timed out; items that never started become dead letters."""
    state = reaction.state
    state.fans[job.id].expired = True
    stop_items(reaction, job, f"timed out after {state.step_of(job).timeout_seconds:g}s")


def stop_items(reaction: Reaction, job: Job, why: str) -> None:
    """Start no more items of a fan-out and kill the attempts of those that run."""
    state = reaction.state
    fan = state.fans[job.id]
    fan.stopped = fan.stopped or why
    for number in list(fan.active.values()):
        stop_scope(reaction, state.scopes[number], job.last_event_seq)
    reaction.wakeups.append(job.id)


def _drain(reaction: Reaction, job: Job, fan: Fan) -> None:
    """Make dead letters of the waiting items of a stopped fan-out."""
    state = reaction.state
    for item in fan.queue:
        keep_unstarted(reaction, job, fan, item)
    fan.queue.clear()
    for waiting in list(fan.waiting.values()):
        name = item_id(state, job, waiting.item)
        if uncount(fan, name, waiting.item):
            fan.failed += 1
            count_failure(fan, name, waiting.item.history[-1])
        dead_letter(reaction, job, waiting.item, "stopped")
    fan.waiting.clear()


def keep_unstarted(reaction: Reaction, job: Job, fan: Fan, item: Item) -> None:
    """Make a dead letter of an item that never started, for a redrive."""
    reason: LetterReason = "circuit_open" if fan.circuit != "closed" else "not_started"
    if fan.redrive:
        # The item is a dead letter already; leave it unchanged.
        fan.counted.pop(item.index, None)
        return
    fan.held += 1
    dead_letter(reaction, job, item, reason)


def dead_letter(reaction: Reaction, job: Job, item: Item, reason: LetterReason) -> None:
    """Write a dead letter."""
    state = reaction.state
    name, step = fan_name(state, job), state.step_of(job).name
    letter = DeadLetter(name, map_name(state, job), step, job.id, job.scope, item, reason, reaction.at)
    reaction.order(KeepLetter(letter, goes_on=not state.fans[job.id].redrive and may_have_letters(state, job)))
    _mark_kept(state, job)
    last = item.history[-1] if item.history else None
    data: dict[str, Any] = {"item": f"{name}[{item.index}]", "reason": reason, "failures": len(item.history)}
    if last is not None:
        data |= {"message": last.message, "failed_step": last.step, "signature": last.signature}
    reaction.note("item_dead_lettered", job, data)


def may_have_letters(state: State, job: Job) -> bool:
    """May there be dead letters of this fan-out, because it, or a scope around it, has run before?"""
    inner: Job | None = job
    while inner is not None:
        fan, scope = state.fans.get(inner.id), state.scopes[inner.scope]
        if state.epoch > 1 or inner.attempt > 1 or scope.number > 1 or (fan is not None and fan.redrive):
            return True
        inner = state.jobs[scope.owner] if scope.owner else None
    return False


def _mark_kept(state: State, job: Job) -> None:
    """Mark the scopes around a dead letter: a redrive will restore them."""
    scope = state.scopes[job.scope]
    while scope.owner and not scope.kept_for_redrive:
        owner = state.jobs[scope.owner]
        scope.kept_for_redrive = True
        scope.error = owner.error if scope.kind == "repair" else None
        scope = state.scopes[owner.scope]


def finish(reaction: Reaction, job: Job, fan: Fan) -> None:
    """Conclude a fan-out whose items are all over: its step has succeeded, or climbs its ladder."""
    state = reaction.state
    job.waits_for = ""
    job.timer_at = 0.0
    report(reaction, job, fan)
    if fan.redrive:
        fan.redrive = False
        reaction.note("redrive_finished", job, counts(fan))
        end_group(reaction, job)
        return
    if reopen_if_stale(reaction, job):
        return
    if state.is_stopping(job):
        reaction.note("attempt_failed", job, {"message": fan.stopped or "canceled", **counts(fan)})
        settle_or_revisit(reaction, job, TERMINATED, {"message": fan.stopped})
        return
    policy = fan_action(state, job).policy
    problem, answer = fan.stopped, policy.on_item_failure
    if not problem and state.workflow.edition > 1 and (problem := excess_reason(fan, policy)):
        note_threshold(reaction, job, fan, problem)
    if not problem and fan.failed and answer in ("fail", "carry_on"):
        problem = f"{fan.failed} of {fan.total} items failed"
    # With `carry_on` the failure counts, and dependents go on with the items that succeeded.
    is_partial = problem and not fan.stopped and answer == "carry_on" and fan.successful
    job.accepted = "partial" if is_partial else ""
    if not problem:
        job.exit_code = 0
        reaction.note("attempt_succeeded", job, counts(fan))
        producer = fan_action(state, job).scope
        if producer and not fan.total:
            # The dependents of a producer and its `on_finish` do not run; steps that gather the items do.
            job.accepted = "empty"
            settle_or_revisit(reaction, job, SKIPPED, {"reason": f"{producer!r} gave no items"})
        else:
            attempt_succeeded(reaction, job)
        return
    job.exit_code = 1
    reaction.note("attempt_failed", job, {"message": problem, **counts(fan)})
    failure = Failure(Kind.TIMEOUT if fan.expired else Kind.EXIT, problem, 1, signature="fan-out failed")
    job.error = Error(reaction.at, job.attempt, state.step_of(job).name, failure)
    climb(reaction, job, failure)


def counts(fan: Fan) -> dict[str, Any]:
    """The counts of a fan-out, for events and variables."""
    processed = fan.settled
    return {
        "total": fan.total,
        "successful": fan.successful,
        "failed": fan.failed,
        "skipped": fan.skipped,
        "held": fan.held_now,
        "failure_rate": round(fan.failed / processed, 6) if processed else 0.0,
        "circuit": fan.circuit,
    }
