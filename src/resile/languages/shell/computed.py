"""Commands whose name is computed, as `$cmd`, `$(command -v sh)` or `{eval,x}`, and what the text says they are."""

from __future__ import annotations

import re
from collections.abc import Iterable

from resile.languages.shell.rules import ASSIGNMENT, Rules

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?[-=]([^${}`]*))?\})")
_FOUND = re.compile(r"(?:\$\(|`)\s*(?:command -v|which|type -p)\s+([\w./-]+)\s*(?:2>\s*/dev/null\s*)?[)`]")
_SHELLS = {"SHELL": [["sh"]], "BASH": [["bash"]]}
_ACTIVE = frozenset("$`")


def is_computed(command: str) -> bool:
    """Is the name of a command, without its folders, the result of an expansion?"""
    folders, _, name = command.rpartition("/")
    return not _ACTIVE.isdisjoint(name) or ("$(" in folders and name.endswith(")")) or is_brace_list(command)


def is_brace_list(command: str) -> bool:
    """Does bash make several words of the name of a command, the first of which is the command?"""
    return command.startswith("{") and "," in command


class Names:
    """The variables that a text sets to written words."""

    def __init__(self, commands: Iterable[Rules]) -> None:
        self.known: dict[str, list[list[str]]] = {}
        self.unknown: set[str] = set()
        for rules in commands:
            for text in rules.texts:
                assigned = ASSIGNMENT.match(text)
                if assigned is not None:
                    self._add(assigned[1], text[assigned.end() :])

    def _add(self, name: str, value: str) -> None:
        """Add an assignment; one of an expansion says nothing."""
        words = value.strip("()").split()
        if not words or not _ACTIVE.isdisjoint(value):
            self.unknown.add(name)
        else:
            self.known.setdefault(name, []).append(words)

    def words_for(self, command: str) -> list[list[str]]:
        """All that a computed name can stand for, as words; empty if that is not known."""
        found = _FOUND.fullmatch(command)
        if found is not None:
            return [[found[1]]]
        variable = _VARIABLE.fullmatch(command)
        if variable is None:
            return []
        name = variable[1] or variable[2]
        if name in self.unknown:
            return []
        default = (variable[3] or "").split()
        return self.known.get(name, []) + ([default] if default else []) or _SHELLS.get(name, [])
