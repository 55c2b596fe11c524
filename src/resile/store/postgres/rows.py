"""Converts the contract's records to rows of PostgreSQL and back; encoding.py has what all databases share.

log                               by COPY
jobs, attempts, letters           one statement for all rows, which travel as one JSON document
texts with NUL or without UTF-8   as a JSON string behind MARK, because PostgreSQL can't hold them
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple

from resile.model.items import KeptScope
from resile.store.contract import AttemptRow, Entry, JobRow, Lease, LetterCount, LetterRow, RunRow, Store
from resile.store.encoding import (
    ATTEMPT,
    JOB,
    LEASE,
    LETTER,
    attempt_values,
    from_json,
    job_values,
    letter_values,
    to_attempt,
    to_job,
    to_json,
    to_letter,
)
from resile.store.postgres.session import Connection

if TYPE_CHECKING:
    from resile.store.encoding import Value

MARK = "\x1a"
ROWS_PER_STATEMENT = 1_000

RUN = (
    "id, workflow, dialect, definition, status, epoch, created_at, started_at, ended_at, output, directory, summary,"
    " labels, key"
)
SELECT_RUNS = f"SELECT {RUN} FROM runs"
SELECT_LETTERS = f"SELECT {LETTER} FROM dead_letters WHERE run = %s"
SELECT_LEASE = f"SELECT {LEASE} FROM leases WHERE run = %s"
_COPY_LOG = "COPY log (run, seq, event, notes) FROM STDIN"


def pack(text: str) -> str:
    """The text, or its escaped form if PostgreSQL can't hold it."""
    if text.isascii():
        if "\0" not in text and not text.startswith(MARK):
            return text
    else:
        try:
            text.encode()
            if "\0" not in text and not text.startswith(MARK):
                return text
        except UnicodeEncodeError:
            pass
    return MARK + json.dumps(text)


def unpack(text: str) -> str:
    """The text that `pack` was given."""
    return str(json.loads(text[1:])) if text.startswith(MARK) else text


class Upsert:
    """The statement that inserts rows into one table, or replaces those with the same key."""

    def __init__(self, table: str, columns: str, keys: int, texts: Sequence[str]) -> None:
        names = columns.split(", ")
        self.names = names
        self._texts = [names.index(name) for name in texts]
        sets = ", ".join(f"{name} = excluded.{name}" for name in names[keys:])
        self._sql = (
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM json_populate_recordset(NULL::{table}, %s::json)"
            f" ON CONFLICT ({', '.join(names[:keys])}) DO UPDATE SET {sets}"
        )

    def into(self, db: Connection, values: Sequence[Value]) -> None:
        """Write the rows, whose values follow each other in `values`."""
        width = len(self.names)
        rows = [dict(zip(self.names, values[at : at + width], strict=True)) for at in range(0, len(values), width)]
        for row in rows:
            for index in self._texts:
                text = row[self.names[index]]
                if text is not None:
                    row[self.names[index]] = pack(str(text))
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            db.execute(self._sql, (to_json(rows[start : start + ROWS_PER_STATEMENT]),))

    def unpack(self, row: Sequence[Any]) -> list[Any]:
        """The values of a row from the database, with its texts unescaped."""
        values = list(row)
        for index in self._texts:
            if values[index] is not None:
                values[index] = unpack(values[index])
        return values


JOBS = Upsert("jobs", JOB, 2, ("step", "scope"))
ATTEMPTS = Upsert("attempts", ATTEMPT, 4, ("segment",))
LETTERS = Upsert("dead_letters", LETTER, 3, ("name", "map", "step", "reason", "signature"))


def copy_log(db: Connection, run: int, entries: Iterable[Entry]) -> None:
    """Append entries to the log of a run, as the text that COPY reads; JSON has neither tabs nor line ends."""
    with db.cursor() as cursor, cursor.copy(_COPY_LOG) as copy:
        for entry in entries:
            copy.write(f"{run}\t{entry.seq}\t{_escape(entry.event)}\t{_escape(entry.notes)}\n")


def _escape(value: object) -> str:
    """JSON as COPY reads it."""
    return to_json(value).replace("\\", "\\\\")


def write_jobs(db: Connection, run: int, jobs: Iterable[JobRow]) -> None:
    """Write jobs of a run."""
    JOBS.into(db, job_values(run, jobs))


