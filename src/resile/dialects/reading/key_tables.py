"""Key tables: a front end reads a mapping by a table with one row for each accepted key.

A row has the key's reader and its documentation, so every accepted key is documented. A key without a row is an error
that names the nearest known one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Node, Scalar, describe
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.errors import shorten

Reader = Callable[[Reading, Node], Any]
INVALID: Any = object()
"""Returned by a reader after it has reported an error."""
REFUSED = "refused"
"""The `kind` of a key that Resile knows but does not support."""
LABEL = "label"
"""The `kind` of a key that only describes and has no effect."""


def node_itself(_: Reading, node: Node) -> Any:
    """Return the node itself, for a caller that reads it later."""
    return node


class Key(Struct, frozen=True):
    """One accepted key: its reader, the field for its value, and its documentation; `words` are all that it may be."""

    name: str
    kind: str
    doc: str
    read: Reader = node_itself
    field: str = ""
    words: tuple[str, ...] = ()


class Table(Struct, frozen=True):
    """The keys of one kind of mapping; those in `under_ir` belong below its key `ir`.

    `elsewhere` has hints for words of other systems.
    """

    name: str
    keys: dict[str, Key]
    doc: str = ""
    under_ir: dict[str, Key] = {}
    elsewhere: dict[str, str] = {}


def table(name: str, doc: str, *rows: Key) -> Table:
    """A table of the native file, with its description on the reference page."""
    return Table(name, {row.name: row for row in rows}, doc)


def key_table(name: str, *rows: Key) -> Table:
    """A table of another front end."""
    return Table(name, {row.name: row for row in rows})


def read_mapping(reading: Reading, node: Node, known: Table) -> dict[str, Any]:
    """Read the fields of a mapping by its table; report unreadable ones and leave them out."""
    if not isinstance(node, Mapping):
        reading.report.error("type", f"{known.name} must be a mapping, not {describe(node)}", node)
        return {}
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, (key, value) in node.entries.items():
        row = known.keys.get(name) or known.under_ir.get(name)
        if row is None:
            _unknown_key(reading, key, known)
            continue
        field = row.field or name
        if field in names:
            reading.report.error("conflict", f"`{name}` and `{names[field]}` say the same thing", key)
            continue
        names[field] = name
        result = row.read(reading, value)
        if result is not INVALID:
            fields[field] = result
    return fields


def struct_reader(make: Any, known: Table, short: str, *needed: str, called: str = "") -> Reader:
    """Make a reader of a Struct by its table, which reports missing keys; a plain text sets the key `short`."""

    def read_struct(reading: Reading, node: Node) -> Any:
        if short and isinstance(node, Scalar) and node.value is not None:
            value = known.keys[short].read(reading, node)
            return INVALID if value is INVALID else make(**{known.keys[short].field or short: value})
        before = len(reading.report.errors)
        fields = read_mapping(reading, node, known)
        for key in needed:
            if isinstance(node, Mapping) and key not in node.entries:
                reading.report.error("value", f"{called or known.name} needs `{key}`", node)
        return INVALID if len(reading.report.errors) > before else make(**fields)

    return read_struct


def refused_key(name: str, why: str) -> Key:
    """A key that Resile knows but does not support."""
    return Key(name, REFUSED, why, lambda _, __: INVALID)


def label(name: str, doc: str) -> Key:
    """A key that only describes and has no effect; `read_keys` gives a notice of it."""
    return Key(name, LABEL, doc, lambda _, __: INVALID)


def read_keys(reading: Reading, node: Node, known: Table) -> dict[str, Any]:
    """Read a mapping as `read_mapping` does, with an error for each refused key and a notice for each label."""
    if not isinstance(node, Mapping):
        return read_mapping(reading, node, known)
    rest: dict[str, tuple[Scalar, Node]] = {}
    for name, (key, value) in node.entries.items():
        row = known.keys.get(name)
        if row is not None and row.kind == REFUSED:
            message = f"`{name}` is not run by Resile: {row.doc}"
            reading.report.error("not-run", message, key, hint=f"take `{name}` out, or run this part where it belongs")
        elif row is not None and row.kind == LABEL:
            reading.report.notice("label", f"`{name}` changes nothing here: {row.doc}", key)
        else:
            rest[name] = (key, value)
    return read_mapping(reading, Mapping(rest, node.line, node.column), known)


def _unknown_key(reading: Reading, key: Scalar, known: Table) -> None:
    """Report an unknown key, with the nearest known one."""
    if not reading.report.full:
        message = f"{known.name} has no key `{shorten(key.text)}`"
        hint = known.elsewhere.get(key.text) or did_you_mean(key.text, known.keys, "keys")
        reading.report.error("unknown-key", message, key, hint=hint)
    else:
        reading.report.error("unknown-key", "", key)
