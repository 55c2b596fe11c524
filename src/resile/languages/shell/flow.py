"""Follows values through the variables of a text, to the places where the shell reads a variable as code.

    x=${v}; eval "$x"          n=$(echo ${v}); echo $((n))       read n <<< ${v}; [[ $n -gt 1 ]]
    f() { unset $1; }; f ${v}  declare -i n; echo ${v} | read n  x=${v}; trap "rm $x" EXIT

A value may get into a variable by an assignment, by the words of `for`, by `read`, which takes it from a here-document
or a pipe, and into `$1` by `set` or by the call of a function. This is followed widely: what a command prints may be
any value in it. So a value that may arrive in arithmetic needs only a form that can't run there (`calm`), and where it
may arrive in code there is a warning.

A prompt is code, too: `export PS1=${v}; bash -i`, and in zsh `setopt promptsubst; print -P $x`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from resile.languages.shell.rules import ASSIGNMENT, Rules, Shell

POSITIONAL = "@"
INPUT = "<"
_VARIABLE = re.compile(r"\$\{?[!^=~]?(?:\([A-Za-z@:]*\))?([A-Za-z_][A-Za-z0-9_]*|[0-9@*])")
_NAME = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*")
_UNEXPANDED = re.compile(r"""("(?:\\.|[^"\\])*")|'[^']*'|\\.""", re.DOTALL)
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?=([^}]*)\}")
_FUNCTION = re.compile(r"(?:^|[\s;&|({])(?:function\s+)?([A-Za-z_][\w-]*)\s*\(\)|\bfunction\s+([A-Za-z_][\w-]*)")
_PARAMETER = r"([A-Za-z_]\w*|[0-9@*])"
# `${!a[@]}` has the indices of a list, not what they name.
_LOOKED_UP = re.compile(rf"\$\{{!{_PARAMETER}(?!\w|\[[@*]\])|\$\{{\([A-Za-z@]*P[A-Za-z@]*\){_PARAMETER}")
_REPEATED = re.compile(rf"\$\{{{_PARAMETER}(?:\[[^]]*\])?@P\}}|\$\{{\([A-Za-z@]*e[A-Za-z@]*\){_PARAMETER}")

_PROMPTED = re.compile(rf"\$\{{\([A-Za-z@]*%%[A-Za-z@]*\){_PARAMETER}")
_INTERACTIVE = frozenset(("PS0", "PS1", "PS2", "PROMPT_COMMAND", "PROMPT", "PROMPT2", "RPROMPT", "RPS1", "ENV"))
_ASKED = frozenset(("PS3", "PROMPT3"))
_SUBSTITUTES = re.compile(r"(?i)\bprompt_?subst\b")
# `${(l:WIDTH:)x}`: zsh calculates the width.
_WIDTH = re.compile(r"\$\{\([A-Za-z@%#]*[lr]([:./,|])(.*?)\1")

Span = tuple[int, int]


class Flow:
    """What may get into each variable of a text: values, by the offset of each, and other variables."""

    def __init__(self, text: str, values: Iterable[int]) -> None:
        self.text = text
        self.values = sorted(values)
        self.held: dict[str, set[int]] = {}
        self.given: dict[str, set[str]] = {}
        # The variables in which a value may come to stand inside an index.
        self.indexed: set[str] = set()
        self.functions = {first or second for first, second in _FUNCTION.findall(text)}
        for name, default in _DEFAULT.findall(text):
            self.given.setdefault(name, set()).update(_variables(default))

    def add(self, rules: Rules) -> None:
        """Add what a command assigns."""
        for word in rules.words:
            assigned = ASSIGNMENT.match(word.text)
            if assigned is not None:
                self.put(POSITIONAL if assigned[1] == "argv" else assigned[1], (word.start, word.end))
                if "[" in word.text[assigned.end() :]:
                    self.indexed.add(assigned[1])
        operands = rules.words[rules.first + 1 :]
        texts = [word.text for word in operands]
        spans = [(word.start, word.end) for word in operands]
        if rules.command in ("for", "select") and texts:
            self._put_all(texts[0], spans[1:])
            if len(texts) == 1:
                self.given.setdefault(texts[0], set()).add(POSITIONAL)
            self.given.setdefault("REPLY", set()).add(INPUT)
        elif rules.command in ("printf", "print") and "-v" in texts[:-1]:
            self._put_all(texts[texts.index("-v") + 1], spans)
        elif rules.command == "set" or rules.command in self.functions:
            self._put_all(POSITIONAL, spans)
        elif rules.command in ("read", "mapfile", "readarray"):
            for name in (*texts, "REPLY", "MAPFILE"):
                self.given.setdefault(name.partition("[")[0].partition("?")[0], set()).add(INPUT)
            if rules.command != "read":
                # The function that `-C` names gets each line.
                self.given.setdefault(POSITIONAL, set()).add(INPUT)
        elif rules.command == "getopts":
            for name in ("OPTARG", *texts[1:2]):
                self.given.setdefault(name, set()).add(POSITIONAL)
        for word in rules.redirects:
            self.put(INPUT, (word.start, word.end))

    def _put_all(self, name: str, spans: Iterable[Span]) -> None:
        for span in spans:
            self.put(name, span)

    def put(self, name: str, span: Span) -> None:
        """Let everything in a stretch of the text get into a variable."""
        self.held.setdefault(name, set()).update(self.values_in(span))
        written = self.text[span[0] : span[1]]
        self.given.setdefault(name, set()).update(variables_in(written))
        if name == INPUT and "[" in written:
            self.indexed.add(name)

    def values_in(self, span: Span) -> list[int]:
        """The values in a stretch of the text."""
        return self.values[bisect_left(self.values, span[0]) : bisect_left(self.values, span[1])]

    def values_for(self, names: Iterable[str]) -> set[int]:
        """The values that may get into one of these variables."""
        return {at for name in self.names_for(names) for at in self.held.get(name, ())}

    def names_for(self, names: Iterable[str]) -> set[str]:
        """These variables, and those whose values may get into them."""
        left = list(names)
        seen = set(left)
        while left:
            fresh = self.given.get(left.pop(), set()) - seen
            seen |= fresh
            left += fresh
        return seen


