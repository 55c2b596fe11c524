"""The level of shell grammar at which words, separators and keywords count; what is inside words is the Lexer's."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from resile.dialects.shell_pieces import BodyEnd, BodyStart, Unclear

if TYPE_CHECKING:
    from resile.dialects.shell_places import Lexer

_WORD_RUN = re.compile(r"""[^\s\\'"`$#<>()|&;]+""")
_REDIRECT = re.compile(r"<<<|[<>][&>|]?")
_DELIMITER = re.compile(r"""<<(-?)[ \t]*((?:[^\s\\'"`$<>()|&;]|\\.|'[^']*'|"[^"\\$`]*")+)""")
_DELIMITER_QUOTES = re.compile(r"""\\(.)|'([^']*)'|"([^"]*)\"""")
_OPENERS = frozenset(("then", "do", "else", "elif", "if", "while", "until", "!", "{", "time"))


class Command:
    """One level of shell code: words, separators, `case`, `[[`, parentheses, comments, here-documents."""

    def __init__(self, lexer: Lexer, end: int, closer: str) -> None:
        self.lexer = lexer
        self.end = end
        self.closer = closer
        self.frames: list[str] = []
        self.word_starts = True
        self.command_starts = True
        self.pattern_starts = False
        self.documents: list[tuple[str, bool, bool]] = []

    def read(self) -> None:
        """Read up to the closer or the end."""
        lexer = self.lexer
        while lexer.at < self.end:
            run = _WORD_RUN.match(lexer.text, lexer.at, self.end)
            if run is not None:
                self._run(run[0], run.end())
            elif self._character(lexer.text[lexer.at]):
                return
        if self.closer:
            raise Unclear("a $( never ends")
        if self.frames:
            raise Unclear(f"a `{self.frames[-1]}` never ends")

    def _run(self, word: str, after: int) -> None:
        """A stretch of ordinary characters; a whole word may be one of the shell's own."""
        whole = self.word_starts and (after >= self.end or self.lexer.text[after] in " \t\n;&|()<>")
        top = self.frames[-1] if self.frames else ""
        opens = False
        if whole:
            if word == "esac" and top == "case" and (self.command_starts or self.pattern_starts):
                self.frames.pop()
                self.pattern_starts = False
            elif word == "in" and top == "case of":
                self.frames[-1] = "case"
                self.pattern_starts = True
            elif self.command_starts and not self.pattern_starts and word == "case":
                self.frames.append("case of")
            elif self.command_starts and word == "[[":
                self.frames.append("[[")
                self.lexer.tests += 1
            elif word == "]]" and top == "[[":
                self.frames.pop()
                self.lexer.tests -= 1
            opens = self.command_starts and word in _OPENERS
        self.word_starts = False
        self.command_starts = opens
        self.lexer.at = after

    def _character(self, character: str) -> bool:
        """One special character; True when it closed this level."""
        lexer = self.lexer
        if character in " \t\r\v\f\n":
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
        """Something that is part of a word."""
        lexer = self.lexer
        continues_line = lexer.text.startswith("\\\n", lexer.at)
        before = lexer.at
        match character:
            case "\\":
                lexer.at = min(lexer.at + 2, self.end)
            case "'":
                lexer.at += 1
                lexer.single(self.end)
            case '"':
                lexer.at += 1
                lexer.quoted(self.end, "double")
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
        """A line ended: here-documents that it announced follow."""
        self.command_starts = True
        for delimiter, is_quoted, strips_tabs in self.documents:
            self._body(delimiter, is_quoted, strips_tabs)
        self.documents = []

    def _separator(self, character: str) -> None:
        """`;`, `&`, `|` and their doubles; `;;` ends a branch of `case`."""
        lexer = self.lexer
        if character == ";" and lexer.text[lexer.at : lexer.at + 2] in (";;", ";&"):
            lexer.at += 1
            self.pattern_starts = bool(self.frames) and self.frames[-1] == "case"
        lexer.at += 1
        self.word_starts = self.command_starts = True

    def _parenthesis(self, character: str) -> bool:
        """A parenthesis: a group, a pattern of `case`, arithmetic, or the end of this level."""
        lexer = self.lexer
        if character == "(":
            if self.command_starts and lexer.text.startswith("((", lexer.at) and lexer.arithmetic(lexer.at, self.end):
                self.word_starts = self.command_starts = False
                return False
            if not self.pattern_starts:
                self.frames.append("(")
        elif self.frames and self.frames[-1] == "case":
            self.pattern_starts = False
        elif self.frames and self.frames[-1] == "(":
            self.frames.pop()
        elif self.frames or not self.closer:
            raise Unclear("a `)` has no `(`")
        else:
            lexer.at += 1
            if self.documents:
                raise Unclear("a here-document starts on a line that ends its $( )")
            return True
        lexer.at += 1
        self.word_starts = self.command_starts = True
        return False

    def _redirect(self) -> None:
        """A redirection; `<<` announces a here-document."""
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
        self.word_starts = True
        self.command_starts = False

    def _body(self, delimiter: str, is_quoted: bool, strips_tabs: bool) -> None:
        """The lines of a here-document, up to the one that is its delimiter."""
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
                lexer.quoted(body_end, "heredoc")
                lexer.documents -= 1
            lexer.flush(body_end)
            lexer.pieces.append(BodyEnd(delimiter, strips_tabs, bool(self.closer) or lexer.backquotes > 0))
        lexer.at = after
