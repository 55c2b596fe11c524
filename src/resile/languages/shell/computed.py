"""Commands whose name is computed, as `$cmd`, `$(command -v sh)` or `{eval,x}`, and what the text says they are.

A brace list that is written out is no riddle: `sh -{c,x} CODE` is `sh -c -x CODE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from resile.languages.shell.rules import ASSIGNMENT, Rules, Word, without_quotes

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?[-=]([^${}`]*))?\})")
_FOUND = re.compile(r"(?:\$\(|`)\s*(?:command -v|which|type -p)\s+([\w./-]+)\s*(?:2>\s*/dev/null\s*)?[)`]")
_SHELLS = {"SHELL": [["sh"]], "BASH": [["bash"]]}
_ACTIVE = frozenset("$`")
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|\$\{[^{}]*\}""", re.DOTALL)
_BRACES = re.compile(r"(?<!\$)\{((?:[^{}]|\$\{[^{}]*\})*)\}")
_COMMA = re.compile(r",(?![^{}]*\})")
_RANGE = re.compile(r"([a-z])\.\.([a-z])")
_WORDS_MAX = 64


def is_computed(command: str) -> bool:
    """Is the name of a command, without its folders, the result of an expansion?"""
    folders, _, name = command.rpartition("/")
    return not _ACTIVE.isdisjoint(name) or ("$(" in folders and name.endswith(")"))


def expand_braces(words: Iterable[Word], text: str) -> list[Word]:
    """The words that bash makes of brace lists; each keeps the place of the list in the text."""
    found: list[Word] = []
    for word in words:
        has_list = "{" in word.text and _BRACES.search(_QUOTED.sub("x", text[word.start : word.end])) is not None
        texts = _expand(without_quotes(text[word.start : word.end])) if has_list else [word.text]
        found += (Word(expanded, word.start, word.end, word.redirect) for expanded in texts)
    return found


def _expand(text: str) -> list[str]:
    """The words of a text with brace lists; the text itself where they are too many."""
    done: list[str] = []
    left = [text]
    while left and len(done) + len(left) <= _WORDS_MAX:
        text = left.pop(0)
        for found in _BRACES.finditer(text):
            parts = _parts(found[1])
            if len(parts) > 1 or _RANGE.fullmatch(found[1]):
                left[:0] = [text[: found.start()] + part + text[found.end() :] for part in parts]
                break
        else:
            done.append(text)
    return [*done, *left]


def _parts(inside: str) -> list[str]:
    """The words between the braces of a list."""
    letters = _RANGE.fullmatch(inside)
    if letters is None:
        return _COMMA.split(inside)
    first, last = sorted(map(ord, letters.groups()))
    return [chr(letter) for letter in range(first, last + 1)]


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
