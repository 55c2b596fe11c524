"""Values in shell commands, quoted for the place where they stand; and commands that need no shell at all.

    render_shell("echo \\"${x}\\"", lookup)   text -> shell_places.read (cached) -> pieces -> quoted values
    plain_argv("make -j4 all")              words that run without a shell, as make decides it

Whatever a value holds, the shell reads it as that value: it never ends a quote, never starts a command. Where a
value can't be had safely (arithmetic and a text that is no number, a here-document and a line that would end
it, a place whose reading differs between shells) `ValueRefused` is raised and the attempt fails before it starts.
`${raw:name}` opts out.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import assert_never

from resile.dialects.interpolate import MISSING, TEMPLATES_KEPT, Lookup, ValueRefused, checked_text
from resile.dialects.shell_pieces import BodyEnd, BodyStart, Hole

SHELLS = ("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh")
"""The programs whose quoting is known; a value for any other could run code."""

_DOUBLE = re.compile(r'[\\$`"]')
_DEFAULT = re.compile(r'[\\$`"}]')
_HEREDOC = re.compile(r"[\\$`]")
_ANSI = re.compile(r"[^A-Za-z0-9_\x80-\U0010ffff]")
_COMMENT = re.compile(r"[^A-Za-z0-9_ .,:/@%+=\x80-\U0010ffff-]")
_NUMBER = re.compile(r"-?[0-9]{1,19}")


def render_shell(text: str, lookup: Lookup, program: str = "sh") -> str:
    """The command with the values of its references, each quoted for its place; unknown ones stay."""
    if "${" not in text:
        return text
    from resile.dialects.shell_places import read

    out: list[str] = []
    bodies: list[int] = []
    for piece in read(text, knows_ansi(program)):
        if isinstance(piece, str):
            out.append(piece)
        elif isinstance(piece, Hole):
            value = lookup(piece.name)
            out.append(piece.source if value is MISSING else _quoted(piece, checked_text(piece.name, value)))
        elif isinstance(piece, BodyStart):
            bodies.append(len(out))
        else:
            _check_body(piece, "".join(out[bodies.pop() :]))
    return "".join(out)


def knows_ansi(program: str) -> bool:
    """Does this shell certainly read `$'...'` as bash does?"""
    return program.rpartition("/")[2] not in ("sh", "dash", "ash")


def _quoted(hole: Hole, value: str) -> str:
    """The value, written so that the shell reads exactly it in this place."""
    if hole.is_raw:
        return value
    text = _written(hole, value)
    if hole.in_document and hole.place in ("word", "single"):
        # In a here-document bash joins lines at a backslash even inside single quotes: part the two.
        text = text.replace("\\\n", "\\''\n")
    # Inside backquotes the shell takes one level of backslashes away before it reads the command.
    return _HEREDOC.sub(r"\\\g<0>", text) if hole.in_backquotes else text


def _written(hole: Hole, value: str) -> str:
    """The value as its innermost place wants it."""
    match hole.place:
        case "word":
            return "'" + value.replace("'", "'\\''") + "'"
        case "single":
            return value.replace("'", "'\\''")
        case "double":
            return _DOUBLE.sub(r"\\\g<0>", value)
        case "default":
            # Inside "${V:-...}" bash wants single quotes in pairs, unless they stand in quotes of their own.
            return _DEFAULT.sub(r"\\\g<0>", value).replace("'", '"\'"')
        case "heredoc":
            return _HEREDOC.sub(r"\\\g<0>", value)
        case "literal":
            return value
        case "ansi":
            return _ANSI.sub(lambda found: f"\\{ord(found[0]):03o}", value)
        case "comment":
            return _COMMENT.sub("_", value)
        case "number":
            if not _NUMBER.fullmatch(value):
                raise ValueRefused(f"`{hole.source}` stands in arithmetic and its value is not a whole number")
            # The blank keeps a minus from joining one before it, and from reading as `:-`.
            return f" {value}" if value.startswith("-") else value
        case "refused":
            raise ValueRefused(f"`{hole.source}` stands where no value can be put safely: {hole.reason}")
        case _:
            assert_never(hole.place)


def _check_body(end: BodyEnd, body: str) -> None:
    """A value must not end the here-document that it stands in."""
    for line in body.split("\n"):
        line = line.lstrip("\t") if end.strips_tabs else line
        if line == end.delimiter or (end.is_nested and line.startswith(end.delimiter)):
            raise ValueRefused(f"a value holds the line `{end.delimiter}`, which would end its here-document")


_PLAIN = re.compile(
    r"""[ \t]*(?:[^\s\\'"`$&|;<>()*?\[\]#~={}!^%\x00-\x1f]|'[^'\x00]*'|"[^"\\$`!\x00]*")"""
    r"""(?:[^\\'"`$&|;<>()*?\[\]~{}!^\x00-\x08\n-\x1f#]|(?<=[^\s])\#|'[^'\x00]*'|"[^"\\$`!\x00]*")*"""
)
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_SHELL_WORDS = frozenset(
    """. : [ [[ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare
    dirs disown do done elif else enable esac eval exec exit export fc fg fi for function getopts hash help history
    if in jobs kill let local logout mapfile popd pushd pwd read readarray readonly return select set shift shopt
    source suspend test then time times trap type typeset ulimit umask unalias unset until wait while""".split()  # noqa: SIM905
)
_SPEAKING_WORDS = frozenset({"echo", "printf"})


@lru_cache(maxsize=TEMPLATES_KEPT)
def plain_argv(command: str) -> tuple[str, ...] | None:
    """The words of a command that means the same without a shell; None where it needs one.

    `kill`, `test` and `pwd` exist as programs but differ from the shell's own; `echo` and `printf` differ only
    where there are options or backslashes.
    """
    if not _PLAIN.fullmatch(command):
        return None
    words = _WORD.findall(command)
    if "'" in command or '"' in command:
        words = [_QUOTED.sub(lambda quoted: quoted[1] or quoted[2] or "", word) for word in words]
    first = words[0]
    if not first or "=" in first or first in _SHELL_WORDS:
        return None
    if first in _SPEAKING_WORDS and (len(words) < 2 or "\\" in command or any(word[:1] == "-" for word in words)):
        return None
    return tuple(words)
