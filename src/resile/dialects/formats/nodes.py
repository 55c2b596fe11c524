"""The tree of a parsed file: scalars, lists and mappings, each with its line and column (from 1).

A file may include others; nodes from those have the name of their `file`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.errors import shorten


class Mark(Struct, gc=False):
    """A position in the file, or in another `file` that it includes."""

    line: int
    column: int
    file: str = ""


class Scalar(Struct, gc=False):
    """One value; `text` is the source text, `value` its value by the YAML schema."""

    value: str | int | float | bool | None
    text: str
    line: int
    column: int
    file: str = ""


class Sequence(Struct, gc=False):
    """A list."""

    items: list[Node]
    line: int
    column: int
    file: str = ""


class Mapping(Struct, gc=False):
    """A mapping; each entry keeps its key's node for the position."""

    entries: dict[str, tuple[Scalar, Node]]
    line: int
    column: int
    file: str = ""


Node = Scalar | Sequence | Mapping


def plain(node: Node) -> Any:
    """The node as plain Python data."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key: plain(value) for key, (_, value) in node.entries.items()}


def describe(node: Node) -> str:
    """The node in a few words, for messages."""
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    if node.value is None:
        return "nothing"
    return f"`{shorten(node.text)}`"


def mark_at(data: bytes, offset: int) -> Mark:
    """The line and column of a byte offset."""
    before = data[:offset]
    line_start = before.rfind(b"\n") + 1
    return Mark(before.count(b"\n") + 1, len(before[line_start:].decode("utf-8", "replace")) + 1)
