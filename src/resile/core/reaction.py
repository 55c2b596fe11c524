"""The work of one event: the state that it changes, its time, and the notes and orders that follow from it.

`react` makes a Reaction for each event and passes it to all functions that handle the event.
"""

from __future__ import annotations

from typing import Any

from resile.core.actions import AnswerCondition
from resile.core.event_log import EventLog
from resile.core.scheduling.plan import queue_key
from resile.core.scheduling.reservations import mark_active, mark_idle, resources_for
from resile.core.state import NO_RULE, Job, Queue, State
from resile.core.transitions import set_status
from resile.model.status import CANCELED, COMPLETED, FAILED, PENDING_FAILED, READY, SKIPPED, TERMINATED, Status

SETTLED_NOTES: dict[Status, str] = {
    COMPLETED: "step_completed",
    FAILED: "step_failed",
    CANCELED: "step_canceled",
    TERMINATED: "step_canceled",
    SKIPPED: "step_skipped",
}


class Reaction(EventLog):
    """The work of one event.

    `wakeups` are settled jobs that another job waits for, and fan-outs with a settled item; wakeups.py works them off
    before the reaction ends.
    """

    __slots__ = ()

    def wake(self, job: Job, because: int) -> None:
        """Every need of a job holds: have its `when` evaluated, or make it ready."""
        state = self.state
        if job.tokens:
            job.tokens -= 1
        step = state.plans[job.scope].steps[job.step]
        if step.in_order and not has_turn(state, job):
            scope = state.scopes[job.scope]
            fan = state.fans[scope.owner]
            fan.held_back = {**fan.held_back, scope.turn: job.id}
            job.because = because
        elif step.when is None:
            self.enqueue(job, because)
        else:
            mark_active(state, job)
            job.waits_for = "when"
            job.because = because
            self.order(AnswerCondition(job.id, because))

    def enqueue(self, job: Job, because: int) -> None:
        """Make a job ready: put it into the queue of jobs that ask for the same resources."""
        state = self.state
        set_status(job, READY)
        mark_active(state, job)
        job.because = because
        state.queue_number += 1
        job.queue_number = state.queue_number
        resources = resources_for(state, job)
        key = "" if resources is None else queue_key(resources)
        queue = state.queues.get(key)
        if queue is None:
            queue = state.queues[key] = Queue()
        queue.push(job.id)
        state.touched.append(job.id)

    def settle(self, job: Job, status: Status, data: dict[str, Any], because: int = 0) -> None:
        """End a job for this visit: set its status, counters and note. dependencies.py informs its dependents."""
        state = self.state
        scope = state.scopes[job.scope]
        if job.status is PENDING_FAILED:
            state.parked -= 1
        mark_idle(state, job)
        set_status(job, status)
        job.waits_for = ""
        state.set_ended(job, self.at)
        job.rule, job.repair_scope, job.calls, job.error = NO_RULE, 0, (), None
        kind = "step_recovered" if job.visit == "repaired" and status is COMPLETED else SETTLED_NOTES[status]
        if job.visit:
            self.note_pair("step.exit", kind, job, data, because)
        else:
            self.note(kind, job, data, because)
        is_end = job.step == state.plans[job.scope].end
        scope.open -= not is_end
        if scope.owner or (job.callers and not is_end):
            self.wakeups.append(job.id)


def has_turn(state: State, job: Job) -> bool:
    """Are all items before this job's item over?"""
    scope = state.scopes[job.scope]
    fan = state.fans.get(scope.owner)
    if fan is None:
        return True
    before = [state.scopes[number].turn for number in fan.active.values()]
    before += [waiting.turn for waiting in fan.waiting.values()]
    if any(turn < scope.turn for turn in before):
        return False
    fan.held_back = {turn: number for turn, number in fan.held_back.items() if turn != scope.turn}
    return True
