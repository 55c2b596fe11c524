"""JSON5 with positions: bytes in, the nodes of `nodes.py` out, each with its line and column (from 1).

    bytes -> text_of()  encoding, size, NUL
          -> _Reader    comments, trailing commas, bare keys, both kinds of quotes, hexadecimal and signed numbers

Refused with a position: duplicate keys, deep nesting, overlong numbers, and syntax that is not JSON5.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, report_duplicate
from resile.dialects.formats.scanner import NUMBER_CHARACTERS_MAX, Scanner, parse_text
from resile.errors import shorten
from resile.model.limits import FILE_DEPTH_MAX

if TYPE_CHECKING:
    from resile.dialects.reading.diagnostics import Diagnostics

_SPACE = re.compile(r"(?:[\s\ufeff]+|//[^\n\r\u2028\u2029]*|/\*.*?\*/)*", re.DOTALL)
_BARE_KEY = re.compile(r"(?:[^\W\d]|[$_]|\\u[0-9a-fA-F]{4})(?:[\w$\u200c\u200d]|\\u[0-9a-fA-F]{4})*")
_NUMBER = re.compile(
    r"[+-]?(?:(?P<word>Infinity|NaN)|(?P<hex>0[xX][0-9a-fA-F]+)|(?P<ten>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))(?![\w$.])",
    re.ASCII,
)
_PLAIN = {'"': re.compile(r'[^"\\\n\r]+'), "'": re.compile(r"[^'\\\n\r]+")}
_WORDS = {"true": True, "false": False, "null": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_CODES = {"x": re.compile(r"[0-9a-fA-F]{2}"), "u": re.compile(r"[0-9a-fA-F]{4}")}


def parse_json5(data: bytes, report: Diagnostics) -> Node | None:
    """Parse a JSON5 file; return the root node, or None after a report."""
    return parse_text("JSON5", data, report, lambda text: _Reader(text, report).document())


class _Reader(Scanner):
    """Parses a text to nodes; recursion is bounded by the nesting limit."""

    language = "JSON5"

    def document(self) -> Node:
        """Parse the single value of the file."""
        self._skip()
        if not self.peek():
            self.refuse("the file is empty", 0, code="empty")
        root = self._value(0)
        self._skip()
        if self.peek():
            self.refuse(f"{self.text_here()} stands behind the end of the document")
        return root

    def _skip(self) -> None:
        self.take(_SPACE)
        if self.text.startswith("/*", self.at):
            self.refuse("this comment does not end")

    def _value(self, depth: int) -> Node:
        """Parse any value."""
        character = self.peek()
        if character in ("{", "["):
            if depth >= FILE_DEPTH_MAX:
                self.refuse(f"nested deeper than {FILE_DEPTH_MAX} levels", code="limit")
            return self._mapping(depth) if character == "{" else self._sequence(depth)
        if character in _PLAIN:
            return self._string()
        begin, number = self.at, self.take(_NUMBER)
        if number is not None:
            if len(number[0]) > NUMBER_CHARACTERS_MAX:
                self.refuse(f"a number has at most {NUMBER_CHARACTERS_MAX} characters", begin, code="limit")
            return self.scalar(self._number(number), number[0], begin)
        word = _BARE_KEY.match(self.text, begin)
        if word is not None and word[0] in _WORDS:
            self.at = word.end()
            return self.scalar(_WORDS[word[0]], word[0], begin)
        shown = f"`{shorten(word[0])}`" if word is not None else self.text_here()
        return self.refuse(f"a value is expected here, not {shown}", hint="text stands in quotes" if word else "")

    def _number(self, found: re.Match[str]) -> int | float:
        """The value of a number literal."""
        sign = -1 if found[0].startswith("-") else 1
        if found["word"]:
            return sign * (float("inf") if found["word"] == "Infinity" else float("nan"))
        if found["hex"]:
            return sign * int(found["hex"], 16)
        digits = found["ten"]
        if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
            self.refuse(
                f"`{shorten(found[0])}`: a number has no leading zero", found.start(), hint="put it into quotes"
            )
        return sign * (int(digits) if digits.isdecimal() else float(digits))

    def _sequence(self, depth: int) -> Sequence:
        """A list."""
        where = self.mark(self.at)
        node = Sequence([], where.line, where.column)
        opened = self.at
        self.at += 1
        self._skip()
        while self.peek() != "]":
            node.items.append(self._value(depth + 1))
            self._comma("]", opened)
        self.at += 1
        return node

    def _mapping(self, depth: int) -> Mapping:
        """Parse a mapping; report a duplicate key and continue."""
        where = self.mark(self.at)
        node = Mapping({}, where.line, where.column)
        opened = self.at
        self.at += 1
        self._skip()
        while self.peek() != "}":
            key = self._key()
            self._skip()
            if self.peek() != ":":
                self.refuse(f"a `:` is expected behind the key `{shorten(key.text)}`, not {self.text_here()}")
            self.at += 1
            self._skip()
            value = self._value(depth + 1)
            if key.text in node.entries:
                report_duplicate(self.report, "key", key, node.entries[key.text][0])
            else:
                node.entries[key.text] = (key, value)
            self._comma("}", opened)
        self.at += 1
        return node

    def _comma(self, closing: str, opened: int) -> None:
        """Expect a comma after an entry, or the end of its container."""
        self._skip()
        if self.peek() == ",":
            self.at += 1
            self._skip()
        elif self.peek() != closing:
            begin = self.mark(opened)
            hint = f"what began at {begin.line}:{begin.column} is still open"
            self.refuse(f"`,` or `{closing}` is expected here, not {self.text_here()}", hint=hint)

    def _key(self) -> Scalar:
        """A key: a string, or a bare name."""
        if self.peek() in _PLAIN:
            return self._string()
        begin, bare = self.at, self.take(_BARE_KEY)
        if bare is None:
            self.refuse(f"a key is expected here, not {self.text_here()}")
        text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda code: chr(int(code[1], 16)), bare[0])
        return self.scalar(text, text, begin)

    def _string(self) -> Scalar:
        """Parse a text in quotes of either kind."""
        begin = self.at
        hint = "a line break in a text is written `\\n`"
        text = self._join_surrogates(self.read_quoted(_PLAIN[self.peek()], self._escape, hint), begin)
        return self.scalar(text, text, begin)

    def _join_surrogates(self, text: str, opened: int) -> str:
        """Combine surrogate pairs that were escaped separately."""
        try:
            text.encode()
        except UnicodeEncodeError:
            try:
                text = text.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                self.refuse(
                    "this text holds half a character", opened, hint="characters beyond U+FFFF have two escapes"
                )
        return text

    def _escape(self) -> str:
        """Parse the escape after a backslash."""
        character = self.peek()
        if not character:
            self.refuse("the file ends inside a text")
        self.at += 1
        if character in _CODES:
            code = self.take(_CODES[character])
            if code is None:
                self.refuse(f"`\\{character}` needs hexadecimal digits")
            return chr(int(code[0], 16))
        if character == "\r" and self.peek() == "\n":
            self.at += 1
        if character in "\n\r\u2028\u2029":
            return ""
        if character.isdigit() and (character != "0" or self.peek().isdigit()):
            self.refuse(f"`\\{character}` is no escape")
        return _ESCAPES.get(character, character)
