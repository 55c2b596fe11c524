"""The engine: fold, decide, append in group commits, and only then perform.

                 reports, timers, requests, signals
                                |
                              event
                                v
    react(state, event) --> notes + orders --> journal --> writer thread (one transaction)
                                                              |
              perform (executor, timers, conditions) <-- orders, once durable

One thread, one loop. Time comes from the clock, and every event has the time at which the loop read it.
While the executor has attempts in reserve, or no order waits for a commit, the engine collects events for a few
milliseconds before it commits; otherwise it commits at once.
"""

from __future__ import annotations

import heapq
import os
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import assert_never

import msgspec

from resile.core import actions
from resile.core.events import CancelRequested, Event, Judged, RunResumed, RunStarted, TimerFired
from resile.core.react import react
from resile.core.state import State
from resile.engine.clock import Clock
from resile.engine.evaluation.questions import Conditions
from resile.engine.journal import Journal
from resile.engine.launch import Performer
from resile.engine.log_files import LogFiles
from resile.engine.outcomes import Observer, has_no_room
from resile.errors import ResileError
from resile.executors.contract import Adopted, Ended, Executor, Launch, Returned, Started
from resile.model.status import RunStatus
from resile.store.contract import AttemptRow, Lease, Request, Store, Writer
from resile.store.errors import StoreError, StoreFull

GATHER_SECONDS = 0.020
REQUESTS_SECONDS = 0.2
LEASE_SECONDS = 30.0
_BEGUN = frozenset((Started, Adopted))
_OVER = frozenset((Ended, Returned))

Listener = Callable[[State, list[actions.Note]], None]
# Ctrl-C calls it; it calls its argument once the executor has the interrupt.
Interrupt = Callable[[Callable[[], None]], None]


