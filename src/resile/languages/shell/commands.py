"""Judges the commands of a text, each once it is read whole: the values in its words, and what it feeds to others.

`Judge` sets the form of each value of a text, and the second interpreter that reads it. When all commands are read,
computed.py says which command a computed name stands for, streams.py who reads the output of whom, and flow.py which
values reach a place that is evaluated through variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from resile.languages.shell.computed import Names, expand_braces, is_computed
from resile.languages.shell.flow import (
    INPUT,
    Flow,
    is_printed_as_prompt,
    names_counted,
    names_in_prompts,
    names_looked_up,
    names_repeated,
    prompts_of,
    substitutes,
    variables_in,
    variables_in_document,
    widths,
)
from resile.languages.shell.hints import COMPUTED, FILE
from resile.languages.shell.interpreters import code_words, is_suspect, reader_of_input, runs_files
from resile.languages.shell.rules import ASSIGNMENT, BY_HAND, SUSPECTS, Rules, Shell, Verdict, Word, without_quotes
from resile.languages.shell.simple import Simple
from resile.languages.shell.streams import Streams

_PRINTERS = frozenset(("echo", "printf", "print"))
_VARIABLE = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*")
# Lengths, parts of variables, and the output of commands say nothing of a variable as a whole.
_UNCOUNTED = re.compile(r"\$\{#[^}]*\}|\$\{\w+[%#/^,][^}]*\}|\$\([^()]*\)|`[^`]*`")
_NUMBER = Verdict("number")
_CALM = Verdict("calm")
_INDEX = Verdict("index")
# A command whose name is computed, and expansions that read a variable's value again.
_EXPANDED = re.compile(
    r"(?:^|[;&|{}\n(`]|\b(?:then|do|else|if|elif|while|until|exec|command|time)\s)"
    r"\s*(?:[\"]?[$`]|\{[^\s,{}]*,)|\$\{!|@P\}|\$\{\(|[^\s${]\{[^\s{}]*(?:,|\.\.)"
)
_NO_QUOTES = str.maketrans("()<>`", "     ", "\\'\"")
_SEPARATORS = str.maketrans("/=;&|{}", "       ")


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
        self.places: dict[int, int] = {}
        self.fed: list[int] = []
        self.qualifiers: list[tuple[int, int]] = []

    def close(self, simple: Simple) -> None:
        """Judge a command whose words are complete."""
        self.commands.append(simple)
        self.places.update(simple.values)
        self.places.update(simple.elements)
        prints_inside = bool(self.printed and simple.starts) and self.printed[-1][0] > simple.starts[0]
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

    def _rules(self, simple: Simple) -> Rules:
        """The rules for the words of a command."""
        text = self.text
        spans = zip(simple.starts, simple.ends, simple.redirects, strict=True)
        words = [Word(without_quotes(text[start:end]), start, end, redirect) for start, end, redirect in spans]
        return Rules(expand_braces(words, text) if "{" in text else words, self.shell)

    def close_document(self, simple: Simple, values: list[tuple[int, int]], body: tuple[int, int]) -> None:
        """Judge the values in a here-document of a command; `body` is where the shell expands variables in it."""
        simple.documents += values
        simple.bodies.append(body)
        self.printed += values
        for at, piece in values:
            self.places[at] = piece
            self.fed.append(at)
            self._mark(piece, simple.second)

    def finish(self) -> None:
        """Judge what needs the whole text: computed names, and values that reach their place through variables."""
        text = self.text
        if not self.places or not (
            self.arithmetic or self.qualifiers or _EXPANDED.search(text) or has_suspect(text.translate(_NO_QUOTES))
        ):
            return
        every = [self._rules(simple) for simple in self.commands]
        self._judge_computed(every)
        self._judge_streams(every)
        counted: set[str] = set()
        keyed: set[str] = set()
        looked_up = names_looked_up(text)
        for rules in every:
            integers, maps, references = rules.names_declared()
            counted.update(integers)
            keyed.update(maps)
            looked_up.update(references)
            for word in rules.words_evaluated("number"):
                counted.update(_VARIABLE.findall(word.text))
        stretches = [(start, end) for start, end, array in self.arithmetic if array not in keyed]
        stretches += widths(self.text, self.shell)
        self._judge_prompts(every)
        for start, end in stretches:
            counted.update(_VARIABLE.findall(_UNCOUNTED.sub("", self.text[start:end])))
        followed = set(counted)
        self._follow(followed)
        for name, piece in self.assigned:
            if name in followed:
                self._apply(piece, _NUMBER)
        self._judge_flow(every, counted | looked_up, stretches, keyed)

    def _judge_computed(self, every: list[Rules]) -> None:
        """Judge the commands whose name is computed as those which the text says they are; warn of all others."""
        names = Names(every)
        for simple, rules in list(zip(self.commands, every, strict=True)):
            if not is_computed(rules.command):
                continue
            known = names.words_for(rules.command)
            for words in known:
                self._judge_again(simple, rules.with_command(words), every)
            if not known:
                others = (*rules.words[rules.first + 1 :], *rules.redirects)
                for at, piece in simple.values:
                    if any(word.start <= at < word.end for word in others):
                        self._mark(piece, COMPUTED)

    def _judge_prompts(self, every: list[Rules]) -> None:
        """Judge the values in prompts, and those that zsh prints like one."""
        prompts = prompts_of(self.text, self.shell, every)
        for name, piece in self.assigned:
            if name in prompts:
                self._apply(piece, Verdict(refusal=BY_HAND.get(name, BY_HAND["PS1"])))
        if substitutes(self.text, self.shell):
            for simple, rules in zip(self.commands, every, strict=True):
                for _, piece in simple.values if is_printed_as_prompt(rules) else ():
                    self._mark(piece, "print -P")

    def _judge_streams(self, every: list[Rules]) -> None:
        """Judge the values that get to an interpreter through groups, functions, descriptors and files."""
        for simple, rules in list(Streams(self.text, self.commands, every).runners()):
            self._judge_again(simple, rules, every)
        streams = Streams(self.text, self.commands, every)
        for simple, form in streams.readers():
            for host in streams.inputs(simple):
                self._mark_redirects(host, streams.rules[id(host)], form)
                host.second = host.second or form
            for printer in streams.printers(simple):
                self._mark_output(printer, form)
        for script in streams.scripts():
            for printer in streams.writers(script):
                self._mark_output(printer, FILE)
        for rules in every:
            texts = rules.texts[rules.first :]
            if form := runs_files(texts) if any("<(" in text for text in texts) else "":
                for word in rules.words:
                    for printer in streams.commands_in(word) if "<(" in word.text else ():
                        self._mark_output(printer, form)

    def _judge_again(self, simple: Simple, rules: Rules, every: list[Rules]) -> None:
        """Judge a command as the one that it turns out to be."""
        self.commands.append(simple)
        every.append(rules)
        for at, piece in simple.values:
            self._judge_value(at, piece, rules)
        self._find_code(simple, rules, rules.texts[rules.first :])

    def _judge_flow(
        self, every: list[Rules], counted: set[str], stretches: list[tuple[int, int]], keyed: set[str]
    ) -> None:
        """Judge the values that may reach a place that is evaluated through variables or through what is printed."""
        flow = Flow(self.text, self.places)
        for simple, rules in zip(self.commands, every, strict=True):
            flow.add(rules)
            if simple.before is not None:
                for start, end in zip(simple.before.starts, simple.before.ends, strict=True):
                    flow.put(INPUT, (start, end))
        flow.held.setdefault(INPUT, set()).update(self.fed)
        if any(simple.before is not None for simple in self.commands):
            flow.held[INPUT].update(at for at, _ in self.printed)
        evaluated = set(counted)
        inside: set[int] = set()
        # What stands inside an index needs no `[` of its own to run.
        indexed: set[str] = set()
        for start, end in stretches:
            evaluated |= names_counted(self.text[start:end])
            if "[" in self.text[start:end]:
                indexed |= variables_in(self.text[start:end])
        for rules in every:
            for word in (*rules.words_evaluated("number"), *rules.words_evaluated("name")):
                written = self.text[word.start : word.end]
                evaluated |= variables_in(written)
                inside.update(flow.values_in((word.start, word.end)))
                name, opens, index = word.text.partition("[")
                if opens:
                    indexed |= variables_in(written)
                    evaluated |= set() if name in keyed else names_counted(index)
        indexed |= flow.indexed & flow.names_for(evaluated)
        for verdict, values in ((_INDEX, flow.values_for(indexed)), (_CALM, inside | flow.values_for(evaluated))):
            for at in values:
                if not self.pieces[self.places[at]].form:
                    self._apply(self.places[at], verdict)
        for form, names in self._names_of_code(every):
            for at in flow.values_for(names):
                self._mark(self.places[at], form)
        for simple, rules in zip(self.commands, every, strict=True):
            for at in flow.values_for(self._variables_read(simple, rules)):
                self._mark(self.places[at], simple.second)
            for word, what in rules.words_refused():
                for at, piece in self.printed:
                    if word.start <= at < word.end:
                        self._mark(piece, what)

    def _variables_read(self, simple: Simple, rules: Rules) -> set[str]:
        """The variables in what a command prints for an interpreter, or in what an interpreter reads."""
        texts = rules.texts[rules.first :]
        if not simple.second and any(word.redirect == "<<<" for word in rules.redirects):
            simple.second = reader_of_input(texts)
        if not simple.second:
            return set()
        words = rules.words if rules.command in _PRINTERS else [w for w in rules.redirects if w.redirect == "<<<"]
        found = {name for word in words for name in variables_in(self.text[word.start : word.end])}
        return found.union(*(variables_in_document(self.text[start:end]) for start, end in simple.bodies))

    def _names_of_code(self, every: list[Rules]) -> Iterator[tuple[str, set[str]]]:
        """The variables in words that are read as code, with the form of that code."""
        yield "eval", names_repeated(self.text)
        yield from names_in_prompts(self.text, self.shell, every)
        for start, end in self.qualifiers:
            yield "qualifier", variables_in(self.text[start:end])
        for rules in every:
            for word, what in rules.words_refused():
                yield what, variables_in(self.text[word.start : word.end])
            texts = rules.texts[rules.first :]
            if any(is_suspect(text.rpartition("/")[2]) for text in texts):
                for number, form in code_words(texts):
                    word = rules.words[rules.first + number]
                    yield form, variables_in(self.text[word.start : word.end])

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
        elif rules.command in ("printf", "print") and "-v" in rules.texts[:number]:
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

    def _mark_redirects(self, simple: Simple, rules: Rules, form: str) -> None:
        """Mark the values in a here-string, a here-document, or a command whose output is redirected into this one."""
        for word in rules.redirects:
            redirect = word.redirect.lstrip("0123456789")
            if redirect in ("<<<", "<"):
                for at, piece in simple.values if redirect == "<<<" else self.printed:
                    if word.start <= at < word.end:
                        self._mark(piece, form)
        for _, piece in simple.documents:
            self._mark(piece, form)

    def _mark_output(self, simple: Simple, form: str) -> None:
        """Mark the values that a command prints for an interpreter."""
        simple.second = simple.second or form
        for at, piece in (*self.printed, *simple.documents):
            if (at, piece) in simple.values or (at, piece) in simple.documents:
                self._mark(piece, form)

    def _mark(self, piece: int, form: str) -> None:
        if form and not self.pieces[piece].second:
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
    return not SUSPECTS.isdisjoint(words) or any(map(is_suspect, words)) or _EXPANDED.search(text) is not None