def variables_in(written: str) -> set[str]:
    """The variables that the shell expands in a part of a text; `@` for the positional ones."""
    expanded = _UNEXPANDED.sub(lambda found: _ESCAPED.sub("", found[1]) if found[1] else "", written)
    return _variables(expanded)


def variables_in_document(text: str) -> set[str]:
    """The variables that the shell expands in the body of a here-document, where quotes mean nothing."""
    return _variables(text)


def _variables(text: str) -> set[str]:
    return {_name_of(name) for name in _VARIABLE.findall(text)}


def _name_of(parameter: str) -> str:
    """The name of a variable; `@` for the positional ones."""
    return parameter if parameter[0].isalpha() or parameter[0] == "_" else POSITIONAL


def names_counted(text: str) -> set[str]:
    """The variables in arithmetic, where a name alone is a variable, too."""
    return _variables(text) | set(_NAME.findall(text))


def names_looked_up(text: str) -> set[str]:
    """The variables whose values name other variables: `${!x}`, `${(P)x}`."""
    return {_name_of(first or second) for first, second in _LOOKED_UP.findall(text)}


def names_repeated(text: str) -> set[str]:
    """The variables whose values are expanded again: `${x@P}`, `${(e)x}`."""
    return {_name_of(first or second) for first, second in _REPEATED.findall(text)}


def names_prompted(text: str) -> set[str]:
    """The variables that zsh expands like a prompt: `${(%%)x}`."""
    return {_name_of(name) for name in _PROMPTED.findall(text)}


def prompts_of(text: str, shell: Shell, every: Iterable[Rules]) -> frozenset[str]:
    """The variables that a shell of this text expands as prompts."""
    asked = _ASKED if substitutes(text, shell) else frozenset()
    return asked | (_INTERACTIVE if any(rules.starts_interactive() for rules in every) else frozenset())


def names_in_prompts(text: str, shell: Shell, every: list[Rules]) -> Iterator[tuple[str, set[str]]]:
    """The variables in prompts and in what is printed like one, with the form of that code."""
    prompts = prompts_of(text, shell, every)
    for rules in every if prompts else ():
        for word in rules.words:
            assigned = ASSIGNMENT.match(word.text)
            if assigned is not None and assigned[1] in prompts:
                yield "PS1", variables_in(text[word.start : word.end])
    if substitutes(text, shell):
        yield "print -P", names_prompted(text)
        for rules in every:
            if is_printed_as_prompt(rules):
                yield "print -P", {name for word in rules.words for name in variables_in(text[word.start : word.end])}


def is_printed_as_prompt(rules: Rules) -> bool:
    """Does this command print its words as a prompt?"""
    return rules.command == "print" and any(re.match(r"-[a-zA-Z]*P", text) for text in rules.texts[rules.first + 1 :])


def substitutes(text: str, shell: Shell) -> bool:
    """Does zsh run the commands in its prompts?"""
    return shell == "zsh" and _SUBSTITUTES.search(text) is not None


def widths(text: str, shell: Shell) -> list[tuple[int, int]]:
    """The stretches in flags of zsh where it calculates."""
    return [found.span(2) for found in _WIDTH.finditer(text)] if shell == "zsh" else []
