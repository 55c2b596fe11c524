"""Deletes a run from a SQLite store, and gives the space of deleted runs back.

A run's rows are in every table that refers to `runs`, and in the log, which refers to it by the upper bits of its key.
SQLite keeps the pages of deleted rows for later rows. `VACUUM` writes the database anew without them; it holds the
write lock meanwhile, so it waits for a time at which no engine drives a run.
"""

from __future__ import annotations

import os
from typing import Any

import apsw

from resile.store import lease as leases
from resile.store.sqlite import rows
from resile.store.sqlite.witness import WAL

# For less free space, rewriting a large database costs more than it gives back.
FREE_SHARE_KEPT = 0.01

_TABLES = """SELECT t.name, k."from" FROM sqlite_schema AS t, pragma_foreign_key_list(t.name) AS k
    WHERE t.type = 'table' AND k."table" = 'runs'"""
_UNUSED = """DELETE FROM definitions WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM runs WHERE definition = ?1)
    AND NOT EXISTS (SELECT 1 FROM compiled WHERE definition = ?1)"""


def delete_run(db: apsw.Connection, run: int) -> None:
    """Delete the rows of a run, and its definition if no other run or compiled file uses it; in a transaction."""
    definition = db.execute("SELECT definition FROM runs WHERE id = ?", (run,)).get
    db.execute("DELETE FROM log WHERE place >= ? AND place < ?", (rows.place(run, 0), rows.place(run + 1, 0)))
    for table, column in db.execute(_TABLES).fetchall():
        db.execute(f'DELETE FROM "{table}" WHERE "{column}" = ?', (run,))
    db.execute("DELETE FROM runs WHERE id = ?", (run,))
    delete_unused(db, [(definition,)])


def delete_unused(db: apsw.Connection, definitions: list[tuple[Any, ...]]) -> None:
    """Delete the given definitions that no run and no compiled file uses."""
    db.executemany(_UNUSED, definitions)


def run_bytes(db: apsw.Connection, run: int) -> int:
    """About how many bytes the rows of a run have: its log, jobs, attempts, letters and snapshot."""
    log = "SELECT total(length(event) + length(notes) + 16) FROM log WHERE place >= ? AND place < ?"
    found = db.execute(log, (rows.place(run, 0), rows.place(run + 1, 0))).get or 0
    for table, columns in (
        ("jobs", "length(step) + length(scope) + 40"),
        ("attempts", "length(ifnull(failure, '')) + 100"),
        ("dead_letters", "length(item) + length(history) + 100"),
        ("snapshots", "length(state)"),
    ):
        found += db.execute(f"SELECT total({columns}) FROM {table} WHERE run = ?", (run,)).get or 0
    return int(found)


def size_bytes(path: str) -> int:
    """The size of a database with its WAL."""
    files = (path, os.path.realpath(path) + WAL)
    return sum(os.path.getsize(file) for file in files if os.path.exists(file))


def compact(db: apsw.Connection, now: float) -> str:
    """Give the space of deleted rows back; if that was not possible, return why."""
    if db.pragma("freelist_count") <= db.pragma("page_count") * FREE_SHARE_KEPT:
        return ""
    driven: list[Any] = db.execute("SELECT run FROM leases").fetchall()
    for (run,) in driven:
        if not leases.is_free(rows.lease_of(db, run), now):
            return f"run {run} is being driven"
    try:
        db.execute("VACUUM")
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        return "another program is using it"
    except apsw.FullError:
        return "the disk has no room to write it anew"
    return ""
