"""What Liquid and Jinja share, the two languages with `{{ ... }}`: lazy mappings, and outputs in shell commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from resile.languages.references import MISSING, ValueRefused, refuse_nul
from resile.languages.shell.quoting import render_shell

Write = Callable[[Any], str]
"""Writes the value of an output."""


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


def output_pieces(text: str, render: Callable[[Write], str], plain_text: Write) -> list[tuple[str, str | None]]:
    """The rendered text in pieces; the values of its outputs have the template beside them."""
    values: list[str] = []

    def write(value: Any) -> str:
        """Write a mark in place of the value."""
        values.append(refuse_nul(plain_text(value)))
        return f"\0{len(values) - 1}\0"

    refuse_nul(text)
    parts = render(write).split("\0")
    return [(values[int(part)], text) if at % 2 else (part, None) for at, part in enumerate(parts)]


def quote_outputs(text: str, render: Callable[[Write], str], plain_text: Write, program: str) -> str:
    """Render a command, with the value of each output quoted for its position.

    `render` renders the text. Each output first becomes a reference with a unique name, which the shell's lexer finds.
    """
    prefix = "value"
    while prefix in text:
        prefix += "_"
    values: dict[str, str] = {}
    seen: set[str] = set()

    def write(value: Any) -> str:
        """Write a reference in place of the value."""
        name = f"{prefix}{len(values)}"
        values[name] = plain_text(value)
        return f"${{{name}}}"

    def lookup(name: str) -> Any:
        """The value of one of our references; any other reference belongs to the shell."""
        seen.add(name)
        return values.get(name, MISSING)

    command = render(write)
    quoted = render_shell(command, lookup, program) if values else command
    if not values.keys() <= seen:
        raise ValueRefused("a backslash stands before `{{`: no value can be put there safely")
    return quoted
