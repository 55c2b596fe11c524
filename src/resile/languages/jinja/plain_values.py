"""Converts values for templates and back: outside of templates there is only plain data, with the types of JSON.

    as_result(value)    the result of a step, with the tolerance that playbooks rely on     stand_in_for(value, name)
    plain_data(value)       plain data; every value that leaves a template passes through it
    plain_text(value)   a value as text: JSON for lists and mappings

The log of a run may store the result of a template, so this module refuses values that the log can't write or would
read back differently: numbers that don't fit JSON or 64 bits, objects, data that is nested too deeply.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from contextvars import ContextVar
from math import isfinite
from typing import Any

from resile.languages.references import MISSING, ValueRefused, text_of
from resile.model.limits import VALUE_DEPTH_MAX

NUMBER_MIN, NUMBER_MAX = -(2**63), 2**64 - 1
IN_END: ContextVar[bool] = ContextVar("in_end", default=False)
"""Is a text of `end` being rendered? A name without a value is empty there: nothing keeps `end` from running."""
_SELF = ("data", "result")
_SELF_OF_TEXT = ("data", "result", "stdout", "output")
_LISTED = (list, tuple, set, frozenset, range, Iterator, KeysView, ValuesView, ItemsView)
"""Types that count as a list; filters return iterators."""


class ResultDict(dict[str, Any]):
    """The result of a step, as a mapping: `.data` and `.result` are the mapping itself if it has no such key."""


class ResultList(list[Any]):
    """The result of a step, as a list; that of a query also under `.rows` and `.command_0`."""


class ResultText(str):
    """The result of a step, as text."""


def as_result(value: Any) -> Any:
    """A value as templates see the result of a step."""
    if isinstance(value, dict):
        return ResultDict(value)
    if isinstance(value, list):
        return ResultList(value)
    return ResultText(value) if isinstance(value, str) else value


def stand_in_for(value: Any, name: Any) -> Any:
    """The substitute for a part that a step's result does not have, or MISSING."""
    if isinstance(value, ResultDict):
        inner = value.get("data")
        if isinstance(inner, dict) and name in inner:
            return inner[name]
        return value if name in _SELF else MISSING
    if isinstance(value, ResultList):
        is_rows = isinstance(name, str) and (name == "rows" or name.startswith("command_"))
        return value if is_rows or name in _SELF else MISSING
    return value if isinstance(value, ResultText) and name in _SELF_OF_TEXT else MISSING


def plain_data(value: Any, depth: int = 0) -> Any:
    """A value as plain data; raises ValueRefused for other types, and Jinja's error for an undefined value."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # Drop the subclass, which has methods for templates and can't be stored in the log.
        return str.__str__(value)
    if isinstance(value, int):
        if not NUMBER_MIN <= value <= NUMBER_MAX:
            raise ValueRefused("a whole number has more than 64 bits")
        return int(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueRefused(f"{value} is no number that JSON can say")
        return float(value)
    if depth > VALUE_DEPTH_MAX:
        raise ValueRefused(f"data is nested deeper than {VALUE_DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        return {str.__str__(str(name)): plain_data(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, _LISTED):
        return [plain_data(inner, depth + 1) for inner in value]
    return _text_of_object(value)


def _text_of_object(value: Any) -> str | None:
    """The text of a value that is neither text, number, list nor mapping, if it has one; None in place of nothing."""
    from jinja2 import Undefined

    if isinstance(value, Undefined) and not str(value):
        # str() of a strict undefined value raises an error that names it; only in `end` it is empty.
        return None
    try:
        return text_of(value)
    except (TypeError, ValueError) as error:
        raise ValueRefused(f"a {type(value).__name__} is no data") from error


def plain_text(value: Any) -> str:
    """A value as text: JSON for lists and mappings."""
    return text_of(plain_data(value) if isinstance(value, (Mapping, *_LISTED)) or IN_END.get() else value)
