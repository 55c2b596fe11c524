"""Which names in a command are the command's own: from where it gives them a value to where that value ends.

    v=1; echo $v           v is its own behind the assignment       (v=1; echo $v); x | read v     up to the end of that
    v="a $v"               and not yet on its right-hand side       v=1 sh -c 'echo $v'            for the program only
    for v in $v; do        read, mapfile, getopts, local, export    sh -c 'v=1; echo $v'           code inside of quotes

A value that is given only in some cases (`test -n "$v" || v=1`) or added to (`v+=x`) may be lacking: the command then
needs ours to begin with. Programs have variables of their own too: bare names in single quotes that `--arg` or `-v`
bind, or jq's `as $v`. Nothing else counts: no argument that looks like an assignment, no text in quotes, comments or
here-documents.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import suppress
from operator import itemgetter

from msgspec import Struct

from resile.languages.shell.grammar import Command
from resile.languages.shell.lexer import Lexer
from resile.languages.shell.quoting import SHELLS
from resile.languages.shell.tokens import Unclear

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


class Own:
    """Names with the stretches of a text in which they are the command's own."""

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
        """From here on a name is the command's own; where it is not certain that it has a value, that is kept."""
        if name in self.wanted and name not in self.since:
            self.since[name] = at
            self.order.append(name)
            if not is_certain and not self.codes:
                self.uncertain.add((name, at))

    def back(self, mark: int, at: int) -> list[str]:
        """Names that were added since there were `mark` of them end here."""
        ended = self.order[mark:]
        del self.order[mark:]
        for name in ended:
            self.stretches.setdefault(name, []).append((self.since.pop(name), at))
        return ended

    def may_lack(self, name: str, at: int) -> bool:
        """May a variable of the command have got no value on the way to this place?"""
        stretch = _within(self.stretches.get(name, []), at)
        return stretch is not None and (name, stretch[0]) in self.uncertain

    def holds(self, name: str, at: int, is_bare: bool) -> bool:
        """Is the variable at this place the command's own?"""
        if _within(self.stretches.get(name, []), at) is not None:
            return True
        quote = _within(self.quotes, at) if is_bare and (self.bound or self.has_query) else None
        if quote is None:
            return False
        return name in self.bound or (self.has_query and name in _bound_in(self.text[quote[0] : quote[1]]))


def _within(stretches: list[tuple[int, int]], at: int) -> tuple[int, int] | None:
    """The stretch that a place lies in."""
    number = bisect_right(stretches, at, key=itemgetter(0)) - 1
    return stretches[number] if number >= 0 and at < stretches[number][1] else None


def _bound_in(program: str) -> set[str]:
    """The variables that a program for jq declares."""
    return {name for found in _BOUND.findall(program) for part in found for name in _VARIABLE.findall(part)}


def own_names(text: str, wanted: set[str], references: dict[int, str]) -> Own:
    """The names among these that a command gives values to; `references` are stretches that no shell looks into."""
    own = Own(text, wanted)
    lexer = _Lexer(text, references, own)
    # No value of ours is put into a text that can't be followed; what was its own up to there stays so.
    with suppress(Unclear):
        lexer.command(len(text), "")
    own.back(0, len(text) + 1)
    return own


class _Lexer(Lexer):
    """Walks a text with an eye to its names."""

    def __init__(self, text: str, references: dict[int, str], own: Own) -> None:
        super().__init__(text, references, True)
        self.own = own

    def command(self, end: int, closer: str) -> None:
        """What a level of shell code in `$( )`, backquotes or quotes makes its own ends with it."""
        mark = len(self.own.order)
        super().command(end, closer)
        self.own.back(mark, self.at)

    def level_of(self, end: int, closer: str) -> Command:
        """What reads a level of shell code."""
        return _Level(self, self.own, end, closer)

    def single(self, end: int) -> None:
        """Text that only the program reads: it has the values that were given to it, and may be shell code."""
        level, start, mark = self.level, self.at, len(self.own.order)
        super().single(end)
        closing = self.at - 1
        self.own.quotes.append((start, closing))
        if isinstance(level, _Level):
            for name in level.given:
                self.own.add(name, start)
            if level.is_code:
                self.code(start, closing)
        self.own.back(mark, closing)

    def code(self, start: int, end: int) -> None:
        """Shell code that stands in a text for another shell."""
        after, level, nesting = self.at, self.level, self.nesting
        mark = len(self.own.order)
        self.at = start
        self.own.codes += 1
        try:
            self.command(end, "")
        except Unclear:
            self.level, self.nesting = level, nesting
            self.own.back(mark, end)
        self.own.codes -= 1
        self.at = after


