"""Reads words of a shell text: quotes, expansions, substitutions; each reference becomes a hole with its place.

grammar.py reads the commands that the words belong to, and has the entry point.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import Literal

from msgspec import Struct

from resile.languages.shell.rules import Form, Shell

_DOUBLE_RUN = re.compile(r'[^"\\`$]+')
_PARAMETER = re.compile(r"\$\{[#!]?(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*?$!#-])?")

_INDEXED = re.compile(r"\$[#^=~+]?[A-Za-z_][A-Za-z0-9_]*\[")

Place = Literal[
    "word", "single", "double", "twice double", "default", "ksh default", "heredoc", "literal", "ansi", "comment",
    "number", "refused",
]  # fmt: skip


class Hole(Struct, frozen=True, gc=False):
    """A reference in a command: its name, its text, and the position that determines its quoting.

    `form` limits the values that can be here; `second` names the second interpreter that reads them as code.
    """

    name: str
    source: str
    place: Place
    in_backquotes: bool = False
    in_document: bool = False
    is_raw: bool = False
    reason: str = ""
    form: Form = ""
    second: str = ""


class BodyStart(Struct, frozen=True, gc=False):
    """A here-document's body begins."""


class BodyEnd(Struct, frozen=True, gc=False):
    """A here-document's body ends; no line of it may be the delimiter."""

    delimiter: str
    strips_tabs: bool
    is_nested: bool


Piece = str | Hole | BodyStart | BodyEnd


class Unclear(Exception):
    """The lexer can't follow the text; the message says why."""


