"""Group commit: one thread, one connection, one transaction for all waiting batches.

    engine thread                         writer thread
    submit(batch) -> ticket  --queue-->   take all waiting batches
                                          sync the output of the attempts in them
                                          BEGIN, check the lease, rows, COMMIT (synced)
    poll(fileno), durable()  <-eventfd--  ticket of the last batch

While one commit is synced the next batches gather, so the busier the engine is, the fewer syncs each costs.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

import apsw
from msgspec.structs import astuple

from resile.core.actions import DropLetter
from resile.store.contract import Batch, LetterRow, output_of, row_of_letter
from resile.store.errors import StoreError
from resile.store.lease import check_holder
from resile.store.progress import Progress
from resile.store.sqlite import rows
from resile.store.sqlite.connection import writing
from resile.store.sqlite.witness import Witness

if TYPE_CHECKING:
    # A batch to write, a lock to release when everything before it is written, or None to end the thread.
    Task = Batch | LockType | None

_UPDATE_RUN = f"UPDATE runs SET ({rows.RUN.partition(', ')[2]}) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE id = ?"


class SqliteWriter(Progress):
    """The writer of one open store; see the contract for the methods."""

    def __init__(self, db: apsw.Connection, witness: Witness) -> None:
        super().__init__()
        self._db = db
        self._path = witness.path
        self._witness = witness
        self._tasks: SimpleQueue[Task] = SimpleQueue()
        self._submitted = 0
        self.closed = False
        self._thread = Thread(target=self._work, name="resile-store-writer", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch, *, at_once: bool = False) -> int:
        self._submitted += 1
        # All earlier batches are durable, so the writer thread is idle and does not touch the connection.
        if at_once and self._durable == self._submitted - 1:
            self._write([batch])
        else:
            self._tasks.put(batch)
        return self._submitted

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
        self._thread.join()
        self._db.close()
        super().close()

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
        if self.error is not None:
            return
        try:
            self.flush_output(output_of(batches))
            with writing(self._db, self._path):
                for batch in batches:
                    write(self._db, batch)
            # A commit to a file that was deleted meanwhile is not durable.
            self._witness.check()
            for batch in batches:
                if batch.entries:
                    self._witness.remember(batch.run, batch.entries[-1].seq)
            self.move(len(batches))
        except StoreError as error:
            self.stop(error)
        except Exception as error:
            self.stop(StoreError("store-failed", f"{self._path}: {type(error).__name__}: {error}", where=self._path))


def write(db: apsw.Connection, batch: Batch) -> None:
    """Write one batch to the tables, inside a transaction; refused where the batch does not hold the lease."""
    run = batch.run
    check_holder(run, rows.lease_of(db, run), batch.token)
    if batch.entries:
        rows.INSERT_LOG.into(db, rows.log_values(run, batch.entries))
    if batch.jobs:
        rows.REPLACE_JOBS.into(db, rows.job_values(run, batch.jobs.values()))
    if batch.attempts:
        rows.REPLACE_ATTEMPTS.into(db, rows.attempt_values(run, batch.attempts.values()))
    if batch.letters or batch.scopes:
        _write_letters(db, batch)
    if batch.row is not None:
        db.execute(_UPDATE_RUN, (*rows.run_values(batch.row), run))
    for number in batch.answered:
        db.execute("UPDATE requests SET taken = 1 WHERE id = ?", (number,))
    if batch.snapshot is not None:
        db.execute("REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (run, *astuple(batch.snapshot)))


def _write_letters(db: apsw.Connection, batch: Batch) -> None:
    """Write the kept letters and scopes of a batch, and delete the dropped letters."""
    run = batch.run
    kept: list[LetterRow] = []
    dropped: list[tuple[int, str, int, str]] = []
    for order in batch.letters:
        if isinstance(order, DropLetter):
            dropped.append((run, order.name, order.index, rows.to_json(order.value)))
            continue
        key = run, order.letter.name, order.letter.item.index
        found = db.execute(f"{rows.SELECT_LETTERS} AND name = ? AND idx = ?", key).get if order.goes_on else None
        kept.append(row_of_letter(run, order.letter, None if found is None else rows.to_letter(found)))
    rows.REPLACE_LETTERS.into(db, rows.letter_values(kept))
    db.executemany("DELETE FROM dead_letters WHERE run = ? AND name = ? AND idx = ? AND item = ?", dropped)
    scopes = [(run, one.scope, one.outer, rows.to_json(one.body)) for one in batch.scopes]
    db.executemany("REPLACE INTO kept_scopes VALUES (?, ?, ?, ?)", scopes)
