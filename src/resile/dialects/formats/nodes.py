"""The tree of a parsed file: scalars, lists and mappings, each with its line and column (from 1).

A file may include others; nodes from those have the name of their `file`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from resile.errors import shorten
from resile.model.limits import FILE_BYTES_MAX

if TYPE_CHECKING:
    from resile.dialects.reading.diagnostics import Diagnostics


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


def items_of(node: Node) -> list[Node]:
    """The items of a list; any other node is its only item."""
    return node.items if isinstance(node, Sequence) else [node]


def mark_at(data: bytes, offset: int) -> Mark:
    """The line and column of a byte offset."""
    before = data[:offset]
    line_start = before.rfind(b"\n") + 1
    return Mark(before.count(b"\n") + 1, len(before[line_start:].decode("utf-8", "replace")) + 1)


def text_of(data: bytes, report: Diagnostics, hint: str, encoding_hint: str = "") -> str | None:
    """Decode a file and drop its byte order mark; return None after a report."""
    if len(data) > FILE_BYTES_MAX:
        report.error("limit", f"the file is larger than {FILE_BYTES_MAX // 1024**2} MB")
        return None
    nul = data.find(b"\0")
    if nul >= 0:
        report.error("encoding", f"this is not a text file: byte {nul} is NUL", mark_at(data, nul), hint=hint)
        return None
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f"this is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}"
        report.error("encoding", message, mark_at(data, error.start), hint=encoding_hint or hint)
        return None


def report_duplicate(report: Diagnostics, noun: str, key: Scalar, first: Scalar) -> None:
    """Report a key that a mapping already has."""
    message = f"the {noun} `{shorten(key.text)}` is here twice; the first is at {first.line}:{first.column}"
    report.error("duplicate-key", message, key, hint="keep one of them")
