"""Dead letters: how one becomes a row, for every store, and how SQLite keeps and finds them.

    DeadLetter (core) --as_row--> LetterRow --values--> dead_letters --to_letter--> LetterRow (surfaces)

An item is eligible for redrive unless its last attempt was lost: what it runs may take the machine down, so somebody
looks at it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from resile.model.letters import DeadLetter, ItemFailure
from resile.store.contract import LetterRow
from resile.store.rows import Insert, from_json, to_json

if TYPE_CHECKING:
    import apsw

    from resile.store.rows import Value

LETTER = "run, job, idx, step, item_id, reason, signature, failure_count, first_at, last_at, eligible, item, history"
SELECT = f"SELECT {LETTER} FROM dead_letters WHERE run = ?"
COUNT = "SELECT job, step, count(*) FROM dead_letters WHERE run = ? GROUP BY job ORDER BY job"
_REPLACE = Insert("REPLACE", "dead_letters", LETTER)
_DELETE = "DELETE FROM dead_letters WHERE run = ?"


def correlation_id(run: int, item_id: str) -> str:
    """What an item is called in every drive of its run, wherever its traces are put together."""
    return f"{run}:{item_id}"


def as_row(run: int, letter: DeadLetter) -> LetterRow:
    """What the surfaces see of a dead letter."""
    history = letter.item.history
    last = history[-1] if history else None
    return LetterRow(
        job=letter.job,
        index=letter.item.index,
        step=letter.step,
        item_id=letter.item_id,
        correlation_id=correlation_id(run, letter.item_id),
        reason=letter.reason,
        signature=letter.reason if last is None else last.signature or f"{last.kind}: {last.step}",
        failure_count=len(history),
        first_at=history[0].at if history else letter.at,
        last_at=letter.at if last is None else last.at,
        eligible=last is None or last.kind != "lost",
        value=letter.item.value,
        history=history,
    )


def write(db: apsw.Connection, run: int, letters: Iterable[DeadLetter], gone: Iterable[tuple[int, int]]) -> None:
    """Add some letters and remove others, inside a transaction."""
    _REPLACE.into(db, _values(run, letters))
    db.executemany(f"{_DELETE} AND job = ? AND idx = ?", [(run, *key) for key in gone])


def purge(db: apsw.Connection, run: int, keys: Sequence[tuple[int, int]] | None) -> int:
    """Remove all letters of a run or these, inside a transaction; how many there were."""
    before = db.total_changes()
    if keys is None:
        db.execute(_DELETE, (run,))
    else:
        write(db, run, (), keys)
    return db.total_changes() - before


def to_letter(row: Sequence[Any]) -> LetterRow:
    """From the columns LETTER."""
    run, job, index, step, item_id, reason, signature, failures, first_at, last_at, eligible, item, history = row
    return LetterRow(
        job=job,
        index=index,
        step=step,
        item_id=item_id,
        correlation_id=correlation_id(run, item_id),
        reason=reason,
        signature=signature,
        failure_count=failures,
        first_at=first_at,
        last_at=last_at,
        eligible=bool(eligible),
        value=from_json(item, Any),
        history=from_json(history, tuple[ItemFailure, ...]),
    )


def _values(run: int, letters: Iterable[DeadLetter]) -> list[Value]:
    """The rows of some letters, flat."""
    values: list[Value] = []
    for letter in letters:
        row = as_row(run, letter)
        values += (run, row.job, row.index, row.step, row.item_id, row.reason, row.signature, row.failure_count)
        values += (row.first_at, row.last_at, row.eligible, to_json(row.value), to_json(row.history))
    return values
