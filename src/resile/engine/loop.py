"""The engine: fold, decide, append in group commits, and only then perform.

                 reports, timers, requests, signals
                                |
                              event
                                v
    react(state, event) --> notes + orders --> journal --> writer thread (one transaction)
                                                              |
              perform (executor, timers, conditions) <-- orders, once durable

One thread, one loop: `drive` for the engine of one run; a host (host/) calls the `turn` of each of its engines that has
something to do. An evaluation that waits for another process is left and entered again later (beside.py): the answer to
a question, the launch of an attempt or the end of one then comes some turns later. Time comes from the clock, and every
event has the time at which the loop read it.
While the executor has attempts in reserve, or no order waits for a commit, the engine collects events for a few
milliseconds before it commits; otherwise it commits at once.
"""

from __future__ import annotations

import os
import select
from _heapq import heappop, heappush
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, assert_never

import msgspec

from resile.core import actions
from resile.core.events import AttemptWithdrawn, Event, RunResumed, RunStarted, TimerFired
from resile.core.react import react
from resile.core.state import State
from resile.engine.clock import Clock
from resile.engine.evaluation import evaluators
from resile.engine.evaluation.questions import Conditions
from resile.engine.journal import Journal
from resile.engine.launch import Performer
from resile.engine.log_files import LogFiles
from resile.engine.neighbours.lease_keeper import LeaseKeeper, OwnLease
from resile.engine.outcomes import Observer, has_no_room
from resile.errors import ResileError
from resile.executors.contract import Adopted, Ended, Executor, Launch, Report, Returned, Scheduling, Started
from resile.model.status import RunStatus
from resile.store.contract import AttemptRow, Lease, Request, Store, Writer
from resile.store.errors import StoreError, StoreFull

if TYPE_CHECKING:
    from resile.engine.evaluation.beside import Evaluations, Take
    from resile.engine.monitoring.sampler import Monitor

REQUESTS_SECONDS = 0.2
# A request whose ring got lost is found after this many seconds.
REQUESTS_WITH_BELL_SECONDS = 2.0
NEVER = float("inf")
_BEGUN = frozenset((Started, Adopted))
_OVER = frozenset((Ended, Returned))

Listener = Callable[[State, list[actions.Note]], None]
# Interrupts the engine, for example on Ctrl-C; calls its argument once the executor has the interrupt.
Interrupt = Callable[[Callable[[], None]], None]


