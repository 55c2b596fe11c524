"""The executor of Python functions: warm worker processes, or threads, beside the executor of commands.

    start --> call queue --> workers (pool.py) --> records --> Started / Returned / Ended
    find  --> spools of an earlier engine (spool.py), and its workers that still run: they are adopted

The executor sends one report for a short call, and two (start and end) for a longer one. It replaces a worker that
dies; the exit status says how its call failed. It replaces a thread that can't go on, whose call is lost. If the system
has no process or thread for a worker it tries again; if there is no worker at all for a minute, the calls fail. Time
limits: SIGTERM to the worker, SIGKILL after the grace time; a thread is abandoned and replaced. While calls run, a
ticker wakes the engine regularly to enforce the limits.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from errno import EAGAIN, ECHILD

from resile.executors.contract import Adopted, Ended, Launch, Lost, Records, Report, Started, Withdrawn
from resile.executors.fence import Fence
from resile.executors.functions import spool as function_spool
from resile.executors.functions.calls import Begun, Call, Done, Dropped, Functions, Record
from resile.executors.functions.patience import Patience, is_passing
from resile.executors.functions.pool import AdoptedWorker, ProcessWorker, SocketCallQueue, ThreadCallQueue, ThreadWorker
from resile.executors.functions.reports import (
    NO_LOG,
    NO_RECORD,
    log_of,
    log_start_of,
    returned_report,
    settle,
    terminated_report,
)
from resile.executors.functions.spool import FOLDER
from resile.executors.functions.waker import Waker
from resile.executors.functions.worker import Setting
from resile.executors.local.oom import OomCounter
from resile.executors.local.segments import SegmentReader
from resile.languages.python.modules import NO_HOME, Home
from resile.model.failure import Kind, LogRange
from resile.model.folders import make_folder

REPORT_START_SECONDS = 0.02
DEATHS_MAX = 3
# A worker that takes a call reports that at once.
PERHAPS_TAKEN_SECONDS = 5.0
Key = tuple[int, int]
AnyWorker = ProcessWorker | ThreadWorker | AdoptedWorker


class FunctionExecutor(SegmentReader):
    """Calls of Python functions for one run; see the Executor contract for the methods."""

    # Those of the executor of commands in the same folder say whether the folder is whole.
    records: Records = "here"

    def __init__(
        self,
        folder: str,
        *,
        slots: int,
        path: Sequence[str],
        env: Mapping[str, str],
        run: int = 0,
        epoch: int = 1,
        home: Home = NO_HOME,
        directory: str = "",
        fence: Fence,
        clock_offset: float = 0.0,
    ) -> None:
        """Open the run with this output folder; worker processes run in `directory`, by default our own."""
        super().__init__(folder)
        self._folder = os.path.join(os.path.abspath(folder), FOLDER)
        self._slots = slots
        self._fence = fence
        self._setting = Setting(
            path=list(path), run=run, epoch=epoch, home=home, clock_offset=clock_offset, fence=fence.path
        )
        self._env = dict(env)
        self._directory = directory or None
        self._oom_counter: OomCounter | None = None
        self._waiting: deque[Call] = deque()
        # Per queued call: will a thread make it?
        self._queued: dict[Key, bool] = {}
        self._processes: list[ProcessWorker] = []
        self._threads: list[ThreadWorker] = []
        self._adopted: list[AdoptedWorker] = []
        self._sockets: SocketCallQueue | None = None
        self._queue: ThreadCallQueue | None = None
        self._is_fenced = function_spool.fence_reader(fence.path)
        self._functions = Functions(run, epoch, home, clock_offset)
        self._ready: list[Report] = []
        self._perhaps_taken: dict[Key, float] = {}
        self._former_workers = function_spool.workers_in(self._folder)
        self._dead_workers: list[str] = []
        self._deaths_in_a_row = 0
        self._patience = Patience()
        self._unacknowledged = False
        self._token = os.urandom(4).hex()
        self._count = 0
        self._epoll = select.epoll()
        self._waker = Waker()
        self._epoll.register(self._waker.descriptor, select.EPOLLIN)

    # --- the contract

    def fileno(self) -> int:
        return self._epoll.fileno()

    def start(self, launches: Sequence[Launch]) -> None:
        self._fence.check()
        for launch in launches:
            assert launch.call is not None
            self._queued[launch.job, launch.attempt] = launch.threads
            if launch.threads:
                (self._queue or self._open_threads()).send(launch.call)
            else:
                self._waiting.append(launch.call)
        if self._waiting:
            self._offer()
        self._waker.start()

    def kill(self, job: int, attempt: int) -> None:
        key = (job, attempt)
        self._fence.check()
        if self._withdraw({key}):
            return
        for worker in self._workers():
            if worker.key == key and not worker.reason:
                self._terminate(worker, "killed", self._functions.now())
                return

    def find(self, attempts: Mapping[Key, bool]) -> None:
        known: dict[Key, tuple[str, Record]] = {}
        held = {base for base in self._former_workers if function_spool.is_alive(base)}
        for base in self._former_workers:
            for record in function_spool.records_of(base):
                known[record.job, record.attempt] = (base, record)
        for key, in_doubt in attempts.items():
            base, record = known.get(key, ("", Dropped(*key, self._functions.now())))
            if in_doubt and isinstance(record, Dropped):
                self._ready.append(Lost(*key, self._functions.now(), NO_RECORD))
            elif isinstance(record, Begun) and base in held:
                worker = AdoptedWorker(base, record, self._functions.now())
                self._adopted.append(worker)
                self._ready.append(Adopted(*key, record.at, worker.pid, log_start_of(record, base)))
            else:
                self._ready.append(settle(base, record, self._functions.now()))
        self._dead_workers += [base for base in self._former_workers if base not in held]
        self._former_workers = []
        self._waker.wake()
        self._waker.start()

    def lacks_end(self, job: int, attempt: int, log: LogRange) -> bool:  # noqa: ARG002
        return False

    def drain(self) -> None:
        self._withdraw(set(self._queued))

    def reports(self) -> list[Report]:
        self._waker.settle()
        self._fence.check()
        now = self._functions.now()
        for worker in self._workers():
            records, gone = worker.receive()
            for record in records:
                self._handle(worker, record)
            if gone and isinstance(worker, ProcessWorker):
                self._process_exited(worker, now)
            elif gone and isinstance(worker, ThreadWorker):
                self._thread_exited(worker, now)
            elif gone and isinstance(worker, AdoptedWorker):
                self._adopted_exited(worker, now)
        self._check_calls(now)
        if self._waiting or (self._sockets is not None and self._patience.is_needed()):
            self._offer()
        self._fill_threads()
        if self._patience.is_over(now):
            self._give_up(now, EAGAIN)
        if not (self._queued or any(worker.current for worker in self._workers())):
            self._waker.rest()
        else:
            self._waker.go_on()
        reports, self._ready = self._ready, []
        self._unacknowledged = self._unacknowledged or bool(reports)
        return reports

    def queued_count(self) -> int:
        return len(self._queued)

    def acknowledge(self) -> None:
        """Note that the engine has recorded all reports returned so far, and remove their spool files."""
        self._unacknowledged = False
        if self._former_workers:
            self._dead_workers += [base for base in self._former_workers if not function_spool.is_alive(base)]
            self._former_workers = []
        if self._dead_workers and not self._ready:
            for base in self._dead_workers:
                function_spool.forget(base)
            self._dead_workers = []
        for worker in self._workers():
            if worker.received_spool > max(worker.recorded_spool, 1):
                function_spool.forget(worker.base, worker.received_spool)
            worker.recorded_spool = worker.received_spool

    def close(self, *, finished: bool = False) -> None:  # noqa: ARG002
        """Close the call queues; running calls go on. The next engine finds the reports that were not acknowledged."""
        self._waker.end()
        for queue in (self._sockets, self._queue):
            if queue is not None:
                queue.close()
        owed = self._unacknowledged or self._ready or self._queued
        ours: list[ProcessWorker | ThreadWorker] = [*self._processes, *self._threads]
        for worker in ours:
            if worker.close() and not owed and not self._is_fenced():
                function_spool.forget(worker.base)
        self._epoll.close()
        self._waker.close()

    # --- workers

    def _open_threads(self) -> ThreadCallQueue:
        """Start the threads, for the first call."""
        make_folder(self._folder)
        self._queue = queue = ThreadCallQueue()
        # Let functions import from the same path as in worker processes.
        sys.path += [place for place in self._setting.path if place not in sys.path]
        self._fill_threads()
        return queue

    def _fill_threads(self) -> None:
        """Start as many threads as there are slots, if the system has them; those that were abandoned do not count."""
        missing = self._slots - sum(not thread.reason for thread in self._threads)
        while self._queue is not None and missing > 0 and self._patience.may_try(self._functions.now()):
            base = self._base()
            try:
                worker = ThreadWorker(base, self._queue.queue, self._functions, self._is_fenced, self._waker.wake)
                self._threads.append(worker)
            except RuntimeError:
                self._start_failed(base)
                return
            missing -= 1
            self._patience.has_started()

    def _start_failed(self, base: str) -> None:
        """Wait before the next start of a worker: the system had no process, thread or memory for this one."""
        function_spool.forget(base)
        if any(not thread.reason for thread in self._threads) or self._processes:
            # Other workers make the calls meanwhile, however long that takes.
            self._patience.has_started()
        self._patience.has_failed(self._functions.now())

    def _offer(self) -> None:
        """Move waiting calls into the queue, and start a worker for each call, up to the number of slots."""
        if self._sockets is None:
            make_folder(self._folder)
            self._sockets = SocketCallQueue(self._folder)
            self._oom_counter = OomCounter()
        while self._waiting and self._sockets.send(self._waiting[0]):
            file, module, _ = self._waiting.popleft().function
            if not self._setting.file and not self._setting.module:
                self._setting.file, self._setting.module = file, module
        wanted = min(self._slots, len(self._queued) + sum(worker.current is not None for worker in self._processes))
        while len(self._processes) < wanted and self._patience.may_try(self._functions.now()):
            base = self._base()
            try:
                worker = ProcessWorker(base, self._sockets.theirs, self._setting, self._env, self._directory)
            except OSError as error:
                if not is_passing(error):
                    raise
                self._start_failed(base)
                return
            self._patience.has_started()
            self._processes.append(worker)
            self._epoll.register(worker.fileno(), select.EPOLLIN)

    def _base(self) -> str:
        self._count += 1
        return os.path.join(self._folder, f"{self._token}-{self._count}")

    def _workers(self) -> list[AnyWorker]:
        return [*self._processes, *self._threads, *self._adopted]

    # --- records

    def _handle(self, worker: AnyWorker, record: Record) -> None:
        """Handle one record of a worker."""
        key = (record.job, record.attempt)
        self._queued.pop(key, None)
        if isinstance(record, Done):
            worker.received_spool = record.spool
            self._handle_done(worker, record, key)
        elif isinstance(record, Begun):
            worker.current, worker.has_begun = record, True
            return
        elif isinstance(record, Dropped):
            self._ready.append(Lost(*key, record.at, "there was no room to write down that it begins"))
        if isinstance(worker, ProcessWorker):
            worker.current, worker.reason, worker.kill_at = None, "", 0.0

    def _handle_done(self, worker: AnyWorker, done: Done, key: Key) -> None:
        """Report a call that a worker finished; an abandoned call has already been reported."""
        if worker.abandoned_key == key:
            return
        pid = worker.unreported_pid(key)
        if worker.reason and done.at >= worker.terminated_at and not isinstance(worker, ThreadWorker):
            self._ready.append(terminated_report(done, worker.base, worker.reason, pid))
            return
        # The call returned before SIGTERM arrived; the signal may now hit the next call.
        worker.signal_is_pending = worker.signal_is_pending or bool(worker.reason)
        self._ready.append(returned_report(done, worker.base, pid))

    def _thread_exited(self, thread: ThreadWorker, now: float) -> None:
        """Remove a thread that ended; replace one that failed, and report its call as lost."""
        self._threads.remove(thread)
        self._dead_workers.append(thread.base)
        if thread.problem:
            begun = thread.current
            if begun is not None and thread.abandoned_key != thread.key:
                self._queued.pop((begun.job, begun.attempt), None)
                self._ready.append(Lost(begun.job, begun.attempt, now, f"its thread could not go on: {thread.problem}"))
            self._fill_threads()

    def _process_exited(self, worker: ProcessWorker, now: float) -> None:
        """Replace a worker that exited, and report the failure of its call."""
        status = worker.wait_status()
        self._epoll.unregister(worker.fileno())
        self._processes.remove(worker)
        self._dead_workers.append(worker.base)
        for record in function_spool.records_of(worker.base):
            # The worker may have spooled records that it could not send.
            key = (record.job, record.attempt)
            if key in self._queued if isinstance(record, Begun) else key == worker.key:
                self._handle(worker, record)
        begun = worker.current
        if begun is not None:
            self._deaths_in_a_row = 0
            self._ready.append(self._report_death(worker, begun, status, now))
        elif not worker.has_begun:
            self._deaths_in_a_row += 1
            if self._deaths_in_a_row >= DEATHS_MAX and self._queued:
                self._give_up(now, ECHILD)
        if self._queued and self._sockets is not None:
            self._waiting = deque([*self._sockets.take_back(), *self._waiting])
            if begun is None:
                # The worker may have taken a call and died before it could report that.
                known = {(call.job, call.attempt) for call in self._waiting}
                missing = [key for key, threads in self._queued.items() if not threads and key not in known]
                self._perhaps_taken |= dict.fromkeys(missing, now + PERHAPS_TAKEN_SECONDS)
            self._offer()

    def _adopted_exited(self, worker: AdoptedWorker, now: float) -> None:
        """Report the end of the call of an adopted worker."""
        self._adopted.remove(worker)
        self._dead_workers.append(worker.base)
        begun, last = worker.current, worker.last_record()
        assert begun is not None
        key = (begun.job, begun.attempt)
        if isinstance(last, Done):
            self._handle_done(worker, last, key)
        elif isinstance(last, Dropped):
            # It has been reported as adopted.
            self._ready.append(Lost(*key, now, "its worker had to stop as it began"))
        elif worker.reason:
            log = log_of(begun, worker.base)
            self._ready.append(
                Ended(*key, begun.at, now, worker.sent_signal, 0.0, worker.memory_peak, log, worker.reason)
            )
        else:
            self._ready.append(settle(worker.base, last, now))

    def _report_death(self, worker: ProcessWorker, begun: Begun, status: int, now: float) -> Report:
        """The report of the call that a worker was making when it died."""
        key = (begun.job, begun.attempt)
        pid = worker.unreported_pid(key)
        if worker.signal_is_pending and status == signal.SIGTERM and not worker.reason:
            return Lost(*key, now, "its worker was ended for the call before it")
        log = log_of(begun, worker.base)
        if status or worker.reason:
            kills = self._oom_kills_of(worker, status, begun)
            peak = worker.memory_peak
            return Ended(*key, begun.at, now, status, 0.0, peak, log, worker.reason, oom_kills=kills, pid=pid)
        message = "the function ended its process before it returned"
        return returned_report(Done(*key, begun.at, now, b"", Kind.EXIT, message), worker.base, pid, log)

    def _oom_kills_of(self, worker: ProcessWorker, status: int, begun: Begun) -> int:
        """The number of out-of-memory kills that may explain the exit of a worker."""
        if self._oom_counter is None or worker.reason or status != signal.SIGKILL:
            return 0
        now = time.monotonic()
        return self._oom_counter.kills(worker.pid, now, now - (self._functions.now() - begun.at))

    def _give_up(self, now: float, errno: int) -> None:
        """Fail all queued calls, because no worker can be started, or workers exit before they begin any call."""
        calls = [*self._waiting]
        for queue in (self._sockets, self._queue):
            # Threads don't exit by themselves.
            if queue is not None and (queue is self._sockets or errno == EAGAIN):
                calls = [*queue.take_back(), *calls]
        for call in calls:
            key = (call.job, call.attempt)
            self._queued.pop(key, None)
            self._ready.append(Ended(*key, now, now, 0, 0.0, 0, NO_LOG, spawn_error=errno, spawn_stage="exec"))
        self._waiting.clear()
        self._deaths_in_a_row = 0
        self._patience.has_started()

    # --- limits

    def _check_calls(self, now: float) -> None:
        """Report the start of calls that take longer than a moment; terminate calls that exceed their time limit."""
        for silent in [worker for worker in self._adopted if worker.is_silent(now)]:
            self._abandon(silent, now)
        for worker in self._workers():
            begun = worker.current
            if begun is None:
                continue
            key = (begun.job, begun.attempt)
            if key == worker.abandoned_key:
                continue
            if worker.reported_key != key and now - begun.at >= REPORT_START_SECONDS:
                worker.reported_key = key
                self._queued.pop(key, None)
                self._ready.append(Started(*key, begun.at, worker.pid, log_start_of(begun, worker.base)))
            if begun.timeout_seconds and not worker.reason and now - begun.at >= begun.timeout_seconds:
                self._terminate(worker, "timeout", now)
            elif begun.memory_bytes and not worker.reason and worker.uses_too_much(now):
                self._terminate(worker, "oom", now)
            elif worker.kill_at and now >= worker.kill_at and not isinstance(worker, ThreadWorker):
                worker.kill_at = 0.0
                worker.signal(signal.SIGKILL)
        for key in [key for key, until in self._perhaps_taken.items() if now >= until or key not in self._queued]:
            del self._perhaps_taken[key]
            if self._queued.pop(key, None) is not None:
                self._ready.append(Lost(*key, now, "its worker died as it took the call"))

    def _abandon(self, worker: AdoptedWorker, now: float) -> None:
        """Give up a worker of an earlier engine that is stopped or should have ended; its call is lost."""
        worker.signal(signal.SIGKILL)
        self._adopted.remove(worker)
        assert worker.key is not None
        self._ready.append(Lost(*worker.key, now, "its worker was stopped, or belonged to an engine that was"))

    def _terminate(self, worker: AnyWorker, reason: str, now: float) -> None:
        """Terminate the call that a worker is making."""
        begun = worker.current
        if begun is None:
            # A thread may have finished its call in the meantime.
            return
        worker.reason, worker.terminated_at = reason, now
        if not isinstance(worker, ThreadWorker):
            worker.kill_at = now + begun.grace_seconds
            # One that uses too much memory would use still more while it ends by itself.
            worker.signal(signal.SIGKILL if reason == "oom" else signal.SIGTERM)
            return
        key = worker.abandoned_key = (begun.job, begun.attempt)
        self._queued.pop(key, None)
        pid = worker.unreported_pid(key)
        self._ready.append(Ended(*key, begun.at, now, signal.SIGTERM, 0.0, 0, NO_LOG, reason, pid=pid))
        self._fill_threads()
        self._waker.wake()

    def _withdraw(self, keys: set[Key]) -> bool:
        """Remove these calls from the queues and report them as withdrawn; return whether any was there."""
        gone: list[Call] = []
        if self._sockets is not None:
            waiting = [*self._sockets.take_back(), *self._waiting]
            gone += [call for call in waiting if (call.job, call.attempt) in keys]
            self._waiting = deque(call for call in waiting if (call.job, call.attempt) not in keys)
            self._offer()
        if self._queue is not None:
            for call in self._queue.take_back():
                if (call.job, call.attempt) in keys:
                    gone.append(call)
                else:
                    self._queue.send(call)
        for call in gone:
            self._queued.pop((call.job, call.attempt), None)
            self._ready.append(Withdrawn(call.job, call.attempt, self._functions.now()))
        if gone:
            self._waker.wake()
        return bool(gone)
