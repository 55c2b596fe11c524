"""Follows the output of commands to interpreters that read it: through groups, functions, descriptors and files.

    echo ${v} | { cd x; sh; }      f() { echo ${v}; }; f | sh      echo ${v} > >(bash)
    exec 3< <(echo ${v}); sh <&3   echo ${v} > f.sh; sh f.sh       . <(echo "$x")

`Streams` joins the commands of a text once all are read. What a command in a group or in a function reads and prints is
what the group or the call reads and prints.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from resile.languages.shell.interpreters import reader_of_input, script_files
from resile.languages.shell.rules import Rules, Word
from resile.languages.shell.simple import Simple

_FUNCTION = re.compile(r"(?:^|[\s;&|({])(?:function\s+)?([A-Za-z_][\w-]*)\s*\(\)|\bfunction\s+([A-Za-z_][\w-]*)")
_OUTPUT = re.compile(r"[1&]?>[>|]?")
_WORDS_OF_CALLER = re.compile(r"\$\{?[@*1-9](?:\[@\])?\}?")


class Streams:
    """Who reads the output of whom in one text."""

    def __init__(self, text: str, commands: Sequence[Simple], every: Sequence[Rules]) -> None:
        self.commands = commands
        self.every = every
        self.rules: dict[int, Rules] = {}
        for simple, rules in zip(commands, every, strict=True):
            self.rules.setdefault(id(simple), rules)
        self.placed = sorted((one for one in commands if one.starts), key=_start)
        self.bodies = self._bodies(text)
        # The groups, calls and `exec` from which a command has its standard input.
        self.hosts: dict[int, list[Simple]] = {}
        # Other commands whose output a command reads.
        self.sources: dict[int, list[Simple]] = {}
        self._join()

    def readers(self) -> Iterator[tuple[Simple, str]]:
        """The commands that read their standard input as code, with the form in which they do."""
        for simple, rules in zip(self.commands, self.every, strict=True):
            if form := reader_of_input(rules.texts[rules.first :]):
                yield simple, form

    def inputs(self, simple: Simple) -> Iterator[Simple]:
        """A command, and all that gives it its standard input."""
        yield from _reach([simple], self._given_by)

    def printers(self, simple: Simple) -> Iterator[Simple]:
        """The commands whose output a command may read."""
        yield from _reach(self._direct(simple), self._members, self._direct)

    def writers(self, simple: Simple) -> Iterator[Simple]:
        """The commands whose output a command writes: its own, that of its group, and what it reads."""
        yield from _reach([simple], self._members, self._direct)

    def scripts(self) -> Iterator[Simple]:
        """The commands that write a file which the text runs."""
        written: dict[str, list[Simple]] = {}
        for simple, rules in zip(self.commands, self.every, strict=True):
            for file in _files_written(rules):
                written.setdefault(file, []).append(simple)
        for rules in self.every if written else ():
            for file in _files_run(rules):
                yield from written.get(file, ())

    def runners(self) -> Iterator[tuple[Simple, Rules]]:
        """The calls of functions that run their arguments, as the command that is run."""
        for simple, rules in zip(self.commands, self.every, strict=True):
            body = [self.rules[id(one)] for one in self.bodies.get(rules.command, ())]
            if any(_WORDS_OF_CALLER.fullmatch(one.command) for one in body):
                for skipped in range(1 + sum(one.command == "shift" for one in body)):
                    yield simple, Rules([*rules.words[rules.first + 1 + skipped :], *rules.redirects], rules.shell)

    def commands_in(self, word: Word) -> list[Simple]:
        """The commands inside a word."""
        first = bisect_right(self.placed, word.start, key=_start)
        return self.placed[first : bisect_left(self.placed, word.end, key=_start)]

    def _bodies(self, text: str) -> dict[str, list[Simple]]:
        """The commands of each function: the group that begins behind its name."""
        found: dict[str, list[Simple]] = {}
        groups = {id(simple.group[0]): simple.group for simple in self.commands if simple.group}
        for name in _FUNCTION.finditer(text):
            at = bisect_left(self.placed, name.end(), key=_start)
            # `function f { echo` is one command; behind `f()` begins another one.
            begun = [one for one in self.placed[max(at - 1, 0) : at + 1] if one.starts[-1] >= name.end()]
            first = begun[0] if begun else None
            if first is not None and id(first) in groups:
                found.setdefault(name[1] or name[2], []).extend(groups[id(first)])
        return found

    def _join(self) -> None:
        """Join each command with those inside it, and with the descriptors that `exec` opens."""
        opened = [simple for simple, rules in zip(self.commands, self.every, strict=True) if _opens(simple, rules)]
        for simple, rules in zip(self.commands, self.every, strict=True):
            for one in self._members(simple):
                if one.before is None and one is not simple:
                    self.hosts.setdefault(id(one), []).append(simple)
                    if simple.group and simple.group[0].before is not None:
                        self.sources.setdefault(id(one), []).append(simple.group[0].before)
            for word in (*rules.words, *rules.redirects):
                for one in self.commands_in(word) if ">(" in word.text else ():
                    self.sources.setdefault(id(one), []).append(simple)
            copies = any(word.redirect.lstrip("0123456789") == "<&" for word in rules.redirects)
            if copies or simple.before is None:
                self.hosts.setdefault(id(simple), []).extend(opened)

    def _members(self, simple: Simple) -> list[Simple]:
        """The commands of the group that ends here, or of the function that is called."""
        rules = self.rules.get(id(simple))
        return simple.group + (self.bodies.get(rules.command, []) if rules is not None else [])

    def _given_by(self, simple: Simple) -> list[Simple]:
        """The groups and calls whose standard input a command has, unless it has one of its own."""
        return [] if self._has_input(simple) else self.hosts.get(id(simple), [])

    def _has_input(self, simple: Simple) -> bool:
        rules = self.rules.get(id(simple))
        redirects = [word.redirect for word in rules.redirects] if rules is not None else []
        return simple.has_document or "<" in redirects or "<<<" in redirects

    def _direct(self, simple: Simple) -> list[Simple]:
        """The commands before one in its pipeline, or before the group or the call that it is in."""
        found: list[Simple] = []
        for host in self.inputs(simple):
            if self._has_input(host):
                continue
            found += [host.before] if host.before is not None else []
            found += self.sources.get(id(host), [])
        return found


def _reach(first: Iterable[Simple], *ways: Callable[[Simple], list[Simple]]) -> Iterator[Simple]:
    """These commands, and all that are reached from them."""
    left = list(first)
    seen = set(map(id, left))
    while left:
        simple = left.pop()
        yield simple
        for fresh in (one for way in ways for one in way(simple)):
            if id(fresh) not in seen:
                seen.add(id(fresh))
                left.append(fresh)


def _start(simple: Simple) -> int:
    return simple.starts[0]


def _opens(simple: Simple, rules: Rules) -> bool:
    """Does `exec` open a descriptor for reading?"""
    at = rules.first - 1
    return (
        rules.command == ""
        and 0 <= at < len(rules.texts)
        and rules.texts[at] == "exec"
        and (simple.has_document or any("<" in word.redirect for word in rules.redirects))
    )


def _files_written(rules: Rules) -> Iterator[str]:
    """The files that a command writes."""
    yield from (_path(word.text) for word in rules.redirects if _OUTPUT.fullmatch(word.redirect))
    if rules.command == "tee":
        yield from (_path(text) for text in rules.texts[rules.first + 1 :] if text[:1] not in ("-", ">"))


def _files_run(rules: Rules) -> Iterator[str]:
    """The files that a command runs."""
    texts = rules.texts[rules.first :]
    yield from map(_path, script_files(texts))
    if any(word.redirect == "<" for word in rules.redirects) and reader_of_input(texts):
        yield from (_path(word.text) for word in rules.redirects if word.redirect == "<")


def _path(text: str) -> str:
    return text.removeprefix("./")
