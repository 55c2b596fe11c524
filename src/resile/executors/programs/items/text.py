"""One item as JSON text, and back; and the errors of a text that can't be an item."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from resile.model.limits import ITEM_BYTES_MAX, ITEM_DEPTH_MAX

# Bytes that were not UTF-8 are surrogates here, which only the slower codec accepts.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class ItemsRefused(Exception):
    """The items can't be listed; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def size_error(index: int, size: int) -> ItemsRefused:
    """The error of an item that is larger than allowed."""
    return ItemsRefused(f"item {index} has {size} bytes, at most {ITEM_BYTES_MAX} are allowed")


def encode(value: Any) -> bytes:
    """A value as JSON on one line."""
    import json

    try:
        if isinstance(value, str):
            return msgspec.json.encode(value)
    except UnicodeEncodeError:
        pass
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ItemsRefused(f"{kind_of(value)} can't be written as JSON: {error}") from error


def decode(text: bytes) -> Any:
    """The value of a JSON text."""
    try:
        try:
            return msgspec.json.decode(text)
        except (msgspec.MsgspecError, ValueError):
            if _SURROGATE.search(text):
                return _decode_surrogates(text)
            raise
    except (msgspec.MsgspecError, ValueError) as error:
        raise ItemsRefused(f"this is no JSON: {error}") from error
    except RecursionError as error:
        raise _depth_error() from error


def is_json(text: bytes) -> bool:
    """Is a text one JSON value?"""
    try:
        decode(text)
    except ItemsRefused:
        return False
    return True


def check_item(text: bytes) -> bytes:
    """Check that an item is JSON and not nested too deeply; return it on one line."""
    value = decode(text)
    # Count brackets first: that is quick, and the exact depth is seldom needed.
    if text.count(b"[") + text.count(b"{") > ITEM_DEPTH_MAX and _depth_exceeds(value, ITEM_DEPTH_MAX):
        raise _depth_error()
    return encode(value) if b"\n" in text else text


def kind_of(value: Any) -> str:
    """The name of a value's type, for a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list() | tuple():
            return "an array"
        case _:
            return "an object"


def _decode_surrogates(text: bytes) -> Any:
    """The value of a JSON text with lone surrogates in it."""
    import json

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no number")

    return json.loads(text.decode(), parse_constant=refuse)


def _depth_exceeds(value: Any, levels: int) -> bool:
    """Are arrays and objects nested more deeply than this?"""
    layer = [value]
    for _ in range(levels + 1):
        containers = [part for part in layer if isinstance(part, dict | list)]
        if not containers:
            return False
        layer = [part for whole in containers for part in (whole.values() if isinstance(whole, dict) else whole)]
    return True


def _depth_error() -> ItemsRefused:
    return ItemsRefused(f"it is nested in more than {ITEM_DEPTH_MAX} levels")
