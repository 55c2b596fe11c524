"""Dead letters: how every store makes rows of them, and how SQLite stores and finds them.

    DeadLetter (core) --as_row--> LetterRow --values--> dead_letters --to_letter--> LetterRow (surfaces)

The scopes around a letter of an inner map are stored in `kept_scopes`.

An item is eligible for redrive unless its last attempt was lost: its steps may take the machine down, so a user should
look at it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from resile.core.actions import DropLetter, KeepLetter
from resile.model.failure import Kind
from resile.model.items import DeadLetter, ItemFailure, KeptScope
from resile.model.limits import ITEM_HISTORY_MAX
from resile.store.contract import LetterRow
from resile.store.sqlite.rows import Insert, from_json, to_json

if TYPE_CHECKING:
    import apsw

    from resile.store.sqlite.rows import Value

LETTER = (
    "run, name, idx, map, step, job, scope, reason, signature, failure_count, first_at, last_at, eligible, item,"
    " history"
)
SELECT = f"SELECT {LETTER} FROM dead_letters WHERE run = ?"
COUNT = (
    "SELECT name, map, step, job, scope, count(*) FROM dead_letters WHERE run = ? GROUP BY name, job ORDER BY name, job"
)
SCOPE = "SELECT scope, outer_scope, body FROM kept_scopes WHERE run = ? AND scope = ?"
_REPLACE = Insert("REPLACE", "dead_letters", LETTER)
_DELETE = "DELETE FROM dead_letters WHERE run = ?"


def correlation_id(run: int, item_id: str) -> str:
    """The name of an item that is the same in every drive of its run, for correlating traces."""
    return f"{run}:{item_id}"


def as_row(run: int, letter: DeadLetter, before: LetterRow | None = None) -> LetterRow:
    """The row of a dead letter; if the same item had left a letter `before`, its history comes first."""
    history = letter.item.history
    if before is not None and before.value == letter.item.value:
        history = (*before.history, *history)[-ITEM_HISTORY_MAX:]
    last = history[-1] if history else None
    item_id = f"{letter.name}[{letter.item.index}]"
    return LetterRow(
        name=letter.name,
        index=letter.item.index,
        map=letter.map,
        step=letter.step,
        job=letter.job,
        scope=letter.scope,
        item_id=item_id,
        correlation_id=correlation_id(run, item_id),
        reason=letter.reason,
        signature=letter.reason if last is None else last.signature or f"{last.kind}: {last.step}",
        failure_count=len(history),
        first_at=history[0].at if history else letter.at,
        last_at=letter.at if last is None else last.at,
        eligible=last is None or last.kind != Kind.LOST,
        value=letter.item.value,
        history=history,
    )


def write(
    db: apsw.Connection, run: int, orders: Iterable[KeepLetter | DropLetter], scopes: Iterable[KeptScope]
) -> None:
    """Write kept letters and scopes, and delete dropped letters, inside a transaction."""
    kept: list[LetterRow] = []
    dropped: list[tuple[int, str, int, str]] = []
    for order in orders:
        if isinstance(order, DropLetter):
            dropped.append((run, order.name, order.index, to_json(order.value)))
            continue
        key = order.letter.name, order.letter.item.index
        found = db.execute(f"{SELECT} AND name = ? AND idx = ?", (run, *key)).fetchone() if order.goes_on else None
        kept.append(as_row(run, order.letter, None if found is None else to_letter(found)))
    _REPLACE.into(db, _values(run, kept))
    db.executemany(f"{_DELETE} AND name = ? AND idx = ? AND item = ?", dropped)
    rows = [(run, one.scope, one.outer, to_json(one.body)) for one in scopes]
    db.executemany("REPLACE INTO kept_scopes VALUES (?, ?, ?, ?)", rows)


def purge(db: apsw.Connection, run: int, keys: Sequence[tuple[str, int]] | None) -> int:
    """Delete all letters of a run, or these, inside a transaction; return how many were deleted."""
    before = db.total_changes()
    if keys is None:
        db.execute(_DELETE, (run,))
    else:
        db.executemany(f"{_DELETE} AND name = ? AND idx = ?", [(run, *key) for key in keys])
    gone = db.total_changes() - before
    if keys is None:
        db.execute("DELETE FROM kept_scopes WHERE run = ?", (run,))
    return gone


def to_scope(row: Sequence[Any]) -> KeptScope:
    """Decode the columns of SCOPE."""
    scope, outer, body = row
    return KeptScope(scope, outer, from_json(body, dict[str, Any]))


def to_letter(row: Sequence[Any]) -> LetterRow:
    """Decode the columns LETTER."""
    run, name, index, map_, step, job, scope = row[:7]
    reason, signature, failures, first_at, last_at, eligible, item, history = row[7:]
    item_id = f"{name}[{index}]"
    return LetterRow(
        name=name,
        index=index,
        map=map_,
        step=step,
        job=job,
        scope=scope,
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


def _values(run: int, rows: Iterable[LetterRow]) -> list[Value]:
    """The column values of letters, as one flat list."""
    values: list[Value] = []
    for row in rows:
        values += (run, row.name, row.index, row.map, row.step, row.job, row.scope)
        values += (row.reason, row.signature, row.failure_count)
        values += (row.first_at, row.last_at, row.eligible, to_json(row.value), to_json(row.history))
    return values
