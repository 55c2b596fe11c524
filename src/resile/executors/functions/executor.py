"""The executor of Python functions: warm worker processes, or threads, beside the executor of commands.

    start --> channel --> hands (function_hands.py) --> records --> Started / Returned / Ended
    find  --> spools of an engine before this one (function_spool.py), and its workers (function_adopted.py)

A call that is over within a moment is told in one report; of a longer one the start is told too. A worker that dies
is replaced, and its call has failed as its exit status says; so is a thread that can't go on, whose call is lost. Time
limits: SIGTERM to the worker, SIGKILL after the grace time; a thread is left to itself and another takes its place.
While calls are being made a ticker rings the bell now and then, so that limits are looked at.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import ECHILD
from threading import Event, Lock, Thread

from resile.executors.contract import Ended, Launch, Lost, Report, Started, Withdrawn
from resile.executors.functions import spool as function_spool
from resile.executors.functions.adopted import AdoptedCall, settled
from resile.executors.functions.calls import Begun, Call, Done, Dropped, Functions, Record
from resile.executors.functions.pool import ProcessHand, QueueChannel, SocketChannel, ThreadHand
from resile.executors.functions.reports import NO_LOG, log_of, obeyed, returned, segment_of
from resile.executors.functions.spool import FOLDER
from resile.executors.functions.worker import Setting
from resile.executors.local.oom import OomCounter
from resile.executors.local.segments import SegmentReader
from resile.languages.python.modules import NO_HOME, Home
from resile.model.failure import Kind, LogRange

TICK_SECONDS = 0.05
TELL_SECONDS = 0.02
BARREN_MAX = 3
# A worker that has taken a call says so at once.
DOUBT_SECONDS = 5.0
Key = tuple[int, int]


class FunctionExecutor(SegmentReader):
    """Calls of Python functions for one run; see the Executor contract for the verbs."""

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
    ) -> None:
        """Open the run whose output folder this is; worker processes work in `directory`, or where this one does."""
        super().__init__(folder)
        self._folder = os.path.join(os.path.abspath(folder), FOLDER)
        self._slots = slots
        self._setting = Setting(path=list(path), run=run, epoch=epoch, home=home)
        self._env = dict(env)
        self._directory = directory or None
        self._kills: OomCounter | None = None
        self._waiting: deque[Call] = deque()
        # Whether a thread is to make it.
        self._queued: dict[Key, bool] = {}
        self._processes: list[ProcessHand] = []
        self._threads: list[ThreadHand] = []
        self._sockets: SocketChannel | None = None
        self._queue: QueueChannel | None = None
        self._functions = Functions(run, epoch, home)
        self._ready: list[Report] = []
        self._adopted: dict[Key, AdoptedCall] = {}
        self._doubts: dict[Key, float] = {}
        self._old = function_spool.bases(self._folder)
        self._dead: list[str] = []
        self._barren = 0
        self._owed = False
        self._token = os.urandom(4).hex()
        self._count = 0
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._bell_lock = Lock()
        self._epoll.register(self._bell, select.EPOLLIN)
        self._busy = Event()
        self._closed = Event()
        self._ticker: Thread | None = None

    # --- the contract

    def fileno(self) -> int:
        """Readable when reports wait."""
        return self._epoll.fileno()

    def start(self, launches: Sequence[Launch]) -> None:
        """Queue calls; each is made when a worker is free, in order."""
        for launch in launches:
            assert launch.call is not None
            self._queued[launch.job, launch.attempt] = launch.threads
            if launch.threads:
                (self._queue or self._open_threads()).send(launch.call)
            else:
                self._waiting.append(launch.call)
        if self._waiting:
            self._offer()
        self._watch()

    def kill(self, job: int, attempt: int) -> None:
        """End a call that is being made; one that nobody has taken is withdrawn."""
        key = (job, attempt)
        if self._withdraw({key}):
            return
        for hand in self._hands():
            if hand.key == key and not hand.cut:
                self._cut(hand, "killed", time.time())
                return
        if key in self._adopted:
            self._adopted[key].end("killed", time.time())

    def find(self, attempts: Sequence[Key]) -> None:
        """After a resume: report what became of each of these (Adopted, Returned, Withdrawn or Lost)."""
        known: dict[Key, tuple[str, Record]] = {}
        held = {base for base in self._old if function_spool.is_held(base)}
        for base in self._old:
            for record in function_spool.records(base):
                known[record.job, record.attempt] = (base, record)
        for key in attempts:
            base, record = known.get(key, ("", Dropped(*key, time.time())))
            if isinstance(record, Begun) and base in held:
                call = self._adopted[key] = AdoptedCall(base, record)
                self._ready.append(call.found())
            else:
                self._ready.append(settled(base, record))
        self._dead += [base for base in self._old if base not in held]
        self._old = []
        self._ring()
        self._watch()

    def drain(self) -> None:
        """Begin nothing more: withdraw everything queued; calls that are being made go on."""
        self._withdraw(set(self._queued))

    def reports(self) -> list[Report]:
        """Whatever has been heard since the last call; never blocks."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        now = time.time()
        for hand in tuple(self._processes):
            records, gone = hand.receive()
            for record in records:
                self._hear(hand, record)
            if gone:
                self._buried(hand, now)
        for thread in tuple(self._threads):
            done, gone = thread.receive()
            for record in done:
                self._hear(thread, record)
            if gone:
                self._gone(thread, now)
        self._look_after(now)
        if self._waiting:
            self._offer()
        if not (self._queued or self._adopted or self._is_making()):
            self._busy.clear()
        reports, self._ready = self._ready, []
        self._owed = self._owed or bool(reports)
        return reports

    def queued(self) -> int:
        """How many calls nobody has taken yet, as far as is known here."""
        return len(self._queued)

    def acknowledge(self) -> None:
        """Everything returned by `reports` so far is on disk."""
        self._owed = False
        if self._old:
            self._dead += [base for base in self._old if not function_spool.is_held(base)]
            self._old = []
        if self._dead and not self._ready:
            for base in self._dead:
                function_spool.forget(base)
            self._dead = []
        for hand in self._hands():
            if hand.heard > max(hand.recorded, 1):
                function_spool.forget(hand.base, hand.heard)
            hand.recorded = hand.heard

    def close(self) -> None:
        """Let go; calls that are being made go on. What was not acknowledged is there for the next engine."""
        self._closed.set()
        self._busy.set()
        if self._ticker is not None:
            self._ticker.join()
        for channel in (self._sockets, self._queue):
            if channel is not None:
                channel.close()
        owed = self._owed or self._ready or self._queued
        for hand in self._hands():
            if hand.close() and not owed:
                function_spool.forget(hand.base)
        self._epoll.close()
        with self._bell_lock:
            os.close(self._bell)
            self._bell = -1

    # --- hands

    def _open_threads(self) -> QueueChannel:
        """Threads are started when the first call comes."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._queue = queue = QueueChannel()
        # What functions import is found as worker processes would find it.
        sys.path += [place for place in self._setting.path if place not in sys.path]
        for _ in range(self._slots):
            self._add_thread(queue)
        return queue

    def _add_thread(self, channel: QueueChannel) -> None:
        """One more thread."""
        channel.threads += 1
        self._threads.append(ThreadHand(self._base(), channel.queue, self._functions, self._ring))

    def _offer(self) -> None:
        """Hand waiting calls to the workers, of which there are as many as there is work for, up to the slots."""
        if self._sockets is None:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._sockets = SocketChannel(self._folder)
            self._kills = OomCounter()
        while self._waiting and self._sockets.send(self._waiting[0]):
            file, module, _ = self._waiting.popleft().function
            if not self._setting.file and not self._setting.module:
                self._setting.file, self._setting.module = file, module
        wanted = min(self._slots, len(self._queued) + sum(hand.current is not None for hand in self._processes))
        while len(self._processes) < wanted:
            hand = ProcessHand(self._base(), self._sockets.theirs, self._setting, self._env, self._directory)
            self._processes.append(hand)
            self._epoll.register(hand.fileno(), select.EPOLLIN)

    def _base(self) -> str:
        """The name of the next hand's files."""
        self._count += 1
        return os.path.join(self._folder, f"{self._token}-{self._count}")

    def _hands(self) -> list[ProcessHand | ThreadHand]:
        """All who make calls."""
        return [*self._processes, *self._threads]

    def _is_making(self) -> bool:
        """Is any call being made?"""
        return any(hand.current is not None for hand in self._hands())

    # --- hearing

    def _hear(self, hand: ProcessHand | ThreadHand, record: Record) -> None:
        """One record of a hand."""
        key = (record.job, record.attempt)
        self._queued.pop(key, None)
        if isinstance(record, Done):
            hand.heard = record.spool
            self._heard(hand, record, key)
        elif isinstance(record, Begun):
            hand.current, hand.has_begun = record, True
            return
        elif isinstance(record, Dropped):
            self._ready.append(Lost(*key, record.at, "there was no room to write down that it begins"))
        if isinstance(hand, ProcessHand):
            hand.current, hand.cut, hand.kill_at = None, "", 0.0

    def _heard(self, hand: ProcessHand | ThreadHand, done: Done, key: Key) -> None:
        """A hand is done with a call; of one that was left to itself everything has been told."""
        if hand.left_key == key:
            return
        pid = 0 if hand.told == key else hand.pid
        if hand.cut and done.at >= hand.cut_at and isinstance(hand, ProcessHand):
            self._ready.append(obeyed(done, hand.base, hand.cut, pid))
            return
        # It was over before it was told to end, so that may hit the call that comes next.
        hand.is_astray = hand.is_astray or bool(hand.cut)
        self._ready.append(returned(done, hand.base, pid))

    def _gone(self, thread: ThreadHand, now: float) -> None:
        """A thread has come to its end; one that could not go on is replaced, and what it was making is lost."""
        self._threads.remove(thread)
        self._dead.append(thread.base)
        if thread.problem:
            begun = thread.current
            if begun is not None and thread.left_key != thread.key:
                self._queued.pop((begun.job, begun.attempt), None)
                self._ready.append(Lost(begun.job, begun.attempt, now, f"its thread could not go on: {thread.problem}"))
            assert self._queue is not None
            self._add_thread(self._queue)

    def _buried(self, hand: ProcessHand, now: float) -> None:
        """A worker is gone: its call has failed, and another worker takes its place."""
        status = hand.wait_status()
        self._epoll.unregister(hand.fileno())
        self._processes.remove(hand)
        self._dead.append(hand.base)
        for record in function_spool.records(hand.base):
            # It may have written down more than it had the time to tell.
            key = (record.job, record.attempt)
            if key in self._queued if isinstance(record, Begun) else key == hand.key:
                self._hear(hand, record)
        begun = hand.current
        if begun is not None:
            self._barren = 0
            self._ready.append(self._died(hand, begun, status, now))
        elif not hand.has_begun:
            self._barren += 1
            if self._barren >= BARREN_MAX and self._queued:
                self._give_up(now)
        if self._queued and self._sockets is not None:
            self._waiting = deque([*self._sockets.take_back(), *self._waiting])
            if begun is None:
                # It may have taken one of the others, and died before it could say so.
                known = {(call.job, call.attempt) for call in self._waiting}
                missing = [key for key, threads in self._queued.items() if not threads and key not in known]
                self._doubts |= dict.fromkeys(missing, now + DOUBT_SECONDS)
            self._offer()

    def _died(self, hand: ProcessHand, begun: Begun, status: int, now: float) -> Report:
        """What became of the call that a worker died of."""
        key = (begun.job, begun.attempt)
        pid = 0 if hand.told == key else hand.pid
        if hand.is_astray and status == signal.SIGTERM and not hand.cut:
            return Lost(*key, now, "its worker was ended for the call before it")
        log = log_of(begun, hand.base)
        if status or hand.cut:
            kills = self._kills_of(hand, status, begun)
            return Ended(*key, begun.at, now, status, 0.0, 0, log, hand.cut, oom_kills=kills, pid=pid)
        message = "the function ended its process before it returned"
        return returned(Done(*key, begun.at, now, b"", Kind.EXIT, message), hand.base, pid, log)

    def _kills_of(self, hand: ProcessHand, status: int, begun: Begun) -> int:
        """How many kills for want of memory may explain that a worker is gone."""
        if self._kills is None or hand.cut or status != signal.SIGKILL:
            return 0
        now = time.monotonic()
        return self._kills.kills(hand.pid, now, now - (time.time() - begun.at))

    def _give_up(self, now: float) -> None:
        """Workers end before they begin anything: the calls can't be made."""
        assert self._sockets is not None
        for call in (*self._sockets.take_back(), *self._waiting):
            self._queued.pop((call.job, call.attempt), None)
            self._ready.append(
                Ended(call.job, call.attempt, now, now, 0, 0.0, 0, NO_LOG, spawn_error=ECHILD, spawn_stage="exec")
            )
        self._waiting.clear()
        self._barren = 0

    # --- limits

    def _look_after(self, now: float) -> None:
        """Tell of calls that take longer than a moment, and end those that take too long."""
        for hand in self._hands():
            begun = hand.current
            if begun is None:
                continue
            key = (begun.job, begun.attempt)
            if key == hand.left_key:
                continue
            if hand.told != key and now - begun.at >= TELL_SECONDS:
                hand.told = key
                self._queued.pop(key, None)
                log = LogRange(segment_of(hand.base), begun.out, 0, begun.err, 0)
                self._ready.append(Started(*key, begun.at, hand.pid, log))
            if begun.timeout_seconds and not hand.cut and now - begun.at >= begun.timeout_seconds:
                self._cut(hand, "timeout", now)
            elif hand.kill_at and now >= hand.kill_at and isinstance(hand, ProcessHand):
                hand.kill_at = 0.0
                hand.end(signal.SIGKILL)
        for key, call in tuple(self._adopted.items()):
            report = call.look(now)
            if report is not None:
                del self._adopted[key]
                self._ready.append(report)
                self._dead.append(call.base)
        for key in [key for key, until in self._doubts.items() if now >= until or key not in self._queued]:
            del self._doubts[key]
            if self._queued.pop(key, None) is not None:
                self._ready.append(Lost(*key, now, "its worker died as it took the call"))

    def _cut(self, hand: ProcessHand | ThreadHand, cut: str, now: float) -> None:
        """End the call that a hand is making."""
        begun = hand.current
        if begun is None:
            # A thread may have come to its end meanwhile.
            return
        hand.cut, hand.cut_at = cut, now
        if isinstance(hand, ProcessHand):
            hand.kill_at = now + begun.grace_seconds
            hand.end(signal.SIGTERM)
            return
        pid = hand.untold_pid
        hand.left_key = (begun.job, begun.attempt)
        self._queued.pop((begun.job, begun.attempt), None)
        self._ready.append(Ended(begun.job, begun.attempt, begun.at, now, signal.SIGTERM, 0.0, 0, NO_LOG, cut, pid=pid))
        assert self._queue is not None
        self._add_thread(self._queue)
        self._ring()

    def _withdraw(self, keys: set[Key]) -> bool:
        """Take these calls out of the channels; whether any was there."""
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
            self._ready.append(Withdrawn(call.job, call.attempt, time.time()))
        if gone:
            self._ring()
        return bool(gone)

    # --- the bell

    def _ring(self) -> None:
        """Say that there is something to hear; from any thread, also one that was left behind."""
        with self._bell_lock:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    def _watch(self) -> None:
        """From now on there is something to look after."""
        self._busy.set()
        if self._ticker is None:
            self._ticker = Thread(target=self._tick, name="resile ticker", daemon=True)
            self._ticker.start()

    def _tick(self) -> None:
        """Ring while there is something to look after; the only thing that this thread does."""
        while self._busy.wait() and not self._closed.wait(TICK_SECONDS):
            self._ring()
