"""Finds the elements of one array in a JSON text of any size, holding one element at a time.

    elements(read, ("a", "b"))      {"x": ..., "a": {"b": [ ONE , TWO ]}}  ->  ONE, TWO, as raw bytes

The scanner knows only brackets, strings and commas: a decoder checks whether an element is JSON. On the way to the
array it only counts brackets. It reads on to the end of the text, to notice a truncated one.

A streaming parser such as ijson can't replace it: it builds values, so an item would not keep its text (a lone
surrogate becomes `?`, 1e400 becomes 1E+400), a string of any length is in memory before it can be refused, its errors
have no byte positions, and it does not notice duplicate keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from resile.executors.programs.items.text import ItemsRefused, size_error
from resile.model.limits import ITEM_BYTES_MAX

PIECE_BYTES = 256 * 1024
Read = Callable[[int], bytes]

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
# Arrays and objects with few levels are matched in one step, deeper or unfinished ones bracket by bracket.
_LEVELS = 4


def _run_of(plain: bytes, levels: int) -> bytes:
    """The pattern of strings, of whole arrays and objects with this many levels, and of plain bytes."""
    inner = rb"|[\[{]" + _run_of(rb'[^"\[\]{}]', levels - 1) + rb"[\]}]" if levels else b""
    return b"(?:" + plain + b"++|" + _STRING + inner + b")*+"


# Up to the end of a value; inside a value, up to the next bracket: commas don't matter there.
_FLAT = re.compile(_run_of(rb'[^"\[\]{},]', _LEVELS), re.DOTALL)
_NESTED = re.compile(_run_of(rb'[^"\[\]{}]', _LEVELS), re.DOTALL)
# The rest of a string whose beginning is no longer in the window.
_TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_KEY = re.compile(_STRING, re.DOTALL)
_BLANK = re.compile(rb"[ \t\r\n]*+")
_KINDS = {
    b"{": "an object",
    b"[": "an array",
    b'"': "a text",
    b"t": "true",
    b"f": "false",
    b"n": "null",
    **dict.fromkeys((bytes((digit,)) for digit in b"-0123456789"), "a number"),
}


class ObjectFound(Exception):
    """There is an object instead of the array; a wildcard would mean its values."""


def elements(read: Read, names: Sequence[str]) -> Iterator[bytes]:
    """The elements of the array under these names, as raw bytes; `read(n)` returns up to n more bytes."""
    scanner = _Scanner(read)
    yield from scanner.descend(names, 0)
    if scanner.peek():
        scanner.fail("there is more after its end")


def shown_path(names: Sequence[str]) -> str:
    """A path as text: $.a.b."""
    return ".".join(("$", *names))


class _Scanner:
    """A position in a text; only a window of the text is in memory."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._window = b""
        self._at = 0
        self._before = 0
        self._ended = False

    def fail(self, why: str) -> NoReturn:
        """Refuse the text at this position."""
        raise ItemsRefused(f"this is no JSON: {why} (byte {self._before + self._at})")

    def peek(self) -> bytes:
        """The next byte that is not blank; empty at the end of the text."""
        while True:
            found = _BLANK.match(self._window, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._window) or not self._more(self._at):
                return self._window[self._at : self._at + 1]

    def descend(self, names: Sequence[str], depth: int) -> Iterator[bytes]:
        """The elements of the array that the names from `depth` on lead to."""
        if depth == len(names):
            yield from self._array(names)
            return
        wanted = names[depth]
        missing = ItemsRefused(f"nothing is there under {shown_path(names[: depth + 1])}")
        if self._first_byte() != b"{":
            raise missing
        seen = False
        for _ in self._members(b"}"):
            if self._key() != wanted:
                self._value(keep=False)
                continue
            if seen:
                raise ItemsRefused(f"{shown_path(names[: depth + 1])} is there twice")
            seen = True
            yield from self.descend(names, depth + 1)
        if not seen:
            raise missing

    def _first_byte(self) -> bytes:
        """The first byte of the value at this position."""
        first = self.peek()
        if first not in _KINDS:
            self.fail("no value begins like this" if first else "it ends too early")
        return first

    def _array(self, names: Sequence[str]) -> Iterator[bytes]:
        """The elements of the array at this position."""
        opening = self._first_byte()
        if opening == b"{":
            raise ObjectFound
        if opening != b"[":
            raise ItemsRefused(f"{shown_path(names)} is {_KINDS[opening]}, not an array")
        for index in self._members(b"]"):
            element, size = self._value(keep=True)
            if size > ITEM_BYTES_MAX:
                raise size_error(index, size)
            yield element

    def _members(self, closing: bytes) -> Iterator[int]:
        """Move to each member of the array or object at this position, and behind its end; yield the indexes."""
        self._at += 1
        is_over = self.peek() == closing
        if is_over:
            self._at += 1
        index = 0
        while not is_over:
            yield index
            index += 1
            found = self.peek()
            if found not in (b",", closing):
                self.fail(f"a comma or {closing.decode()} is expected here" if found else "it ends too early")
            self._at += 1
            is_over = found == closing

    def _key(self) -> str:
        """The key at this position; moves the position behind its colon."""
        import json

        if self.peek() != b'"':
            self.fail("a key is expected here")
        while (found := _KEY.match(self._window, self._at)) is None:
            if len(self._window) - self._at > ITEM_BYTES_MAX:
                self.fail("this key has no end")
            if not self._more(self._at):
                self.fail("it ends in the middle of a key")
        self._at = found.end()
        if self.peek() != b":":
            self.fail("a colon is expected here")
        self._at += 1
        try:
            key: str = json.loads(found[0].decode())
        except ValueError:
            self.fail("this key is no text")
        return key

    def _value(self, *, keep: bool) -> tuple[bytes, int]:
        """The value at this position and its size; for a value that is too large, only the size."""
        self.peek()
        start = self._at
        depth, dropped, in_text = 0, 0, False
        while True:
            found = (_TEXT if in_text else _NESTED if depth else _FLAT).match(self._window, self._at)
            assert found is not None
            self._at = found.end()
            byte = self._window[self._at : self._at + 1]
            if byte in (b"", b"\\"):
                # The window ends here, or right after this backslash.
                if not keep or self._at - start > ITEM_BYTES_MAX:
                    keep, dropped, start = False, dropped + self._at - start, self._at
                if not self._more(start):
                    break
                start = 0
                continue
            if byte == b'"':
                in_text = not in_text
            elif byte in b"[{":
                depth += 1
            elif not depth:
                break
            else:
                depth -= 1
            self._at += 1
        if depth or in_text:
            self.fail("it ends in the middle of a value")
        value = self._window[start : self._at].rstrip(b" \t\r\n")
        if not value and not dropped:
            self.fail("a value is missing here")
        return value, dropped + len(value)

    def _more(self, kept: int) -> bool:
        """Read on, and drop the window before `kept`, which becomes position 0; False at the end of the text."""
        if not self._ended:
            # Read twice as much each time, so that a long element is not copied over and over.
            piece = self._read(max(PIECE_BYTES, len(self._window) - kept))
            if piece:
                self._before += kept
                self._window = self._window[kept:] + piece
                self._at -= kept
                return True
            self._ended = True
        return False
