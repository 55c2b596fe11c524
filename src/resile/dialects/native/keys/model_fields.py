"""Readers of model values that a native file writes field by field, where no shorter key exists.

    as_model(Cluster)   a mapping with the fields of that struct, to any depth

A wrong type or an unknown field is reported at its position.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from resile.dialects.formats.nodes import Mapping, Node, Sequence, plain
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import INVALID, Reader
from resile.dialects.reading.values import wrong
from resile.errors import shorten
from resile.model.builtin_actions import Case

_STEP_OF_A_PATH = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def as_model(kind: Any, what: str) -> Reader:
    """Read a value of this type."""

    def read_model(reading: Reading, node: Node) -> Any:
        try:
            value = msgspec.convert(plain(node), kind)
        except msgspec.ValidationError as problem:
            message, _, path = str(problem).partition(" - at `$")
            reading.report.error("type", f"{what}: {message.lower()}", _at(node, path.rstrip("`")))
            return INVALID
        return value if _knows_all(reading, node, value) else INVALID

    return read_model


def _at(node: Node, path: str) -> Node:
    """The node at a path, or the last node that exists on it."""
    for name, place in _STEP_OF_A_PATH.findall(path):
        if name and isinstance(node, Mapping) and name in node.entries:
            node = node.entries[name][1]
        elif place and isinstance(node, Sequence) and int(place) < len(node.items):
            node = node.items[int(place)]
    return node


def _knows_all(reading: Reading, node: Node, value: Any) -> bool:
    """Is every key a field of its Struct?"""
    fine = True
    if isinstance(value, msgspec.Struct) and isinstance(node, Mapping):
        for name, (key, inner) in node.entries.items():
            if name in value.__struct_fields__:
                fine = _knows_all(reading, inner, getattr(value, name)) and fine
            else:
                hint = did_you_mean(name, value.__struct_fields__, "keys")
                reading.report.error("unknown-key", f"there is no key `{shorten(name)}` here", key, hint=hint)
                fine = False
    elif isinstance(value, dict) and isinstance(node, Mapping):
        for name, (_, inner) in node.entries.items():
            fine = _knows_all(reading, inner, value.get(name)) and fine
    elif isinstance(value, tuple | list) and isinstance(node, Sequence):
        for inner, item in zip(node.items, value, strict=False):
            fine = _knows_all(reading, inner, item) and fine
    return fine


def fields_of(kind: Any) -> str:
    """The fields of a Struct, for documentation."""
    return ", ".join(f"`{name}`" for name in kind.__struct_fields__)


def read_cases(reading: Reading, node: Node) -> Any:
    """Read cases in order; the model keeps them as tuples."""
    if not isinstance(node, Sequence):
        return wrong(reading, node, "a list of cases")
    return tuple(case for item in node.items if (case := _case(reading, item)) is not INVALID)


def _case(reading: Reading, node: Node) -> Any:
    """One case."""
    if not isinstance(node, Mapping) or "when" not in node.entries:
        return wrong(reading, node, "a case with `when`")
    case = Case("")
    data = [plain(node).get(field, getattr(case, field)) for field in case.__struct_fields__]
    try:
        case = msgspec.convert(data, Case)
    except msgspec.ValidationError as problem:
        reading.report.error("type", f"a case: {str(problem).partition(' - ')[0].lower()}", node)
        return INVALID
    return case if _knows_all(reading, node, case) else INVALID
