"""Needs of steps: names become needs, and identical ones share an object.

In a large file, neighbouring steps often have the same needs. Identical needs are one object, and so are identical long
lists of them: one check covers all steps that share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resile.dialects.formats.nodes import Mapping, Scalar
from resile.dialects.native.context import Needed, Needs
from resile.errors import shorten
from resile.model.workflow import Need

if TYPE_CHECKING:
    from resile.dialects.native.context import NativeReading

SHARED_NEEDS_MIN = 8


def read_needs(reading: NativeReading, values: tuple[str | Need, ...], nodes: list[Scalar | Mapping]) -> Needs:
    """Read needs; `a|b` is one need."""
    known = reading.need_lists.get(values)
    if known is not None:
        return Needed(known, nodes)
    result: list[tuple[Need, Scalar | Mapping]] = []
    seen: set[tuple[str, ...]] = set()
    for value, node in zip(values, nodes, strict=True):
        if isinstance(value, Need):
            result.append((value, node))
            continue
        need = reading.needs.get(value)
        if need is None:
            names = tuple(part.strip() for part in value.split("|")) if "|" in value else (value.strip(),)
            if "" in names or (len(names) > 1 and len(set(names)) < len(names)):
                reading.report.error("value", f"`{shorten(value)}` is no list of names with `|` in between", node)
                continue
            need = reading.needs[value] = Need(names)
        if need.any_of in seen:
            reading.report.warning("duplicate", f"`{shorten(value)}` is needed twice", node, hint="once is enough")
        else:
            seen.add(need.any_of)
            result.append((need, node))
    # Steps of one layer share long lists; for short ones a lookup saves nothing.
    if len(result) == len(values) >= SHARED_NEEDS_MIN:
        known = reading.need_lists[values] = tuple([need for need, _ in result])
        return Needed(known, nodes)
    return tuple(result)
