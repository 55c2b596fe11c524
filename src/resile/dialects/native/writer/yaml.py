"""Writes plain data as readable YAML: block style, multi-line texts as `|`, comments above their value.

    Block   a mapping with comments of its own
    write   data -> text; parsing the text gives the data again

Quotes only where they are needed; a list of a few short words is one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from resile.dialects.formats.yaml import resolve

INDENT = "  "
FLOW_CHARACTERS_MAX = 88
# Characters that a plain text can't contain or start with, in a block and, stricter, in a flow list.
_INDICATORS = frozenset("-?:,[]{}#&*!|>'\"%@`= \t")
_UNSAFE = re.compile(r": |:$| #|[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]|^\s|\s$|^---|^\.\.\.")
_UNSAFE_IN_FLOW = re.compile(r"[,\[\]{}:#'\"&*!|>%@`]")
_NOT_LITERAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
_WORDS_OF_OLD = frozenset(("y", "n", "yes", "no", "on", "off", "<<"))
"""Words that other YAML parsers read as true, false or a merge."""


class Block(dict[str, Any]):
    """A mapping with comments above it."""

    notes: tuple[str, ...] = ()


def write(data: dict[str, Any], notes: tuple[str, ...] = ()) -> str:
    """Write a mapping as a file, with comments at its top."""
    return "\n".join([*(_comment(note, "") for note in notes), *_mapping(data, "")]) + "\n"


def _mapping(data: dict[str, Any], indent: str) -> Iterator[str]:
    for key, value in data.items():
        yield from _notes(value, indent)
        yield from _entry(f"{indent}{_scalar(key)}:", value, indent)


def _notes(value: Any, indent: str) -> Iterator[str]:
    yield from (_comment(note, indent) for note in (value.notes if isinstance(value, Block) else ()))


def _comment(note: str, indent: str) -> str:
    """Write a one-line comment; unprintable characters can't end it."""
    return f"{indent}# {''.join(c if c.isprintable() else ' ' for c in note)}"


def _entry(head: str, value: Any, indent: str) -> Iterator[str]:
    """Write one entry of a mapping or a list, which begins with `head`."""
    if isinstance(value, dict) and value:
        yield head
        yield from _mapping(value, indent + INDENT)
    elif isinstance(value, list | tuple) and value:
        line = _flow_list_of(value)
        if line and len(head) + len(line) < FLOW_CHARACTERS_MAX:
            yield f"{head} {line}"
            return
        yield head
        for item in value:
            yield from _item(item, indent + INDENT)
    elif isinstance(value, str) and "\n" in value and _is_literal(value):
        yield from _literal(head, value, indent + INDENT)
    else:
        yield f"{head} {_scalar(value)}"


def _item(value: Any, indent: str) -> Iterator[str]:
    """One item of a list."""
    yield from _notes(value, indent)
    if isinstance(value, dict) and value:
        lines = _mapping(value, indent + INDENT)
        first = next(lines)
        while first.lstrip().startswith("#"):
            yield f"{indent}{first.lstrip()}"
            first = next(lines)
        yield f"{indent}- {first[len(indent) + len(INDENT) :]}"
        yield from lines
    else:
        yield from _entry(f"{indent}-", value, indent)


def _flow_list_of(values: list[Any] | tuple[Any, ...]) -> str:
    """Write a list of plain words and numbers in one line; return an empty text if it has other values."""
    parts: list[str] = []
    for value in values:
        part = _scalar(value) if not isinstance(value, dict | list | tuple) else "\n"
        if "\n" in part or (isinstance(value, str) and part == value and _UNSAFE_IN_FLOW.search(part)):
            part = _quote(value) if isinstance(value, str) else "\n"
        if "\n" in part:
            return ""
        parts.append(part)
    return f"[{', '.join(parts)}]"


def _is_literal(text: str) -> bool:
    return not _NOT_LITERAL.search(text) and bool(text.strip()) and not text.startswith(("\t", "\n"))


def _literal(head: str, text: str, indent: str) -> Iterator[str]:
    """Write a literal block; the indicators after `|` give its indentation and its end."""
    begins = str(len(INDENT)) if text.startswith(" ") else ""
    ends = "" if text.endswith("\n") and not text.endswith("\n\n") else "+" if text.endswith("\n") else "-"
    if text.strip(" \n") != text.strip() and not text.endswith("\n"):
        yield f"{head} {_quote(text)}"
        return
    yield f"{head} |{begins}{ends}"
    lines = text.split("\n")
    if text.endswith("\n"):
        lines.pop()
    yield from (f"{indent}{line}" if line else "" for line in lines)


def _scalar(value: Any) -> str:
    """A value in one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return value if _is_plain(value) else _quote(value)
    return "{}" if isinstance(value, dict) else "[]" if isinstance(value, list | tuple) else str(value)


def _is_plain(text: str) -> bool:
    if not text or text[0] in _INDICATORS or _UNSAFE.search(text) or text.lower() in _WORDS_OF_OLD:
        return False
    return isinstance(resolve(text), str)


def _quote(text: str) -> str:
    """Quote a text: single quotes, or double quotes if characters must be escaped."""
    if not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]", text):
        return "'" + text.replace("'", "''") + "'"
    import msgspec

    escaped = msgspec.json.encode(text).decode()
    return re.sub(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda found: f"\\u{ord(found[0]):04x}", escaped)
