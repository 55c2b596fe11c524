"""Group commit: one thread, one connection, one transaction for all waiting batches.

    engine thread                         writer thread
    submit(batch) -> ticket  --queue-->   take all waiting batches
                                          BEGIN, check the lease, rows, COMMIT (synced)
    poll(fileno), durable()  <-eventfd--  ticket of the last batch

While one commit is synced the next batches gather, so the busier the engine is, the fewer syncs each costs.
"""

from __future__ import annotations

from _queue import SimpleQueue
from _thread import LockType, allocate_lock
from threading import Thread
from typing import TYPE_CHECKING

import apsw

from resile.store import lease as leases
from resile.store.contract import Batch
from resile.store.errors import StoreError
from resile.store.progress import Progress
from resile.store.sqlite.connection import Writing, explain
from resile.store.sqlite.rows import (
    INSERT_LOG,
    REPLACE_ATTEMPTS,
    REPLACE_JOBS,
    RUN,
    attempt_values,
    job_values,
    lease_of,
    log_values,
    run_values,
)

if TYPE_CHECKING:
    # A batch to write, a lock to release when everything before it is written, or None to end the thread.
    Task = Batch | LockType | None

_UPDATE_RUN = f"UPDATE runs SET ({RUN.partition(', ')[2]}) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE id = ?"


class SqliteWriter:
    """The writer of one open store."""

    def __init__(self, db: apsw.Connection, path: str) -> None:
        self._db = db
        self._path = path
        self._tasks: SimpleQueue[Task] = SimpleQueue()
        self._submitted = 0
        self.closed = False
        self._progress = Progress()
        self._thread = Thread(target=self._work, name="resile-store-writer", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch, *, at_once: bool = False) -> int:
        """Queue a batch, or write it on this thread if everything before it is on disk; return its ticket."""
        self._submitted += 1
        # All earlier batches are durable, so the writer thread is idle and does not touch the connection.
        if at_once and self._progress.highest_durable() == self._submitted - 1:
            self._write([batch])
        else:
            self._tasks.put(batch)
        return self._submitted

    def durable(self) -> int:
        """The highest ticket that is on disk; raises the StoreError that stopped the writer."""
        return self._progress.durable()

    def fileno(self) -> int:
        """Readable when `durable` has advanced or the writer has stopped, until `durable` is called."""
        return self._progress.fileno()

    def flush(self) -> None:
        """Wait until everything submitted is on disk; raises like `durable`."""
        written = allocate_lock()
        written.acquire()
        self._tasks.put(written)
        written.acquire()
        self._progress.check()

    def close(self) -> None:
        """Flush and end the thread; raises the StoreError that stopped the writer if no call has raised it yet."""
        if self.closed:
            return
        self.closed = True
        self._tasks.put(None)
        self._thread.join()
        self._db.close()
        self._progress.close()

    def _work(self) -> None:
        """The writer thread: write waiting batches until `close`; after an error, write nothing more."""
        ended = False
        while not ended:
            tasks = [self._tasks.get()]
            while not self._tasks.empty():
                tasks.append(self._tasks.get())
            ended = None in tasks
            batches = [task for task in tasks if isinstance(task, Batch)]
            if batches:
                self._write(batches)
            for task in tasks:
                if isinstance(task, LockType):
                    task.release()

    def _write(self, batches: list[Batch]) -> None:
        """Write some batches in one transaction, unless the writer has stopped."""
        if self._progress.error is not None:
            return
        try:
            with Writing(self._db, self._path):
                for batch in batches:
                    write(self._db, batch)
            self._progress.move(len(batches))
        except Exception as error:
            self._progress.stop(self._stopped_by(error))

    def _stopped_by(self, error: Exception) -> StoreError:
        """Convert any error of a commit to a StoreError; the commit was rolled back."""
        if isinstance(error, StoreError):
            return error
        if isinstance(error, apsw.Error):
            return explain(error, self._path)
        return StoreError("store-failed", f"{self._path}: {type(error).__name__}: {error}", where=self._path)


def write(db: apsw.Connection, batch: Batch) -> None:
    """Write one batch to the tables, inside a transaction; refused where the batch does not hold the lease."""
    run = batch.run
    holder = lease_of(db, run)
    if holder is None or holder.token != batch.token:
        raise leases.lost_error(run, holder)
    if batch.entries:
        INSERT_LOG.into(db, log_values(run, batch.entries))
    if batch.jobs:
        REPLACE_JOBS.into(db, job_values(run, batch.jobs.values()))
    if batch.attempts:
        REPLACE_ATTEMPTS.into(db, attempt_values(run, batch.attempts.values()))
    if batch.letters or batch.scopes:
        from resile.store.sqlite import dead_letters

        dead_letters.write(db, run, batch.letters, batch.scopes)
    if batch.row is not None:
        db.execute(_UPDATE_RUN, (*run_values(batch.row), run))
    for number in batch.answered:
        db.execute("UPDATE requests SET taken = 1 WHERE id = ?", (number,))
    if batch.snapshot is not None:
        kept = batch.snapshot
        db.execute("REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (run, kept.seq, kept.format, kept.state))
