"""The work of one event: the state that it changes, its time, and the notes and orders that follow from it.

`react` makes a Reaction for each event and passes it to all functions that handle the event.
"""

from __future__ import annotations

from typing import Any

from resile.core.actions import Action, AnswerCondition, Note
from resile.core.block_state import Blocks
from resile.core.scheduling.plan import queue_key
from resile.core.scheduling.reservations import mark_active, mark_idle, resources_for
from resile.core.state import NO_RULE, ROOT, Job, Queue, Route, State
from resile.core.transitions import set_status
from resile.model.limits import ROUTES_MAX
from resile.model.rules import Trigger
from resile.model.status import (
    CANCELED,
    COMPLETED,
    FAILED,
    PENDING_FAILED,
    READY,
    SKIPPED,
    STATUS_NAMES,
    TERMINATED,
    Status,
)

SETTLED_NOTES: dict[Status, str] = {
    COMPLETED: "step_completed",
    FAILED: "step_failed",
    CANCELED: "step_canceled",
    TERMINATED: "step_canceled",
    SKIPPED: "step_skipped",
}
_NOTHING: dict[str, Any] = {}


class Reaction:
    """The work of one event, whose notes all have the time `at`.

    `order` adds an action: something that the engine must perform or write down. `wakeups` are settled jobs that
    another job waits for, and fan-outs with a settled item; wakeups.py works them off before the reaction ends.
    `left_out` are jobs that could start now, and that the run leaves out.
    """

    __slots__ = ("actions", "at", "left_out", "order", "state", "wakeups")

    def __init__(self, state: State, at: float) -> None:
        self.state, self.at = state, at
        self.actions: list[Action] = []
        self.order = self.actions.append
        self.wakeups: list[int] = []
        self.left_out: list[Job] = []

    def note(self, kind: str, job: Job, data: dict[str, Any] = _NOTHING, because: int = 0) -> int:
        """Note an event of a job; its cause is `because`, or else the job's own last note."""
        state = self.state
        state.seq = seq = state.seq + 1
        self.order(
            Note(
                seq,
                self.at,
                kind,
                state.scopes[job.scope].name,
                state.plans[job.scope].steps[job.step].name,
                job.id,
                job.attempt,
                STATUS_NAMES[job.status],
                because or job.last_event_seq or job.because,
                data,
            )
        )
        job.last_event_seq = seq
        state.touched.append(job.id)
        return seq

    def note_pair(self, first: str, second: str, job: Job, data: dict[str, Any], because: int) -> None:
        """Note two events of a job that happen together; the first causes the second, which gets the `data`.

        Every attempt makes two such pairs, so the fields that both notes share are looked up once.
        """
        state = self.state
        seq = state.seq + 1
        scope, step = state.scopes[job.scope].name, state.plans[job.scope].steps[job.step].name
        status, because = STATUS_NAMES[job.status], because or job.last_event_seq or job.because
        self.order(Note(seq, self.at, first, scope, step, job.id, job.attempt, status, because, _NOTHING))
        self.order(Note(seq + 1, self.at, second, scope, step, job.id, job.attempt, status, seq, data))
        state.seq = job.last_event_seq = seq + 1
        state.touched.append(job.id)

    def note_run(self, kind: str, status: str, because: int, **data: Any) -> int:
        """Note an event of the run as a whole."""
        self.state.seq = seq = self.state.seq + 1
        self.order(Note(seq, self.at, kind, "", "", 0, 0, status, because, data))
        return seq

    def note_route(self, job: Job, trigger: Trigger, action: str, target: str | None, rule: str) -> int:
        """Note a jump or a call, and add it to the summary."""
        self.summarize_route(job, trigger, action, target, rule)
        loops = self.state.scopes[job.scope].loops
        data = {"trigger": trigger, "action": action, "target": target, "rule": rule, "loops": loops}
        return self.note("route_taken", job, data)

    def summarize_route(self, job: Job, trigger: Trigger, action: str, target: str | None, rule: str) -> None:
        """Add a decision about a job to the summary; beyond ROUTES_MAX, decisions in inner scopes are left out."""
        state = self.state
        scope = state.scopes[job.scope]
        if scope.owner and len(state.routes) >= ROUTES_MAX:
            return
        attempt = job.error.attempt if job.error is not None else job.attempt
        name = state.step_of(job).name
        state.routes.append(Route(self.at, scope.name, name, attempt, trigger, action, target, rule))

    def wake(self, job: Job, because: int) -> None:
        """Every need of a job holds: have its `when` evaluated, or make it ready."""
        state = self.state
        if job.tokens:
            job.tokens -= 1
        step = state.plans[job.scope].steps[job.step]
        if step.left_out:
            job.because = because
            self.left_out.append(job)
        elif step.in_order and not has_turn(state, job):
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
        if state.blocks is not None:
            count_job(state.blocks, state.blocks.ready, job)
            state.blocks.fresh.append(job.id)

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
        if state.blocks is not None:
            count_job(state.blocks, state.blocks.settled, job)
        is_end = job.step == state.plans[job.scope].end
        scope.open -= not is_end
        if scope.owner or (job.callers and not is_end):
            self.wakeups.append(job.id)


def count_job(blocks: Blocks, counts: dict[int, int], job: Job) -> None:
    """Count what a job did, where a trigger waits for that."""
    if job.scope == ROOT and job.step in counts:
        counts[job.step] += 1
        blocks.is_due = True


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
