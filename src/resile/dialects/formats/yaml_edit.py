"""Additions to YAML text that leave every other byte as it is.

    Text(text).root                     the composed tree, with the place of every node
    add_entry(mapping, key, value)      `key: value` after the last entry of a mapping, or after another one
    add_item(sequence, value)           `- value` after the last item of a list

What is added to a flow collection (`{…}`, `[…]`, all of JSON) is written in flow style; what is added to a block is
written in lines. Several additions are collected, and `result()` applies them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from resile.dialects.formats.yaml import loader_of

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
INDENT = 2


class CannotEdit(ValueError):
    """There is no place for an addition."""


class Text:
    """A YAML document and the additions to it; in `json` text every key and every text has double quotes."""

    def __init__(self, text: str, *, is_json: bool = False) -> None:
        self.text = text
        self.is_json = is_json
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.added: list[tuple[int, str]] = []
        self._skipped = 1 if text.startswith("\ufeff") else 0
        self.root: Any = loader_of(text[self._skipped :].encode()).get_single_node()

    def result(self) -> str:
        """The text with all additions."""
        text = self.text
        for index, addition in sorted(self.added, key=lambda one: one[0], reverse=True):
            text = text[:index] + addition + text[index:]
        return text

    def add_entry(self, mapping: Any, key: str, value: Any, *, after: Any = None, comment: str = "") -> None:
        """Add an entry to a mapping, at its end or behind the value `after`; a block has the value in lines."""
        last = after if after is not None else mapping.value[-1][1] if mapping.value else None
        if mapping.flow_style:
            self._add_to_flow(mapping, last, f"{self.flow(key)}: {self.flow(value)}")
        else:
            column = mapping.value[0][0].start_mark.column
            self._add_lines(last, column, self._lines(key, value, comment))

    def add_item(self, sequence: Any, value: Any, comment: str = "") -> None:
        """Add an item to the end of a list."""
        last = sequence.value[-1] if sequence.value else None
        if sequence.flow_style:
            self._add_to_flow(sequence, last, self.flow(value))
        else:
            self._add_lines(last, sequence.start_mark.column, [f"- {self.flow(value)}{comment}"])

    def flow(self, value: Any) -> str:
        """A value in flow style, on one line."""
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.flow(key)}: {self.flow(one)}" for key, one in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(self.flow(one) for one in value) + "]"
        if not isinstance(value, str) or self.is_json or not value.isprintable():
            return json.dumps(value, ensure_ascii=False)
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        return "'" + value.replace("'", "''") + "'"

    def _lines(self, key: str, value: Any, comment: str) -> list[str]:
        """An entry as lines: mappings of mappings and lists of mappings in block style, the rest in flow style."""
        head = f"{self.flow(key)}:"
        if isinstance(value, dict):
            inner = [line for name, one in value.items() for line in self._lines(name, one, comment)]
        elif isinstance(value, list):
            inner = [f"- {self.flow(one)}{comment}" for one in value]
        else:
            return [f"{head} {self.flow(value)}"]
        return [head, *(" " * INDENT + line for line in inner)]

    def _add_to_flow(self, collection: Any, last: Any, addition: str) -> None:
        """Add an entry or an item behind the last one of a flow collection, or to an empty one."""
        if last is None:
            self.added.append((collection.end_mark.index + self._skipped - 1, addition))
        else:
            self.added.append((self._end_of(last, collection), f", {addition}"))

    def _add_lines(self, last: Any, column: int, lines: list[str]) -> None:
        """Add lines below the last line of a node."""
        end = self._end_of(last, None)
        line_end = self.text.find("\n", end)
        index = len(self.text) if line_end < 0 else line_end - (self.text[line_end - 1] == "\r")
        self.added.append((index, "".join(f"{self.newline}{' ' * column}{line}" for line in lines)))

    def _end_of(self, node: Any, within: Any) -> int:
        """The end of a node's own text, without the blank lines and comments below it."""
        start = node.start_mark.index
        while isinstance(node.value, list) and not node.flow_style and node.value:
            last = node.value[-1]
            node = last[1] if isinstance(last, tuple) else last
            if node.start_mark.index < start:
                raise CannotEdit("an alias stands where the rule belongs")
        if within is not None and node.start_mark.index < within.start_mark.index:
            raise CannotEdit("an alias stands where the rule belongs")
        return len(self.text[: node.end_mark.index + self._skipped].rstrip())


def entry(mapping: Any, key: str) -> Any:
    """The value under a key of a mapping; None where there is none."""
    return next((value for name, value in mapping.value if name.value == key), None)


def is_mapping(node: Any) -> bool:
    """Is this node a mapping?"""
    return node is not None and node.id == "mapping"


def is_list(node: Any) -> bool:
    """Is this node a list?"""
    return node is not None and node.id == "sequence"


def mapping_at(root: Any, line: int, column: int) -> Any:
    """The mapping whose key, or whose own beginning, is at a position (from 1); None where there is none."""
    work, seen, found = [root], set(), None
    while work:
        node = work.pop()
        if id(node) in seen or not isinstance(node.value, list):
            continue
        seen.add(id(node))
        for one in node.value:
            key, value = one if isinstance(one, tuple) else (None, one)
            work.append(value)
            if key is not None and _is_at(key, line, column) and is_mapping(value):
                return value
            if is_mapping(node) and (_is_at(value, line, column) or _is_at(node, line, column)):
                found = node
    return found


def _is_at(node: Any, line: int, column: int) -> bool:
    return (node.start_mark.line + 1, node.start_mark.column + 1) == (line, column)