class Host(LeaseKeeper, Protocol):
    """Drives many engines: it keeps their leases, passes requests to them and lets them turn."""

    def wake(self) -> None:
        """Let this engine make a turn; safe in any thread."""


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
        monitor: Monitor | None = None,
        scheduling: Scheduling | None = None,
        host: Host | None = None,
    ) -> None:
        """`host` drives many engines; without one this engine has a loop of its own."""
        self._clock = clock
        self._host = host
        self._store = store
        self._writer = writer
        self._lease = lease
        self._bell = store.bell(lease.run) if host is None else None
        self._state = state
        self._executor = executor
        self._performer = performer
        self._observer = observer
        self._conditions = conditions
        self._journal = journal
        self._logfiles = logfiles
        self._listener = listener
        self._monitor = monitor
        self._scheduling = scheduling
        self._inbox: deque[tuple[Event, AttemptRow | None]] = deque()
        self._timers: list[tuple[float, int, int, bool, int]] = []
        self._launches: list[Launch] = []
        self._evaluations: Evaluations | None = None
        # The attempts whose ends are being evaluated: the executor keeps the reports of their ends.
        self._unrecorded: set[tuple[int, int]] = set()
        self._running: set[tuple[int, int]] = set()
        self._stop: RunStatus | None = None
        self._interrupts = 0
        self._interrupted: deque[Callable[[], None]] = deque()
        self._opened_at = clock.now()
        self.problem: ResileError | None = None
        self.outcome: RunStatus | None = None
        self._drained = False
        self._killed: set[tuple[int, int]] = set()
        # A host brings the requests.
        self._next_requests = 0.0 if host is None else NEVER
        self._last_request = 0
        self._keeper: LeaseKeeper = OwnLease(store, lease, clock) if host is None else host
        self._wake_read = self._wake_write = -1
        if host is None:
            self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def interrupt(self, done: Callable[[], None]) -> None:
        """Stop gently; a second call kills the running attempts. The engine calls `done` once the executor has the
        interrupt.

        Safe in a signal handler.
        """
        self._interrupts += 1
        self._interrupted.append(done)
        self._wake()

    def _wake(self) -> None:
        """Let the loop make a turn."""
        if self._host is not None:
            self._host.wake()
            return
        # A full pipe wakes the loop as well.
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    def begin(self, events: list[Event]) -> None:
        """Feed the first events."""
        for event in events:
            if isinstance(event, RunResumed | RunStarted):
                self._journal.forget_orders()
            self.feed(event)
            if isinstance(event, RunStarted) and event.cached is None:
                self._journal.skip_ready(self._state)

    def turn(self, has_reports: bool) -> bool:
        """Do all that can be done now, without waiting; True where another turn is due at once.

        Once there is nothing left to do, `outcome` is set. After a turn the engine wants another one when the executor
        has reports, the writer has advanced, or `deadline` has come.
        """
        now = self._clock.now()
        self._keeper.keep()
        if has_reports:
            self._collect_reports()
        if self._evaluations is not None:
            self._evaluations.go_on()
        self._collect_others(now)
        if self._inbox:
            self._feed_all()
        self._submit(now)
        self._perform_durable()
        if self._inbox:
            return True
        if self._stop == "parked" and self._state.active:
            # A judgement came after the last order of the core, which had nothing left to do.
            self._stop = None
        if self._stop is not None and not self._journal.is_unfinished():
            self.outcome = self._stop
        return False

    def drive(self, events: list[Event]) -> RunStatus:
        """Feed these events, and drive the run until there is nothing left to do."""
        self.begin(events)
        poll = select.poll()
        for descriptor in (self._executor.fileno(), self._writer.fileno(), self._wake_read):
            poll.register(descriptor, select.POLLIN)
        if self._bell is not None:
            poll.register(self._bell.fileno(), select.POLLIN)
        has_reports = True
        while self.outcome is None:
            if self.turn(has_reports):
                has_reports = False
                continue
            if self.outcome is not None:
                break
            ready = self._clock.wait(poll, self.deadline())
            has_reports = self._executor.fileno() in ready
            if self._wake_read in ready:
                os.read(self._wake_read, 64)
            if self._bell is not None and self._bell.fileno() in ready:
                self._bell.clear()
                self._next_requests = 0.0
        return self.outcome

    def feed(self, event: Event, attempt: AttemptRow | None = None) -> None:
        """Let the core react to one event, and add it to the journal."""
        _, caused = react(self._state, event)
        self._journal.add(self._state, event, caused, attempt)

    def _feed_all(self) -> None:
        """Feed everything in the inbox, in order; the first event opens a new batch."""
        if not self._journal.has_entries():
            self._journal.gathers_since = self._clock.now()
        inbox = self._inbox
        while inbox:
            event, attempt = inbox.popleft()
            self.feed(event, attempt)

    def close(self, finished: bool) -> None:
        """Close everything; attempts that still run go on. If `finished`, no attempt is open in the log."""
        if self._monitor is not None:
            self._monitor.close()
        if self._evaluations is not None:
            self._evaluations.close()
        # An engine that ends with an error, that of a lost lease for example, does not raise the writer's as well.
        with suppress(StoreError):
            self._writer.flush()
        self._executor.close(finished=finished)
        self._conditions.close()
        self._logfiles.close()
        if self._bell is not None:
            self._bell.close()
        if self._host is None:
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _collect_reports(self) -> None:
        """Turn the executor's reports into events."""
        if self._scheduling is not None:
            self._inbox.extend((news, None) for news in self._scheduling.take_news())
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
            observe = partial(self._observer.observe, report, interrupted=self._interrupts > 1)
            job = self._state.jobs.get(report.job) if type(report) in _OVER else None
            step = None if job is None else self._state.step_of(job)
            if job is not None and step is not None and evaluators.end_may_wait(self._state, job, step):
                self._unrecorded.add(key)
                record = partial(self._record, report)
                self._evaluate(("end", *key), observe, record, writes=evaluators.writes_memory(step))
            else:
                self._record(report, observe)

    def _record(self, report: Report, observe: Take) -> None:
        """Record what an executor reported."""
        try:
            event, row = observe()
        except ResileError as problem:
            # The report stays unrecorded: the next engine gets it again.
            self._unrecorded.add((report.job, report.attempt))
            self._stop_for(problem)
            return
        self._unrecorded.discard((report.job, report.attempt))
        if row is not None and row.log is not None and type(report) in _OVER:
            self._logfiles.write(row, at_once=row.failure is not None and self._has_repairs(row.job))
        self._inbox.append((event, row))

    def _collect_others(self, now: float) -> None:
        """Collect due timers and requests, and act on interrupts."""
        while self._timers and self._timers[0][0] <= now and not self._interrupts:
            _, job, attempt, repair, item = heappop(self._timers)
            self._inbox.append((TimerFired(now, job, attempt, repair, item), None))
        if now >= self._next_requests:
            rings = self._bell is not None and self._bell.live
            self._next_requests = now + (REQUESTS_WITH_BELL_SECONDS if rings else REQUESTS_SECONDS)
            for request in self._store.requests(self._lease.run, self._last_request):
                self._last_request = request.id
                self.take_request(request)
        if self._interrupts:
            self._wind_down()

    def _has_repairs(self, number: int) -> bool:
        """Could a failure of this job start a repair, which reads its log files?"""
        job = self._state.jobs.get(number)
        return job is not None and any(rule.repair is not None for rule in self._state.step_of(job).rules)

    def take_request(self, request: Request) -> None:
        """Turn a request of another process into an event of this moment; the batch with that event answers it."""
        from resile.engine.neighbours.requests import answer_request

        # The first of two judges wins: each request sees the changes of earlier ones.
        self._feed_all()
        event, result = answer_request(self._state, request, self._clock.now())
        self._journal.answer(request.id, result)
        if event is not None:
            self.feed(event)

    def waits_until(self) -> float | None:
        """The time of the timer for which the run waits; infinity if it waits for a request, None if it is at work."""
        busy = self._running or self._inbox or self._state.in_flight or self._journal.is_unfinished()
        if busy or self._is_at_work() or self._interrupts or self._stop is not None:
            return None
        return self._timers[0][0] if self._timers else NEVER

    def _is_at_work(self) -> bool:
        """Is something evaluated, or does an attempt wait for a slot?"""
        is_evaluating = self._evaluations is not None and self._evaluations.are_open()
        return is_evaluating or self._executor.queued_count() > 0

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
            if self._evaluations is not None:
                # The next engine asks again, and gets the unrecorded reports again.
                self._evaluations.drop_all()
        while self._interrupted:
            self._interrupted.popleft()()
        if not self._running and not self._is_at_work() and self._stop is None:
            self._stop = "interrupted"

    def _submit(self, now: float) -> None:
        """Submit the journal to the writer, unless it pays to collect more first.

        It does while no order waits for the commit, or the executor has enough attempts queued.
        """
        if not self._journal.has_entries():
            return
        idle = self._journal.has_orders() and not self._executor.queued_count()
        if idle or now >= self._journal.gathers_until(self._host is not None):
            self._journal.submit(self._state, at_once=idle)

    def _perform_durable(self) -> None:
        """Perform the orders that are durable, and pass their notes to the listener."""
        orders, notes = self._journal.take_durable()
        finds: dict[tuple[int, int], bool] = {}
        for order in orders:
            self._perform(order, finds)
        if finds:
            self._executor.find(finds)
        self._start_launches()
        # After the starts, so that a slow listener delays no attempt.
        if notes and self._monitor is not None:
            self._monitor.note(notes)
        if notes:
            self._listener(self._state, notes)
        if not (self._journal.is_unfinished() or self._inbox or self._unrecorded):
            self._executor.acknowledge()

    def _start_launches(self) -> None:
        """Pass the attempts that are ready to start to the executor."""
        if self._launches:
            launches, self._launches = self._launches, []
            self._executor.start(launches)

    def _perform(self, order: actions.Order, finds: dict[tuple[int, int], bool]) -> None:
        """Perform one order."""
        match order:
            case actions.StartAttempt():
                if not self._interrupts:
                    self._start(order)
            case actions.KillAttempt():
                self._kill(order)
            case actions.FindAttempt():
                finds[order.job, order.attempt] = order.in_doubt
            case actions.AnswerCondition() | actions.AnswerArcs() | actions.AnswerRoute() | actions.AnswerValue():
                # A stopped job may have been dropped with its item.
                if order.job in self._state.jobs and self.problem is None:
                    self._ask(order)
            case actions.SetTimer():
                heappush(self._timers, (order.due, order.job, order.attempt, order.repair, order.item))
            case actions.ReadItems():
                self._inbox.append((self._performer.read_items(order, self._clock.now()), None))
            case actions.ReadGroups():
                self._inbox.append((self._performer.read_groups(order, self._clock.now()), None))
            case actions.ScheduleNodes():
                if self._scheduling is not None and not self._interrupts:
                    self._scheduling.schedule(order)
            case actions.StopEngine():
                self._stop = order.status
            case _:
                assert_never(order)

    def _evaluate(self, key: tuple[Any, ...], make: Take, done: Callable[[Take], None], *, writes: bool) -> None:
        """Run an evaluation that may wait; `done` then takes its result, now or in a later turn."""
        if self._evaluations is None:
            from resile.engine.evaluation.beside import Evaluations

            self._evaluations = Evaluations(self._wake, self._clock.now)
        self._evaluations.begin(key, make, done, writes=writes)

    def _ask(self, order: actions.Question) -> None:
        """Find the answer to a question of the core. A later question of the same job replaces it."""
        answer = partial(self._conditions.answer, order, self._clock.now())
        # A question that needs no evaluation keeps its place behind those that are being evaluated.
        keeps_order = self._evaluations is not None and self._evaluations.are_open()
        if keeps_order or evaluators.question_may_wait(self._state, order):
            writes = evaluators.answer_writes_memory(self._state, order)
            self._evaluate(("question", order.job), answer, partial(self._answer, order), writes=writes)
        else:
            self._answer(order, answer)

    def _answer(self, order: actions.Question, take: Take) -> None:
        """Answer a question of the core. If that is impossible, stop the run; the next engine answers the question."""
        try:
            event = take()
        except ResileError as problem:
            self._stop_for(problem)
        except KeyError:
            # While it was evaluated, its job may have been dropped with its item.
            if order.job in self._state.jobs:
                raise
        else:
            self._inbox.append((msgspec.structs.replace(event, at=self._clock.now()), None))

    def _stop_for(self, problem: ResileError) -> None:
        """Stop the run because of a problem that is not the workflow's; a resume goes on from there."""
        self.problem = self.problem or problem
        self._interrupts = max(1, self._interrupts)

    def _start(self, order: actions.StartAttempt) -> None:
        """Prepare an attempt, and start it, or record its outcome if nothing needs to start."""
        # Before each start, because the process may have been stopped at any moment.
        self._keeper.keep()
        launch = partial(self._performer.launch, order)
        job = self._state.jobs[order.job]
        step = self._state.step_of(job)
        if evaluators.start_may_wait(self._state, job, step):
            key = "start", order.job, order.attempt
            self._evaluate(key, launch, partial(self._launch, order), writes=evaluators.writes_memory(step))
        else:
            self._launch(order, launch)

    def _launch(self, order: actions.StartAttempt, take: Take) -> None:
        """Start an attempt that is prepared, unless the engine was interrupted meanwhile."""
        try:
            launch = take()
        except ResileError as problem:
            self._stop_for(problem)
            launch = None
        if launch is not None and not isinstance(launch, Launch):
            self._inbox.append(self._observer.end_inside(order.job, order.attempt, self._clock.now(), launch))
        elif launch is None or self._interrupts:
            self._withdraw(order.job, order.attempt)
        else:
            self._launches.append(launch)

    def _kill(self, order: actions.KillAttempt) -> None:
        """End an attempt; an attempt that is still being prepared never starts."""
        if self._evaluations is not None and self._evaluations.drop(("start", order.job, order.attempt)):
            self._withdraw(order.job, order.attempt)
            return
        # First pass on the attempts that were to start before this order.
        self._start_launches()
        self._executor.kill(order.job, order.attempt)

    def _withdraw(self, job: int, attempt: int) -> None:
        """Record that an attempt never starts."""
        self._performer.remove_files(job, attempt)
        self._inbox.append((AttemptWithdrawn(self._clock.now(), job, attempt), None))

    def deadline(self) -> float:
        """Until when the loop may wait for descriptors."""
        until = min(self._next_requests, self._keeper.next_renewal)
        if self._journal.has_entries():
            until = min(until, self._journal.gathers_until(self._host is not None))
        if self._timers and not self._interrupts:
            until = min(until, self._timers[0][0])
        if self._evaluations is not None:
            until = min(until, self._evaluations.deadline)
        return until
