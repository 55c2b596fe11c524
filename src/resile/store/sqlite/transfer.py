"""Adds a run of another store to a SQLite store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import apsw
from msgspec.structs import astuple

from resile.store import encoding
from resile.store.contract import RunRow, Store
from resile.store.sqlite import rows

ROWS_PER_PART = 1_000

T = TypeVar("T")


def insert_run(db: apsw.Connection, source: Store, row: RunRow, identity: str) -> None:
    """Insert the rows of a run, inside a transaction; `identity` is the name of this database."""
    run = row.id
    marks = ", ".join("?" * 14)
    labels = encoding.to_json(row.labels)
    sql = f"INSERT INTO runs ({rows.RUN}, labels, key) VALUES ({marks})"
    db.execute(sql, (run, *rows.run_values(row), labels, row.key))
    for entries in _parts(source.entries(run)):
        rows.INSERT_LOG.into(db, rows.log_values(run, entries))
    for jobs in _parts(source.jobs(run)):
        rows.REPLACE_JOBS.into(db, encoding.job_values(run, jobs))
    for attempts in _parts(source.attempts(run)):
        rows.REPLACE_ATTEMPTS.into(db, encoding.attempt_values(run, attempts))
    for letters in _parts(source.letters(run)):
        rows.REPLACE_LETTERS.into(db, encoding.letter_values(letters))
    for one in source.kept_scopes(run):
        values = (run, one.scope, one.outer, encoding.to_json(one.body))
        db.execute("REPLACE INTO kept_scopes VALUES (?, ?, ?, ?)", values)
    snapshot = source.latest_snapshot(run)
    if snapshot is not None:
        db.execute("REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (run, *astuple(snapshot)))
    # The name is for this run alone: the next run has the name of this database again.
    db.execute("INSERT OR IGNORE INTO identity VALUES (?, ?)", (run + 1, identity))
    db.execute("REPLACE INTO identity VALUES (?, ?)", (run, source.identity(run)))


def _parts(values: Iterable[T]) -> Iterator[list[T]]:
    waiting = iter(values)
    while part := list(islice(waiting, ROWS_PER_PART)):
        yield part
