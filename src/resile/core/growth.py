"""What an attempt adds to a list or a mapping that grows with every attempt, such as the pages that a step collects.

    before [1, 2]  after [1, 2, 3]   -->  cut_known: Growth(path, 2, [3])   -->  add_grown: [1, 2, 3]

The log then has each entry once, and not again with every attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resile.model.failure import Growth


def cut_known(
    before: Mapping[str, Any], after: Mapping[str, Any], path: tuple[str, ...] = ()
) -> tuple[dict[str, Any], list[Growth]]:
    """Data without the lists and mappings that only grew since `before`, and what these grew by."""
    left: dict[str, Any] = {}
    grown: list[Growth] = []
    for key, value in after.items():
        old, here = before.get(key), (*path, key)
        if isinstance(value, list) and isinstance(old, list) and old and value[: len(old)] == old:
            grown.append(Growth(here, len(old), value[len(old) :]))
        elif isinstance(value, dict) and isinstance(old, dict) and old:
            if all(name in value and value[name] == known for name, known in old.items()):
                more = {name: one for name, one in value.items() if name not in old}
                grown.append(Growth(here, len(old), more))
            else:
                left[key], inner = cut_known(old, value, here)
                grown += inner
        else:
            left[key] = value
    return left, grown


def add_grown(before: Mapping[str, Any], left: Mapping[str, Any], grown: Sequence[Growth]) -> dict[str, Any]:
    """The data that `cut_known` cut; nothing that is given changes."""
    whole = dict(left)
    for growth in grown:
        into, old = whole, before
        for key in growth.path[:-1]:
            into[key] = into = dict(into.get(key, {}))
            old = old.get(key, {})
        key, entries = growth.path[-1], growth.entries
        known = old.get(key)
        if isinstance(entries, dict):
            into[key] = {**(known if isinstance(known, dict) else {}), **entries}
        else:
            into[key] = [*(known[: growth.start] if isinstance(known, list) else ()), *entries]
    return whole
