"""Values in shell commands, quoted for their position; and commands that need no shell at all.

    render_shell("echo \\"${x}\\"", lookup)   text -> grammar.read -> render
    plain_argv("make -j4 all")              words that run without a shell, as make decides it

The shell reads every value as that value: it never ends a quote and never starts a command. A value that is not safe in
its position (a text that is no number in arithmetic, a line that would end its here-document, a position that shells
read differently) raises `ValueRefused`, and the attempt fails before it starts.
`${raw:name}` opts out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from resile.languages.references import TEMPLATES_KEPT

if TYPE_CHECKING:
    from resile.languages.references import Lookup

SHELLS = ("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh")
"""The programs whose quoting is known; for any other program a value could run code."""


def render_shell(text: str, lookup: Lookup, program: str = "sh") -> str:
    """The command with the values of its references, each quoted for its position; unknown ones stay."""
    if "${" not in text:
        return text
    from resile.languages.shell.render import render

    return render(text, lookup, program)


_SHELL_WORDS = frozenset(
    """. : [ [[ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare
    dirs disown do done elif else enable esac eval exec exit export fc fg fi for function getopts hash help history
    if in jobs kill let local logout mapfile popd pushd pwd read readarray readonly return select set shift shopt
    source suspend test then time times trap type typeset ulimit umask unalias unset until wait while""".split()  # noqa: SIM905
)
_SPECIAL = frozenset("\\'\"`$&|;<>()*?[]~{}!^\x7f").union(map(chr, {*range(32)} - {9}))
_ACTIVE_IN_QUOTES = frozenset("\\$`!")
_NOT_FIRST = frozenset("=%")
_SPEAKING_WORDS = frozenset({"echo", "printf"})


@lru_cache(maxsize=TEMPLATES_KEPT)
def plain_argv(command: str) -> tuple[str, ...] | None:
    """The words of a command that means the same without a shell; None if it needs one.

    `kill`, `test` and `pwd` exist as programs but differ from the shell's own; `echo` and `printf` differ only with
    options or backslashes.
    """
    words = _split(command) if "'" in command or '"' in command else _words(command)
    if not words or not words[0]:
        return None
    first = words[0]
    if first in _SHELL_WORDS or not _NOT_FIRST.isdisjoint(first):
        return None
    if first in _SPEAKING_WORDS and (len(words) < 2 or "\\" in command or any(word[:1] == "-" for word in words)):
        return None
    return tuple(words)


def _words(command: str) -> list[str] | None:
    """The words of a command without quotes; None if a character has a meaning for the shell."""
    if not _SPECIAL.isdisjoint(command):
        return None
    words = [word for word in command.replace("\t", " ").split(" ") if word]
    return None if "#" in command and any(word[0] == "#" for word in words) else words


def _split(command: str) -> list[str] | None:
    """The words of a command with quotes; None if a character has a meaning for the shell."""
    words: list[str] = []
    word: str | None = None
    at = 0
    while at < len(command):
        character = command[at]
        at += 1
        if character in "'\"":
            closing = command.find(character, at)
            inside = command[at:closing]
            if closing < 0 or "\0" in inside or (character == '"' and not _ACTIVE_IN_QUOTES.isdisjoint(inside)):
                return None
            word = (word or "") + inside
            at = closing + 1
        elif character in " \t":
            if word is not None:
                words.append(word)
            word = None
        elif character in _SPECIAL or (character == "#" and word is None):
            return None
        else:
            word = (word or "") + character
    return words if word is None else [*words, word]
