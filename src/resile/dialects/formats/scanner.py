"""The base of the JSON5 and KDL parsers: a text with an offset, and errors with line and column.

Both produce the nodes of `nodes.py`, so a front end need not know the format of its file.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NoReturn

from resile.dialects.formats.nodes import Mark, mark_at
from resile.errors import shorten
from resile.model.limits import FILE_BYTES_MAX

if TYPE_CHECKING:
    from resile.dialects.reading.diagnostics import Diagnostics

NUMBER_CHARACTERS_MAX = 400


class Refused(Exception):
    """Raised when the parser gives up; the reason is already reported."""


class Scanner:
    """A text and the offset up to which it is parsed."""

    language = ""

    def __init__(self, text: str, report: Diagnostics) -> None:
        self.text = text
        self.at = 0
        self.report = report
        self._starts = [0]
        found = text.find("\n")
        while found >= 0:
            self._starts.append(found + 1)
            found = text.find("\n", found + 1)

    def mark(self, offset: int) -> Mark:
        """The line and column of an offset."""
        line = bisect_right(self._starts, offset)
        return Mark(line, offset - self._starts[line - 1] + 1)

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


def text_of(data: bytes, report: Diagnostics, language: str) -> str | None:
    """Decode a file and drop its byte order mark; return None after a report."""
    if len(data) > FILE_BYTES_MAX:
        report.error("limit", f"the file is larger than {FILE_BYTES_MAX // 1024**2} MB")
        return None
    hint = f"a file that is named so is {language} text in UTF-8"
    nul = data.find(b"\0")
    if nul >= 0:
        report.error("encoding", f"this is not a text file: byte {nul} is NUL", mark_at(data, nul), hint=hint)
        return None
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f"this is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}"
        report.error("encoding", message, mark_at(data, error.start), hint=hint)
        return None