class WordReader(ABC):
    """Reads the parts of words. Each method starts at `at` and moves `at` behind the part it has read."""

    def __init__(self, text: str, references: dict[int, str], shell: Shell) -> None:
        self.text = text
        self.references = references
        self.offsets = list(references)
        self.shell = shell
        self.at = 0
        self.written = 0
        self.pieces: list[Piece] = []
        self.backquotes = 0
        self.quoted_backquotes = 0
        self.documents = 0

    @abstractmethod
    def command(self, end: int, closer: str) -> None:
        """Read shell code up to an unmatched `closer`, or to `end` if there is none."""

    @abstractmethod
    def note(self, at: int, piece: int) -> None:
        """Note the value at `at`, for the command that contains it to judge once it is read whole."""

    @abstractmethod
    def count(self, start: int, end: int, array: str = "") -> None:
        """Note a stretch of arithmetic, which may be the index of an array: the shell evaluates its variables, too."""

    def finish(self) -> tuple[Piece, ...]:
        """All pieces, including the rest of the text."""
        self.flush(len(self.text))
        return tuple(self.pieces)

    def flush(self, upto: int) -> None:
        """Add the literal text up to here."""
        if upto > self.written:
            self.pieces.append(self.text[self.written : upto])
        self.written = upto

    def hole(self, place: Place, reason: str = "") -> None:
        """Add the reference at `at` as a hole."""
        name = self.references[self.at]
        end = self.at + len(name) + 3
        self.flush(self.at)
        if place not in ("number", "comment", "refused"):
            self.note(self.at, len(self.pieces))
        if place == "double" and self.quoted_backquotes:
            place = "twice double"
        elif place == "default" and self.shell == "ksh":
            place = "ksh default"
        self.pieces.append(
            Hole(
                name=name.removeprefix("raw:"),
                source=self.text[self.at : end],
                place=place,
                in_backquotes=self.backquotes > 0,
                in_document=self.documents > 0,
                is_raw=name.startswith("raw:"),
                reason=reason,
            )
        )
        self.at = self.written = end

    def holes(self, start: int, end: int, place: Place, reason: str = "") -> None:
        """Add every reference in a stretch of text as a hole of one kind."""
        for offset in self.offsets[bisect_left(self.offsets, start) : bisect_left(self.offsets, end)]:
            self.at = offset
            self.hole(place, reason)
        self.at = end

    def single(self, end: int) -> None:
        """After a `'`: read up to and including the next one; the only escape here is our own."""
        closing = self.text.find("'", self.at, end)
        while closing >= 0:
            # A reference may contain quotes (`['my step']`), which do not end the string.
            last = self.offsets[bisect_left(self.offsets, closing) - 1] if self.offsets else 0
            behind = last + len(self.references.get(last, "")) + 3
            if not self.at <= last < closing < behind:
                break
            closing = self.text.find("'", behind, end)
        if closing < 0:
            raise Unclear("a single quote never ends")
        self.holes(self.at, closing, "single")
        self.at = closing + 1

    def ansi(self, end: int) -> None:
        """At `$'`: read up to the closing quote; shells without this form must find the same end."""
        text, at = self.text, self.at + 2
        start = at
        first = -1
        while at < end and text[at] != "'":
            if at in self.references:
                at += len(self.references[at]) + 3
                continue
            if text[at] == "\\":
                at += 1
                if first < 0 and at < end and text[at] == "'":
                    first = at
            at += 1
        if at >= end:
            raise Unclear("a $' quote never ends")
        if first >= 0 and self.shell == "sh":
            raise Unclear("shells differ on \\' inside $'...'; use shell_program: bash")
        self.holes(start, at, "ansi")
        self.at = at + 1

    def read_quoted(self, end: int, place: Literal["double", "heredoc"], reason: str = "") -> None:
        """After a `"`: read up to and including the next one; or read the body of a here-document up to `end`."""
        text = self.text
        while self.at < end:
            run = _DOUBLE_RUN.match(text, self.at, end)
            if run is not None:
                self.at = run.end()
                continue
            match text[self.at]:
                case "\\":
                    self.at = min(self.at + 2, end)
                case "`":
                    self.quoted_backquotes += place == "double"
                    self.backquote(end)
                    self.quoted_backquotes -= place == "double"
                case "$":
                    self.dollar("refused" if reason else place, end, reason)
                case _:
                    self.at += 1
                    if place == "double":
                        return
        if place == "double":
            raise Unclear("a double quote never ends")

    def backquote(self, end: int) -> None:
        """Read a command in backquotes; if it has backslashes, refuse its holes: they would be read twice."""
        start = closing = self.at + 1
        while closing < end and self.text[closing] != "`":
            closing += 2 if self.text[closing] == "\\" else 1
        if closing >= end:
            raise Unclear("a backquote never ends")
        if "\\" in self.text[start:closing]:
            self.holes(start, closing, "refused", "backquotes with backslashes in them; use $( )")
        else:
            self.at = start
            self.backquotes += 1
            self.command(closing, "")
            self.backquotes -= 1
        self.at = closing + 1

    def dollar(self, place: Place, end: int, reason: str = "") -> None:
        """At a `$`: read a reference, a substitution, a parameter, arithmetic, or just a dollar."""
        text, at = self.text, self.at
        if at in self.references:
            self.hole(place, reason)
        elif text.startswith("$((", at) and self.arithmetic(at + 1, end):
            return
        elif text.startswith("$(", at):
            self.at = at + 2
            self.command(end, ")")
        elif text.startswith("${", at):
            self.parameter(place, end)
        elif text.startswith("$[", at):
            closing = text.find("]", at, end)
            self.at = at + 2
            if closing >= 0:
                self.count(at + 2, closing)
                self.holes(at, closing, "number")
        elif text.startswith("$'", at) and place == "word":
            self.ansi(end)
        elif self.shell == "zsh" and (indexed := _INDEXED.match(text, at, end)):
            closing = self.closing_bracket(indexed.end(), end)
            self.count(indexed.end(), closing, indexed[0].strip("$#^=~+["))
            self.holes(indexed.end(), closing, "number")
        elif text.startswith("$$", at):
            self.at = min(at + 2, end)
            if self.shell == "zsh" and place == "word" and self.at in self.references:
                self.hole("refused", "zsh reads `$$` and a quote in two ways; write ${$} for `$$`")
        else:
            self.at = at + 1

    def arithmetic(self, start: int, end: int) -> bool:
        """Read `((` ... `))` at `start`: every hole is a number. False if the parentheses are something else."""
        depth, at = 2, start + 2
        while at < end and depth > 1:
            if at in self.references:
                at += len(self.references[at]) + 2
            elif self.text[at] == "(":
                depth += 1
            elif self.text[at] == ")":
                depth -= 1
            at += 1
        if not self.text.startswith(")", at) or at >= end:
            return False
        self.count(start, at)
        self.holes(start, at, "number")
        self.at = at + 1
        return True

    def parameter(self, place: Place, end: int) -> None:
        """Read a `${NAME...}` of the shell, whose operator decides the kind of the holes after it."""
        text = self.text
        head = _PARAMETER.match(text, self.at, end)
        self.at = head.end() if head else self.at + 2
        if text.startswith("[", self.at):
            closing = self.closing_bracket(self.at + 1, end)
            self.count(self.at + 1, closing, head[0].strip("${#!") if head else "")
            self.holes(self.at, min(closing + 1, end), "number")
        is_quoted = place != "word"
        inner: Place = "default" if place in ("double", "default") else "refused"
        reason = "an expansion inside an expansion; put the value into a variable first"
        operator = text[self.at : self.at + 2]
        single_quotes = not is_quoted
        if operator[:1] in ("%", "#"):
            inner, single_quotes = ("refused" if is_quoted else "word"), True
        elif operator[:1] in ("-", "=", "?", "+") or operator in (":-", ":=", ":?", ":+"):
            inner = inner if is_quoted else "word"
        elif operator[:1] == ":":
            inner = "number"
            self.count(self.at + 1, text.find("}", self.at) + 1)
        else:
            inner = "refused"
        while self.at < end:
            match text[self.at]:
                case "}":
                    self.at += 1
                    return
                case "\\":
                    self.at = min(self.at + 2, end)
                case "'" if single_quotes:
                    self.at += 1
                    self.single(end)
                case '"':
                    self.at += 1
                    self.read_quoted(end, "double", reason if is_quoted else "")
                case "`":
                    self.backquote(end)
                case "$":
                    self.dollar(inner, end, reason)
                case _:
                    self.at += 1
        raise Unclear("a ${ never ends")

    def closing_bracket(self, at: int, end: int) -> int:
        """The offset of the `]` of an index whose text starts at `at`; `end` if there is none."""
        depth = 1
        while at < end:
            if at in self.references:
                at += len(self.references[at]) + 3
                continue
            depth += {"[": 1, "]": -1}.get(self.text[at], 0)
            if not depth:
                return at
            at += 1
        return end