def write_attempts(db: Connection, run: int, attempts: Iterable[AttemptRow]) -> None:
    """Write attempts of a run."""
    ATTEMPTS.into(db, attempt_values(run, attempts))


def write_letters(db: Connection, letters: Iterable[LetterRow]) -> None:
    """Write dead letters."""
    LETTERS.into(db, letter_values(letters))


def write_scopes(db: Connection, run: int, scopes: Iterable[KeptScope]) -> None:
    """Write kept scopes of a run."""
    sql = (
        "INSERT INTO kept_scopes VALUES (%s, %s, %s, %s) ON CONFLICT (run, scope)"
        " DO UPDATE SET outer_scope = excluded.outer_scope, body = excluded.body"
    )
    for one in scopes:
        db.execute(sql, (run, one.scope, one.outer, to_json(one.body)))


def read_job(row: Sequence[Any]) -> JobRow:
    """Decode the columns JOB."""
    return to_job(JOBS.unpack(row))


def read_attempt(row: Sequence[Any]) -> AttemptRow:
    """Decode the columns ATTEMPT."""
    return to_attempt(ATTEMPTS.unpack(row))


def read_letter(row: Sequence[Any]) -> LetterRow:
    """Decode the columns LETTER."""
    return to_letter(LETTERS.unpack(row))


def to_count(row: Sequence[Any]) -> LetterCount:
    """Decode name, map, step, job, scope and number of the letters of one fan-out."""
    name, map_, step, *numbers = row
    return LetterCount(unpack(name), unpack(map_), unpack(step), *numbers)


def run_values(row: RunRow) -> tuple[Value, ...]:
    """The values of the columns RUN, without its id and its labels."""
    times = (row.created_at, row.started_at, row.ended_at)
    rest = (pack(row.output), pack(row.directory), to_json(row.summary))
    return (pack(row.workflow), row.dialect, row.definition, row.status, row.epoch, *times, *rest)


def to_run(row: Sequence[Any]) -> RunRow:
    """Decode the columns RUN."""
    fields = dict(zip(RUN.split(", "), row, strict=True))
    paths = {name: unpack(fields[name]) for name in ("workflow", "output", "directory")}
    parsed = {
        "summary": from_json(fields["summary"], dict[str, Any]),
        "labels": from_json(fields["labels"], dict[str, str]),
    }
    return RunRow(**fields | paths | parsed)


def to_lease(row: Sequence[Any] | None) -> Lease | None:
    """Decode the columns LEASE; None if no engine has the lease."""
    return None if row is None or row[1] is None else Lease(*row)


def announce(db: Connection, announcements: Sequence[tuple[int, str]]) -> None:
    """Write announcements, inside a transaction.

    Positions become visible in order, because only one transaction at a time can take some.
    """
    db.execute("SELECT pg_advisory_xact_lock(hashtextextended('resile announcements ' || current_schema(), 0))")
    with db.cursor() as cursor:
        cursor.executemany("INSERT INTO announcements (run, note) VALUES (%s, %s)", announcements)


def insert_run(db: Connection, source: Store, row: RunRow, identity: str) -> None:
    """Insert the rows of a run of another store, inside a transaction; `identity` is the name of this database."""
    run = row.id
    values = (run, *run_values(row), to_json(row.labels), pack(row.key))
    db.execute(f"INSERT INTO runs ({RUN}) VALUES ({', '.join(['%s'] * len(values))})", values)
    # Later runs get higher numbers.
    db.execute("SELECT setval(pg_get_serial_sequence('runs', 'id'), greatest(%s, (SELECT max(id) FROM runs)))", (run,))
    db.execute("INSERT INTO leases (run) VALUES (%s)", (run,))
    copy_log(db, run, source.entries(run))
    write_jobs(db, run, source.jobs(run))
    write_attempts(db, run, source.attempts(run))
    write_letters(db, source.letters(run))
    write_scopes(db, run, source.kept_scopes(run))
    snapshot = source.latest_snapshot(run)
    if snapshot is not None:
        db.execute("INSERT INTO snapshots VALUES (%s, %s, %s, %s)", (run, *astuple(snapshot)))
    # The name is for this run alone: the next run has the name of this database again.
    name = "INSERT INTO identity VALUES (%s, %s) ON CONFLICT (first_run) DO"
    db.execute(f"{name} NOTHING", (run + 1, identity))
    db.execute(f"{name} UPDATE SET id = excluded.id", (run, source.identity(run)))
