"""Makes the row of a dead letter, for every store."""

from __future__ import annotations

from resile.model.failure import Kind
from resile.model.items import DeadLetter
from resile.model.limits import ITEM_HISTORY_MAX
from resile.store.contract import LetterRow


def as_row(run: int, letter: DeadLetter, before: LetterRow | None = None) -> LetterRow:
    """The row of a dead letter; if the same item had left a letter `before`, its history comes first.

    An item is eligible for redrive unless its last attempt was lost: its steps may take the machine down, so a user
    should look at it first.
    """
    history = letter.item.history
    if before is not None and before.value == letter.item.value:
        history = (*before.history, *history)[-ITEM_HISTORY_MAX:]
    last = history[-1] if history else None
    return LetterRow(
        run=run,
        name=letter.name,
        index=letter.item.index,
        map=letter.map,
        step=letter.step,
        job=letter.job,
        scope=letter.scope,
        reason=letter.reason,
        signature=letter.reason if last is None else last.signature or f"{last.kind}: {last.step}",
        failure_count=len(history),
        first_at=history[0].at if history else letter.at,
        last_at=letter.at if last is None else last.at,
        eligible=last is None or last.kind != Kind.LOST,
        value=letter.item.value,
        history=history,
    )
