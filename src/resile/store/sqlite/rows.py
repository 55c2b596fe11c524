"""Converts the contract's records to rows of SQLite and back; encoding.py has what all databases share.

One statement inserts many rows: each statement releases the GIL once, so a batch of 50 attempts costs a few hand-overs
with a busy engine thread instead of hundreds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from resile.store.contract import Entry, Lease, RunRow
from resile.store.encoding import ATTEMPT, JOB, LETTER, from_json, to_json

if TYPE_CHECKING:
    import apsw

    from resile.store.encoding import Value

ROWS_PER_STATEMENT = 256
DEFINITION_TEXT_BYTES_MAX = 16 * 1024
SEQ_BITS = 36
SEQ_MASK = (1 << SEQ_BITS) - 1

RUN = "id, workflow, dialect, definition, status, epoch, created_at, started_at, ended_at, output, directory, summary"
# All columns, because a database of an older version lacks the last ones.
SELECT_RUNS = "SELECT * FROM runs"
RUN_STORED = (*RUN.split(", "), "fence", "labels", "key")
LOG = "place, event, notes"
# All columns, because a database of an older version lacks the last ones.
SELECT_LEASE = "SELECT * FROM leases WHERE run = ?"
SELECT_LETTERS = f"SELECT {LETTER} FROM dead_letters WHERE run = ?"


class Insert:
    """The statements that insert 1, 2, 4 … rows into one table."""

    def __init__(self, verb: str, table: str, columns: str) -> None:
        self.width = columns.count(",") + 1
        self._head = f"{verb} INTO {table} ({columns}) VALUES "
        self._row = "(" + ",".join("?" * self.width) + ")"
        self._texts: dict[int, str] = {}

    def into(self, db: apsw.Connection, values: Sequence[Value]) -> None:
        """Insert the rows, whose values follow each other in `values`."""
        left, start, size = len(values) // self.width, 0, ROWS_PER_STATEMENT
        while left:
            while size > left:
                size //= 2
            text = self._texts.get(size)
            if text is None:
                text = self._texts[size] = self._head + ",".join([self._row] * size)
            stop = start + size * self.width
            db.execute(text, values[start:stop])
            left, start = left - size, stop


INSERT_LOG = Insert("INSERT", "log", LOG)
REPLACE_JOBS = Insert("REPLACE", "jobs", JOB)
REPLACE_ATTEMPTS = Insert("REPLACE", "attempts", ATTEMPT)
REPLACE_LETTERS = Insert("REPLACE", "dead_letters", LETTER)


def place(run: int, seq: int) -> int:
    """The key of a log entry: run and seq in one number."""
    return run << SEQ_BITS | seq


def log_values(run: int, entries: Iterable[Entry]) -> list[Value]:
    """The column values of log entries, as one flat list."""
    values: list[Value] = []
    first = place(run, 0)
    for entry in entries:
        values += (first | entry.seq, to_json(entry.event), to_json(entry.notes))
    return values


def run_values(row: RunRow) -> tuple[Value, ...]:
    """The column values of a run, without its id."""
    times = (row.created_at, row.started_at, row.ended_at)
    rest = (text_value(row.output), text_value(row.directory), to_json(row.summary))
    return (text_value(row.workflow), row.dialect, row.definition, row.status, row.epoch, *times, *rest)


def to_run(row: Sequence[Any]) -> RunRow:
    """Decode all columns of a run."""
    fields = dict(zip(RUN_STORED, row, strict=False))
    fields.pop("fence", None)
    paths = {name: os.fsdecode(fields[name]) for name in ("workflow", "output", "directory")}
    parsed = {"summary": from_json(fields["summary"], dict[str, Any])}
    parsed["labels"] = from_json(fields.get("labels", "{}"), dict[str, str])
    return RunRow(**fields | paths | parsed)


def lease_of(db: apsw.Connection, run: int) -> Lease | None:
    """The stored lease of a run, even if it no longer holds the run."""
    found = db.execute(SELECT_LEASE, (run,)).get
    return None if found is None else Lease(*found)


def definition_value(definition: bytes) -> str | bytes:
    """A definition as text, or compressed where it is large."""
    if len(definition) <= DEFINITION_TEXT_BYTES_MAX:
        return definition.decode()
    import zlib

    return zlib.compress(definition, 1)


def to_definition(value: str | bytes) -> bytes:
    """Decode the value that `definition_value` wrote."""
    if isinstance(value, str):
        return value.encode()
    import zlib

    try:
        return zlib.decompress(value)
    except zlib.error as error:
        raise ValueError(str(error)) from error


def text_value(text: str) -> str | bytes:
    """The text if SQLite can store it as such, else the system's bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    return text


def holds(db: apsw.Connection, lease: Lease) -> bool:
    """Is this still the lease of its run?"""
    return db.execute("SELECT 1 FROM leases WHERE run = ? AND token = ?", (lease.run, lease.token)).get is not None
