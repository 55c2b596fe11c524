"""Judges the commands of a text, each once it is read whole: the values in its words, and what it feeds to others.

Simple   one command: its words, its values, the command before it in a pipeline
Judge    all commands of a text; sets the form of each value, and the second interpreter that reads it
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from resile.languages.shell.interpreters import code_words, is_suspect, reader_of_input, runs_files
from resile.languages.shell.rules import ASSIGNMENT, SUSPECTS, Rules, Shell, Verdict, Word, without_quotes

_PRINTERS = frozenset(("echo", "printf", "print"))
_VARIABLE = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*")
# Lengths, parts of variables, and the output of commands say nothing of a variable as a whole.
_UNCOUNTED = re.compile(r"\$\{#[^}]*\}|\$\{\w+[%#/^,][^}]*\}|\$\([^()]*\)|`[^`]*`")
_NUMBER = Verdict("number")
_SEPARATORS = str.maketrans("/=;&|{}", "       ")


class Simple:
    """A command of words: where each word is, the values in them, and the command before it in its pipeline."""

    def __init__(self, before: Simple | None = None) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.redirects: list[str] = []
        self.values: list[tuple[int, int]] = []
        self.elements: list[tuple[int, int]] = []
        self.before = before
        self.has_document = False
        self.second = ""

    def begin_word(self, at: int, redirect: str) -> None:
        """Begin a word, which may be the target of a redirection."""
        self.starts.append(at)
        self.ends.append(at)
        self.redirects.append(redirect)

    def drop_number(self, text: str, at: int) -> str:
        """Drop the number of a descriptor, as in `2>`, that was read as a word up to `at`; return it."""
        if not self.ends or self.ends[-1] != at or not text[self.starts[-1] : at].isdigit():
            return ""
        self.ends.pop()
        self.redirects.pop()
        return text[self.starts.pop() : at]


class Judge:
    """Judges all commands of one text. `pieces` are those of the lexer, whose values it completes."""

    def __init__(self, text: str, shell: Shell, pieces: list[Any]) -> None:
        self.text = text
        self.shell = shell
        self.pieces = pieces
        self.assigned: list[tuple[str, int]] = []
        self.commands: list[Simple] = []
        self.arithmetic: list[tuple[int, int, str]] = []
        self.printed: list[tuple[int, int]] = []

    def close(self, simple: Simple) -> None:
        """Judge a command whose words are complete."""
        self.commands.append(simple)
        prints_inside = bool(self.printed) and self.printed[-1][0] > simple.starts[0]
        is_fed = simple.has_document or simple.before is not None or prints_inside
        if not (simple.values or simple.elements or is_fed):
            return
        rules = self._rules(simple)
        for at, piece in simple.values:
            self._judge_value(at, piece, rules)
        for at, piece in simple.elements:
            self._judge_element(at, piece, rules)
        if simple.values and rules.command in _PRINTERS:
            self.printed += simple.values
        texts = rules.texts[rules.first :]
        if any(is_suspect(text.rpartition("/")[2]) for text in texts):
            self._find_code(simple, rules, texts)
            reader = reader_of_input(texts)
            if reader:
                simple.second = reader
                self._mark_input(simple, rules, reader)

    def _rules(self, simple: Simple) -> Rules:
        """The rules for the words of a command."""
        text = self.text
        spans = zip(simple.starts, simple.ends, simple.redirects, strict=True)
        words = [Word(without_quotes(text[start:end]), start, end, redirect) for start, end, redirect in spans]
        return Rules(words, self.shell)

    def close_document(self, simple: Simple, values: list[tuple[int, int]]) -> None:
        """Judge the values in a here-document of a command."""
        for _, piece in values:
            self._mark(piece, simple.second)

    def finish(self) -> None:
        """Judge the values of variables that the text uses in arithmetic, here or in a command before."""
        if not self.assigned:
            return
        counted: set[str] = set()
        keyed: set[str] = set()
        for simple in self.commands:
            rules = self._rules(simple)
            integers, maps = rules.names_declared()
            counted.update(integers)
            keyed.update(maps)
            for text in rules.words_counted():
                counted.update(_VARIABLE.findall(text))
        for start, end, array in self.arithmetic:
            if array not in keyed:
                counted.update(_VARIABLE.findall(_UNCOUNTED.sub("", self.text[start:end])))
        self._follow(counted)
        for name, piece in self.assigned:
            if name in counted:
                self._apply(piece, _NUMBER)

    def _follow(self, counted: set[str]) -> None:
        """Add the variables whose values get into those that are counted: the shell calculates with them in turn."""
        given: dict[str, set[str]] = {}
        for simple in self.commands:
            values = {at: self.pieces[piece] for at, piece in simple.values}
            for start, end in zip(simple.starts, simple.ends, strict=True):
                word = self.text[start:end]
                assigned = ASSIGNMENT.match(word)
                if assigned is not None:
                    # `${inputs.x}` names no variable, `${x}` may.
                    for at in sorted(values, reverse=True):
                        if start <= at < end and not _VARIABLE.fullmatch(values[at].name):
                            word = word[: at - start] + word[at - start + len(values[at].source) :]
                    names = _VARIABLE.findall(_UNCOUNTED.sub("", word[assigned.end() :]))
                    given.setdefault(assigned[1], set()).update(names)
        left = list(counted)
        while left:
            fresh = given.get(left.pop(), set()) - counted
            counted |= fresh
            left += fresh

    def _judge_value(self, at: int, piece: int, rules: Rules) -> None:
        """Judge a value in a word or in the target of a redirection."""
        target = next((word for word in rules.redirects if word.start <= at < word.end), None)
        if target is not None:
            self._apply(piece, rules.target(target))
            return
        number = next((n for n, word in enumerate(rules.words) if word.start <= at < word.end), -1)
        if number < 0:
            return
        before = without_quotes(self.text[rules.words[number].start : at])
        self._apply(piece, rules.verdict(number, before))
        assigned = ASSIGNMENT.match(before)
        if assigned is not None:
            self.assigned.append((assigned[1], piece))
        elif rules.command in ("for", "select") and number > rules.first + 1:
            self.assigned.append((rules.texts[rules.first + 1], piece))
        elif rules.command == "printf" and "-v" in rules.texts[:number]:
            self.assigned.append((rules.texts[rules.texts.index("-v") + 1], piece))

    def _judge_element(self, at: int, piece: int, rules: Rules) -> None:
        """Judge a value in the list of an assignment."""
        word = next((word for word in rules.words if word.start <= at < word.end), None)
        if word is not None:
            self.assigned.append((word.text.partition("=")[0].rstrip("+"), piece))

    def _find_code(self, simple: Simple, rules: Rules, texts: list[str]) -> None:
        """Find the values in words that a second interpreter reads as code."""
        words = rules.words[rules.first :]
        for number, form in code_words(texts):
            word = words[number]
            for at, piece in (*simple.values, *self.printed):
                if word.start <= at < word.end:
                    self._mark(piece, form)
        if any("<(" in text for text in texts) and (form := runs_files(texts)):
            for at, piece in self.printed:
                if any("<(" in word.text and word.start <= at < word.end for word in words):
                    self._mark(piece, form)

    def _mark_input(self, simple: Simple, rules: Rules, form: str) -> None:
        """Mark the values in the standard input of an interpreter: what is piped to it, and a here-string."""
        for word in rules.redirects:
            if word.redirect == "<<<":
                for at, piece in simple.values:
                    if word.start <= at < word.end:
                        self._mark(piece, form)
        before = simple.before
        while before is not None:
            before.second = form
            for at, piece in self.printed:
                if (at, piece) in before.values:
                    self._mark(piece, form)
            before = before.before

    def _mark(self, piece: int, form: str) -> None:
        if form:
            self.pieces[piece] = replace(self.pieces[piece], second=form)

    def _apply(self, piece: int, verdict: Verdict) -> None:
        """Complete a value with the verdict on it."""
        if verdict.refusal:
            reason = verdict.refusal.replace("${…}", self.pieces[piece].source)
            self.pieces[piece] = replace(self.pieces[piece], place="refused", reason=reason)
        elif verdict.form:
            self.pieces[piece] = replace(self.pieces[piece], form=verdict.form)


def has_suspect(text: str) -> bool:
    """May this text, without quotes and nesting, have a value in a place that is read twice?"""
    words = text.translate(_SEPARATORS).split()
    return not SUSPECTS.isdisjoint(words) or any(map(is_suspect, words))
