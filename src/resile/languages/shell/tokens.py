"""Pieces of a shell text: literal text, holes with their place, marks around here-documents; and readers of words."""

from __future__ import annotations

from typing import Literal, Protocol

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


class WordReader(Protocol):
    """What a level of shell code asks of the lexer: its place in the text, and readers of what words are made of."""

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
        """Read up to and with the next `'`."""

    def read_quoted(self, end: int, place: Literal["double", "heredoc"], reason: str = "") -> None:
        """Read up to and with the next `"`, or the body of a here-document up to `end`."""

    def backquote(self, end: int) -> None:
        """Read a command in backquotes."""

    def dollar(self, place: Place, end: int, reason: str = "") -> None:
        """Read what a `$` begins."""

    def arithmetic(self, start: int, end: int) -> bool:
        """Read `((` ... `))`; False where the parentheses are something else."""

    def closing_bracket(self, at: int, end: int) -> int:
        """Where the index whose text starts at `at` has its `]`; `end` where it has none."""
