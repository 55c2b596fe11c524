"""Python values as data: JSON if that restores exactly the same value, else a pickle inside JSON.

    {"__pickle__": base64}

Only workers, and callers that read a result, unpickle. A pickle from the workflow's own program names its classes by
`__main__`; the reader looks them up in `home`, that program's file or module, whichever program runs now.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from resile.languages.python.modules import MAIN, NO_HOME, Home, object_named
from resile.model.limits import VALUE_BYTES_MAX, VALUE_DEPTH_MAX

MARK = "__pickle__"
_PLAIN = frozenset((type(None), bool, str, float))
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


class ValueUnfit(Exception):
    """A value can't be transferred: it is too large, or pickle refuses it."""


def is_plain(value: Any, depth: int = 0) -> bool:
    """Does JSON restore exactly this value?"""
    kind = type(value)
    if kind in _PLAIN:
        return kind is not float or value - value == 0
    if kind is int:
        return bool(_INT_MIN <= value <= _INT_MAX)
    if depth >= VALUE_DEPTH_MAX:
        return False
    if kind is list:
        return all(is_plain(item, depth + 1) for item in value)
    if kind is dict:
        return MARK not in value and all(type(key) is str and is_plain(item, depth + 1) for key, item in value.items())
    return False


def portable(value: Any, what: str) -> Any:
    """A value as JSON data; raises ValueUnfit."""
    if is_plain(value):
        try:
            size = len(msgspec.json.encode(value))
        except UnicodeEncodeError:
            size = -1
        if size >= 0:
            return _fit(value, size, what)
    import base64
    import pickle

    try:
        data = pickle.dumps(value, protocol=5)
    except Exception as error:
        raise ValueUnfit(f"{what} is neither JSON nor can it be pickled: {error}") from error
    return _fit({MARK: base64.b64encode(data).decode()}, len(data), what)


def _fit(value: Any, size: int, what: str) -> Any:
    if size > VALUE_BYTES_MAX:
        raise ValueUnfit(f"{what} has {size} bytes, at most {VALUE_BYTES_MAX} are kept: hand over a path instead")
    return value


def revive(value: Any, home: Home) -> Any:
    """JSON data with its pickled objects restored."""
    if isinstance(value, list):
        return [revive(item, home) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {MARK}:
        import base64
        import io

        return _unpickler()(io.BytesIO(base64.b64decode(value[MARK])), home).load()
    return {key: revive(item, home) for key, item in value.items()}


@cache
def _unpickler() -> Any:
    """A pickle reader class that finds the classes of the workflow's own program."""
    import pickle

    class Unpickler(pickle.Unpickler):
        """Finds the classes of the workflow's own program, whichever program runs now."""

        def __init__(self, file: Any, home: Home) -> None:
            super().__init__(file)
            self._home = home

        def find_class(self, module: str, name: str, /) -> Any:
            """A class or a function by its module and its name."""
            if module in ("__main__", MAIN) and self._home != NO_HOME:
                try:
                    return object_named(self._home, name)
                except AttributeError:
                    # The class belongs to a program that the workflow does not know, perhaps to this one.
                    pass
            return super().find_class(module, name)

    return Unpickler


def mentions_pickle(value: Any) -> bool:
    """Does the data contain a pickle?"""
    if isinstance(value, list):
        return any(map(mentions_pickle, value))
    if isinstance(value, dict):
        return MARK in value or any(map(mentions_pickle, value.values()))
    return False