class Engine:
    """Drives one run until it ends, parks or is interrupted."""

    def __init__(
        self,
        *,
        store: Store,
        writer: Writer,
        lease: Lease,
        state: State,
        executor: Executor,
        performer: Performer,
        observer: Observer,
        conditions: Conditions,
        journal: Journal,
        logfiles: LogFiles,
        listener: Listener,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._store = store
        self._writer = writer
        self._lease = lease
        self._state = state
        self._executor = executor
        self._performer = performer
        self._observer = observer
        self._conditions = conditions
        self._journal = journal
        self._logfiles = logfiles
        self._listener = listener
        self._inbox: deque[tuple[Event, AttemptRow | None]] = deque()
        self._timers: list[tuple[float, int, int, bool, int]] = []
        self._running: set[tuple[int, int]] = set()
        self._stop: RunStatus | None = None
        self._interrupts = 0
        self._interrupted: deque[Callable[[], None]] = deque()
        self._opened_at = clock.now()
        self.problem: ResileError | None = None
        self._drained = False
        self._killed: set[tuple[int, int]] = set()
        self._gather_until = 0.0
        self._next_requests = 0.0
        self._last_request = 0
        self._next_renewal = clock.now() + LEASE_SECONDS / 3
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def interrupt(self, done: Callable[[], None]) -> None:
        """Stop gently; a second call kills the running attempts. The engine calls `done` once the executor has the
        interrupt.

        Safe in a signal handler.
        """
        self._interrupts += 1
        self._interrupted.append(done)
        os.write(self._wake_write, b"!")

    def drive(self, events: list[Event]) -> RunStatus:
        """Feed these events, and drive the run until there is nothing left to do."""
        for event in events:
            if isinstance(event, RunResumed | RunStarted):
                self._journal.forget_orders()
            self.feed(event)
            if isinstance(event, RunStarted):
                self._journal.skip_ready(self._state)
        poll = select.poll()
        for descriptor in (self._executor.fileno(), self._writer.fileno(), self._wake_read):
            poll.register(descriptor, select.POLLIN)
        has_reports = True
        while True:
            now = self._clock.now()
            self._keep_lease()
            if has_reports:
                self._collect_reports()
            self._collect_others(now)
            if self._inbox:
                self._feed_all()
            self._submit(now)
            self._perform_durable()
            if self._inbox:
                has_reports = False
                continue
            if self._stop is not None and not self._journal.is_unfinished():
                return self._stop
            ready = self._clock.wait(poll, self._next_deadline())
            has_reports = self._executor.fileno() in ready
            if self._wake_read in ready:
                os.read(self._wake_read, 64)

    def feed(self, event: Event, attempt: AttemptRow | None = None) -> None:
        """Let the core react to one event, and add it to the journal."""
        _, caused = react(self._state, event)
        self._journal.add(self._state, event, caused, attempt)

    def _feed_all(self) -> None:
        """Feed everything in the inbox, in order; the first event opens a new batch."""
        if not self._journal.has_entries():
            self._gather_until = self._clock.now() + GATHER_SECONDS
        inbox = self._inbox
        while inbox:
            event, attempt = inbox.popleft()
            self.feed(event, attempt)

    def close(self, finished: bool) -> None:
        """Close everything; attempts that still run go on. If `finished`, no attempt is open in the log."""
        # An engine that ends with an error, that of a lost lease for example, does not raise the writer's as well.
        with suppress(StoreError):
            self._writer.flush()
        self._executor.close(finished=finished)
        self._conditions.close()
        self._logfiles.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _collect_reports(self) -> None:
        """Turn the executor's reports into events."""
        for report in self._executor.reports():
            key = (report.job, report.attempt)
            if type(report) in _BEGUN:
                self._running.add(key)
            else:
                self._running.discard(key)
            if type(report) is Ended and has_no_room(report) and report.at >= self._opened_at:
                self.problem = StoreFull(
                    "disk-full",
                    "the disk is full: there is no room for what steps print",
                    hint=f"make room, then `resile resume {self._lease.run}`",
                )
                self._interrupts = max(1, self._interrupts)
            event, row = self._observer.observe(report, interrupted=self._interrupts > 1)
            if row is not None and row.log is not None and type(report) in _OVER:
                self._logfiles.write(row, at_once=row.failure is not None and self._has_repairs(row.job))
            self._inbox.append((event, row))

    def _collect_others(self, now: float) -> None:
        """Collect due timers and requests, and act on interrupts."""
        while self._timers and self._timers[0][0] <= now and not self._interrupts:
            _, job, attempt, repair, item = heapq.heappop(self._timers)
            self._inbox.append((TimerFired(now, job, attempt, repair, item), None))
        if now >= self._next_requests:
            self._next_requests = now + REQUESTS_SECONDS
            for request in self._store.requests(self._lease.run, self._last_request):
                self._last_request = request.id
                self._handle_request(request, now)
        if self._interrupts:
            self._wind_down()

    def _keep_lease(self) -> None:
        """Renew the lease in time; raises LeaseHeld in an engine that was stopped so long that another has the run.

        Every turn of the loop begins with this, and every start of an attempt, because a stop can be at any moment.
        """
        now = self._clock.now()
        if now >= self._next_renewal:
            self._next_renewal = now + LEASE_SECONDS / 3
            self._store.renew_lease(self._lease, now - self._clock.machine.clock_offset, LEASE_SECONDS)

    def _has_repairs(self, number: int) -> bool:
        """Could a failure of this job start a repair, which reads its log files?"""
        job = self._state.jobs.get(number)
        return job is not None and any(rule.repair is not None for rule in self._state.step_of(job).rules)

    def _handle_request(self, request: Request, now: float) -> None:
        """Turn a request of another process into an event of this moment; the batch with that event answers it."""
        self._journal.answer(request.id)
        match request.kind:
            case "cancel":
                by, reason = str(request.body.get("by", "")), str(request.body.get("reason", ""))
                self._inbox.append((CancelRequested(now, by, reason), None))
            case "judge":
                self._inbox.append((msgspec.convert({**request.body, "at": now}, Judged), None))

    def _wind_down(self) -> None:
        """Start nothing more, and stop once nothing runs; after a second interrupt kill what runs."""
        if not self._drained:
            self._drained = True
            self._executor.drain()
        if self._interrupts > 1:
            # Also kill attempts that had started before and are reported only now.
            for job, attempt in sorted(self._running - self._killed):
                self._executor.kill(job, attempt)
            self._killed |= self._running
        while self._interrupted:
            self._interrupted.popleft()()
        if not self._running and not self._executor.queued_count() and self._stop is None:
            self._stop = "interrupted"

    def _submit(self, now: float) -> None:
        """Submit the journal to the writer, unless it pays to collect more first.

        It does while no order waits for the commit, or the executor has enough attempts queued.
        """
        if not self._journal.has_entries():
            return
        idle = self._journal.has_orders() and not self._executor.queued_count()
        if idle or now >= self._gather_until:
            self._journal.submit(self._state, at_once=idle)

    def _perform_durable(self) -> None:
        """Perform the orders that are durable, and pass their notes to the listener."""
        orders, notes = self._journal.take_durable()
        launches: list[Launch] = []
        finds: dict[tuple[int, int], bool] = {}
        for order in orders:
            self._perform(order, launches, finds)
        if finds:
            self._executor.find(finds)
        if launches:
            self._executor.start(launches)
        # After the starts, so that a slow listener delays no attempt.
        if notes:
            self._listener(self._state, notes)
        if not self._journal.is_unfinished():
            self._executor.acknowledge()

    def _perform(self, order: actions.Order, launches: list[Launch], finds: dict[tuple[int, int], bool]) -> None:
        """Perform one order."""
        match order:
            case actions.StartAttempt():
                if not self._interrupts:
                    self._start(order, launches)
            case actions.KillAttempt():
                # First pass on the attempts that were to start before this order.
                self._executor.start(launches)
                launches.clear()
                self._executor.kill(order.job, order.attempt)
            case actions.FindAttempt():
                finds[order.job, order.attempt] = order.in_doubt
            case actions.AnswerCondition() | actions.AnswerArcs() | actions.AnswerRoute() | actions.AnswerValue():
                # A stopped job may have been dropped with its item.
                if order.job in self._state.jobs and self.problem is None:
                    self._answer(order)
            case actions.SetTimer():
                heapq.heappush(self._timers, (order.due, order.job, order.attempt, order.repair, order.item))
            case actions.ReadItems():
                self._inbox.append((self._performer.read_items(order, self._clock.now()), None))
            case actions.ReadGroups():
                self._inbox.append((self._performer.read_groups(order, self._clock.now()), None))
            case actions.StopEngine():
                self._stop = order.status
            case _:
                assert_never(order)

    def _answer(self, order: actions.Question) -> None:
        """Answer a question of the core; one that can't be answered stops the run, and the next engine answers it."""
        try:
            self._inbox.append((self._conditions.answer(order, self._clock.now()), None))
        except ResileError as problem:
            self.problem = problem
            self._interrupts = max(1, self._interrupts)

    def _start(self, order: actions.StartAttempt, launches: list[Launch]) -> None:
        """Start an attempt, or record its outcome if nothing needs to start."""
        self._keep_lease()
        launch = self._performer.launch(order)
        if isinstance(launch, Launch):
            launches.append(launch)
        else:
            self._inbox.append(self._observer.end_attempt(order.job, order.attempt, self._clock.now(), launch))

    def _next_deadline(self) -> float:
        """Until when the loop may wait for descriptors."""
        until = min(self._next_requests, self._next_renewal)
        if self._journal.has_entries():
            until = min(until, self._gather_until)
        if self._timers and not self._interrupts:
            until = min(until, self._timers[0][0])
        return until
