"""Pieces of a shell text: literal text, holes with their place, marks around here-documents; and readers of words."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

Place = Literal[
    "word", "single", "double", "default", "heredoc", "literal", "ansi", "comment", "number", "name", "refused"
]  # fmt: skip


class Hole(Struct, frozen=True, gc=False):
    """A reference in a command: its name, its form, and the position that determines its quoting."""

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
    """The lexer can't follow the text; the message says why."""


class WordReader(Protocol):
    """The lexer, as a level of shell code uses it: its position in the text, and readers for the parts of words."""

    text: str
    offsets: list[int]
    at: int
    pieces: list[Piece]
    backquotes: int
    documents: int

    def flush(self, upto: int) -> None:
        """Add the literal text up to here to the pieces."""

    def holes(self, start: int, end: int, place: Place, reason: str = "") -> None:
        """Add every reference in a stretch of text to the pieces."""

    def single(self, end: int) -> None:
        """Read up to and including the next `'`."""

    def read_quoted(self, end: int, place: Literal["double", "heredoc"], reason: str = "") -> None:
        """Read up to and including the next `"`, or the body of a here-document up to `end`."""

    def backquote(self, end: int) -> None:
        """Read a command in backquotes."""

    def dollar(self, place: Place, end: int, reason: str = "") -> None:
        """Read the expansion that a `$` begins."""

    def arithmetic(self, start: int, end: int) -> bool:
        """Read `((` ... `))`; False if the parentheses are something else."""

    def closing_bracket(self, at: int, end: int) -> int:
        """The offset of the `]` of an index whose text starts at `at`; `end` if there is none."""
