"""Names that a file gives to values, so that `${NAME}` finds them."""

from __future__ import annotations

from resile.dialects.formats.nodes import Node
from resile.dialects.reading import values as read
from resile.dialects.reading.context import Reading
from resile.errors import shorten

ROOTS = ("inputs", "env", "steps", "execution", "item", "item_index", "item_id", "map", "error", "shell", "raw")
"""Reserved first words of references; no name can be captured under them."""


def capture_name(reading: Reading, name: str, node: Node) -> bool:
    """May a value be captured under this name, so that `${NAME}` finds it?"""
    return _is_free(reading, name, node, "be captured", "a captured value")


def item_name(reading: Reading, name: str, node: Node) -> bool:
    """May an item have this second name, so that `${NAME}` finds it?"""
    return name == "item" or _is_free(reading, name, node, "name an item", "an item")


def _is_free(reading: Reading, name: str, node: Node, act: str, what: str) -> bool:
    """Report a name that `${...}` can't have, or that it has for something else."""
    if name in ROOTS:
        reading.report.error("reserved", f"`{name}` is reserved and can't {act}", node)
    elif not read.IDENTIFIER.fullmatch(name):
        hint = "letters, digits and `_`, not starting with a digit"
        reading.report.error("name", f"`{shorten(name)}` can't be the name of {what}", node, hint=hint)
    else:
        return True
    return False
