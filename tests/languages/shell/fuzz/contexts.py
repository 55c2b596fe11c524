"""Contexts of one value: what a workflow file can write around `${v}`, and what must come of it.

    plain     prints the value byte for byte: `p` prints each of its words in angle brackets
    held      takes every value, which goes somewhere else than to the output
    judged    takes values of one form only (a number, a name); the step fails before it starts with any other
    refused   `resile check` refuses the file, and its message names the safe form
    second    `resile check` warns: a second interpreter reads the value; its hint names the safe form

A refused or second context comes with the safe form, written out, which is accepted without a warning.
"""

# ruff: noqa: E501 - a table reads better with few lines
from __future__ import annotations

from typing import Literal, NamedTuple

ALL = ("dash", "busybox", "bash", "ksh", "zsh")
POSIX = "bash as sh"
SHELLS = (*ALL, POSIX)
BOURNE = ("dash", "busybox", POSIX)
ARRAYS = ("bash", "ksh", "zsh")

Kind = Literal["plain", "held", "judged", "refused", "second"]


class Context(NamedTuple):
    """One text with a value: how it is judged, where it is run, and what is right for it."""

    text: str
    kind: Kind
    shells: tuple[str, ...] = ALL
    around: tuple[str, str] = ("", "")
    """What a plain context prints before and behind the value."""
    good: tuple[str, str] = ("", "")
    """A value that a judged context takes, and the output."""
    safe: str = ""
    """How to write a refused or second context so that it is accepted."""
    names: str = ""
    """A part of the message, or of the hint, that names that form."""


QUOTES = (
    ("${v}", "", ""),
    ('"${v}"', "", ""),
    ("'${v}'", "", ""),
    ("pre${v}post", "pre", "post"),
    ('"a ${v} b"', "a ", " b"),
    ("'a \"${v}\" b'", 'a "', '" b'),
)
FRAMES = (
    "p @", "(p @)", "{ p @; }", "if true; then p @; fi", "if false; then :; else p @; fi", "while :; do p @; break; done",
    "until p @; do :; done", "for i in 1; do p @; done", 'for i in @; do p "$i"; done', "case x in x) p @;; esac",
    "case x in (y|x) p @ ;; *) ;; esac", 'f() { p "$1"; }; f @', "f() { p @; }; f", "true && p @", "false || p @",
    'x=@; p "$x"', 'x=@ y=1; p "$x"', 'export x=@; p "$x"', 'set -- a @ b; p "$2"', "p @ # it's \"a comment",
    "p \\\n@", "p @ 2>/dev/null", "x=$(p @); printf %s \"$x\"", 'printf %s "$(p @)"', "x=`p @`; printf %s \"$x\"",
    'printf %s "`p @`"', 'printf %s "$(printf %s "$(p @)")"', "x=$(case a in a) p @;; esac); printf %s \"$x\"",
    "p @ | cat", "! false; p @", "# it's\np @", "[ -n @ ]; p @", "case @ in *) p @;; esac", "x=1 p @", "eval : ; p @",
    "command true @; p @", "x=$( # it's )\np @); printf %s \"$x\"",
)  # fmt: skip


def plain(text: str, shells: tuple[str, ...] = ALL, before: str = "", after: str = "") -> Context:
    """A context that prints the value, after and before these texts."""
    return Context(text, "plain", shells, (before, after))


def held(text: str, shells: tuple[str, ...] = ALL) -> Context:
    """A context that takes every value."""
    return Context(text, "held", shells)


def judged(text: str, good: str = "5", output: str = "", shells: tuple[str, ...] = ALL) -> Context:
    """A context that takes values of one form, with one of them and its output."""
    return Context(text, "judged", shells, good=(good, output))


def refused(text: str, safe: str, names: str, shells: tuple[str, ...] = ALL) -> Context:
    """A context that a file can't have, and how to write it."""
    return Context(text, "refused", shells, safe=safe, names=names)


def second(text: str, safe: str, names: str, shells: tuple[str, ...] = ALL) -> Context:
    """A context in which a second interpreter reads the value, and how to write it."""
    return Context(text, "second", shells, safe=safe, names=names)


def _product() -> tuple[Context, ...]:
    """Every frame with two kinds of quotes, the first ones with all of them."""
    found: list[Context] = []
    for number, frame in enumerate(FRAMES):
        count = len(QUOTES) if number < len(QUOTES) else 2
        for at in range(number, number + count):
            word, before, after = QUOTES[at % len(QUOTES)]
            found.append(plain(frame.replace("@", word), before=before, after=after))
    return tuple(found)


PRODUCT = _product()
