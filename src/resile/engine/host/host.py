"""The host: one thread that drives many runs.

    store: due runs, requests --> opening --> engines, turn by turn --> hub: slots --> launcher
                                                 |
                                                 +--> one writer: batches of many runs in one transaction

The host takes due runs under leases of 15 s, which it renews every 5 s. It drives a run until the run ends, parks, or
only waits for more than 5 s. It hands a run that only waits back to the store, with the time when it is due again. If a
host dies, another one takes its runs: on the same machine at once, on another when the leases have expired.
"""

from __future__ import annotations

import heapq
import os
import select
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from threading import Thread
from typing import TypeVar

from msgspec.structs import replace

from resile.core.events import Capacity
from resile.engine.clock import clock_of
from resile.engine.host.driven import DrivenRun
from resile.engine.host.errands import Errands
from resile.engine.host.opening import Redrive, open_run, refuse_blocks_here, write_results
from resile.engine.host.parts import HostParts
from resile.engine.host.releases import Releases
from resile.engine.host.statistics import Statistics
from resile.engine.host.workers import Workers
from resile.engine.loop import Listener
from resile.engine.paths import own_folder
from resile.engine.replay import fold_log, row_of
from resile.engine.resources import CPUS_MAX, GPUS_MAX, MEMORY_BYTES_MAX, measure, visible_gpus
from resile.engine.run_executor import Hosting, closing_of
from resile.engine.secrets import FixedEnvironment
from resile.engine.session import ServerAccess, Session
from resile.errors import ResileError
from resile.executors.shared.places import Room
from resile.model.workflow import Workflow
from resile.store.contract import Lease, Request, Writer
from resile.store.errors import LeaseHeld, StoreError
from resile.store.lease import boot_seconds
from resile.store.server_tables import SharedStore, Submission

LEASE_SECONDS = 15.0
RENEW_SECONDS = 5.0
# Seconds between two looks at the store: without a bell, and with a bell, because a ring may get lost.
LOOK_SECONDS, LOOK_WITH_BELL_SECONDS = 0.25, 2.0
# The pause between two looks at the store where rings ask for them, so that many rings cost one look.
LOOK_AGAIN_SECONDS = 0.05
# How many runs the host drives at most, and how many it takes in one look.
DRIVEN_MAX, TAKEN_MAX = 512, 64
# The pause before the host tries again to drive a run that it had to leave, for example because of a full disk.
AGAIN_SECONDS = 30.0
# How long a stopping host waits for a second signal, which kills the running steps: people press Ctrl-C twice.
SECOND_STOP_SECONDS = 2.0
# How long a stopping host waits until Parsl and the batch system have ended the blocks of its runs.
CLOSE_SECONDS_MAX = 4.0

Log = Callable[[str], None]
T = TypeVar("T")


