"""Writes the batches of group commits to the tables of PostgreSQL, in a session of the writer's own.

The rows of the leases are locked first: an engine that takes a run over waits until the commit is done, and so does a
transaction that is tried again while the server still ends its first try.
"""

from __future__ import annotations

from msgspec.structs import astuple

from resile.core.actions import DropLetter
from resile.store import encoding
from resile.store.contract import Batch, LetterRow, row_of_letter
from resile.store.errors import LeaseHeld, StoreError
from resile.store.group_commit import GroupCommit
from resile.store.lease import check_holder
from resile.store.postgres import rows
from resile.store.postgres.bell import ring
from resile.store.postgres.session import Connection, Session

_UPDATE_RUN = (
    f"UPDATE runs SET ({rows.RUN.partition(', ')[2].removesuffix(', labels, key')})"
    " = (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) WHERE id = %s"
)
_LOCK_LEASES = f"SELECT {encoding.LEASE} FROM leases WHERE run = ANY(%s) ORDER BY run FOR NO KEY UPDATE"


class PostgresWriter(GroupCommit):
    """The writer of one open store; see the contract for the methods."""

    def __init__(self, session: Session) -> None:
        self._session = session
        super().__init__(session.address.shown)

    def commit(self, batches: list[Batch]) -> dict[int, StoreError]:
        """Write some batches in one transaction."""
        return self._session.write(lambda db: write(db, batches))

    def disconnect(self) -> None:
        """Close the session."""
        self._session.close()


def write(db: Connection, batches: list[Batch]) -> dict[int, StoreError]:
    """Write batches to the tables, inside a transaction; refuse batches without their lease, and return the reasons."""
    held = {row[0]: row for row in db.execute(_LOCK_LEASES, ([batch.run for batch in batches],))}
    refused: dict[int, StoreError] = {}
    for index, batch in enumerate(batches):
        try:
            check_holder(batch.run, rows.to_lease(held.get(batch.run)), batch.token)
        except LeaseHeld as error:
            refused[index] = error
    for batch in _join([batch for index, batch in enumerate(batches) if index not in refused]):
        run = batch.run
        if batch.entries:
            rows.copy_log(db, run, batch.entries)
        if batch.jobs:
            rows.write_jobs(db, run, batch.jobs.values())
        if batch.attempts:
            rows.write_attempts(db, run, batch.attempts.values())
        if batch.letters or batch.scopes:
            _write_letters(db, batch)
        if batch.row is not None:
            db.execute(_UPDATE_RUN, (*rows.run_values(batch.row), run))
            ring(db, run)
        for values in encoding.result_values(batch):
            db.execute("UPDATE requests SET taken = true, result = %s WHERE id = %s", values)
        announcements = encoding.announcements_of(batch)
        if announcements:
            rows.announce(db, announcements)
        if batch.snapshot is not None:
            sql = (
                "INSERT INTO snapshots VALUES (%s, %s, %s, %s) ON CONFLICT (run)"
                " DO UPDATE SET seq = excluded.seq, format = excluded.format, state = excluded.state"
            )
            db.execute(sql, (run, *astuple(batch.snapshot)))
    return refused


def _join(batches: list[Batch]) -> list[Batch]:
    """Join the batches of each run into one, unless their order matters."""
    joined: list[Batch] = []
    for batch in sorted(batches, key=lambda one: one.run):
        last = joined[-1] if joined else None
        if last is None or last.run != batch.run or batch.letters or batch.scopes or last.letters or last.scopes:
            joined.append(batch)
            continue
        joined[-1] = Batch(
            run=batch.run,
            token=batch.token,
            entries=last.entries + batch.entries,
            jobs=last.jobs | batch.jobs,
            attempts=last.attempts | batch.attempts,
            row=batch.row or last.row,
            snapshot=batch.snapshot or last.snapshot,
            answered=last.answered | batch.answered,
        )
    return joined


def _write_letters(db: Connection, batch: Batch) -> None:
    """Write the kept letters and scopes of a batch, and delete the dropped letters."""
    run = batch.run
    kept: dict[tuple[str, int], LetterRow] = {}
    for order in batch.letters:
        if isinstance(order, DropLetter):
            key = (run, rows.pack(order.name), order.index, encoding.to_json(order.value))
            db.execute("DELETE FROM dead_letters WHERE run = %s AND name = %s AND idx = %s AND item = %s", key)
            continue
        before = None
        if order.goes_on:
            where = (run, rows.pack(order.letter.name), order.letter.item.index)
            found = db.execute(f"{rows.SELECT_LETTERS} AND name = %s AND idx = %s", where).fetchone()
            before = None if found is None else rows.read_letter(found)
        kept[order.letter.name, order.letter.item.index] = row_of_letter(run, order.letter, before)
    rows.write_letters(db, kept.values())
    rows.write_scopes(db, run, batch.scopes)
