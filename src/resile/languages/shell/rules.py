"""Which words of a command the shell evaluates once more after it has read them, and the form a value must have there.

    [[ ${x} -eq 1 ]]   declare -i n=${x}   exit ${x} (zsh)     number: bash runs the command in `a[$(...)]`
    read ${x}   unset ${x}   [ -v ${x} ]   printf -v ${x}      name
    declare -a list=${x}                                       list: no text that begins with a parenthesis
    printf "${x}" word   set ${x} (zsh)                        operand: no text that begins with a dash
    trap "rm ${x}" EXIT   alias a=${x}   PS4=${x}              refused, with another way to write it

`sh` stands for dash, busybox and bash, so the rules of bash hold for it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Literal, cast

from msgspec import Struct

Form = Literal["", "number", "name", "list", "operand", "calm", "index"]
Shell = Literal["sh", "bash", "ksh", "mksh", "zsh"]
_CALCULATING = ("ksh", "mksh", "zsh")

SUSPECTS = frozenset(
    """let declare typeset local export readonly integer float nameref unset read mapfile readarray getopts test [ [[
    printf print exit return shift break continue logout repeat wait set trap ulimit alias compgen complete PS4 ENV
    BASH_ENV BASH_ALIASES PROMPT4 RANDOM SRANDOM OPTIND SECONDS HISTCMD COLUMNS LINES HISTSIZE SAVEHIST FUNCNEST
    PS0 PS1 PS2 PS3 PROMPT PROMPT2 PROMPT3 RPROMPT RPS1 PROMPT_COMMAND
    SHLVL UID EUID GID EGID MAILCHECK TMOUT KEYTIMEOUT DIRSTACKSIZE LISTMAX LOGCHECK BAUD LINENO ERRNO aliases
    galiases saliases functions""".split()  # noqa: SIM905
)
"""Words without which no rule of this module matters to a command."""

PREFIXES = frozenset(
    ("then", "do", "else", "elif", "if", "while", "until", "!", "{", "time", "builtin", "command", "exec", "noglob",
     "nocorrect", "coproc", "-")
)  # fmt: skip
_RUNNERS = frozenset(("builtin", "command", "exec", "time"))
_DECLARERS = frozenset(("declare", "typeset", "local", "export", "readonly", "integer", "float", "nameref"))
_TAKE_NAMES = frozenset(("unset", "read", "mapfile", "readarray", "getopts"))
_ALIASES = frozenset(("aliases", "galiases", "saliases"))
_TAKE_NUMBER = frozenset(("exit", "return", "shift", "break", "continue", "logout"))
_EVALUATE = frozenset(
    ("let", "[[", "[", "test", "printf", "print", "repeat", "set", "wait", *_DECLARERS, *_TAKE_NAMES, *_TAKE_NUMBER)
)
_COMPARES = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_COUNTERS = {
    "sh": frozenset(("RANDOM", "SRANDOM", "OPTIND", "HISTCMD", "SECONDS")),
    "zsh": frozenset(
        ("RANDOM", "OPTIND", "SECONDS", "COLUMNS", "LINES", "HISTSIZE", "SAVEHIST", "FUNCNEST", "SHLVL", "UID", "EUID",
         "GID", "EGID", "MAILCHECK", "TMOUT", "KEYTIMEOUT", "DIRSTACKSIZE", "LISTMAX", "LOGCHECK", "BAUD", "LINENO",
         "HISTCMD", "ERRNO")
    ),
}  # fmt: skip
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^]]*\])?\+?=")
_DIRECTIVE = re.compile(r"%%|%(?:[0-9]+\$)?[-+ #0']*(\*|[0-9]*)(?:\.(\*|[0-9]*))?[hlLqjzt]*([A-Za-z]|\([^)]*\)T)")
_TEXT_DIRECTIVES = frozenset("sbqQcHPR")
# The option of `mapfile` behind which a command stands.
_CALLBACK = re.compile(r"-[a-zA-Z0-9]*C")
_OWN_TEXT = frozenset(("-p", "-d", "-i"))
_OWN_NUMBER = {"read": frozenset(("-t", "-n", "-N", "-u", "-k"))}
_OWN_NUMBER["mapfile"] = _OWN_NUMBER["readarray"] = frozenset(("-n", "-O", "-s", "-c", "-u"))
_EVALUATE_OPTIONS = {
    "printf": ("sh", "bash", *_CALCULATING), "print": _CALCULATING, "set": _CALCULATING, "compgen": ("sh", "bash"),
}  # fmt: skip
BY_HAND = {
    "PS4": "the shell evaluates it for every line; write x=${…}; PS4='$x '",
    "BASH_ENV": "bash evaluates it when it starts; write export X=${…} and BASH_ENV='$X'",
    "ENV": "an interactive shell evaluates it when it starts; write export X=${…} and ENV='$X'",
    "PS1": "the shell evaluates it when it prints its prompt; write export X=${…} and PS1='$X '",
    "trap": "the shell runs the text of a trap as code; write x=${…}; trap '… \"$x\"' EXIT",
    "alias": 'the shell runs the text of an alias as code; write x=${…} and a function that has "$x"',
    "functions": 'zsh runs this text as code; write x=${…} and a function that has "$x"',
    "compgen": "bash evaluates these words again; write x=${…}; compgen -W '$x'",
    "mapfile": "bash runs this text as code; write a function and name it",
    "list": "bash evaluates a quoted list again; write declare -a x=(${…})",
    ">&": "bash reads a file name behind `>&` twice; write > ${…} 2>&1",
}


class Word(Struct):
    """A word of a command: its text without quotes, its offsets, and the redirection in front of it, if any."""

    text: str
    start: int
    end: int
    redirect: str = ""


class Verdict(Struct, frozen=True):
    """What holds for a value: the form it must have, or why no value can be here."""

    form: Form = ""
    refusal: str = ""


_FREE = Verdict()
_NUMBER = Verdict("number")
_NAME = Verdict("name")


def shell_of(program: str) -> Shell:
    """The shell whose rules hold for a program; `sh` stands for dash, busybox and bash."""
    name = program.rpartition("/")[2]
    return cast("Shell", name) if name in ("bash", "ksh", "mksh", "zsh") else "sh"


def without_quotes(text: str) -> str:
    """The text of a word without its quotes: enough to recognise commands, options and names."""
    return text if text.isalnum() else text.translate(_NO_QUOTES)


_NO_QUOTES = str.maketrans("", "", "\\'\"")


class Rules:
    """The rules for the words of one command: which word is the command, and the options before each word."""

    def __init__(self, words: Sequence[Word], shell: Shell) -> None:
        self.shell = shell
        self.redirects = [word for word in words if word.redirect]
        self.words = [word for word in words if not word.redirect]
        self.texts = [word.text for word in self.words]
        self.first = self._first_word()
        self.command = self.texts[self.first] if self.first < len(self.texts) else ""

    def _first_word(self) -> int:
        """The number of the word that is the command, behind keywords, assignments and `command`."""
        at, count = 0, len(self.texts)
        while at < count:
            text = self.texts[at]
            if text == "function":
                at += 2
            elif text in _RUNNERS:
                at += 1
                while at < count and self.texts[at][:1] == "-":
                    at += 1
            elif text in PREFIXES or ASSIGNMENT.match(text):
                at += 1
            else:
                break
        return min(at, count)

    def verdict(self, number: int, before: str) -> Verdict:
        """What holds for a value in a word, behind this part of the word."""
        if number < self.first:
            return self._check_assignment(before)
        if number == self.first:
            return _FREE
        command = self.command
        if command in _DECLARERS:
            return self._check_declaration(number, before)
        if command in _TAKE_NAMES:
            return self._check_names(number, before)
        if command in ("[[", "[", "test"):
            return self._check_test(number)
        is_printing = command in ("printf", "print")
        found = self._check_printf(number) if is_printing else self._check_other(command, number)
        return self._check_option(number, before) if found is _FREE else found

    def names_declared(self) -> tuple[list[str], list[str], list[str]]:
        """Names that this command makes integers, maps, and references: the value of a reference is a name."""
        if self.command not in _DECLARERS:
            return [], [], []
        names = [text.partition("=")[0].rstrip("+") for text in self.texts[self.first + 1 :]]
        count = len(self.texts)
        options = self._options(count)
        are_references = self.command == "nameref" or ("n" in options and self.shell != "zsh")
        kinds = (self._is_integer(count), "A" in options, are_references)
        integers, maps, references = (names if is_kind else [] for is_kind in kinds)
        return integers, maps, references

    def words_evaluated(self, form: Form) -> Iterator[Word]:
        """The words with variables that this command evaluates as numbers, or as names."""
        for number in range(self.first + 1, len(self.texts)) if self.command in _EVALUATE else ():
            if self.verdict(number, self.texts[number].partition("$")[0]).form == form:
                yield self.words[number]

    def words_refused(self) -> Iterator[tuple[Word, str]]:
        """The words that the shell runs as code, each with the name of its rule."""
        for number, word in enumerate(self.words):
            before = self.texts[number].partition("$")[0]
            if before != self.texts[number] and (found := self.verdict(number, before)).refusal:
                yield word, next(name for name, text in BY_HAND.items() if text == found.refusal)

    def with_command(self, words: Sequence[str]) -> Rules:
        """The rules for these words in place of the one that is the command."""
        at = self.words[self.first]
        others = [Word(text, at.end, at.end) for text in words[1:]]
        whole = [*self.words[: self.first], Word(words[0], at.start, at.end), *others, *self.words[self.first + 1 :]]
        return Rules([*whole, *self.redirects], self.shell)

    def target(self, word: Word) -> Verdict:
        """What holds for a value in the target of a redirection."""
        if word.redirect == ">&" and self.shell in ("bash", "sh"):
            return Verdict(refusal=BY_HAND[">&"]) if self.shell == "bash" else _NUMBER
        return _FREE

    def _options(self, number: int) -> str:
        """The letters of the options before a word."""
        found = [text for text in self.texts[self.first + 1 : number] if text[:1] in ("-", "+")]
        return "".join(text[1:] for text in found)

    def _is_integer(self, number: int) -> bool:
        options = self._options(number)
        is_float = self.shell in _CALCULATING and any(letter in options for letter in "EFX")
        return self.command in ("integer", "float") or "i" in options or is_float

    def _check_assignment(self, before: str) -> Verdict:
        """A value behind `NAME=`; a name that counts is known only at the end of the text."""
        name = before.partition("=")[0].rstrip("+").partition("[")[0]
        if name == "BASH_ALIASES" or (self.shell == "zsh" and name in _ALIASES):
            return Verdict(refusal=BY_HAND["alias"])
        if self.shell == "zsh" and name in ("functions", "PROMPT4"):
            return Verdict(refusal=BY_HAND["PS4" if name == "PROMPT4" else name])
        if name in ("PS4", "BASH_ENV") or (name == "ENV" and self.starts_interactive()):
            return Verdict(refusal=BY_HAND[name])
        counters = _COUNTERS["zsh" if self.shell == "zsh" else "sh"]
        return _NUMBER if name in counters else _FREE

    def starts_interactive(self) -> bool:
        """Does this command start a shell that prints prompts and reads the file of `ENV`?"""
        if not self.command.endswith("sh"):
            return False
        options = takewhile(lambda text: text[:1] in ("-", "+"), self.texts[self.first + 1 :])
        return any("i" in option for option in options if option[:2] != "--")

    def _check_declaration(self, number: int, before: str) -> Verdict:
        """A value in an argument of `declare` and its kin."""
        name, equals, value = before.partition("=")
        options = self._options(number)
        if not equals:
            return _NAME
        if name[:1] in ("-", "+"):
            return _FREE
        if self._is_integer(number):
            return _NUMBER
        if self.command == "nameref" or "n" in options:
            return _NAME
        if self.shell in ("bash", "sh"):
            is_list = "a" in options or "A" in options
            if is_list and value.startswith("("):
                return Verdict(refusal=BY_HAND["list"])
            if not value and (is_list or self.command in ("declare", "typeset", "local")):
                return Verdict("list")
        return self._check_assignment(before)

    def _check_names(self, number: int, before: str) -> Verdict:
        """A value in an argument of a command that takes names, or in one of its options."""
        option = self.texts[number - 1]
        is_map = self.command in ("mapfile", "readarray")
        if is_map and (_CALLBACK.fullmatch(option) or _CALLBACK.match(before)):
            return Verdict(refusal=BY_HAND["mapfile"])
        if option in _OWN_NUMBER.get(self.command, ()):
            return _NUMBER
        if self.command == "read" and ("?" in before or option == "-d" or (option in _OWN_TEXT and self._has_prompt())):
            return _FREE
        return _FREE if is_map and option == "-d" else _NAME

    def _has_prompt(self) -> bool:
        """Has `read` a prompt as an option with a text? Elsewhere `-p` stands alone."""
        return self.shell in ("sh", "bash")

    def _check_test(self, number: int) -> Verdict:
        """A value in a test: an operand of a comparison, of `-v` or of `-t`."""
        before = self.texts[number - 1]
        after = self.texts[number + 1] if number + 1 < len(self.texts) else ""
        if before in ("-v", "-R"):
            return _NAME
        compares = before in _COMPARES or after in _COMPARES
        if compares and (self.command == "[[" or self.shell in ("ksh", "mksh")):
            return _NUMBER
        return _NUMBER if before == "-t" and self.shell in _CALCULATING else _FREE

    def _check_printf(self, number: int) -> Verdict:
        """A value for `printf`: a name, the format, or an argument that zsh and ksh evaluate if it is a number."""
        at = self.first + 1
        while at < len(self.texts) and self.texts[at][:1] == "-" and len(self.texts[at]) > 1:
            if self.texts[at].startswith("-v") and number == at + (self.texts[at] == "-v"):
                return _NAME
            is_ended = self.texts[at] == "--" or "f" in self.texts[at]
            at += 2 if self.texts[at] in ("-v", "-u") else 1
            if is_ended:
                break
        if self.command == "print" and not any(text[:1] == "-" and "f" in text for text in self.texts[1:at]):
            return _FREE
        if number <= at:
            return _FREE
        if self.shell not in _CALCULATING:
            return _FREE
        kinds = _argument_kinds(self.texts[at])
        return _FREE if kinds and kinds[(number - at - 1) % len(kinds)] else _NUMBER

    def _check_option(self, number: int, before: str) -> Verdict:
        """A value that may be an option which the command evaluates, as `-va[$(...)]` is for `printf`."""
        if self.shell not in _EVALUATE_OPTIONS.get(self.command, ()):
            return _FREE
        earlier = self.texts[self.first + 1 : number]
        if "--" in earlier or any(text[:1] not in ("-", "+") or len(text) < 2 for text in earlier):
            return _FREE
        if before:
            return _NAME if before[0] in "-+" else _FREE
        # `printf -vNAME` alone has no format and does nothing.
        return _FREE if self.command == "printf" and number == len(self.texts) - 1 else Verdict("operand")

    def _check_other(self, command: str, number: int) -> Verdict:
        """A value in an argument of another command."""
        option = self.texts[number - 1]
        if command == "let" or (command == "repeat" and number == self.first + 1 and self.shell == "zsh"):
            return _NUMBER
        if command in _TAKE_NUMBER or (command == "ulimit" and self.shell != "zsh"):
            return _NUMBER if self.shell in _CALCULATING else _FREE
        if (command == "wait" and option == "-p") or (command == "set" and option in ("-A", "+A")):
            return _NAME
        if command == "alias":
            return Verdict(refusal=BY_HAND["alias"])
        if command in ("compgen", "complete") and option in ("-W", "-C"):
            return Verdict(refusal=BY_HAND["compgen"])
        if command == "trap":
            operands = [at for at in range(self.first + 1, len(self.texts)) if self.texts[at] not in ("--", "-p", "-l")]
            return Verdict(refusal=BY_HAND["trap"]) if operands[:1] == [number] else _FREE
        return _FREE


def _argument_kinds(text: str) -> list[bool]:
    """For each argument of a format: is it taken as a text? Empty if the format is not written out."""
    if re.search(r"\$[A-Za-z_{(]|`", text):
        return []
    kinds: list[bool] = []
    for found in _DIRECTIVE.finditer(text):
        if found[0] == "%%":
            continue
        kinds += [False] * (found[0].count("*"))
        kinds.append(found[3] in _TEXT_DIRECTIVES)
    return kinds or [True]
