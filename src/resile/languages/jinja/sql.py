"""SQL with values in it: every value is written for its position, so that none can become a statement.

    '... {{ x }} ...'    quotes are doubled (and backslashes in E'...')      "{{ x }}"   a quoted name
    $tag$ {{ x }} $tag$  unchanged, unless it would end the quotes            -- {{ x }}  inert
    {{ x }}              a number, true, false or NULL as such; a plain name as a name; any other text as a text

If a text is only one `{{ ... }}`, its value is the statement: the author of the file asked for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from resile.languages.jinja.plain_values import plain_text
from resile.languages.jinja.templates import is_one_output, is_template, render, value_of
from resile.languages.references import ValueRefused

if TYPE_CHECKING:
    from resile.languages.jinja.templates import Find

Place = Literal["code", "text", "escaped", "name", "dollar", "line", "block"]

# Two characters of a private use area, with the number of a value between them.
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
_DOLLAR = re.compile(r"\$(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?\$")
_WORD = re.compile(r"[A-Za-z0-9_$\x80-\U0010ffff]+")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*){0,3}")
# A file may double the quotes itself; remove that, because this module does it.
_DOUBLED = re.compile(r"""\|\s*replace\(\s*(["'])'\1\s*,\s*(["'])''\2\s*\)\s*(?=}})""")
_WORD_PART = re.compile(r"[A-Za-z0-9_]+")
_JOINS = ("_", "&", _CLOSE)
_QUOTED: dict[str, Place] = {"'": "text", '"': "name"}


class Piece(Struct, frozen=True):
    """A part of a statement, and its position; `end` is the text that would end the position."""

    text: str
    place: Place
    end: str = ""


def render_sql(text: str, find: Find) -> str:
    """The statements with their values; raises ValueRefused if a value is not allowed in its position."""
    if not is_template(text):
        return text
    if is_one_output(text):
        value = value_of(text, find)
        return ";\n".join(plain_text(item) for item in value) if isinstance(value, list) else plain_text(value)
    if _OPEN in text or _CLOSE in text:
        raise ValueRefused("the statement holds a character that stands for nothing (U+E000 or U+E001)")
    values: list[Any] = []

    def write(value: Any) -> str:
        """Write a mark in place of the value."""
        values.append(value)
        return f"{_OPEN}{len(values) - 1}{_CLOSE}"

    marked = render(_DOUBLED.sub("", text), find, write)
    return "".join(_fill(piece, values) for piece in pieces(marked))


def pieces(text: str) -> Iterator[Piece]:
    """The parts of some statements, each with its position."""
    at = start = 0
    while at < len(text):
        found = _quoted_from(text, at)
        if found is None:
            word = _WORD.match(text, at)
            at = word.end() if word is not None else at + 1
            continue
        place, body, end, after = found
        yield Piece(text[start:body], "code")
        yield Piece(text[body:after], place, end)
        at = start = after
    yield Piece(text[start:], "code")


def _quoted_from(text: str, at: int) -> tuple[Place, int, str, int] | None:
    """The quoted part that begins here: its position, where its inside begins, what ends it, and where it ends."""
    character = text[at]
    if character in _QUOTED:
        place = _QUOTED[character]
        if place == "text" and at and text[at - 1] in "eE" and not text[max(at - 2, 0) : at - 1].isalnum():
            place = "escaped"
        return place, at + 1, character, _end_of_quotes(text, at + 1, character, place == "escaped")
    if text.startswith("--", at):
        end = text.find("\n", at)
        return "line", at + 2, "\n", len(text) if end < 0 else end
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        return "block", at + 2, "*/", len(text) if end < 0 else end
    dollar = _DOLLAR.match(text, at) if character == "$" else None
    if dollar is not None:
        end = text.find(dollar[0], dollar.end())
        return "dollar", dollar.end(), dollar[0], len(text) if end < 0 else end + len(dollar[0])
    return None


def _end_of_quotes(text: str, at: int, quote: str, escapes: bool) -> int:
    """The offset after the quotes that began before `at`."""
    while at < len(text):
        if escapes and text[at] == "\\":
            at += 2
        elif text[at] != quote:
            at += 1
        elif text.startswith(quote * 2, at):
            at += 2
        else:
            return at + 1
    return len(text)


def _fill(piece: Piece, values: list[Any]) -> str:
    return _MARK.sub(lambda mark: _value(piece, values[int(mark[1])], piece.text[: mark.start()][-1:]), piece.text)


def _value(piece: Piece, value: Any, before: str) -> str:
    """One value, written for its position and for the character before it."""
    if piece.place == "code":
        return _part_of_word(value) if before in _JOINS or before.isalnum() else _literal(value)
    text = _text_of(value)
    match piece.place:
        case "text":
            return text.replace("'", "''")
        case "escaped":
            return text.replace("\\", "\\\\").replace("'", "''")
        case "name":
            return text.replace('"', '""')
        case "dollar":
            # Refuse also a part of the end, which the text around could complete.
            if "$" in text and (piece.end in text or text.endswith("$") or piece.end[:-1] in text):
                raise ValueRefused(f"a value holds `{piece.end}`, which would end the quotes that it stands in")
            return text
        case "line":
            return " ".join(text.split())
        case "block":
            return text.replace("*/", "* /").replace("/*", "/ *").rstrip("*")


def _part_of_word(value: Any) -> str:
    """A value that continues a word, where quotes would change the meaning."""
    text = plain_text(value)
    if not _WORD_PART.fullmatch(text):
        raise ValueRefused("a value stands inside a word of SQL and is no plain name")
    return text


def _literal(value: Any) -> str:
    """A value that is a word of its own: a number, a keyword, a name, or a quoted text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        if value - value != 0:
            raise ValueRefused("a number is not finite, which SQL can't say")
        # After a minus, a negative number would begin a comment.
        return f" {value!r}" if value < 0 else repr(value)
    text = _text_of(value)
    if isinstance(value, str) and _PLAIN_NAME.fullmatch(text):
        return text
    return "'" + text.replace("'", "''") + "'"


def _text_of(value: Any) -> str:
    """A value as text without NUL."""
    text = plain_text(value)
    if "\0" in text:
        raise ValueRefused("a value holds a NUL, which no statement can take")
    return text
