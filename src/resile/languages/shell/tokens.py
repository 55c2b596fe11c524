"""What the reading of a shell text gives: literal text, holes with their place, marks around here-documents."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Place = Literal[
    "word", "single", "double", "default", "heredoc", "literal", "ansi", "comment", "number", "name", "refused"
]  # fmt: skip


class Hole(Struct, frozen=True, gc=False):
    """A reference in a command: its name, how it was written, and the place that decides on its quoting."""

    name: str
    source: str
    place: Place
    in_backquotes: bool = False
    in_document: bool = False
    is_raw: bool = False
    reason: str = ""


class BodyStart(Struct, frozen=True, gc=False):
    """A here-document's body begins."""


class BodyEnd(Struct, frozen=True, gc=False):
    """A here-document's body ends; no line of it may be the delimiter."""

    delimiter: str
    strips_tabs: bool
    is_nested: bool


Piece = str | Hole | BodyStart | BodyEnd


class Unclear(Exception):
    """The text can't be followed; the message says why."""
