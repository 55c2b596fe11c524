"""Differences between two workflows, apart from positions, dialect, edition, file and unused fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from resile.model.rules import Backoff, Origin
from resile.model.workflow import Child, Step, Workflow

_APART = {Workflow: ("file", "folder", "dialect", "edition", "condition_errors"), Child: ("path",)}
_READ_BY = {"increment_seconds": "linear", "multiplier": "exponential"}
"""Fields of a backoff that only one kind of it uses."""


class Difference(msgspec.Struct, frozen=True):
    """One difference, by its path from the workflow; `within` are the ids of the steps around it."""

    path: str
    within: tuple[int, ...]


def differences(one: Any, other: Any, path: str = "", within: tuple[int, ...] = ()) -> Iterator[Difference]:
    """All differences between two values of the model."""
    if isinstance(one, Origin):
        return
    if type(one) is not type(other):
        yield Difference(path, within)
    elif isinstance(one, Backoff) and one.kind == other.kind:
        for field in one.__struct_fields__:
            if _READ_BY.get(field, one.kind) == one.kind and getattr(one, field) != getattr(other, field):
                yield Difference(f"{path}.{field}", within)
    elif isinstance(one, msgspec.Struct):
        around = (*within, id(one)) if isinstance(one, Step | Workflow) else within
        for field in one.__struct_fields__:
            if field not in _APART.get(type(one), ()):
                # A difference in a step does not concern the handlers of its workflow.
                inner = within if isinstance(one, Workflow) and field != "failure_handlers" else around
                yield from differences(getattr(one, field), getattr(other, field), f"{path}.{field}", inner)
    elif isinstance(one, dict):
        for key in one.keys() | other.keys():
            yield from differences(one.get(key), other.get(key), f"{path}.{key}", within)
    elif isinstance(one, tuple | list):
        if len(one) != len(other):
            yield Difference(path, within)
        for place, (mine, its) in enumerate(zip(one, other, strict=False)):
            name = mine.name if isinstance(mine, Step) else place
            yield from differences(mine, its, f"{path}[{name}]", within)
    elif one != other:
        yield Difference(path, within)
