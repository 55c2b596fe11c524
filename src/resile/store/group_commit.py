"""Group commit: one thread, one connection, one transaction for all waiting batches.

    engine thread                         writer thread
    submit(batch) -> ticket  --queue-->   take all waiting batches
                                          sync the output of the attempts in them
                                          BEGIN, check the lease, rows, COMMIT (synced)
    poll(fileno), durable()  <-eventfd--  ticket of the last batch

While one commit is synced the next batches gather, so the busier the engine is, the fewer syncs each costs. Batches of
many runs go into one transaction; a batch whose engine has lost its lease is left out, and stops only its own tickets.
"""

from __future__ import annotations

# `queue` and `threading` would cost a fiftieth of a short run.
from _queue import SimpleQueue
from _thread import LockType, allocate_lock, start_new_thread
from abc import abstractmethod
from time import monotonic
from typing import TYPE_CHECKING

from resile.store.contract import Batch
from resile.store.errors import StoreError
from resile.store.progress import Progress, Tickets, flush_outputs

if TYPE_CHECKING:
    # A batch to write and its tickets, a lock to release when all before it is written, or None to end the thread.
    Written = tuple[Batch, Tickets]
    Task = Written | LockType | None


class GroupCommit(Progress):
    """The writer of one open store; a database adds `commit` and `disconnect`. See the contract for the methods."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place
        self._tasks: SimpleQueue[Task] = SimpleQueue()
        self._submitted = 0
        # The number of batches of all shares that were queued, and the number that the thread has finished.
        self._queued = self._handled = 0
        self.closed = False
        # Released when the writer thread has ended.
        self._ended = allocate_lock()
        self._ended.acquire()
        start_new_thread(self._work, ())

    @abstractmethod
    def commit(self, batches: list[Batch]) -> dict[int, StoreError]:
        """Write some batches in one transaction, or raise StoreError; called by one thread at a time.

        Leaves out the batches of engines that lost their lease; returns the reasons by the index of the batch.
        """

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection, after the last commit."""

    def submit(self, batch: Batch, *, at_once: bool = False) -> int:
        self._submitted += 1
        self.put(batch, self, at_once=at_once)
        return self._submitted

    def put(self, batch: Batch, tickets: Tickets, *, at_once: bool) -> None:
        """Queue a batch, or write it on this thread."""
        self._queued += 1
        # All earlier batches are done, so the writer thread is idle and does not touch the connection.
        if at_once and self._handled == self._queued - 1:
            self._write([(batch, tickets)])
        else:
            self._tasks.put((batch, tickets))

    def flush(self) -> None:
        written = allocate_lock()
        written.acquire()
        self._tasks.put(written)
        written.acquire()
        self.check()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._tasks.put(None)
        self._ended.acquire()
        self.disconnect()
        super().close()

    def _work(self) -> None:
        """The writer thread: write waiting batches until `close`; after an error, write nothing more."""
        ended = False
        while not ended:
            tasks = [self._tasks.get()]
            while not self._tasks.empty():
                tasks.append(self._tasks.get())
            ended = None in tasks
            batches = [task for task in tasks if isinstance(task, tuple)]
            if batches:
                self._write(batches)
            for task in tasks:
                if isinstance(task, LockType):
                    task.release()
        self._ended.release()

    def _write(self, tasks: list[Written]) -> None:
        """Write some batches in one transaction, unless the writer has stopped."""
        if self.error is not None:
            return
        count = len(tasks)
        try:
            tasks = flush_outputs(tasks)
            began = monotonic()
            refused = self.commit([batch for batch, _ in tasks])
            if self.note_commit is not None:
                self.note_commit(monotonic() - began)
            for index, (_, tickets) in enumerate(tasks):
                if index in refused:
                    tickets.stop(refused[index])
                elif tickets.error is None:
                    tickets.move(1)
        except StoreError as error:
            self.stop(error)
        except Exception as error:
            self.stop(StoreError("store-failed", f"{self.place}: {type(error).__name__}: {error}", where=self.place))
        finally:
            self._handled += count
