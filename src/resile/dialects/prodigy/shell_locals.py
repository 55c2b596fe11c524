"""Finds the variables that a shell command sets itself, with the range of text in which each is set.

    v=1; echo $v           v is local after the assignment          (v=1; echo $v); x | read v     up to the end of that
    v="a $v"               but not on its right-hand side           v=1 sh -c 'echo $v'            for the program only
    for v in $v; do        read, mapfile, getopts, local, export    sh -c 'v=1; echo $v'           code inside of quotes

An assignment that may not run (`test -n "$v" || v=1`) or that appends (`v+=x`) leaves the variable uncertain: the
command then needs the workflow's value first. Programs have variables of their own too: bare names in single quotes
that `--arg` or `-v` bind, or jq's `as $v`. Nothing else counts: no argument that looks like an assignment, no text in
quotes, comments or here-documents.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import suppress
from operator import itemgetter

from msgspec import Struct

from resile.languages.shell.grammar import Command, Lexer
from resile.languages.shell.lexer import Unclear
from resile.languages.shell.quoting import SHELLS
from resile.languages.shell.simple import Simple

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_CLOSERS = {"if": "fi", "while": "done", "until": "done", "for": "done", "select": "done", "case": "esac", "{": "}"}
_LOOPS = ("for", "select")
# Commands that take names, with those of their options that take something else.
_READERS = {
    "read": ("-d", "-i", "-n", "-N", "-p", "-t", "-u"),
    "mapfile": ("-c", "-C", "-d", "-n", "-O", "-s", "-u"),
    "readarray": ("-c", "-C", "-d", "-n", "-O", "-s", "-u"),
    "getopts": (),
}
_DECLARERS = ("export", "readonly", "local", "declare", "typeset")
_BINDERS = ("--arg", "--argjson", "--slurpfile", "--rawfile")
_QUERIES = ("jq", "gojq", "jaq", "yq")
_CODE = re.compile(r"-[a-z]*c")
_BOUND = re.compile(r"\bas\s+(\$\w+|[\[{][^|()]*)|\bdef\s+\w+\(([^)]*)\)")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")


class ShellLocals:
    """Names of shell variables, with the ranges of a text in which the command itself has set them."""

    def __init__(self, text: str, wanted: set[str]) -> None:
        self.text = text
        self.wanted = wanted
        self.order: list[str] = []
        self.since: dict[str, int] = {}
        self.stretches: dict[str, list[tuple[int, int]]] = {}
        self.quotes: list[tuple[int, int]] = []
        self.bound: set[str] = set()
        self.has_query = False
        self.uncertain: set[tuple[str, int]] = set()
        self.codes = 0

    def add(self, name: str, at: int, is_certain: bool = True) -> None:
        """Begin the range of a name; mark it as uncertain if the assignment may not run."""
        if name in self.wanted and name not in self.since:
            self.since[name] = at
            self.order.append(name)
            if not is_certain and not self.codes:
                self.uncertain.add((name, at))

    def end_after(self, mark: int, at: int) -> list[str]:
        """End the ranges of all names but the first `mark`; return these names."""
        ended = self.order[mark:]
        del self.order[mark:]
        for name in ended:
            self.stretches.setdefault(name, []).append((self.since.pop(name), at))
        return ended

    def may_lack(self, name: str, at: int) -> bool:
        """May the command reach this offset without having set the variable?"""
        stretch = _stretch_around(self.stretches.get(name, []), at)
        return stretch is not None and (name, stretch[0]) in self.uncertain

    def holds(self, name: str, at: int, is_bare: bool) -> bool:
        """Has the command itself set the variable at this offset?"""
        if _stretch_around(self.stretches.get(name, []), at) is not None:
            return True
        quote = _stretch_around(self.quotes, at) if is_bare and (self.bound or self.has_query) else None
        if quote is None:
            return False
        return name in self.bound or (self.has_query and name in _names_bound_in(self.text[quote[0] : quote[1]]))


def _stretch_around(stretches: list[tuple[int, int]], at: int) -> tuple[int, int] | None:
    number = bisect_right(stretches, at, key=itemgetter(0)) - 1
    return stretches[number] if number >= 0 and at < stretches[number][1] else None


def _names_bound_in(program: str) -> set[str]:
    return {name for found in _BOUND.findall(program) for part in found for name in _VARIABLE.findall(part)}


def find_shell_locals(text: str, wanted: set[str], references: dict[int, str]) -> ShellLocals:
    """Find the names among these that a command sets; the shell does not read the ranges of `references`."""
    names = ShellLocals(text, wanted)
    lexer = _Lexer(text, references, names)
    # If a command can't be parsed, the names found so far still count.
    with suppress(Unclear):
        lexer.command(len(text), "")
    names.end_after(0, len(text) + 1)
    return names


class _Lexer(Lexer):
    """Walks a command and collects the names that it sets."""

    def __init__(self, text: str, references: dict[int, str], names: ShellLocals) -> None:
        super().__init__(text, references, "bash")
        self.locals = names

    def close(self, simple: Simple) -> None:
        """Judge nothing: only names are wanted."""

    def command(self, end: int, closer: str) -> None:
        """Read a level of shell code; the names that it sets end with it."""
        mark = len(self.locals.order)
        super().command(end, closer)
        self.locals.end_after(mark, self.at)

    def level_of(self, end: int, closer: str) -> Command:
        """The reader of one level of shell code."""
        return _Level(self, self.locals, end, closer)

    def single(self, end: int) -> None:
        """Read single-quoted text: a program's own code, which sees the names bound for it, or shell code."""
        level, start, mark = self.level, self.at, len(self.locals.order)
        super().single(end)
        closing = self.at - 1
        self.locals.quotes.append((start, closing))
        if isinstance(level, _Level):
            for name in level.given:
                self.locals.add(name, start)
            if level.is_code:
                self.code(start, closing)
        self.locals.end_after(mark, closing)

    def code(self, start: int, end: int) -> None:
        """Read shell code in a text that another shell runs."""
        after, level, nesting = self.at, self.level, self.nesting
        mark = len(self.locals.order)
        self.at = start
        self.locals.codes += 1
        try:
            self.command(end, "")
        except Unclear:
            self.level, self.nesting = level, nesting
            self.locals.end_after(mark, end)
        self.locals.codes -= 1
        self.at = after


