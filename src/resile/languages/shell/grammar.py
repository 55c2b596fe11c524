"""Finds the position of each reference in a shell text: the part of the shell's grammar that determines quoting.

    text -> Lexer: command <-> double quotes <-> ${V:-...} <-> $( ... ) <-> here-document ...
         -> pieces: literal text, holes with their place, marks around here-documents

Each text is read once. If the lexer can't follow it (a quote that never ends, a form that shells read differently), it
marks every hole of the text as `refused`: better no value than one in the wrong quotes. lexer.py reads the inside of
words.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache
from typing import Literal

from resile.languages.references import TEMPLATES_KEPT, names
from resile.languages.shell.lexer import BodyEnd, BodyStart, Piece, Unclear, WordReader

NESTING_MAX = 40
_WORD_RUN = re.compile(r"""[^\s\\'"`$#<>()|&;]+""")
_REDIRECT = re.compile(r"<<<|[<>][&>|]?")
_DELIMITER = re.compile(r"""<<(-?)[ \t]*((?:[^\s\\'"`$<>()|&;]|\\.|'[^']*'|"[^"\\$`]*")+)""")
_DELIMITER_QUOTES = re.compile(r"""\\(.)|'([^']*)'|"([^"]*)\"""")
_OPENERS = frozenset(("then", "do", "else", "elif", "if", "while", "until", "!", "{", "time"))
_PREFIXES = _OPENERS | {"builtin", "command", "exec"}
_NAME_TAKERS = frozenset(
    ("unset", "read", "declare", "typeset", "local", "export", "readonly", "mapfile", "readarray", "getopts")
)
_VARIABLE_TESTERS = frozenset(("test", "[", "printf", "wait"))
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_INDEX = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*)?\[")
_VARIABLE_OPTION = re.compile(r"\s-[vp]\b")
_INTEGER_OPTION = re.compile(r"\s[-+][A-Za-z]*i")
_ARITHMETIC_TEST = re.compile(r"\s-(?:eq|ne|lt|le|gt|ge|v|R)\b")


class Command:
    """One level of shell code: words, separators, `case`, `[[`, parentheses, comments, here-documents."""

    def __init__(self, lexer: WordReader, end: int, closer: str) -> None:
        self.lexer = lexer
        self.end = end
        self.closer = closer
        self.frames: list[str] = []
        self.word_starts = True
        self.command_starts = True
        self.pattern_starts = False
        self.word_at = 0
        self.command_at = 0
        self.command_word = ""
        self.awaits_command = True
        self.redirects = False
        self.is_target = False
        self.documents: list[tuple[str, bool, bool]] = []

    def read(self) -> None:
        """Read up to the closer or the end."""
        lexer = self.lexer
        while lexer.at < self.end:
            if self._index():
                continue
            run = _WORD_RUN.match(lexer.text, lexer.at, self.end)
            if run is not None:
                self._run(run[0], run.end())
            elif self._character(lexer.text[lexer.at]):
                return
        if self.closer:
            raise Unclear("a $( never ends")
        if self.frames:
            raise Unclear(f"a `{self.frames[-1]}` never ends")

    def evaluates(self, at: int) -> Literal["number", "name", ""]:
        """How the shell evaluates a value at `at`, beyond reading it: bash runs the command in `a[$(...)]`."""
        text, word = self.lexer.text, self.lexer.text[self.word_at : at]
        top = self.frames[-1] if self.frames else ""
        if top == "[[":
            closing = text.find("]]", at)
            return "number" if _ARITHMETIC_TEST.search(text, self.command_at, closing) else ""
        if self.is_target:
            return ""
        if self.command_word == "let":
            return "number"
        if self.command_word in _NAME_TAKERS:
            if _INTEGER_OPTION.search(text, self.command_at, at):
                return "number"
            return "" if "=" in word else "name"
        if self.command_word in _VARIABLE_TESTERS and _VARIABLE_OPTION.search(text, self.command_at, at):
            return "name"
        return ""

    def _begin_command(self) -> None:
        """After a separator: the next word may be a command, unless it is an element of an array."""
        self.word_starts = True
        self.command_starts = self.awaits_command = not self.frames or self.frames[-1] != "=("
        self.command_word = ""

    def _begin_word(self, word: str) -> None:
        """Begin a word; the first one that is no assignment and no redirection's target is the command."""
        self.word_at = self.lexer.at
        if self.frames and self.frames[-1] == "case of":
            self.frames[-1] = "case subject"
        self.is_target, self.redirects = self.redirects, False
        if self.awaits_command and not self.is_target and not _ASSIGNMENT.match(word) and word not in _PREFIXES:
            self.command_word = word
            self.command_at = self.lexer.at
            self.awaits_command = False

    def _index(self) -> bool:
        """Read `a[...]=` where an assignment is allowed: bash evaluates the index, so holes in it are numbers."""
        lexer, text = self.lexer, self.lexer.text
        in_array = bool(self.frames) and self.frames[-1] == "=("
        index = (
            _INDEX.match(text, lexer.at, self.end) if self.word_starts and (self.awaits_command or in_array) else None
        )
        if index is None or (index[0] == "[" and not in_array):
            return False
        closing = lexer.closing_bracket(index.end(), self.end)
        inside = text[index.end() : closing]
        if not text.startswith(("]=", "]+="), closing) or "${" not in inside:
            return False
        if inside.count("'") % 2 or inside.count('"') % 2 or "`" in inside:
            raise Unclear("the index of an array holds quotes")
        lexer.holes(lexer.at, closing, "number")
        self.word_starts = self.command_starts = False
        return True

    def _run(self, word: str, after: int) -> None:
        """Read ordinary characters; a whole word may be a keyword of the shell."""
        whole = self.word_starts and (after >= self.end or self.lexer.text[after] in " \t\n;&|()<>")
        top = self.frames[-1] if self.frames else ""
        opens = False
        if self.word_starts:
            self._begin_word(word)
        if whole:
            if word == "esac" and top == "case" and (self.command_starts or self.pattern_starts):
                self.frames.pop()
                self.pattern_starts = False
            elif word == "in" and top == "case subject":
                self.frames[-1] = "case"
                self.pattern_starts = True
            elif self.command_starts and not self.pattern_starts and word == "case":
                self.frames.append("case of")
            elif self.command_starts and word == "[[":
                self.frames.append("[[")
            elif word == "]]" and top == "[[":
                self.frames.pop()
            opens = self.command_starts and word in _OPENERS
        self.word_starts = False
        self.command_starts = opens
        self.lexer.at = after

    def _character(self, character: str) -> bool:
        """Read one special character; True if it closed this level."""
        lexer = self.lexer
        if character in " \t\n":
            lexer.at += 1
            self.word_starts = True
            if character == "\n":
                self._newline()
        elif character in "|&;":
            self._separator(character)
        elif character in "()":
            return self._parenthesis(character)
        elif character in "<>":
            self._redirect()
        elif character == "#" and self.word_starts:
            newline = lexer.text.find("\n", lexer.at, self.end)
            lexer.holes(lexer.at, newline if newline >= 0 else self.end, "comment")
        else:
            self._quote(character)
        return False

    def _quote(self, character: str) -> None:
        """Read a quoted or substituted part of a word."""
        lexer = self.lexer
        continues_line = lexer.text.startswith("\\\n", lexer.at)
        before = lexer.at
        if self.word_starts and not continues_line:
            self._begin_word("")
        match character:
            case "\\":
                lexer.at = min(lexer.at + 2, self.end)
            case "'":
                lexer.at += 1
                lexer.single(self.end)
            case '"':
                lexer.at += 1
                lexer.read_quoted(self.end, "double")
            case "`":
                lexer.backquote(self.end)
            case "$":
                lexer.dollar("word", self.end)
            case _:
                lexer.at += 1
        if not continues_line:
            self.word_starts = self.command_starts = False
            if self.documents and "\n" in lexer.text[before : lexer.at]:
                raise Unclear("a here-document starts on a line that ends inside quotes")

    def _newline(self) -> None:
        """Read a line's end, and the here-documents that the line announced."""
        self._begin_command()
        for delimiter, is_quoted, strips_tabs in self.documents:
            self._body(delimiter, is_quoted, strips_tabs)
        self.documents = []

    def _separator(self, character: str) -> None:
        """Read `;`, `&`, `|` or their doubles; `;;` ends a branch of `case`."""
        lexer = self.lexer
        if character == ";" and lexer.text[lexer.at : lexer.at + 2] in (";;", ";&"):
            lexer.at += 1
            self.pattern_starts = bool(self.frames) and self.frames[-1] == "case"
        lexer.at += 1
        self._begin_command()

    def _parenthesis(self, character: str) -> bool:
        """Read a parenthesis: a group, a pattern of `case`, arithmetic, or the end of this level."""
        lexer = self.lexer
        if character == "(":
            if self.command_starts and lexer.text.startswith("((", lexer.at) and lexer.arithmetic(lexer.at, self.end):
                self.word_starts = self.command_starts = False
                return False
            if not self.pattern_starts:
                is_array = not self.word_starts and lexer.text[lexer.at - 1] == "="
                self.frames.append("=(" if is_array else "(")
        elif self.frames and self.frames[-1] == "case":
            self.pattern_starts = False
        elif self.frames and self.frames[-1] in ("(", "=("):
            self.frames.pop()
        elif self.frames or not self.closer:
            raise Unclear("a `)` has no `(`")
        else:
            lexer.at += 1
            if self.documents:
                raise Unclear("a here-document starts on a line that ends its $( )")
            return True
        lexer.at += 1
        self._begin_command()
        return False

    def _redirect(self) -> None:
        """Read a redirection; `<<` announces a here-document."""
        lexer = self.lexer
        redirect = _REDIRECT.match(lexer.text, lexer.at, self.end)
        if lexer.text.startswith("<<", lexer.at) and not lexer.text.startswith("<<<", lexer.at):
            document = _DELIMITER.match(lexer.text, lexer.at, self.end)
            if document is None or lexer.text[document.end() : document.end() + 1] in ("$", "`", "\\", "'", '"'):
                raise Unclear("the delimiter of a here-document is not a plain word")
            delimiter = _DELIMITER_QUOTES.sub(lambda q: q[1] or q[2] or q[3] or "", document[2])
            is_quoted = any(c in document[2] for c in "\\'\"")
            self.documents.append((delimiter, is_quoted, document[1] == "-"))
            lexer.at = document.end()
        else:
            lexer.at = redirect.end() if redirect else lexer.at + 1
            self.redirects = True
        self.word_starts = True
        self.command_starts = False

    def _body(self, delimiter: str, is_quoted: bool, strips_tabs: bool) -> None:
        """Read the lines of a here-document, up to its delimiter."""
        lexer, text = self.lexer, self.lexer.text
        start = line_start = lexer.at
        after = body_end = self.end
        continued = False
        while line_start < self.end:
            newline = text.find("\n", line_start, self.end)
            line_end = newline if newline >= 0 else self.end
            line = text[line_start:line_end]
            if not continued and (line.lstrip("\t") if strips_tabs else line) == delimiter:
                body_end, after = line_start, min(line_end + 1, self.end)
                break
            backslashes = len(line) - len(line.rstrip("\\"))
            continued = not is_quoted and backslashes % 2 == 1
            line_start = line_end + 1
        if bisect_left(lexer.offsets, start) < bisect_left(lexer.offsets, body_end):
            lexer.flush(start)
            lexer.pieces.append(BodyStart())
            if is_quoted:
                lexer.holes(start, body_end, "literal")
            else:
                lexer.documents += 1
                lexer.read_quoted(body_end, "heredoc")
                lexer.documents -= 1
            lexer.flush(body_end)
            lexer.pieces.append(BodyEnd(delimiter, strips_tabs, bool(self.closer) or lexer.backquotes > 0))
        lexer.at = after


class Lexer(WordReader):
    """Reads a shell text once, one level of shell code inside the other."""

    def __init__(self, text: str, references: dict[int, str], knows_ansi: bool) -> None:
        super().__init__(text, references, knows_ansi)
        self.nesting = 0
        self.level: Command | None = None

    def command(self, end: int, closer: str) -> None:
        """Read shell code up to an unmatched `closer`, or to `end` if there is none."""
        self.nesting += 1
        if self.nesting > NESTING_MAX:
            raise Unclear(f"it is nested deeper than {NESTING_MAX} levels")
        outer, self.level = self.level, self.level_of(end, closer)
        self.level.read()
        self.level = outer
        self.nesting -= 1

    def level_of(self, end: int, closer: str) -> Command:
        """The reader of a level of shell code."""
        return Command(self, end, closer)

    def evaluates(self, at: int) -> Literal["number", "name", ""]:
        """How the innermost command evaluates a value at `at`."""
        return self.level.evaluates(at) if self.level is not None else ""


@lru_cache(maxsize=TEMPLATES_KEPT)
def read(text: str, knows_ansi: bool) -> tuple[Piece, ...]:
    """The pieces of a command; `knows_ansi` tells whether the shell reads `$'...'` like bash."""
    references = {offset: name for name, offset in names(text)}
    lexer = Lexer(text, references, knows_ansi)
    try:
        lexer.command(len(text), "")
        return lexer.finish()
    except Unclear as unclear:
        lexer = Lexer(text, references, knows_ansi)
        lexer.holes(0, len(text), "refused", str(unclear))
        return lexer.finish()
