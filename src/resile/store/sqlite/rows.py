"""Converts the contract's records to rows of SQLite and back.

One statement inserts many rows: each statement releases the GIL once, so a batch of 50 attempts costs a few hand-overs
with a busy engine thread instead of hundreds. Structured values are JSON text, readable with the `sqlite3` tool; text
that is not valid Unicode (bytes of a program's output, undecodable paths) survives.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from resile.core.actions import Note
from resile.core.events import Event
from resile.model.failure import Failure, LogRange, Usage
from resile.model.items import ItemFailure
from resile.store.contract import AttemptRow, Entry, JobRow, Lease, LetterRow, Request, RunRow

if TYPE_CHECKING:
    import apsw

    Value = str | bytes | int | float | None

ROWS_PER_STATEMENT = 256
DEFINITION_TEXT_BYTES_MAX = 16 * 1024
SEQ_BITS = 36
SEQ_MASK = (1 << SEQ_BITS) - 1

RUN = "id, workflow, dialect, definition, status, epoch, created_at, started_at, ended_at, output, directory, summary"
LOG = "place, event, notes"
JOB = "run, id, step, scope, status, attempts, exit_code, recovered, tolerated, cause, started_at, ended_at"
ATTEMPT = (
    "run, job, epoch, attempt, started_at, ended_at, exit_code, wall_seconds, cpu_seconds, rss_bytes_max,"
    " segment, out_offset, out_length, err_offset, err_length, failure, pid"
)
LETTER = (
    "run, name, idx, map, step, job, scope, reason, signature, failure_count, first_at, last_at, eligible, item,"
    " history"
)
REQUEST = "id, run, at, kind, body"
LEASE = "run, token, host, boot, pid, pid_started, since, expires_at, expires_boot_seconds, number"
# All columns, because a database of an older version lacks the last ones.
SELECT_LEASE = "SELECT * FROM leases WHERE run = ?"
SELECT_LETTERS = f"SELECT {LETTER} FROM dead_letters WHERE run = ?"

_encode = msgspec.json.Encoder().encode


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


def to_json(value: object) -> str:
    """JSON text; lone surrogates, which UTF-8 can't hold, are escaped."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        import json

        return json.dumps(msgspec.to_builtins(value))


def from_json(text: str, type_: Any) -> Any:
    """Decode the JSON that `to_json` wrote."""
    try:
        return _decoder(type_).decode(text)
    except msgspec.DecodeError:
        import json

        # Only escaped lone surrogates fail in the fast decoder.
        return msgspec.convert(json.loads(text), type_)


# Decoders are made when first needed, because a fresh run reads nothing back.
@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


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


def job_values(run: int, jobs: Iterable[JobRow]) -> list[Value]:
    """The column values of jobs, as one flat list."""
    values: list[Value] = []
    for job in jobs:
        values += (run, job.id, job.step, job.scope, job.status, job.attempts, job.exit_code)
        values += (job.recovered, job.tolerated, None if job.cause is None else to_json(job.cause))
        values += (job.started_at, job.ended_at)
    return values


_NO_LOG = (None, None, None, None, None)


def attempt_values(run: int, attempts: Iterable[AttemptRow]) -> list[Value]:
    """The column values of attempts, as one flat list."""
    values: list[Value] = []
    for row in attempts:
        usage, log = row.usage, row.log
        values += (run, row.job, row.epoch, row.attempt, row.started_at, row.ended_at, row.exit_code)
        values += (usage.wall_seconds, usage.cpu_seconds, usage.rss_bytes_max)
        values += (log.segment, log.out_offset, log.out_length, log.err_offset, log.err_length) if log else _NO_LOG
        values += (None if row.failure is None else to_json(row.failure), row.pid)
    return values


def letter_values(letters: Iterable[LetterRow]) -> list[Value]:
    """The column values of dead letters, as one flat list."""
    values: list[Value] = []
    for row in letters:
        *head, value, history = astuple(row)
        values += (*head, to_json(value), to_json(history))
    return values


def run_values(row: RunRow) -> tuple[Value, ...]:
    """The column values of a run, without its id."""
    times = (row.created_at, row.started_at, row.ended_at)
    rest = (_text(row.output), _text(row.directory), to_json(row.summary))
    return (_text(row.workflow), row.dialect, row.definition, row.status, row.epoch, *times, *rest)


def to_entry(row: Sequence[Any]) -> Entry:
    """Decode the columns seq, event, notes."""
    seq, event, notes = row
    return Entry(seq, from_json(event, Event), from_json(notes, tuple[Note, ...]))


def to_job(row: Sequence[Any]) -> JobRow:
    """Decode the columns JOB."""
    recovered, tolerated, cause = row[7:10]
    why = None if cause is None else from_json(cause, dict[str, Any])
    fields = (*row[1:7], bool(recovered), bool(tolerated), why, *row[10:])
    return JobRow(*fields)


def to_attempt(row: Sequence[Any]) -> AttemptRow:
    """Decode the columns ATTEMPT."""
    failure, pid = row[15:]
    log = None if row[10] is None else LogRange(*row[10:15])
    fields = (*row[1:7], Usage(*row[7:10]), log, None if failure is None else from_json(failure, Failure), pid)
    return AttemptRow(*fields)


def to_letter(row: Sequence[Any]) -> LetterRow:
    """Decode the columns LETTER."""
    *head, eligible, item, history = row
    fields = (*head, bool(eligible), from_json(item, Any), from_json(history, tuple[ItemFailure, ...]))
    return LetterRow(*fields)


def to_run(row: Sequence[Any]) -> RunRow:
    """Decode the columns RUN."""
    fields = dict(zip(RUN.split(", "), row, strict=True))
    paths = {name: os.fsdecode(fields[name]) for name in ("workflow", "output", "directory")}
    return RunRow(**fields | paths | {"summary": from_json(fields["summary"], dict[str, Any])})


def to_request(row: Sequence[Any]) -> Request:
    """Decode the columns REQUEST."""
    id_, run, at, kind, body = row
    return Request(id_, run, at, kind, from_json(body, dict[str, Any]))


def lease_of(db: apsw.Connection, run: int) -> Lease | None:
    """The stored lease of a run, even if it is free by now."""
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


def _text(text: str) -> str | bytes:
    """The text if SQLite can store it as such, else the system's bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    return text
