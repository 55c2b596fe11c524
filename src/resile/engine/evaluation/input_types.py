"""Converts inputs to their declared types: texts of callers, and values that a step gives its child workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from resile.errors import shorten
from resile.languages.references import ValueRefused

if TYPE_CHECKING:
    from resile.model.workflow import Input


def to_declared_type(name: str, declared: Input, value: Any) -> Any:
    """Convert a computed value to the number or truth value that the input declares; raises ValueRefused if it is none.

    Values of other types, and null, stay as they are.
    """
    if value is None or declared.kind not in ("number", "bool"):
        return value
    if isinstance(value, str):
        try:
            return from_text(declared.kind, value)
        except ValueError:
            pass
    elif isinstance(value, bool) if declared.kind == "bool" else _is_number(value):
        return value
    raise ValueRefused(f"input {name!r}: {shorten(repr(value))} is not a {declared.kind}")


def from_text(kind: str, text: str) -> Any:
    """The text of an input as a value of its type; raises ValueError if it is none."""
    if kind == "number":
        return _number(text)
    if kind == "bool":
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise ValueError("neither true nor false")
        return word == "true"
    return _json(text) if kind == "json" else text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json(text: str) -> Any:
    """A JSON value; the fast decoder refuses escaped lone surrogates, so fall back to the slow one."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        import json

        from resile.languages.python.values import is_plain

        try:
            value = json.loads(text)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not is_plain(value):
            raise
        return value
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _number(text: str) -> int | float:
    """An integer or a finite float: JSON can't carry others."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if number - number != 0:
        raise ValueError("not finite")
    return number
