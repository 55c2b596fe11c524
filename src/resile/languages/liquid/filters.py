"""The filters that Visor's templates have beyond those of Liquid itself.

Each takes the value before the bar and its arguments. Filters of the run's memory ask the context for `memory_data`, a
mapping of namespaces to mappings; the filter that reads a file asks it for the folder that must contain the file.
Filters that quote for a shell return the value unchanged: a command's values are quoted for their position in any case.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from resile.errors import shorten
from resile.languages.liquid.lenient_syntax import READ_FILE
from resile.languages.references import ValueRefused, decode_json, text_of
from resile.model.limits import VALUE_BYTES_MAX

if TYPE_CHECKING:
    from liquid import RenderContext

_ACCOUNT = ("has_min_permission", "is_owner", "is_member", "is_collaborator", "is_contributor", "is_first_timer")
UNKNOWN_HERE = {"chat_history": "a chat", **dict.fromkeys(_ACCOUNT, "an account of a code host")}
"""Filters that are known and refused, each with the reason."""
_LABEL = re.compile(r"[^A-Za-z0-9:/\- ]")
_CONDITION = re.compile(r"^\s*(\w+)(?:\.([\w.-]+))?\s*(==|!=|>=|<=|>|<|contains)\s*(\S.*)$")
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "contains": operator.contains,
}
MEMORY = "memory_data"
FOLDER = "readfile_folder"


def _plain_data(value: Any) -> Any:
    if hasattr(value, "__liquid__"):
        return value.__liquid__()
    return dict(value) if isinstance(value, Mapping) and not isinstance(value, dict) else value


def _text(value: Any) -> str:
    return text_of(_plain_data(value))


def _json(value: Any, indent: Any = 0) -> str:
    """The value as JSON text, on one line or indented."""
    import json

    value, blanks = _plain_data(value), _whole_number(indent)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    try:
        text = "null" if value is None else text_of(value)
    except TypeError:
        return "null"
    return json.dumps(json.loads(text), ensure_ascii=False, indent=min(blanks, 10)) if blanks > 0 else text


def _parse_json(value: Any) -> Any:
    return decode_json(value) if isinstance(value, str) else value


def _json_escape(value: Any) -> str:
    return _json(_text(value))[1:-1]


def _base64(value: Any) -> str:
    import base64

    return base64.b64encode(_text(value).encode("utf-8", "surrogateescape")).decode()


def _base64_decode(value: Any) -> str:
    """Decode base 64; invalid input gives an empty text."""
    import base64
    import binascii

    try:
        return base64.b64decode(_text(value), validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return ""


def _keep(value: Any) -> Any:
    """The value unchanged: it is quoted later, for its position in the command."""
    return value


def _get(value: Any, path: Any, default: Any = None) -> Any:
    """The value under a path of names and numbers, separated by dots."""
    for part in text_of(path).split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return default
    return value


def _not_empty(value: Any) -> bool:
    value = _plain_data(value)
    return bool(value.strip() if isinstance(value, str) else value)


def _coalesce(value: Any, *others: Any) -> Any:
    return next((found for found in (value, *others) if _not_empty(found) or found in (0, False)), "")


def _where_exp(items: Any, _: Any, expression: Any) -> list[Any]:
    """The items for which a comparison holds: `item.field == "x"`; without one, those that have the field."""
    items = items if isinstance(items, list) else []
    text = _text(expression).strip()
    found = _CONDITION.match(text)
    if found is None:
        path = text.partition(".")[2]
        return [item for item in items if _get(item, path)] if path else items
    _, path, sign, wanted = found.groups()
    other = _parse_json(wanted.replace("'", '"') if wanted[:1] == "'" else wanted)
    return [item for item in items if _compare(_get(item, path) if path else item, sign, other)]


def _compare(left: Any, sign: str, right: Any) -> bool:
    """One comparison; False if the values can't be compared."""
    try:
        return bool(_COMPARISONS[sign](left, right))
    except TypeError:
        return False


def _safe_label(value: Any) -> str:
    """Text that can be the label of an issue: letters, digits, `:`, `/`, `-` and blanks."""
    return _LABEL.sub("", _text(value)).strip()


def _safe_label_list(value: Any) -> list[str]:
    return [label for item in (value if isinstance(value, list) else []) if (label := _safe_label(item))]


def _memory(context: RenderContext, namespace: Any) -> Mapping[str, Any]:
    """The namespace of the run's memory that a filter uses."""
    data: Any = context.globals.get(MEMORY) or {}
    name = _text(namespace) if namespace is not None else data.get("", "default")
    found: Any = data.get(name, {})
    return found if isinstance(found, Mapping) else {}


def _memory_get(key: Any, namespace: Any = None, *, context: RenderContext) -> Any:
    return _memory(context, namespace).get(_text(key))