class _Level(Command):
    """One level of shell code: what its commands give values to.

    `prefix` are the assignments before a command, `given` those that only its program sees, `coming` the names that
    are its own when it is over. `open` holds the commands around this one with the marks of what was there before.
    """

    def __init__(self, lexer: _Lexer, own: Own, end: int, closer: str) -> None:
        super().__init__(lexer, end, closer)
        self.own = own
        self.walker = lexer
        self.open: list[_Compound] = []
        self.pipeline = self.mark = len(own.order)
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
        self.announced: list[tuple[int, bool]] = []

    def _begin_word(self, word: str) -> None:
        """A word starts: a name for a value, the command, or one of its arguments."""
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
            self.own.add(name, self.walker.at, self.is_certain)
        assigned = _ASSIGNED.match(word)
        if is_first and assigned:
            self.prefix.append(assigned[1])
            self.is_certain = self.is_certain and "+" not in assigned[0]
        elif is_first and not self.awaits_command:
            # In front of a command a value is for its program alone.
            self.own.back(self.mark, self.walker.at)
            self.given, self.prefix = self.prefix, []
        elif not is_first:
            self._argument(word, before)
        if self.command_starts or self.pattern_starts:
            self._keyword(word)

    def _look_for_code(self, word: str) -> None:
        """After `sh -c` comes code."""
        self.is_code = self.code_word == 2 and not word
        program = word.rpartition("/")[2]
        self.own.has_query = self.own.has_query or program in _QUERIES
        if program in SHELLS:
            self.code_word = 1
        elif self.code_word and word.startswith("-"):
            self.code_word = 2 if _CODE.fullmatch(word) else self.code_word
        else:
            self.code_word = 0

    def _argument(self, word: str, before: str) -> None:
        """An argument that is a name for a value, for the commands that take such."""
        assigned, name = _ASSIGNED.match(word), _NAME.fullmatch(word)
        if before in _BINDERS and name:
            self.own.bound.add(word)
        elif before == "-v" and assigned:
            self.own.bound.add(assigned[1])
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
        """The body of the function around this command."""
        bodies = (around for around in reversed(self.open) if around.closer == "}")
        return next(bodies, _Compound("", 0, 0, False))

    def _keyword(self, word: str) -> None:
        """A command that holds others begins or ends; what follows its end on the line was there before it."""
        if word in _CLOSERS and self.command_starts:
            self.open.append(_Compound(_CLOSERS[word], len(self.own.order), self.pipeline, self.is_piped))
            self.pipeline, self.is_piped = len(self.own.order), False
        elif self.open and self.open[-1].closer == word:
            ended = self._close()
            self.coming += [name for name in self.own.back(ended.mark, self.walker.at) if name not in ended.own]
            self.is_certain = False

    def _close(self) -> _Compound:
        """The innermost command that holds others is over."""
        ended = self.open.pop()
        self.pipeline, self.is_piped = ended.pipeline, ended.is_piped
        return ended

    def _begin_command(self) -> None:
        """A command is over, and with it those of a pipeline where it was the last."""
        in_array = bool(self.frames) and self.frames[-1] == "=("
        if self.is_begun and not in_array:
            at = self.walker.at
            if self.pipes or self.is_piped:
                self.own.back(self.pipeline, at)
            else:
                for name in (*self.prefix, *self.coming):
                    self.own.add(name, at, self.is_certain)
            self.is_piped = self.pipes
            self.pipeline = self.pipeline if self.pipes else len(self.own.order)
            self.mark = len(self.own.order)
            self.is_begun = False
            self.prefix, self.given, self.coming = [], [], []
            self.before, self.code_word = "", 0
            self.is_certain = True
        super()._begin_command()

    def _separator(self, character: str) -> None:
        """Between two commands; those of a pipeline run in shells of their own."""
        text, at = self.walker.text, self.walker.at
        self.pipes = character == "|" and "||" not in (text[at : at + 2], text[max(at - 1, 0) : at + 1])
        is_double = text[at : at + 2] in ("&&", "||")
        super()._separator(character)
        self.pipes = False
        # What stands behind `&&` may never run.
        self.is_certain = self.is_certain and not is_double

    def _parenthesis(self, character: str) -> bool:
        """What a shell of its own in parentheses gives values to ends with it."""
        depth = len(self.frames)
        is_over = super()._parenthesis(character)
        if len(self.frames) > depth and self.frames[-1] == "(":
            self.open.append(_Compound(")", len(self.own.order), self.pipeline, self.is_piped))
            self.pipeline, self.is_piped = len(self.own.order), False
        elif len(self.frames) < depth and self.open and self.open[-1].closer == ")":
            self.own.back(self._close().mark, self.walker.at)
            self.is_begun = True
        return is_over

    def _redirect(self) -> None:
        """A here-document is read as things stand where it is announced."""
        known = len(self.documents)
        super()._redirect()
        if len(self.documents) > known:
            self.announced.append((len(self.own.order), self.command_word.rpartition("/")[2] in SHELLS))

    def _body(self, delimiter: str, is_quoted: bool, strips_tabs: bool) -> None:
        """The body of a here-document, which may be code for a shell."""
        mark, is_code = self.announced.pop(0)
        start = self.walker.at
        later = self.own.back(mark, start)
        super()._body(delimiter, is_quoted, strips_tabs)
        if is_code and is_quoted:
            self.walker.code(start, self.walker.at)
        for name in later:
            self.own.add(name, self.walker.at)


class _Compound(Struct):
    """A command that holds others: what ends it, what was there before it, and the names that end with it."""

    closer: str
    mark: int
    pipeline: int
    is_piped: bool
    own: list[str] = []
