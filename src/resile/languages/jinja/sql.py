"""SQL with values in it: every value is written for its position, so that none can become a statement.

    '... {{ x }} ...'    quotes are doubled (and backslashes in E'...')      "{{ x }}"   a quoted name
    $tag$ {{ x }} $tag$  unchanged, unless it would end the quotes            -- {{ x }}  inert
    DO $$ ... $$         code: a value inside is written for its position in that code
    {{ x }}              a number, true, false or NULL as such; a text as a text after an operator and in VALUES;
                         elsewhere a plain name as a name, and any other text as a text

The lexer reads as PostgreSQL does: comments nest, and an E'...' goes on in the quotes of the next line. When all values
are in place the statements are read again: if a value changed where quotes and comments begin and end, it is refused.

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

Place = Literal["code", "text", "escaped", "unicode", "name", "dollar", "line", "block"]

# How much of a statement before a value decides on its form.
STATEMENT_CHARACTERS_MAX = 16_384
WORDS_CHARACTERS_MAX = 64
# Two characters of a private use area, with the number of a value between them.
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
_DOLLAR = re.compile(r"\$(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?\$")
_WORD = re.compile(r"[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*|[0-9]+")
_WORD_END = re.compile(r"[A-Za-z0-9_$\x80-\U0010ffff]\Z")
_UNICODE = re.compile(r"(?<![A-Za-z0-9_$\x80-\U0010ffff])[uU]&\Z")
_CONTINUES = re.compile(r"[ \t\f\v]*[\r\n]\s*")
# Where a text can't be the name of anything: after an operator, or in the rows of VALUES.
_AFTER_OPERATOR = re.compile(r"(?:[-+*/<>=~!@#%^&|`?]|\b(?:i?like|between|similar\s+to))\s*\Z", re.IGNORECASE)
_IN_VALUES = re.compile(r"\bvalues\b(?!.*\b(?:select|from|where|returning|on|as)\b)", re.IGNORECASE | re.DOTALL)
# The quotes after these words are code: of a block, a function, or a statement that a block builds.
_BEFORE_CODE = re.compile(
    r"\b(?:do(?:\s+language\s+\w+)?|execute|(?:function|procedure)\b[^;]*\bas)\s*[eE]?\Z", re.IGNORECASE
)
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


def render_sql(text: str, find: Find, *, has_params: bool = False) -> str:
    """The statements with their values; raises ValueRefused if a value is not allowed in its position.

    Beside parameters for PostgreSQL (`has_params`) a per cent sign is doubled, because one would begin a parameter.
    """
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

    return _fill_statements(render(_DOUBLED.sub("", text), find, write), values, has_params)


def _fill_statements(marked: str, values: list[Any], has_params: bool) -> str:
    """Some statements with values in place of their marks; raises ValueRefused."""
    filled = ""
    expected: list[tuple[Place, int, int]] = []
    for piece in pieces(marked):
        start, filled = len(filled), filled + _fill_piece(piece, values, filled, has_params)
        if piece.place == "code":
            expected += [(place, start + begin, start + end) for place, begin, end in _quoted_parts(filled[start:])]
        else:
            expected.append((piece.place, start, len(filled)))
    if expected != _quoted_parts(filled):
        raise ValueRefused("a value would end the quotes or the comment that it stands in")
    return filled


def _quoted_parts(text: str) -> list[tuple[Place, int, int]]:
    """The quotes and comments in some statements, each with its beginning and its end."""
    found: list[tuple[Place, int, int]] = []
    at = 0
    for piece in pieces(text):
        at += len(piece.text)
        if piece.place != "code":
            found.append((piece.place, at - len(piece.text), at))
    return found


def pieces(text: str) -> Iterator[Piece]:
    """The parts of some statements, each with its position."""
    at = start = 0
    escaped_until = -1
    while at < len(text):
        found = _quoted_from(text, at, goes_on=_goes_on(text, escaped_until, at))
        if found is None:
            word = _WORD.match(text, at)
            at = word.end() if word is not None else at + 1
            continue
        place, end, after = found
        yield Piece(text[start:at], "code")
        yield Piece(text[at:after], place, end)
        at = start = after
        escaped_until = after if place == "escaped" else escaped_until if place in ("line", "block") else -1
    yield Piece(text[start:], "code")


def _goes_on(text: str, end: int, at: int) -> bool:
    """Do the quotes at `at` go on with an E'...' that ended at `end`? Blanks with a line break join them."""
    return end >= 0 and text[at] == "'" and _CONTINUES.fullmatch(text, end, at) is not None


def _quoted_from(text: str, at: int, *, goes_on: bool = False) -> tuple[Place, str, int] | None:
    """The quoted part that begins here: its position, what ends it, and where it ends."""
    character = text[at]
    if character in _QUOTED:
        place = _QUOTED[character]
        if _UNICODE.search(text, max(at - 3, 0), at):
            return "unicode", character, _end_of_quotes(text, at + 1, character, escapes=False)
        is_e = at > 0 and text[at - 1] in "eE" and not _WORD_END.search(text, max(at - 2, 0), at - 1)
        if place == "text" and (is_e or goes_on):
            place = "escaped"
        return place, character, _end_of_quotes(text, at + 1, character, place == "escaped")
    if text.startswith("--", at):
        end = text.find("\n", at)
        return "line", "\n", len(text) if end < 0 else end
    if text.startswith("/*", at):
        return "block", "*/", _end_of_comment(text, at + 2)
    dollar = _DOLLAR.match(text, at) if character == "$" else None
    if dollar is not None:
        end = text.find(dollar[0], dollar.end())
        return "dollar", dollar[0], len(text) if end < 0 else end + len(dollar[0])
    return None


def _end_of_comment(text: str, at: int) -> int:
    """The offset of the end of the comment that began before `at`; comments nest."""
    depth = 1
    while at < len(text):
        if text.startswith("/*", at):
            depth, at = depth + 1, at + 2
        elif text.startswith("*/", at):
            depth, at = depth - 1, at + 2
            if not depth:
                return at
        else:
            at += 1
    return len(text)


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


def _fill_piece(piece: Piece, values: list[Any], before: str, has_params: bool) -> str:
    """A part of a statement with its values; `before` is the statement up to there."""
    if not _MARK.search(piece.text):
        return piece.text
    if piece.place in ("text", "escaped", "dollar") and _BEFORE_CODE.search(before[-STATEMENT_CHARACTERS_MAX:]):
        tag = len(piece.end)
        if piece.place != "dollar" or not piece.text.endswith(piece.end, tag):
            raise ValueRefused("a value stands in quotes that the database runs as code: write the code in $$ … $$")
        return piece.end + _fill_statements(piece.text[tag:-tag], values, has_params) + piece.end

    def value_of_mark(mark: re.Match[str]) -> str:
        text = _value(piece, values[int(mark[1])], before + piece.text[: mark.start()])
        return text.replace("%", "%%") if has_params else text

    return _MARK.sub(value_of_mark, piece.text)


def _value(piece: Piece, value: Any, before: str) -> str:
    """One value, written for its position and for what stands before it."""
    if piece.place == "code":
        last = before[-1:]
        return _part_of_word(value) if last in _JOINS or last.isalnum() else _literal(value, before)
    text = _text_of(value)
    match piece.place:
        case "text":
            return text.replace("'", "''")
        case "escaped":
            return text.replace("\\", "\\\\").replace("'", "''")
        case "unicode":
            raise ValueRefused("a value can't stand in U&'…': write the quotes without U&")
        case "name":
            return text.replace('"', '""')
        case "dollar":
            if piece.end in text:
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


def _literal(value: Any, before: str) -> str:
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
        statement = before[-STATEMENT_CHARACTERS_MAX:].rpartition(";")[2]
        if not _AFTER_OPERATOR.search(before[-WORDS_CHARACTERS_MAX:]) and not _IN_VALUES.search(statement):
            return text
    return "'" + text.replace("'", "''") + "'"


def _text_of(value: Any) -> str:
    """A value as text without NUL."""
    text = plain_text(value)
    if "\0" in text:
        raise ValueRefused("a value holds a NUL, which no statement can take")
    return text
