"""Builders of native trees, for front ends that lower their files to one.

A front end translates one tree into another, and the native front end reads the result. Each node has the position of
the key that it comes from, so findings about a translated value, and the rules compiled from it, point into the user's
file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.formats.nodes import items_of as items_of
from resile.dialects.native.keys.ir import IR
from resile.dialects.native.keys.steps import STEP, WORKFLOW
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import Table


def word(text: str, at: Place) -> Scalar:
    """A text node."""
    return Scalar(text, text, at.line, at.column, at.file)


def sequence(items: Iterable[Node], at: Place) -> Sequence:
    """A list node."""
    return Sequence(list(items), at.line, at.column, at.file)


def mapping(at: Place, entries: dict[str, Node] | None = None) -> Mapping:
    """A mapping; each key has the position of its value."""
    made = {key: (word(key, value), value) for key, value in (entries or {}).items()}
    return Mapping(made, at.line, at.column, at.file)


def put(into: Mapping, key: str, value: Node, at: Place | None = None) -> None:
    """Set one entry; its key has the position `at`."""
    into.entries[key] = (word(key, at or value), value)


def put_in_step(step: Mapping, key: str, value: Node, at: Place | None = None) -> None:
    """Set a key of a step, under `ir` if the native file has it there."""
    _put_in(step, key, value, at, STEP)


def step_node(at: Place, entries: dict[str, Node]) -> Mapping:
    """Build a step with these keys, each at the level at which the native file has it."""
    return _node_of(at, entries, STEP)


def _node_of(at: Place, entries: dict[str, Node], known: Table) -> Mapping:
    """Build a mapping with these keys, each at the level at which a table has it."""
    made = mapping(at)
    for key, value in entries.items():
        _put_in(made, key, value, None, known)
    return made


def _put_in(into: Mapping, key: str, value: Node, at: Place | None, known: Table) -> None:
    """Set an entry at the level at which a table has its key."""
    if key in known.under_ir:
        below = value_of(into, IR)
        if not isinstance(below, Mapping):
            below = mapping(value)
            put(into, IR, below)
        into = below
    put(into, key, value, at)


class Part(dict[str, Any]):
    """A mapping of the native tree under construction: keys with plain data, nodes or other parts.

    It has one position in the user's file; keys with None are left out. Two parts are equal if their keys and positions
    are. `known` is the table that says which keys belong under `ir`.
    """

    known: Table | None = None

    def __init__(self, at: Place, **keys: Any) -> None:
        super().__init__({key: value for key, value in keys.items() if value is not None})
        self.line, self.column, self.file = at.line, at.column, at.file

    def __eq__(self, other: object) -> bool:
        """Compare keys and positions."""
        if not isinstance(other, Part) or (self.line, self.column, self.file) != (other.line, other.column, other.file):
            return False
        return super().__eq__(other)

    def replace(self, **keys: Any) -> Self:
        """Copy the part with other values under some keys; None removes a key."""
        return type(self)(self, **{**self, **keys})

    def to_node(self) -> Mapping:
        """Convert to a mapping node, each key at the level at which the native file has it."""
        entries = {key: node_of(value, self) for key, value in self.items()}
        return mapping(self, entries) if self.known is None else _node_of(self, entries, self.known)


class StepPart(Part):
    """A step of the native tree."""

    known = STEP


class WorkflowPart(Part):
    """A workflow of the native tree."""

    known = WORKFLOW


def node_of(value: Any, at: Place) -> Node:
    """Convert plain data or a part to a node; data without a position gets that of `at`."""
    if isinstance(value, Scalar | Sequence | Mapping):
        return value
    if isinstance(value, Part):
        return value.to_node()
    if isinstance(value, dict):
        return mapping(at, {key: node_of(inner, at) for key, inner in value.items()})
    if isinstance(value, list | tuple):
        return sequence([node_of(inner, at) for inner in value], at)
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return Scalar(value, text, at.line, at.column, at.file)


def value_of(node: Mapping, key: str) -> Node | None:
    """The value under a key, or None."""
    entry = node.entries.get(key)
    return None if entry is None else entry[1]


def is_null(node: Node | None) -> bool:
    """Is this node missing or `null`?"""
    return node is None or (isinstance(node, Scalar) and node.value is None)


def text_in(node: Node | None) -> str:
    """The text of a scalar, else an empty text."""
    return node.text if isinstance(node, Scalar) and node.value is not None else ""


def walk(node: Node | None) -> Iterator[Node]:
    """Yield a node and every node below it."""
    work = [] if node is None else [node]
    while work:
        part = work.pop()
        yield part
        if isinstance(part, Sequence):
            work += part.items
        elif isinstance(part, Mapping):
            work += [value for _, value in part.entries.values()]


def mentions(node: Node | None, text: str) -> bool:
    """Does any text below a node contain this one?"""
    return any(isinstance(part, Scalar) and text in part.text for part in walk(node))
