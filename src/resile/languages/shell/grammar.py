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

from resile.languages.references import TEMPLATES_KEPT, names
from resile.languages.shell.commands import Judge
from resile.languages.shell.lexer import BodyEnd, BodyStart, Piece, Unclear, WordReader
from resile.languages.shell.rules import Shell, shell_of
from resile.languages.shell.simple import Simple

NESTING_MAX = 40
_WORD_RUN = re.compile(r"""[^\s\\'"`$#<>()|&;]+""")
_REDIRECT = re.compile(r"<<<|[<>][&>|]?")
_DELIMITER = re.compile(r"""<<(-?)[ \t]*((?:[^\s\\'"`$<>()|&;]|\\.|'[^']*'|"[^"\\$`]*")+)""")
_DELIMITER_QUOTES = re.compile(r"""\\(.)|'([^']*)'|"([^"]*)\"""")
_OPENERS = frozenset(("then", "do", "else", "elif", "if", "while", "until", "!", "{", "time"))
# The words that begin a compound command, and those that end it.
_GROUPS = {
    **dict.fromkeys(("{", "if", "for", "while", "until", "select"), True),
    **dict.fromkeys(("}", "fi", "done"), False),
}
_PREFIXES = _OPENERS | {"builtin", "command", "exec"}
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_QUALIFIER = re.compile(r"\(((?:\$\{[^{}]*\}|[^()|~])+)\)(?=[\s;&|)<>]|$)")
_INDEX = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*)?\[")


class Command:
    """One level of shell code: words, separators, `case`, `[[`, parentheses, comments, here-documents."""

    def __init__(self, lexer: Lexer, end: int, closer: str) -> None:
        self.lexer = lexer
        self.lists_await = True
        self.end = end
        self.closer = closer
        self.frames: list[str] = []
        self.word_starts = True
        self.command_starts = True
        self.pattern_starts = False
        self.command_word = ""
        self.awaits_command = True
        self.redirect = ""
        self.is_target = False
        self.documents: list[tuple[str, bool, bool, Simple]] = []
        self.simple = Simple()
        self.values = self.simple.values
        # How many commands were judged when each compound command that is open began.
        self.groups: list[int] = []

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
        self._end_simple()

    def _top(self) -> str:
        return self.frames[-1] if self.frames else ""

    def _is_one_command(self) -> bool:
        """Are separators here a part of the command: in a list `=( )`, or in `[[ ]]`?"""
        return bool(self.frames) and (self.frames[-1] == "=(" or "[[" in self.frames)

    def _begin_command(self, is_piped: bool = False) -> None:
        """After a separator: the next word may be a command, unless it is an element of an array or of `[[ ]]`."""
        self.word_starts = True
        if self._is_one_command():
            self.command_starts = False
            return
        self.command_starts = self.awaits_command = True
        self.command_word = ""
        self._end_simple(is_piped)

    def _end_simple(self, is_piped: bool = False) -> None:
        """Judge the words up to here, as one command."""
        if self.simple.starts or self.simple.group:
            self.lexer.close(self.simple)
            self.simple = Simple(self.simple if is_piped else None)
            self.values = self.simple.values

    def _begin_word(self, word: str) -> None:
        """Begin a word; the first one that is no assignment and no redirection's target is the command."""
        top = self._top()
        if top == "case of":
            self.frames[-1] = "case subject"
        if top != "=(":
            self.simple.begin_word(self.lexer.at, self.redirect)
        self.is_target, self.redirect = self.redirect != "", ""
        if self.awaits_command and not self.is_target and not _ASSIGNMENT.match(word) and word not in _PREFIXES:
            self.command_word = word
            self.awaits_command = False

    def _extend_word(self) -> None:
        """The word goes on up to here."""
        if self.simple.ends:
            self.simple.ends[-1] = self.lexer.at

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
        if not text.startswith(("]=", "]+="), closing):
            return False
        lexer.count(index.end(), closing, index[0][:-1])
        if "${" not in inside:
            return False
        if inside.count("'") % 2 or inside.count('"') % 2 or "`" in inside:
            raise Unclear("the index of an array holds quotes")
        if not in_array:
            self.simple.begin_word(lexer.at, "")
        lexer.holes(lexer.at, closing, "number")
        self._extend_word()
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
            begins_body = word == "{" and self.command_word == "function"
            if word in _GROUPS and (self.command_starts or begins_body):
                self._group(_GROUPS[word])
        self.word_starts = False
        self.command_starts = opens
        self.lexer.at = after
        self._extend_word()

    def _group(self, begins: bool) -> None:
        """Begin a compound command, or note what is inside the one that ends here."""
        if begins:
            self.groups.append(len(self.lexer.judge.commands))
        elif self.groups:
            self.simple.group = self.lexer.judge.commands[self.groups.pop() :]

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
            self._extend_word()
            if self.documents and "\n" in lexer.text[before : lexer.at]:
                raise Unclear("a here-document starts on a line that ends inside quotes")

    def _newline(self) -> None:
        """Read a line's end, and the here-documents that the line announced."""
        self._begin_command()
        for delimiter, is_quoted, strips_tabs, simple in self.documents:
            self.values = []
            start = self.lexer.at
            self._body(delimiter, is_quoted, strips_tabs)
            self.lexer.close_document(simple, self.values, (start, start if is_quoted else self.lexer.at))
        self.documents = []
        self.values = self.simple.values

    def _separator(self, character: str) -> None:
        """Read `;`, `&`, `|` or their doubles; `;;` ends a branch of `case`."""
        lexer = self.lexer
        if character == ";" and lexer.text[lexer.at : lexer.at + 2] in (";;", ";&"):
            lexer.at += 1
            self.pattern_starts = bool(self.frames) and self.frames[-1] == "case"
        is_piped = character == "|" and not lexer.text.startswith("||", lexer.at)
        lexer.at += 2 if lexer.text[lexer.at : lexer.at + 2] in ("||", "&&", "|&") else 1
        self._begin_command(is_piped)

    def _parenthesis(self, character: str) -> bool:
        """Read a parenthesis: a group, a pattern of `case`, arithmetic, or the end of this level."""
        lexer = self.lexer
        if character == "(":
            may_count = self.command_starts or (self.word_starts and self.command_word == "for")
            if may_count and lexer.text.startswith("((", lexer.at) and lexer.arithmetic(lexer.at, self.end):
                self.word_starts = self.command_starts = False
                return False
            if not self.word_starts and lexer.text[lexer.at - 1] == "=" and not self.pattern_starts:
                self._begin_array()
                return False
            if self.lexer.shell == "zsh" and not (self.word_starts or self.pattern_starts or "[[" in self.frames):
                self._qualifier()
            if not self.pattern_starts:
                self.frames.append("(")
                self._group(begins=True)
        elif self._top() == "case":
            self.pattern_starts = False
        elif self._top() == "=(":
            self._end_array()
            return False
        elif self._top() == "(":
            self.frames.pop()
            self._begin_command()
            self._group(begins=False)
            lexer.at += 1
            return False
        elif self.frames or not self.closer:
            raise Unclear("a `)` has no `(`")
        else:
            lexer.at += 1
            if self.documents:
                raise Unclear("a here-document starts on a line that ends its $( )")
            self._end_simple()
            return True
        lexer.at += 1
        self._begin_command()
        return False

    def _qualifier(self) -> None:
        """Judge the parentheses that end a pattern of zsh: it runs what is behind the letter `e` in them."""
        lexer = self.lexer
        found = _QUALIFIER.match(lexer.text, lexer.at, self.end)
        if found is not None:
            lexer.judge.qualifiers.append(found.span(1))
            if any(found.start() <= at < found.end() for at in lexer.offsets):
                raise Unclear("zsh runs a glob qualifier, `*(…)`, as code; compare the value in a test")

    def _begin_array(self) -> None:
        """Begin the list of an assignment, `a=(`."""
        self.frames.append("=(")
        self.lexer.at += 1
        self.lists_await, self.awaits_command = self.awaits_command, False
        self.values = self.simple.elements
        self.word_starts, self.command_starts = True, False

    def _end_array(self) -> None:
        """End it; the command goes on."""
        self.frames.pop()
        self.lexer.at += 1
        self.awaits_command = self.lists_await
        self.values = self.simple.values
        self.word_starts = self.command_starts = False
        self._extend_word()

    def _redirect(self) -> None:
        """Read a redirection or a `<( )`; `<<` announces a here-document."""
        lexer = self.lexer
        if lexer.text.startswith(("<(", ">("), lexer.at):
            if self.word_starts:
                self._begin_word("")
            lexer.at += 2
            lexer.command(self.end, ")")
            self.word_starts = self.command_starts = False
            self._extend_word()
            return
        number = self.simple.drop_number(lexer.text, lexer.at)
        redirect = _REDIRECT.match(lexer.text, lexer.at, self.end)
        if lexer.text.startswith("<<", lexer.at) and not lexer.text.startswith("<<<", lexer.at):
            document = _DELIMITER.match(lexer.text, lexer.at, self.end)
            if document is None or lexer.text[document.end() : document.end() + 1] in ("$", "`", "\\", "'", '"'):
                raise Unclear("the delimiter of a here-document is not a plain word")
            delimiter = _DELIMITER_QUOTES.sub(lambda q: q[1] or q[2] or q[3] or "", document[2])
            is_quoted = any(c in document[2] for c in "\\'\"")
            self.simple.has_document = True
            self.documents.append((delimiter, is_quoted, document[1] == "-", self.simple))
            lexer.at = document.end()
        else:
            lexer.at = redirect.end() if redirect else lexer.at + 1
            self.redirect = number + (redirect[0] if redirect else "<")
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

    def __init__(self, text: str, references: dict[int, str], shell: Shell) -> None:
        super().__init__(text, references, shell)
        self.nesting = 0
        self.level: Command | None = None
        self.judge = Judge(text, shell, self.pieces)

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

    def note(self, at: int, piece: int) -> None:
        """Note a value for the innermost command to judge."""
        if self.level is not None:
            self.level.values.append((at, piece))

    def count(self, start: int, end: int, array: str = "") -> None:
        """Note a stretch of arithmetic, which may be the index of an array."""
        self.judge.arithmetic.append((start, end, array))

    def close(self, simple: Simple) -> None:
        """Judge a command that is read whole."""
        self.judge.close(simple)

    def close_document(self, simple: Simple, values: list[tuple[int, int]], body: tuple[int, int]) -> None:
        """Judge the values in a here-document of a command; `body` is where the shell expands variables in it."""
        self.judge.close_document(simple, values, body)


def read(text: str, program: str) -> tuple[Piece, ...]:
    """The pieces of a command for a shell."""
    return _read(text, shell_of(program))


@lru_cache(maxsize=TEMPLATES_KEPT)
def _read(text: str, shell: Shell) -> tuple[Piece, ...]:
    """The pieces of a command, read once."""
    references = {offset: name for name, offset in names(text)}
    lexer = Lexer(text, references, shell)
    try:
        lexer.command(len(text), "")
        lexer.judge.finish()
        return lexer.finish()
    except Unclear as unclear:
        lexer = Lexer(text, references, shell)
        lexer.holes(0, len(text), "refused", str(unclear))
        return lexer.finish()
