"""Where two documents differ, and which of that is accepted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

SHOWN_CHARACTERS_MAX = 160
_NOTHING = object()


class Difference(NamedTuple):
    """One place at which two documents say different things, as texts."""

    place: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.place}: old {self.old}, new {self.new}"


def differences(old: Any, new: Any, place: str = "") -> Iterator[Difference]:
    """Every place at which two documents differ, as keys and numbers with dots between them, in their order."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from differences(old.get(key, _NOTHING), new.get(key, _NOTHING), f"{place}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list):
        for number in range(max(len(old), len(new))):
            ours, theirs = (side[number] if number < len(side) else _NOTHING for side in (old, new))
            yield from differences(ours, theirs, f"{place}.{number}".lstrip("."))
    elif type(old) is not type(new) or old != new:
        yield Difference(place, shown(old, new), shown(new, old))


def shown(value: Any, other: Any) -> str:
    """A value in one line; of a long text what begins shortly before it leaves the other."""
    if value is _NOTHING:
        return "nothing"
    if isinstance(value, str) and isinstance(other, str) and len(value) > SHOWN_CHARACTERS_MAX:
        pairs = zip(value, other, strict=False)
        same = next((at for at, (one, two) in enumerate(pairs) if one != two), min(len(value), len(other)))
        start = max(0, same - SHOWN_CHARACTERS_MAX // 4)
        value = ("…" if start else "") + value[start:]
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"


class Table:
    """The accepted differences, and which of them occurred."""

    def __init__(self, rows: Sequence[tuple[str, str, str]]) -> None:
        self._rows = rows
        self._seen: set[int] = set()

    def accepts(self, file: str, found: Difference) -> bool:
        """Is a difference meant?"""
        rows = [
            number
            for number, (files, places, _) in enumerate(self._rows)
            if fnmatchcase(file, files) and fnmatchcase(found.place, places)
        ]
        self._seen.update(rows)
        return bool(rows)

    def unused(self) -> list[str]:
        """The rows that nothing needed."""
        return [
            f"{files}: {places}: {reason}"
            for number, (files, places, reason) in enumerate(self._rows)
            if number not in self._seen
        ]