class _Level(Command):
    """One level of shell code, and the names that its commands set.

    `prefix` are the assignments before a command, `given` those that only its program sees, `coming` the names that are
    set once it is over. `open` holds the compound commands around this one, with the state before each.
    """

    def __init__(self, lexer: _Lexer, names: ShellLocals, end: int, closer: str) -> None:
        super().__init__(lexer, end, closer)
        self.locals = names
        self.walker = lexer
        self.open: list[_Compound] = []
        self.pipeline = self.mark = len(names.order)
        self.is_piped = False
        self.pipes = False
        self.is_begun = False
        self.is_code = False
        self.code_word = 0
        self.before = ""
        self.prefix: list[str] = []
        self.given: list[str] = []
        self.coming: list[str] = []
        self.is_certain = True
        self.pending_documents: list[tuple[int, bool]] = []

    def _begin_word(self, word: str) -> None:
        """Begin a word: an assignment, the command, or one of its arguments."""
        is_first = self.awaits_command
        super()._begin_word(word)
        if self.is_target:
            return
        self.is_begun = True
        self._look_for_code(word)
        before, self.before = self.before, word
        if self.frames and self.frames[-1] == "=(":
            return
        for name in self.prefix:
            self.locals.add(name, self.walker.at, self.is_certain)
        assigned = _ASSIGNED.match(word)
        if is_first and assigned:
            self.prefix.append(assigned[1])
            self.is_certain = self.is_certain and "+" not in assigned[0]
        elif is_first and not self.awaits_command:
            # An assignment before a command is visible to its program only.
            self.locals.end_after(self.mark, self.walker.at)
            self.given, self.prefix = self.prefix, []
        elif not is_first:
            self._argument(word, before)
        if self.command_starts or self.pattern_starts:
            self._keyword(word)

    def _look_for_code(self, word: str) -> None:
        """Expect code after `sh -c`."""
        self.is_code = self.code_word == 2 and not word
        program = word.rpartition("/")[2]
        self.locals.has_query = self.locals.has_query or program in _QUERIES
        if program in SHELLS:
            self.code_word = 1
        elif self.code_word and word.startswith("-"):
            self.code_word = 2 if _CODE.fullmatch(word) else self.code_word
        else:
            self.code_word = 0

    def _argument(self, word: str, before: str) -> None:
        """Read an argument that names a variable, for the commands that set variables."""
        assigned, name = _ASSIGNED.match(word), _NAME.fullmatch(word)
        if before in _BINDERS and name:
            self.locals.bound.add(word)
        elif before == "-v" and assigned:
            self.locals.bound.add(assigned[1])
        elif self.command_word == "env" and assigned:
            self.given.append(assigned[1])
        elif self.command_word in _DECLARERS and (assigned or (name and self.command_word not in _DECLARERS[:2])):
            self.coming.append(assigned[1] if assigned else word)
            if self.command_word == "local":
                self._function().own.append(self.coming[-1])
        elif name and (
            (self.command_word in _LOOPS and before == self.command_word)
            or (self.command_word in _READERS and before not in _READERS[self.command_word])
        ):
            self.coming.append(word)

    def _function(self) -> _Compound:
        bodies = (around for around in reversed(self.open) if around.closer == "}")
        return next(bodies, _Compound("", 0, 0, False))

    def _keyword(self, word: str) -> None:
        """Begin or end a compound command; at its end, restore the pipeline around it."""
        if word in _CLOSERS and self.command_starts:
            self.open.append(_Compound(_CLOSERS[word], len(self.locals.order), self.pipeline, self.is_piped))
            self.pipeline, self.is_piped = len(self.locals.order), False
        elif self.open and self.open[-1].closer == word:
            ended = self._close()
            self.coming += [name for name in self.locals.end_after(ended.mark, self.walker.at) if name not in ended.own]
            self.is_certain = False

    def _close(self) -> _Compound:
        ended = self.open.pop()
        self.pipeline, self.is_piped = ended.pipeline, ended.is_piped
        return ended

    def _begin_command(self, is_piped: bool = False) -> None:
        """End a command, and its pipeline if it was the last in it, and begin the next."""
        in_array = bool(self.frames) and self.frames[-1] == "=("
        if self.is_begun and not in_array:
            at = self.walker.at
            if self.pipes or self.is_piped:
                self.locals.end_after(self.pipeline, at)
            else:
                for name in (*self.prefix, *self.coming):
                    self.locals.add(name, at, self.is_certain)
            self.is_piped = self.pipes
            self.pipeline = self.pipeline if self.pipes else len(self.locals.order)
            self.mark = len(self.locals.order)
            self.is_begun = False
            self.prefix, self.given, self.coming = [], [], []
            self.before, self.code_word = "", 0
            self.is_certain = True
        super()._begin_command(is_piped)

    def _separator(self, character: str) -> None:
        """Read a separator of commands; those of a pipeline run in subshells."""
        text, at = self.walker.text, self.walker.at
        self.pipes = character == "|" and "||" not in (text[at : at + 2], text[max(at - 1, 0) : at + 1])
        is_double = text[at : at + 2] in ("&&", "||")
        super()._separator(character)
        self.pipes = False
        # A command behind `&&` may never run.
        self.is_certain = self.is_certain and not is_double

    def _parenthesis(self, character: str) -> bool:
        """Begin or end a subshell in parentheses; the names that it sets end with it."""
        depth = len(self.frames)
        is_over = super()._parenthesis(character)
        if len(self.frames) > depth and self.frames[-1] == "(":
            self.open.append(_Compound(")", len(self.locals.order), self.pipeline, self.is_piped))
            self.pipeline, self.is_piped = len(self.locals.order), False
        elif len(self.frames) < depth and self.open and self.open[-1].closer == ")":
            self.locals.end_after(self._close().mark, self.walker.at)
            self.is_begun = True
        return is_over

    def _redirect(self) -> None:
        """Record the names that a here-document can see: those known at its `<<`."""
        known = len(self.documents)
        super()._redirect()
        if len(self.documents) > known:
            self.pending_documents.append((len(self.locals.order), self.command_word.rpartition("/")[2] in SHELLS))

    def _body(self, delimiter: str, is_quoted: bool, strips_tabs: bool) -> None:
        """Read the body of a here-document, which may be code for a shell."""
        mark, is_code = self.pending_documents.pop(0)
        start = self.walker.at
        later = self.locals.end_after(mark, start)
        super()._body(delimiter, is_quoted, strips_tabs)
        if is_code and is_quoted:
            self.walker.code(start, self.walker.at)
        for name in later:
            self.locals.add(name, self.walker.at)


class _Compound(Struct):
    """A compound command: the word that ends it, the state before it, and the names that end with it."""

    closer: str
    mark: int
    pipeline: int
    is_piped: bool
    own: list[str] = []
