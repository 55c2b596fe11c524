"""`${...}` in texts: which of them are ours, what they name, and plain substitution.

    ${inputs.x}  ${env.X}  ${steps.build.output}  ${steps['my step'].outputs.k[0]}  ${raw:NAME}  ${NAME}
    ${item.size:-none}   a name with a path may have a default, used if there is no value or null

A reference is a name with a path. Everything else that starts with a dollar (`$1`, `$(...)`, `$$`,
`${VAR:-x}`, `${#x}`, `\\${...}`) belongs to the shell and stays unchanged, and so does a reference whose name the
workflow does not know. `shell/` substitutes in commands; this module does it in environment values, folders and file
names, where a backslash before a reference keeps it as text and is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, Final

if TYPE_CHECKING:
    import re

TEMPLATES_KEPT = 4_096
_INDEX_DIGITS_MAX = 9

_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_DEFAULT = r""":-[^][{}$`\\"'\n]*"""
_SEGMENT = r"""\.\w[\w-]*|\[-?[0-9]{1,9}\]|\['[^'\n]*'\]|\["[^"\n]*"\]"""


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Patterns of tokens, parts of a name, one whole reference, a default; compiled with the first reference."""
    import re

    return (
        re.compile(rf"\\.|\$\$|\$\{{((?:raw:)?{_IDENTIFIER}(?:(?:{_SEGMENT})+(?:{_DEFAULT})?)?)\}}", re.DOTALL),
        re.compile(rf"""{_IDENTIFIER}|\.(\w[\w-]*)|\[(-?[0-9]+)\]|\[['"](.*?)['"]\]"""),
        re.compile(rf"\$\{{(?:{_IDENTIFIER})(?:(?:{_SEGMENT})+(?:{_DEFAULT})?)?\}}"),
        re.compile(rf"(?:{_DEFAULT})\Z"),
    )


class Missing:
    """The type of MISSING."""

    def __repr__(self) -> str:
        """The name, for a debugger."""
        return "MISSING"


MISSING: Final = Missing()
"""The result of a lookup for a name that the workflow does not know."""
Lookup = Callable[[str], Any]


def known_of(found: dict[str, Any]) -> dict[str, Any]:
    """The entries without the missing ones."""
    return {name: value for name, value in found.items() if value is not MISSING}


class ValueRefused(Exception):
    """A value is not allowed in its position; the attempt fails with kind `contract` before it starts."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ValueTooLarge(ValueRefused):
    """A value is larger than a text in memory may be; `copy` writes it to a file, for the ways that take any size."""

    def __init__(self, message: str, copy: Callable[[BinaryIO], None]) -> None:
        super().__init__(message)
        self.copy = copy


def names(text: str) -> list[tuple[str, int]]:
    """The references in a text, as (name, offset of its dollar); a raw one keeps its `raw:`."""
    if "${" not in text:
        return []
    return [(token[1], token.start()) for token in _patterns()[0].finditer(text) if token[1] is not None]


def is_one_reference(text: str) -> bool:
    """Is the text one reference and nothing else?"""
    return text.startswith("${") and _patterns()[2].fullmatch(text) is not None


@lru_cache(maxsize=TEMPLATES_KEPT)
def path_of(name: str) -> tuple[str | int, ...]:
    """The parts of a name: `steps['my step'].outputs.k[0]` is ("steps", "my step", "outputs", "k", 0)."""
    parts: list[str | int] = []
    for match in _patterns()[1].finditer(without_default(name).removeprefix("raw:")):
        field, index, key = match.groups()
        if index is not None:
            parts.append(int(index))
        else:
            parts.append(next((part for part in (field, key) if part is not None), match[0]))
    return tuple(parts)


def without_default(name: str) -> str:
    """A name without its default."""
    return _patterns()[3].sub("", name) if ":-" in name else name


def or_default(name: str, value: Any) -> Any:
    """The value of a name, or the name's default if it has one and there is no value.

    An environment variable that is not set is empty, so for these an empty text counts as no value, as in a shell.
    """
    is_unset = value is MISSING or value is None or (value == "" and name.startswith("env."))
    if ":-" not in name or not is_unset:
        return value
    default = _patterns()[3].search(name)
    return value if default is None else default[0][2:]


def text_of(value: Any) -> str:
    """A value as text: JSON for lists and maps, `true` and `false`, empty for None."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int | str):
        return str(value)
    import msgspec

    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        # Bytes that were not UTF-8 are surrogates here, which only the slower encoder accepts.
        import json

        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def checked_text(name: str, value: Any) -> str:
    """A value as text for a process; raises ValueRefused for a NUL."""
    text = text_of(value)
    if "\0" in text:
        raise ValueRefused(f"the value of `${{{name}}}` holds a NUL, which no command or environment can take")
    return text


@lru_cache(maxsize=TEMPLATES_KEPT)
def _template(text: str) -> tuple[tuple[str, str], ...]:
    """A text as (literal, reference after it); an escaped reference is a literal without its backslash."""
    pieces: list[tuple[str, str]] = []
    literal, at = "", 0
    for token in _patterns()[0].finditer(text):
        literal += text[at : token.start()]
        at = token.end()
        if token[1] is not None:
            pieces.append((literal, token[0]))
            literal = ""
        elif token[0] == "\\$" and _patterns()[2].match(text, token.start() + 1):
            literal += "$"
        else:
            literal += token[0]
    pieces.append((literal + text[at:], ""))
    return tuple(pieces)


def render_text(text: str, lookup: Lookup) -> str:
    """The text with the values of its references, unquoted; unknown ones stay."""
    if "${" not in text:
        return text
    out: list[str] = []
    for literal, reference in _template(text):
        out.append(literal)
        if reference:
            name = reference[2:-1].removeprefix("raw:")
            value = lookup(name)
            out.append(reference if value is MISSING else checked_text(name, value))
    return "".join(out)


def write_text(text: str, lookup: Lookup, file: BinaryIO) -> None:
    """Write the text with the values of its references to a file; a value may have any size."""
    for literal, reference in _template(text):
        file.write(literal.encode("utf-8", "surrogateescape"))
        if not reference:
            continue
        try:
            file.write(render_text(reference, lookup).encode("utf-8", "surrogateescape"))
        except ValueTooLarge as large:
            large.copy(file)


def text_pieces(text: str, lookup: Lookup) -> list[tuple[str, str | None]]:
    """The text with its values in pieces; a value that is not raw has the text of its reference beside it."""
    pieces: list[tuple[str, str | None]] = []
    for literal, reference in _template(text):
        pieces.append((literal, None))
        if reference:
            name = reference[2:-1].removeprefix("raw:")
            value = lookup(name)
            is_literal = value is MISSING or reference.startswith("${raw:")
            written = reference if value is MISSING else checked_text(name, value)
            pieces.append((written, None if is_literal else reference))
    return pieces


def walk(value: Any, path: Sequence[str | int]) -> Any:
    """The part of a value that field names and indexes lead to, or MISSING."""
    for key in path:
        if isinstance(value, dict) and str(key) in value:
            value = value[str(key)]
        elif isinstance(value, list) and (at := _index(key, len(value))) is not None:
            value = value[at]
        else:
            return MISSING
    return value


def _index(key: str | int, length: int) -> int | None:
    """The index of a list that a key means, `[1]` or `.1`; None if there is no such entry."""
    if isinstance(key, str):
        if not (key.isascii() and key.isdigit() and len(key) <= _INDEX_DIGITS_MAX):
            return None
        key = int(key)
    return key if -length <= key < length else None


def parse_json(value: Any) -> Any:
    """The value of a text that is a JSON object or list; anything else unchanged."""
    return decode_json(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


def decode_json(text: str) -> Any:
    """The value of a JSON text; any other text unchanged."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def refuse_nul(text: str) -> str:
    """The text; raises ValueRefused if a value put a NUL into it."""
    if "\0" in text:
        raise ValueRefused("a value holds a NUL, which no command or environment can take")
    return text
