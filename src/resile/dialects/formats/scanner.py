"""The base of the JSON5 and KDL parsers: a text with an offset, and errors with line and column.

Both produce the nodes of `nodes.py`, so a front end need not know the format of its file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

from resile.dialects.formats.nodes import Mark, Scalar, text_of
from resile.errors import shorten

if TYPE_CHECKING:
    from resile.dialects.reading.diagnostics import Diagnostics

NUMBER_CHARACTERS_MAX = 400


class Refused(Exception):
    """Raised when the parser gives up; the reason is already reported."""


Document = TypeVar("Document")


def parse_text(language: str, data: bytes, report: Diagnostics, parse: Callable[[str], Document]) -> Document | None:
    """Decode and parse a file; return None after a report."""
    text = text_of(data, report, f"a file that is named so is {language} text in UTF-8")
    try:
        return None if text is None else parse(text)
    except Refused:
        return None


class Scanner:
    """A text and the offset up to which it is parsed."""

    language = ""

    def __init__(self, text: str, report: Diagnostics) -> None:
        self.text = text
        self.at = 0
        self.report = report
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def mark(self, offset: int) -> Mark:
        """The line and column of an offset."""
        line = bisect_right(self._starts, offset)
        return Mark(line, offset - self._starts[line - 1] + 1)

    def scalar(self, value: str | float | None, text: str, offset: int) -> Scalar:
        """A value that begins at an offset."""
        where = self.mark(offset)
        return Scalar(value, text, where.line, where.column)

    def refuse(self, message: str, offset: int | None = None, *, code: str = "", hint: str = "") -> NoReturn:
        """Report an error and stop parsing."""
        place = self.mark(self.at if offset is None else offset)
        self.report.error(code or self.language.lower(), message, place, hint=hint)
        raise Refused

    def peek(self) -> str:
        """The next character, or an empty text at the end."""
        return self.text[self.at : self.at + 1]

    def text_here(self) -> str:
        """The next character, for a message."""
        character = self.peek()
        return f"`{shorten(character)}`" if character else "the end of the file"

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Skip a pattern if the text matches it here."""
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def read_quoted(self, plain: re.Pattern[str], escape: Callable[[], str], hint: str) -> str:
        """Parse a text in quotes on one line; `plain` matches all but quotes and escapes."""
        opened, quote = self.at, self.peek()
        self.at += 1
        parts: list[str] = []
        while True:
            if (found := self.take(plain)) is not None:
                parts.append(found[0])
            character = self.peek()
            if character not in (quote, "\\"):
                self.refuse("this text does not end on its line", opened, hint=hint)
            self.at += 1
            if character == quote:
                return "".join(parts)
            parts.append(escape())
