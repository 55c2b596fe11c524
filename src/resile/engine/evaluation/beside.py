"""Runs evaluations beside the engine's loop: while one waits for another process, the loop goes on.

    loop                              thread of an evaluation
    begin(make, done) ----turn---->   make(): reads values and state, asks a helper, waits (languages/waiting.py)
      waits for a few milliseconds,
      then takes the turn back
    reports, starts, timers, ...      the helper answers: it wakes the loop up, and waits for the turn
    go_on()           ----turn---->   reads, writes memory, returns
    done(take)        <---turn-----   take() gives the result, or raises what `make` raised

Only the thread that has the turn touches the run. So an evaluation is like a part of the loop that can be left and
entered again; it sees the changes that the loop made in between. Evaluations that write the memory of the run run one
after the other.

The loop calls `done` in the order in which the evaluations began, so that a run decides in the same order each time.
An evaluation that ends early waits for those before it, but for each at most HOLD_SECONDS after that got its thread.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable, Hashable
from threading import Thread
from typing import Any, Literal

from resile.languages.waiting import Abandoned, set_turn

# How long the loop waits for an evaluation: longer for the only one, so that quick ones keep their order.
FIRST_PATIENCE_SECONDS = 0.005
PATIENCE_SECONDS = 0.0005
# How long a slow evaluation holds the results of those that began after it.
HOLD_SECONDS = 0.5
EVALUATIONS_MAX = 16
NEVER = float("inf")

Take = Callable[[], Any]


class _Task:
    """One evaluation."""

    __slots__ = ("done", "has_thread", "holds_until", "key", "make", "take", "writes")

    def __init__(self, key: Hashable, make: Take, done: Callable[[Take], None], writes: bool) -> None:
        self.key = key
        self.make = make
        self.done = done
        self.writes = writes
        # Set when a thread begins it.
        self.has_thread = False
        self.holds_until = NEVER
        # Set when it has ended.
        self.take: Take | None = None


class Evaluations:
    """The evaluations of one run that have begun or wait; `wake` interrupts the wait of the loop, from any thread."""

    def __init__(self, wake: Callable[[], None], now: Callable[[], float]) -> None:
        self.lock = allocate_lock()
        self.closed = False
        # Workers that wait for their turn; each adds itself, from its thread.
        self.ready: deque[_Worker] = deque()
        self.wake = wake
        # Until when the loop may wait before it calls `go_on`.
        self.deadline = NEVER
        self._now = now
        # By key, in the order in which the evaluations were requested.
        self._tasks: dict[Hashable, _Task] = {}
        self._queue: deque[_Task] = deque()
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._is_writing = False

    def begin(self, key: Hashable, make: Take, done: Callable[[Take], None], *, writes: bool) -> None:
        """Evaluate, and call `done` in the loop, at once or later; drop an earlier evaluation with this key."""
        self.drop(key)
        task = self._tasks[key] = _Task(key, make, done, writes)
        self._queue.append(task)
        self._begin_queued()
        self._deliver()

    def go_on(self) -> None:
        """Continue the evaluations whose answers have come, and begin queued ones."""
        while self.ready:
            self._hand_over(self.ready.popleft())
        self._deliver()
        if self._queue:
            self._begin_queued()
            self._deliver()

    def drop(self, key: Hashable) -> bool:
        """Forget an evaluation, so that its `done` is never called; return whether there was one."""
        return self._tasks.pop(key, None) is not None

    def drop_all(self) -> None:
        """Forget every evaluation."""
        self._tasks.clear()

    def are_open(self) -> bool:
        """Is there an evaluation that was neither delivered nor dropped?"""
        return bool(self._tasks)

    def close(self) -> None:
        """Abandon all evaluations, and end their threads; a thread that waits ends when its answer comes."""
        with self.lock:
            self.closed = True
        self.drop_all()
        for worker in (*self._idle, *self.ready):
            worker.given.release()

    def _begin_queued(self) -> None:
        """Begin queued evaluations, in order, while threads are free; a writer waits for the previous writer."""
        for task in tuple(self._queue):
            if len(self._workers) == EVALUATIONS_MAX and not self._idle:
                return
            if self._tasks.get(task.key) is not task:
                self._queue.remove(task)
            elif not (task.writes and self._is_writing):
                self._queue.remove(task)
                self._begin(task)

    def _begin(self, task: _Task) -> None:
        """Run a task on an idle thread or a new one."""
        if not self._idle:
            worker = _Worker(self)
            self._workers.append(worker)
            self._idle.append(worker)
        worker = self._idle.pop()
        worker.task = task
        task.has_thread = True
        task.holds_until = self._now() + HOLD_SECONDS
        self._is_writing |= task.writes
        self._hand_over(worker)

    def _hand_over(self, worker: _Worker) -> None:
        """Give a worker the turn until its evaluation ends, or waits for longer than the loop does."""
        task = worker.task
        assert task is not None
        worker.is_dropped = self._tasks.get(task.key) is not task
        is_first = len(self._workers) - len(self._idle) == 1
        patience = FIRST_PATIENCE_SECONDS if is_first else PATIENCE_SECONDS
        worker.given.release()
        while not worker.back.acquire(timeout=patience):
            with self.lock:
                if worker.state == "waits":
                    worker.state = "left"
                    return
        self._idle.append(worker)
        if task.writes:
            self._is_writing = False
        take, worker.task, worker.take = worker.take, None, None
        if self._tasks.get(task.key) is task:
            task.take = take

    def _deliver(self) -> None:
        """Call `done` for ended evaluations that no earlier one holds back."""
        now = self._now()
        self.deadline = holds_until = NEVER
        ended: list[_Task] = []
        for task in self._tasks.values():
            if task.take is None:
                if task.has_thread:
                    if now < task.holds_until:
                        holds_until = min(holds_until, task.holds_until)
                elif not (task.writes and self._is_writing):
                    # It waits for a thread, as all after it do.
                    break
            elif holds_until == NEVER:
                ended.append(task)
            else:
                self.deadline = holds_until
                break
        for task in ended:
            # The `done` of one evaluation may have dropped another.
            if task.take is not None and self._tasks.get(task.key) is task:
                del self._tasks[task.key]
                task.done(task.take)


class _Worker:
    """A thread that evaluates, and its turn."""

    def __init__(self, evaluations: Evaluations) -> None:
        self._evaluations = evaluations
        self.given = _make_taken_lock()
        self.back = _make_taken_lock()
        self.state: Literal["runs", "waits", "left"] = "runs"
        self.task: _Task | None = None
        self.take: Take | None = None
        self.is_dropped = False
        Thread(target=self._work, name="resile-evaluation", daemon=True).start()

    def pause(self) -> None:
        """The evaluation waits: the loop may take the turn back."""
        self.state = "waits"

    def go_on(self) -> None:
        """Go on with the turn, if the loop did not take it, or when the loop gives it again."""
        evaluations = self._evaluations
        with evaluations.lock:
            if evaluations.closed:
                raise Abandoned
            is_left = self.state == "left"
            if is_left:
                evaluations.ready.append(self)
                evaluations.wake()
            else:
                self.state = "runs"
        if is_left:
            self.given.acquire()
            self.state = "runs"
        if self.is_dropped or evaluations.closed:
            raise Abandoned

    def _work(self) -> None:
        """Evaluate one task after the other, each when the loop gives the turn."""
        set_turn(self)
        while True:
            self.given.acquire()
            task = self.task
            if task is None:
                return
            self.take = _evaluate(task)
            self.state = "runs"
            self.back.release()
            if self._evaluations.closed:
                return


def _evaluate(task: _Task) -> Take | None:
    """The function that gives the result of a task or raises its error; None if the task was abandoned."""
    try:
        result = task.make()
    except Abandoned:
        return None
    except BaseException as error:
        return _raiser(error)
    return lambda: result


def _raiser(error: BaseException) -> Take:
    """A function that raises this error."""

    def take() -> Any:
        raise error

    return take


def _make_taken_lock() -> LockType:
    """A lock that another thread releases."""
    lock = allocate_lock()
    lock.acquire()
    return lock