class Host:
    """Drives the due runs of a store. Any thread may call the public methods, but only the host may use the store."""

    def __init__(
        self,
        store: SharedStore,
        output: str,
        *,
        slots: int,
        labels: frozenset[str] = frozenset(),
        env: Mapping[str, str] | None = None,
        log: Log = lambda _: None,
        redrive: Redrive | None = None,
        api_url: str = "",
        step_token: Callable[[int, Workflow], str] = lambda _run, _workflow: "",
        listener: Listener = lambda _state, _notes: None,
        note_commit: Callable[[float], None] | None = None,
    ) -> None:
        """`output` is the output folder; `env` is the environment of steps, by default that of this process.

        Steps get the address `api_url`, and the token that `step_token` makes for their run. The host passes the events
        of all runs to the `listener` once they are durable, and the seconds of each transaction to `note_commit`.
        """
        self._api_url, self._step_token = api_url, step_token
        self._store, self._listener = store, listener
        self._tables = store.server_tables()
        self._env = FixedEnvironment(os.environ if env is None else env)
        self._log, self._redrive = log, redrive
        machine = measure(None, None, None, None)
        # Attempts wait in the hub, so that a slot never waits for a commit. The engine reserves none before its needs
        # hold, and sees no limits, because the hub checks whether an attempt fits into a place.
        self._machine: Capacity = replace(machine, early=0, cpus=CPUS_MAX, memory_bytes=MEMORY_BYTES_MAX, gpus=GPUS_MAX)
        gpus = visible_gpus(os.environ) or [str(number) for number in range(machine.gpus)]
        self._parts = HostParts(store, output, slots, labels, Room(machine.cpus, machine.memory_bytes, gpus))
        self.hub, self._writer, self._bell = self._parts.hub, self._parts.writer, self._parts.bell
        self._writer.note_commit = note_commit
        self.slots = slots
        self._workers = Workers(self.hub, self._tables)
        self._errands = Errands(self._wake)
        self._driven: dict[int, DrivenRun] = {}
        self._by_share: dict[Writer, DrivenRun] = {}
        self._deadlines: list[tuple[float, int, DrivenRun]] = []
        self._numbers = count()
        self._releases = Releases(self._tables, self._wake, log)
        self._due: set[int] = set()
        self._woken: deque[int] = deque()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._look_at = self._renew_at = self._workers_at = self._release_at = boot_seconds()
        self._looked_at, self._held_until, self._stops = 0.0, 0.0, 0
        self._poll = select.poll()
        self._polled: dict[int, int] = {}
        self.statistics = Statistics(slots=slots)
        self.error: BaseException | None = None
        self._thread = Thread(target=self._work, name="resile-host", daemon=True)

    # --- for the server's other threads

    def start(self) -> None:
        """Begin to drive."""
        self._thread.start()

    def ring(self) -> None:
        """Look at the store soon: a run is due, or has a request."""
        self._look_soon()
        os.eventfd_write(self._wakeup, 1)

    def call(self, function: Callable[[Workers], T]) -> Future[T]:
        """Call a function in the thread of the host, with the workers."""
        return self._errands.add(lambda: function(self._workers))

    def stop(self, *, kill: bool = False) -> None:
        """Start nothing more and leave the runs to the next host; steps go on, unless `kill`."""
        self._stops = max(self._stops, 2 if kill else 1)
        os.eventfd_write(self._wakeup, 1)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the host has stopped; raises the error that stopped it."""
        self._thread.join(timeout_seconds)
        if self.error is not None:
            raise self.error
        return not self._thread.is_alive()

    def hand_back(self) -> None:
        """Release the leases that this host still holds after its store failed: the next host takes the runs."""
        self._releases.wait(CLOSE_SECONDS_MAX)

    # --- the thread

    def _work(self) -> None:
        """Drive runs until `stop` or an error."""
        try:
            for descriptor in (self.hub.fileno(), self._writer.fileno(), self._wakeup):
                self._poll.register(descriptor, select.POLLIN)
            if self._bell is not None:
                self._poll.register(self._bell.fileno(), select.POLLIN)
            while not self._stops:
                self._go_round()
            self._await_second_stop()
            if self._stops > 1:
                self._kill_steps()
            self._leave()
        except BaseException as error:
            self.error = error
            self._log(f"the host stops: {error}")
        finally:
            self._close()

    def _go_round(self) -> None:
        """Do everything that is due, then wait."""
        self._errands.run()
        now = boot_seconds()
        self._workers_at = self._workers.look(now)
        if now >= self._renew_at:
            self._renew(now)
        if now >= self._look_at:
            self._look(now)
        self._turn_all(now)
        self.hub.assign()
        self._release_at = self._releases.look(now)
        self._sleep()

    def _sleep(self) -> None:
        """Wait until something happens or is due."""
        until = min(self._look_at, self._renew_at, self._workers_at, self._release_at)
        if self._deadlines:
            until = min(until, self._deadlines[0][0])
        self.hub.local.gather()
        ready = self._poll.poll(max(0.0, until - boot_seconds()) * 1000 + 1 if not self._due else 0)
        for descriptor, _ in ready:
            if descriptor == self._wakeup:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wakeup)
            elif descriptor in self._polled:
                self._due.add(self._polled[descriptor])
        if self._bell is not None and any(descriptor == self._bell.fileno() for descriptor, _ in ready):
            self._bell.clear()
            self._look_soon()

    def _look_soon(self) -> None:
        """Look at the store at once, or LOOK_AGAIN_SECONDS after the last look."""
        self._look_at = min(self._look_at, max(boot_seconds(), self._looked_at + LOOK_AGAIN_SECONDS))

    def _renew(self, now: float) -> None:
        """Renew all leases, and drop the runs whose leases are lost."""
        leases = [*(driven.lease for driven in self._driven.values()), *self._releases.leases_to_renew()]
        for lost in self._tables.renew_leases(leases, now, LEASE_SECONDS) if leases else ():
            if lost.run in self._driven:
                self._lose(self._driven[lost.run])
        self._renew_at = now + RENEW_SECONDS
        self._held_until = now + LEASE_SECONDS
        self._forget_records()

    def _is_held(self, lease: Lease) -> bool:
        """Does this host still hold the lease? The answer comes from its clock, without asking the store."""
        driven = self._driven.get(lease.run)
        return driven is not None and driven.lease is lease and boot_seconds() < self._held_until

    def _wake(self) -> None:
        os.eventfd_write(self._wakeup, 1)

    def _wake_run(self, run: int) -> None:
        self._woken.append(run)
        os.eventfd_write(self._wakeup, 1)

    # --- taking runs

    def _look(self, now: float) -> None:
        """Look for requests to driven runs, and for runs that are due."""
        self.statistics.driven, self.statistics.running = len(self._driven), self.hub.running_count()
        self.statistics.waiting, self.statistics.workers = self.hub.waiting_count(), self._workers.count()
        rings = self._bell is not None and self._bell.live
        self._looked_at, self._look_at = now, now + (LOOK_WITH_BELL_SECONDS if rings else LOOK_SECONDS)
        if self._driven:
            for request in self._store.requests(0):
                driven = self._driven.get(request.run)
                if driven is None or driven.drive is None or driven.ends or request.id in driven.requests_seen:
                    continue
                driven.requests_seen.add(request.id)
                driven.drive.engine.take_request(request)
                self._due.add(request.run)
        room = min(TAKEN_MAX, DRIVEN_MAX - len(self._driven))
        if room > 0:
            due = self._tables.take_due(time.time(), now, LEASE_SECONDS, room)
            self._take_all(due)
            if len(due) == room:
                # More runs may be due: look again after one turn of the driven runs.
                self._look_at = now

    def _take_all(self, due: list[tuple[Submission, Lease]]) -> None:
        """Begin to drive these runs; if the store fails, hand back those that are left."""
        left = deque(due)
        try:
            asked = self._store.requests(0) if due else []
            while left:
                submission, lease = left[0]
                self._take(submission, lease, [one for one in asked if one.run == lease.run])
                left.popleft()
        except BaseException:
            # A lease that nothing hands back would look to the next host like that of another server.
            for _, lease in left:
                if lease.run not in self._driven:
                    self._releases.hand_back(lease, time.time())
            raise

    def _take(self, submission: Submission, lease: Lease, requests: list[Request]) -> None:
        """Begin to drive a run."""
        try:
            self._open(lease, submission, requests)
        except StoreError:
            raise
        except ResileError as error:
            self._log(f"run {lease.run} can't be driven: {error.message}")
            self._drop(lease.run)
            self._releases.hand_back(lease, time.time() + AGAIN_SECONDS)

    def _open(self, lease: Lease, submission: Submission, requests: list[Request]) -> None:
        """Fold a run, answer the requests to it, and open its engine."""
        row = row_of(self._store, lease.run)
        state = fold_log(self._store, row)
        if not self.slots:
            refuse_blocks_here(state.workflow)
        clock = clock_of(state)
        opening = open_run(self._store, row, state, requests, self._machine, clock, self._redrive)
        if not opening.events:
            write_results(self._writer, lease, opening.results)
            self._releases.end(lease)
            return
        if state.phase == "new":
            row = own_folder(self._store, row)
        driven = DrivenRun(lease, clock, self._is_held, self._wake_run)
        driven.requests_seen = {request.id for request in requests}
        self._driven[lease.run] = driven
        self._held_until = self._held_until or boot_seconds() + LEASE_SECONDS
        api = ServerAccess(self._api_url, self._step_token(row.id, state.workflow))
        session = Session(self._store, row, state, env=self._env, listener=self._listener, clock=clock, api=api)
        share = self._writer.share()
        hosting = Hosting(self.hub, submission.priority, is_new=state.phase == "new")
        driven.drive = session.open(lease, opening.events, share, opening.parallel, hosting=hosting, host=driven)
        self._by_share[share] = driven
        self._poll_executor(driven)
        driven.drive.write_opening_row()
        for number, result in opening.results.items():
            driven.drive.journal.answer(number, result)
        driven.begin(row)
        for request in opening.left:
            driven.drive.engine.take_request(request)
        self._due.add(lease.run)
        self.statistics.taken += 1

    def _poll_executor(self, driven: DrivenRun) -> None:
        """Poll the descriptors of a run beside the shared launcher: its functions, and launchers of earlier hosts."""
        assert driven.drive is not None
        for descriptor in self.hub.descriptors_of(driven.run, driven.drive.executor):
            self._polled[descriptor] = driven.run
            self._poll.register(descriptor, select.POLLIN)

    # --- driving

    def _turn_all(self, now: float) -> None:
        """Let those engines turn that were woken, or have reports, durable batches or a due timer."""
        due, self._due = self._due, set()
        reporting = self.hub.collect(now)
        for share in self._writer.take_advanced():
            driven = self._by_share.get(share)
            if driven is not None:
                due.add(driven.run)
        while self._woken:
            due.add(self._woken.popleft())
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, driven = heapq.heappop(self._deadlines)
            if driven.wakes_at <= now:
                due.add(driven.run)
        for run in reporting | due:
            driven_run = self._driven.get(run)
            if driven_run is not None:
                self._turn(driven_run, now)

    def _turn(self, driven: DrivenRun, now: float) -> None:
        """Let one engine turn; then keep its run, close it, or hand it back."""
        try:
            driven.turn(has_reports=True)
            if driven.is_over():
                self._let_go(driven)
                return
            if driven.look_ahead(now):
                self._hand_back(driven)
                return
        except LeaseHeld:
            self._lose(driven)
            return
        except StoreError:
            # `durable` raises the error if it stopped the writer for all runs; else only this run has it.
            self._writer.durable()
            self._give_up(driven, "its output can't be kept")
            return
        except ResileError as error:
            self._give_up(driven, error.message)
            return
        heapq.heappush(self._deadlines, (driven.wakes_at, next(self._numbers), driven))

    def _let_go(self, driven: DrivenRun) -> None:
        """Close a run that its engine has left."""
        assert driven.drive is not None
        engine, state = driven.drive.engine, driven.drive.state
        self._close_run(driven, finished=not state.in_flight)
        if engine.problem is not None:
            self._log(f"run {driven.run}: {engine.problem.message}")
            self._release(driven, time.time() + AGAIN_SECONDS)
        elif driven.has_ended():
            driven.drop_letters()
            self.statistics.ended += 1
            self._releases.end(driven.lease)
        else:
            self._release(driven, None if engine.outcome == "parked" else time.time())

    def _hand_back(self, driven: DrivenRun) -> None:
        """Write a snapshot of a run that only waits, and forget it until its time comes."""
        assert driven.drive is not None
        due_at = driven.due_at()
        driven.drive.journal.submit(driven.drive.state, snapshot=True)
        driven.drive.writer.flush()
        self._close_run(driven, finished=not driven.drive.state.in_flight)
        self._release(driven, due_at)

    def _release(self, driven: DrivenRun, due_at: float | None) -> None:
        """Release the lease of a closed run after this round."""
        self._releases.hand_back(driven.lease, due_at)

    def _lose(self, driven: DrivenRun) -> None:
        """Drop a run that another engine has taken, and end its attempts on this host."""
        self.statistics.lease_losses += 1
        self._log(f"run {driven.run} was taken over by another process")
        self.hub.abandon(driven.run)
        self._close_run(driven, finished=False)

    def _give_up(self, driven: DrivenRun, why: str) -> None:
        """Leave a run that this host can't drive now; a host tries it again later."""
        self._log(f"run {driven.run} can't be driven: {why}")
        self._close_run(driven, finished=False)
        self._release(driven, time.time() + AGAIN_SECONDS)

    def _close_run(self, driven: DrivenRun, *, finished: bool) -> None:
        """Close the engine of a run; its steps go on."""
        assert driven.drive is not None
        for descriptor in [one for one, run in self._polled.items() if run == driven.run]:
            del self._polled[descriptor]
            self._poll.unregister(descriptor)
        driven.drive.engine.close(finished)
        self._releases.note_closing(driven.run, closing_of(driven.drive.state, driven.drive.executor))
        driven.drive.writer.close()
        self._drop(driven.run)

    def _drop(self, run: int) -> None:
        """Remove a run from the driven ones."""
        driven = self._driven.pop(run, None)
        if driven is not None and driven.drive is not None:
            self._by_share.pop(driven.drive.writer, None)
            driven.wakes_at = float("inf")

    def _forget_records(self) -> None:
        """Forget the launcher's records from earlier hosts, for runs that this host will not drive soon."""
        now, wall = boot_seconds(), time.time()
        for run in self.hub.recorded_runs() - self._driven.keys():
            row, submission = self._store.run(run), self._tables.submission(run)
            due_at = None if submission is None else submission.due_at
            is_due = due_at is not None and due_at <= wall + AGAIN_SECONDS
            if row is None or not is_due:
                self.hub.forget_records(run)
            elif self._store.lease(run, now) is not None:
                # Another server drives the run, so its attempts on this machine must end.
                self.hub.end_records(run)
        self.hub.close_annexes()

    # --- stopping

    def _await_second_stop(self) -> None:
        """While steps run, wait SECOND_STOP_SECONDS for a second `stop`, which kills them; start nothing meanwhile."""
        until = boot_seconds() + SECOND_STOP_SECONDS
        while self._stops < 2 and self._has_steps() and boot_seconds() < until:
            self._go_round_while_stopping(until)

    def _has_steps(self) -> bool:
        """Do steps of driven runs run, in places of the hub or on blocks?"""
        return bool(self.hub.running_count()) or any(driven.has_blocks_at_work() for driven in self._driven.values())

    def _kill_steps(self) -> None:
        """End all steps that run, and wait until the store has recorded their ends."""
        for driven in self._driven.values():
            assert driven.drive is not None
            for _ in range(2):
                driven.drive.engine.interrupt(lambda: None)
        while self._driven:
            self._go_round_while_stopping()

    def _go_round_while_stopping(self, until: float = float("inf")) -> None:
        """Do everything that is due for the driven runs, then wait, at most until `until`; take no other runs."""
        self._errands.run()
        now = boot_seconds()
        self._workers_at = self._workers.look(now)
        if now >= self._renew_at:
            self._renew(now)
        self._look_at = until
        self._turn_all(now)
        self._release_at = self._releases.look(now)
        if self._driven:
            self._sleep()

    def _leave(self) -> None:
        """Flush the writer, and leave the runs to the next host; their steps go on."""
        for driven in list(self._driven.values()):
            assert driven.drive is not None
            try:
                driven.drive.journal.submit(driven.drive.state)
                driven.drive.writer.flush()
                self._close_run(driven, finished=False)
                self._release(driven, time.time())
            except LeaseHeld:
                self._lose(driven)
        self._releases.wait(CLOSE_SECONDS_MAX)

    def _close(self) -> None:
        """Close everything that the host opened."""
        for driven in list(self._driven.values()):
            self._release(driven, time.time())
            with suppress(Exception):
                self._close_run(driven, finished=False)
        with suppress(StoreError):
            self._workers.close()
        self._errands.close()
        self._parts.close()
