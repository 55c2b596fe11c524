"""Converts the contract's records to rows of a database and back; shared by all databases.

Structured values are JSON text, readable with the tools of the database; text that is not valid Unicode (bytes of a
program's output, undecodable paths) survives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from resile.core.actions import Note
from resile.core.events import Event
from resile.model.failure import Failure, LogRange, Usage
from resile.model.items import ItemFailure, KeptScope
from resile.store.contract import AttemptRow, Batch, Entry, JobRow, LetterRow, Request

if TYPE_CHECKING:
    Value = str | bytes | int | float | None

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

# Announced besides the notes of a run as a whole.
_ANNOUNCED = frozenset(("step_parked", "step_judged"))

_encode = msgspec.json.Encoder().encode


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


def signature_history(mark: str) -> str:
    """The statement that counts the attempts that failed with a signature, and those of them whose job passed later.

    Its parameter, written as `mark`, is the pattern of `signature_pattern`.
    """
    return (
        "SELECT count(*), coalesce(sum(CASE WHEN EXISTS (SELECT 1 FROM attempts AS later WHERE later.run = tried.run"
        " AND later.job = tried.job AND (later.epoch > tried.epoch"
        " OR later.epoch = tried.epoch AND later.attempt > tried.attempt)"
        " AND later.ended_at IS NOT NULL AND later.failure IS NULL) THEN 1 ELSE 0 END), 0)"
        f" FROM attempts AS tried WHERE tried.failure LIKE {mark} ESCAPE '!'"
    )


def signature_pattern(signature: str) -> str:
    """The pattern that the JSON of a failure with this signature matches."""
    text = to_json(signature)
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f'%"signature":{text}%'


def letter_values(letters: Iterable[LetterRow]) -> list[Value]:
    """The column values of dead letters, as one flat list."""
    values: list[Value] = []
    for row in letters:
        *head, value, history = astuple(row)
        values += (*head, to_json(value), to_json(history))
    return values


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
    segment, *ranges, failure, pid = row[10:]
    log = None if segment is None else LogRange(segment, *ranges)
    fields = (*row[1:7], Usage(*row[7:10]), log, None if failure is None else from_json(failure, Failure), pid)
    return AttemptRow(*fields)


def to_letter(row: Sequence[Any]) -> LetterRow:
    """Decode the columns LETTER."""
    *head, eligible, item, history = row
    fields = (*head, bool(eligible), from_json(item, Any), from_json(history, tuple[ItemFailure, ...]))
    return LetterRow(*fields)


def to_request(row: Sequence[Any]) -> Request:
    """Decode the columns REQUEST."""
    id_, run, at, kind, body = row
    return Request(id_, run, at, kind, from_json(body, dict[str, Any]))


def is_announced(note: Note) -> bool:
    """Is this event announced to the watchers of all runs?"""
    return not note.job or note.type in _ANNOUNCED


def announcements_of(batch: Batch) -> list[tuple[int, str]]:
    """The run and the note of each announcement that a batch makes."""
    return [(batch.run, to_json(note)) for entry in batch.entries for note in entry.notes if is_announced(note)]


def result_values(batch: Batch) -> list[tuple[str | None, int]]:
    """The result and the id of each request that a batch answers."""
    return [(None if result is None else to_json(result), request) for request, result in batch.answered.items()]


def to_result(row: Sequence[Any]) -> dict[str, Any]:
    """Decode the column result of a request."""
    found: dict[str, Any] = from_json(row[0], dict[str, Any])
    return found


def to_scope(row: Sequence[Any]) -> KeptScope:
    """Decode the columns scope, outer_scope, body of a kept scope."""
    return KeptScope(row[0], row[1], from_json(row[2], dict[str, Any]))
