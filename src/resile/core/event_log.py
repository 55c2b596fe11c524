"""Writes the run's public log from inside the core: numbers the notes and links each to its cause."""

from __future__ import annotations

from typing import Any

from resile.core.actions import Action, Note
from resile.core.state import Job, Route, State
from resile.model.limits import ROUTES_MAX
from resile.model.rules import Trigger
from resile.model.status import Status

STATUS_NAMES: dict[int, str] = {status.value: status.name for status in Status}
_NOTHING: dict[str, Any] = {}


class EventLog:
    """Writes notes about one run, all with the time `at`, into the list of `actions`.

    `order` adds an action: something that the engine must perform or write down.
    """

    __slots__ = ("actions", "at", "order", "state", "wakeups")

    def __init__(self, state: State, at: float) -> None:
        self.state, self.at = state, at
        self.actions: list[Action] = []
        self.order = self.actions.append
        self.wakeups: list[int] = []

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
