"""What a step needs: names become needs, of which steps that say the same share one.

In a large file most steps need what the steps beside them need. So needs that are written alike are one object, and
so are long lists of them: a check of one covers all steps that share it.
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
    """Groups of names; `a|b` is one group."""
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
    # Steps of one layer share a long list; a short one is as soon read as looked up.
    if len(result) == len(values) >= SHARED_NEEDS_MIN:
        known = reading.need_lists[values] = tuple([need for need, _ in result])
        return Needed(known, nodes)
    return tuple(result)
