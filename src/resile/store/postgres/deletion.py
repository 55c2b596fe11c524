"""Deletes a run from a PostgreSQL store, and frees the space of deleted runs.

`VACUUM` makes the space free for later rows, and returns the free space at the end of a table. `VACUUM FULL` would
return all free space, but lock every table meanwhile, which other machines may use.
"""

from __future__ import annotations

from typing import Any

from resile.store import encoding
from resile.store import lease as leases
from resile.store.postgres import rows
from resile.store.postgres.session import NOW, STATEMENT_SECONDS_MAX, Connection, value_of

# All tables with rows of a run; those with a foreign key to `runs` come last.
TABLES = (
    "log",
    "jobs",
    "attempts",
    "dead_letters",
    "kept_scopes",
    "snapshots",
    "submissions",
    "announcements",
    "claims",
    "requests",
    "leases",
)
_SIZES = {
    "log": "length(event) + length(notes) + 16",
    "jobs": "length(step) + length(scope) + 40",
    "attempts": "length(coalesce(failure, '')) + 100",
    "dead_letters": "length(item) + length(history) + 100",
    "snapshots": "length(state)",
}


def delete_run(db: Connection, run: int) -> None:
    """Delete the rows of a run, and its definition if no other run or compiled file uses it; in a transaction."""
    for table in TABLES:
        db.execute(f"DELETE FROM {table} WHERE run = %s", (run,))
    gone = db.execute("DELETE FROM runs WHERE id = %s RETURNING definition", (run,))
    delete_unused(db, [definition for (definition,) in gone])


def delete_unused(db: Connection, definitions: list[Any]) -> None:
    """Delete the given definitions that no run and no compiled file uses."""
    sql = "DELETE FROM definitions WHERE hash = ANY(%s)"
    for table in ("runs", "compiled"):
        sql += f" AND NOT EXISTS (SELECT 1 FROM {table} WHERE definition = hash)"
    db.execute(sql, (definitions,))


def run_bytes(db: Connection, run: int) -> int:
    """About how many bytes the rows of a run have: its log, jobs, attempts, letters and snapshot."""
    sums = (f"(SELECT coalesce(sum({size}), 0) FROM {table} WHERE run = %s)" for table, size in _SIZES.items())
    return int(value_of(db, f"SELECT {' + '.join(sums)}", (run,) * len(_SIZES)))


def size_bytes(db: Connection) -> int:
    """The size of all tables of the schema and their indexes."""
    sql = """SELECT coalesce(sum(pg_relation_size(oid) + coalesce(pg_relation_size(nullif(reltoastrelid, 0)), 0)), 0)
        FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'i')"""
    return int(value_of(db, sql))


def compact(db: Connection, now: float) -> str:
    """Free the space of deleted rows; if that was not possible, return why."""
    for *lease, wall in db.execute(f"SELECT {encoding.LEASE}, {NOW} FROM leases WHERE token IS NOT NULL ORDER BY run"):
        if not leases.is_free(rows.to_lease(lease), now, wall):
            return f"run {lease[0]} is being driven"
    db.execute("SET statement_timeout = 0")
    try:
        for table in (*TABLES, "runs", "definitions"):
            db.execute(f"VACUUM {table}")
    finally:
        if not db.closed:
            db.execute(f"SET statement_timeout = '{STATEMENT_SECONDS_MAX}s'")
    return ""
