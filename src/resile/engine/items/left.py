"""Finds the items that a rerun of a failed fan-out runs: those that failed, with the stored scopes in which they go on.

    dead letters of the fan-out                           \
    items in the log, without those whose jobs succeeded   } --> items file --read_kept_items--> Items and their scopes

The dead letters are the items that are left. If some were purged, or the fan-out writes none, the log has the items.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from resile.core.events import ItemsRead
from resile.core.fanout.naming import fan_name
from resile.engine.evaluation.map_statistics import is_fine, item_jobs
from resile.engine.items.listing import write_list
from resile.model.items import Item

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resile.core.state import Job, State
    from resile.store.contract import Store


def list_items_left(store: Store, run: int, state: State, job: Job, path: str) -> int | None:
    """Write the items of a fan-out that did not succeed to `path`; return their number, or None if they are unknown."""
    fan = state.fans[job.id]
    wanted = fan.total - fan.successful
    letters = (letter for letter in store.letters(run, fan_name(state, job)) if letter.last_at >= fan.listed_at)
    count = write_list(path, (Item(letter.index, letter.value, letter.history) for letter in letters))
    if count != wanted:
        count = write_list(path, _items_in_log(store, run, state, job))
    return count if count == wanted else None


def _items_in_log(store: Store, run: int, state: State, job: Job) -> Iterator[Item]:
    """The items that the fan-out listed, without those whose jobs all succeeded."""
    fan = state.fans[job.id]
    begun = item_jobs(state, job, store.jobs(run))
    done = {index for index, rows in begun.items() if all(is_fine(row) for row in rows)}
    for entry in store.entries(run):
        event = entry.event
        if type(event) is ItemsRead and event.job == job.id and event.label == fan.listed:
            for item in event.items:
                if item.index not in done:
                    done.add(item.index)
                    yield Item(item.index, item.value)


def kept_scopes(store: Store, run: int, items: Sequence[Item]) -> tuple[dict[str, Any], ...]:
    """The scopes that the last executions of these items have stored; not all executions store one."""
    found = (store.kept_scope(run, item.history[-1].scope) for item in items if item.history and item.history[-1].scope)
    return tuple(kept.body for kept in found if kept is not None)
