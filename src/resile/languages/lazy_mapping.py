"""A mapping for templates that computes its values on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from resile.languages.references import MISSING


class Lazy(Mapping[str, Any]):
    """A mapping that computes its values on first use; `make` returns MISSING for a name without one."""

    def __init__(self, names: Callable[[], list[str]], make: Callable[[str], Any]) -> None:
        self._names = names
        self._make = make

    def __getitem__(self, name: str) -> Any:
        value = self._make(name)
        if value is MISSING:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())