def _memory_has(key: Any, namespace: Any = None, *, context: RenderContext) -> bool:
    return _text(key) in _memory(context, namespace)


def _memory_list(namespace: Any, *_: Any, context: RenderContext) -> list[str]:
    return list(_memory(context, namespace or None))


def _read_file(path: Any, *, context: RenderContext) -> str:
    """The text of a file in or below the folder of the run; raises ValueRefused."""
    import os

    name = _text(path)
    shown = repr(shorten(name, 200))
    try:
        folder = os.path.realpath(str(context.globals.get(FOLDER) or os.curdir))
        file = os.path.realpath(os.path.join(folder, name))
        if os.path.commonpath((folder, file)) != folder:
            raise ValueRefused(f"{shown} is not below the folder of the run, and is not read")
        if os.path.exists(file) and not os.path.isfile(file):
            # Opening a pipe would block the engine until another process writes into it.
            raise ValueRefused(f"the file {shown} can't be read: it is no regular file")
        with open(file, "rb") as opened:
            data = opened.read(VALUE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueRefused(f"the file {shown} can't be read: {reason}") from error
    if len(data) > VALUE_BYTES_MAX:
        raise ValueRefused(f"the file {shown} has more than {VALUE_BYTES_MAX} bytes, and is not read")
    return data.decode("utf-8", "surrogateescape")


def _whole_number(value: Any) -> int:
    """A whole number."""
    try:
        return int(float(_text(value)))
    except (ValueError, OverflowError):
        return 0


def _number(value: Any) -> int | float:
    """A number, or the number in a text; 0 for anything else."""
    value = _plain_data(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    try:
        number = float(text_of(value))
    except ValueError:
        return 0
    return int(number) if number.is_integer() else number


def _divided_by(value: Any, by: Any, is_whole: Any = False) -> int | float:
    """The quotient with its fraction, as in JavaScript."""
    left, right = _number(value), _number(by)
    if right == 0:
        raise ValueRefused("a number can't be divided by zero")
    result = left // right if _plain_data(is_whole) is True else left / right
    return int(result) if float(result).is_integer() else result


def _as_list(value: Any) -> list[Any]:
    value = _plain_data(value)
    return list(value) if isinstance(value, list | tuple | range) else [] if value is None else [value]


def _group_by(items: Any, path: Any) -> list[dict[str, Any]]:
    """The items by the value of a field: pairs of `name` and `items`."""
    groups: dict[str, dict[str, Any]] = {}
    for item in _as_list(items):
        found = _get(item, path)
        groups.setdefault(text_of(found), {"name": found, "items": []})["items"].append(item)
    return list(groups.values())


def _sentence(items: Any, connector: Any = "and") -> str:
    """The items as a phrase: `a, b, and c`."""
    words = [_text(item) for item in _as_list(items)]
    if len(words) < 3:
        return f" {text_of(connector)} ".join(words)
    return f"{', '.join(words[:-1])}, {text_of(connector)} {words[-1]}"


def _slug(value: Any) -> str:
    return re.sub(r"[^\w]+|_+", "-", _text(value).lower()).strip("-")


def _percent(value: Any) -> str:
    from urllib.parse import quote

    return quote(_text(value), ";/?:@&=+$,#-_.!~*'()", "utf-8", "surrogateescape")


FILTERS: dict[str, Callable[..., Any]] = {
    "json": _json,
    "to_json": _json,
    "parse_json": _parse_json,
    "json_escape": _json_escape,
    "base64": _base64,
    "base64_decode": _base64_decode,
    "shell_escape": _keep,
    "escape_shell": _keep,
    "shell_escape_double": _keep,
    "get": _get,
    "not_empty": _not_empty,
    "coalesce": _coalesce,
    "where_exp": _where_exp,
    "safe_label": _safe_label,
    "safe_label_list": _safe_label_list,
    "unescape_newlines": lambda value: _text(value).replace("\\n", "\n"),
    "divided_by": _divided_by,
    # Filters of liquidjs that Liquid itself does not have.
    "jsonify": _json,
    "inspect": _json,
    "raw": _keep,
    "to_integer": _whole_number,
    "push": lambda items, item: [*_as_list(items), item],
    "pop": lambda items: _as_list(items)[:-1],
    "shift": lambda items: _as_list(items)[1:],
    "unshift": lambda items, item: [item, *_as_list(items)],
    "group_by": _group_by,
    "number_of_words": lambda value: len(_text(value).split()),
    "normalize_whitespace": lambda value: re.sub(r"\s+", " ", _text(value)),
    "array_to_sentence_string": _sentence,
    "slugify": _slug,
    "uri_escape": _percent,
}
CONTEXT_FILTERS: dict[str, Callable[..., Any]] = {
    READ_FILE: _read_file,
    "memory_get": _memory_get,
    "memory_has": _memory_has,
    "memory_list": _memory_list,
}
"""Filters that also get the rendering context."""
