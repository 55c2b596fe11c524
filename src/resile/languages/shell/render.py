"""Renders a command: the pieces of `grammar.read`, with each hole's value written for its position."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, assert_never

from resile.languages.references import MISSING, ValueRefused, checked_text
from resile.languages.shell.grammar import read
from resile.languages.shell.lexer import BodyEnd, BodyStart, Hole

if TYPE_CHECKING:
    from resile.languages.references import Lookup

_DOUBLE = re.compile(r'[\\$`"]')
_DEFAULT = re.compile(r'[\\$`"}]')
_PAIRED = re.compile(r"['(]")
_HEREDOC = re.compile(r"[\\$`]")
_ANSI = re.compile(r"[^A-Za-z0-9_\x80-\U0010ffff]")
_COMMENT = re.compile(r"[^A-Za-z0-9_ .,:/@%+=\x80-\U0010ffff-]")
_ESCAPED = re.compile(r"\\.")
_ECHOED = {
    "\\\\": "\\u005c", "\\b": "\\u0008", "\\f": "\\u000c", "\\n": "\\u000a", "\\r": "\\u000d", "\\t": "\\u0009",
}  # fmt: skip
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_FORMS = {
    "number": (
        re.compile(r"(?:-?[0-9]{1,19}(?:\.[0-9]{1,19})?)?"),
        "stands where the shell calculates, and its value is not a number",
    ),
    "name": (re.compile(r"[A-Za-z0-9_]+"), "names a variable for the shell, and its value is not a plain name"),
    "list": (
        re.compile(r"(?!\().*", re.DOTALL),
        "may be a list for bash, and its value begins with `(`: write x=${…} in a command of its own",
    ),
    "calm": (
        re.compile(r"[^\[]*|[^$`]*", re.DOTALL),
        "may get to where the shell calculates or looks up a name, and its value has `[` and a `$` or a backquote:"
        ' calculate and compare with `expr`, which takes a text as a text: expr "$n" + 1',
    ),
    "index": (
        re.compile(r"[^$`]*", re.DOTALL),
        "may get into an index that the shell reads once more, and its value has a `$` or a backquote",
    ),
    "operand": (
        re.compile(r"(?![-+]).*", re.DOTALL),
        "may be an option, for its value begins with a dash or a plus: write -- before it",
    ),
}


def render(text: str, lookup: Lookup, program: str) -> str:
    """The command with the values of its references, each quoted for its position; unknown ones stay."""
    out: list[str] = []
    bodies: list[int] = []
    for piece in read(text, program):
        if isinstance(piece, str):
            out.append(piece)
        elif isinstance(piece, Hole):
            value = lookup(piece.name)
            out.append(piece.source if value is MISSING else _quote(piece, _text(piece.name, value)))
        elif isinstance(piece, BodyStart):
            bodies.append(len(out))
        else:
            _check_body(piece, "".join(out[bodies.pop() :]))
    return "".join(out)


def _text(name: str, value: Any) -> str:
    """A value as text. JSON is written so that `echo`, which in many shells expands `\\n`, leaves it alone."""
    text = checked_text(name, value)
    return text if isinstance(value, str) else _ESCAPED.sub(lambda found: _ECHOED.get(found[0], found[0]), text)


def _quote(hole: Hole, value: str) -> str:
    """The value, written so that the shell reads exactly this value here."""
    if hole.is_raw:
        return value
    if hole.form:
        pattern, problem = _FORMS[hole.form]
        if not pattern.fullmatch(value):
            raise ValueRefused(f"`{hole.source}` {problem}".replace("${…}", hole.source))
        if value and hole.form in ("number", "name"):
            return value
    text = _write_for_place(hole, value)
    if hole.in_document and hole.place in ("word", "single"):
        # In a here-document bash joins lines at a backslash even inside single quotes: separate the two.
        text = text.replace("\\\n", "\\''\n")
    # Inside backquotes the shell removes one level of backslashes before it reads the command.
    return _HEREDOC.sub(r"\\\g<0>", text) if hole.in_backquotes else text


def _write_for_place(hole: Hole, value: str) -> str:
    """The value, written for its innermost position."""
    match hole.place:
        case "word":
            return "'" + value.replace("'", "'\\''") + "'"
        case "single":
            return value.replace("'", "'\\''")
        case "double":
            return _DOUBLE.sub(r"\\\g<0>", value)
        case "twice double":
            # In "`echo "..."`" bash expands the braces of the inner text, unless they are quoted.
            return _DOUBLE.sub(r"\\\g<0>", value).replace("{", "\"'{'\"")
        case "default":
            # Inside "${V:-...}" bash looks for the closing `'` and the end of `<(`, unless they are quoted.
            return _PAIRED.sub(r'"\g<0>"', _DEFAULT.sub(r"\\\g<0>", value))
        case "ksh default":
            # In ksh a double quote inside "${V:-...}" ends the outer one, and single quotes are read in two ways.
            return "\"$'" + _ANSI.sub(_octal, value) + "'\""
        case "heredoc":
            return _HEREDOC.sub(r"\\\g<0>", value)
        case "literal":
            return value
        case "ansi":
            return _ANSI.sub(_octal, value)
        case "comment":
            return _COMMENT.sub("_", value)
        case "number":
            if not _NUMBER.fullmatch(value):
                raise ValueRefused(f"`{hole.source}` stands in arithmetic and its value is not a whole number")
            # The blank keeps a minus from joining the one before it, and from being read as `:-`.
            return f" {value}" if value.startswith("-") else value
        case "refused":
            raise ValueRefused(f"`{hole.source}` stands where no value can be put safely: {hole.reason}")
        case _:
            assert_never(hole.place)


def _octal(found: re.Match[str]) -> str:
    return f"\\{ord(found[0]):03o}"


def _check_body(end: BodyEnd, body: str) -> None:
    """Check that no value ends the here-document that contains it."""
    for line in body.split("\n"):
        line = line.lstrip("\t") if end.strips_tabs else line
        if line == end.delimiter or (end.is_nested and line.startswith(end.delimiter)):
            raise ValueRefused(f"a value holds the line `{end.delimiter}`, which would end its here-document")
