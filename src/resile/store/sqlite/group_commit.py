"""Writes the batches of group commits to the tables of SQLite, on a connection of the writer's own."""

from __future__ import annotations

import apsw
from msgspec.structs import astuple

from resile.core.actions import DropLetter
from resile.store import encoding
from resile.store.contract import Batch, LetterRow, row_of_letter
from resile.store.errors import LeaseHeld, StoreError
from resile.store.group_commit import GroupCommit
from resile.store.lease import check_holder
from resile.store.sqlite import rows
from resile.store.sqlite.connection import writing
from resile.store.sqlite.witness import Witness

_UPDATE_RUN = f"UPDATE runs SET ({rows.RUN.partition(', ')[2]}) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE id = ?"


class SqliteWriter(GroupCommit):
    """The writer of one open store; see the contract for the methods."""

    def __init__(self, db: apsw.Connection, witness: Witness) -> None:
        self._db = db
        self._witness = witness
        super().__init__(witness.path)

    def commit(self, batches: list[Batch]) -> dict[int, StoreError]:
        """Write some batches in one transaction."""
        refused: dict[int, StoreError] = {}
        with writing(self._db, self.place):
            for index, batch in enumerate(batches):
                try:
                    check_holder(batch.run, rows.lease_of(self._db, batch.run), batch.token)
                except LeaseHeld as error:
                    refused[index] = error
                else:
                    write(self._db, batch)
        # A commit to a file that was deleted meanwhile is not durable.
        self._witness.check()
        written = (batch for index, batch in enumerate(batches) if batch.entries and index not in refused)
        for run, seq in {batch.run: batch.entries[-1].seq for batch in written}.items():
            self._witness.remember(run, seq)
        return refused

    def disconnect(self) -> None:
        """Close the connection."""
        self._db.close()


def write(db: apsw.Connection, batch: Batch) -> None:
    """Write one batch to the tables, inside a transaction that holds the lease."""
    run = batch.run
    if batch.entries:
        rows.INSERT_LOG.into(db, rows.log_values(run, batch.entries))
    if batch.jobs:
        rows.REPLACE_JOBS.into(db, encoding.job_values(run, batch.jobs.values()))
    if batch.attempts:
        rows.REPLACE_ATTEMPTS.into(db, encoding.attempt_values(run, batch.attempts.values()))
    if batch.letters or batch.scopes:
        _write_letters(db, batch)
    if batch.row is not None:
        db.execute(_UPDATE_RUN, (*rows.run_values(batch.row), run))
    if batch.answered:
        db.executemany("UPDATE requests SET taken = 1, result = ? WHERE id = ?", encoding.result_values(batch))
    announcements = encoding.announcements_of(batch)
    if announcements:
        db.executemany("INSERT INTO announcements (run, note) VALUES (?, ?)", announcements)
    if batch.snapshot is not None:
        db.execute("REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (run, *astuple(batch.snapshot)))


def _write_letters(db: apsw.Connection, batch: Batch) -> None:
    """Write the kept letters and scopes of a batch, and delete the dropped letters."""
    run = batch.run
    kept: list[LetterRow] = []
    dropped: list[tuple[int, str, int, str]] = []
    for order in batch.letters:
        if isinstance(order, DropLetter):
            dropped.append((run, order.name, order.index, encoding.to_json(order.value)))
            continue
        key = run, order.letter.name, order.letter.item.index
        found = db.execute(f"{rows.SELECT_LETTERS} AND name = ? AND idx = ?", key).get if order.goes_on else None
        kept.append(row_of_letter(run, order.letter, None if found is None else encoding.to_letter(found)))
    rows.REPLACE_LETTERS.into(db, encoding.letter_values(kept))
    db.executemany("DELETE FROM dead_letters WHERE run = ? AND name = ? AND idx = ? AND item = ?", dropped)
    scopes = [(run, one.scope, one.outer, encoding.to_json(one.body)) for one in batch.scopes]
    db.executemany("REPLACE INTO kept_scopes VALUES (?, ?, ?, ?)", scopes)
