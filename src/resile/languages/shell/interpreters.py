"""Finds second interpreters in a command: the words that `sh -c`, `awk` or `ssh` read as code, and who reads its input.

    sh -c "echo ${x}"      the word behind `-c`              echo "${x}" | sh     the standard input
    awk "/${x}/" file      the first operand                 eval a ${x}          every operand

A value in such code is read a second time. The command still runs: its author may want just that. `resile check` warns
of it, and `HINTS` has the form in which the value stays a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

COMPUTED = "computed"
HINTS = {
    "eval": "keep the code in single quotes: x=${…}; eval '… \"$x\" …'",
    "sh -c": "pass it as an argument: sh -c '… \"$1\"' sh ${…}",
    "sh": "pass it as an argument, and quote the code: sh -s -- ${…} <<'EOF', with \"$1\" in it",
    "su -c": "pass it as an argument: su -c '… \"$1\"' -- USER sh ${…}",
    "env -S": "pass it as an argument of its own: env -S 'COMMAND …' ${…}",
    "xargs sh -c": "pass it as an argument: xargs -I{} sh -c '… \"$1\"' sh {}",
    "functions": 'write a function that has "$x"',
    "flock -c": "pass it as an argument: flock FILE sh -c '… \"$1\"' sh ${…}",
    "script -c": "pass it as an environment variable: export X=${…}; script -c '… \"$X\"'",
    "watch": "let it run the words as they are: watch -x COMMAND ${…}",
    "parallel": "pass it as an environment variable: export X=${…}; parallel '… \"$X\" …'",
    "ssh": "pass it on standard input: printf '%s\\n' ${…} | ssh HOST 'read -r x; … \"$x\"'",
    "source": 'set a variable first: x=${…}, and write "$x" in quoted code',
    "python -c": "pass it as an argument: python3 -c '… sys.argv[1] …' ${…}",
    "python": "pass it as an argument, and quote the code: python3 - ${…} <<'EOF', with sys.argv[1] in it",
    "perl -e": "pass it as an environment variable: X=${…} perl -e '… $ENV{X} …'",
    "ruby -e": "pass it as an argument: ruby -e '… ARGV[0] …' -- ${…}",
    "node -e": "pass it as an argument: node -e '… process.argv[1] …' -- ${…}",
    "php -r": "pass it as an argument: php -r '… $argv[1] …' -- ${…}",
    "awk": "pass it as an environment variable: X=${…} awk '… ENVIRON[\"X\"] …'",
    "sed": "pass it to another program as an environment variable: X=${…} awk '{gsub(/…/, ENVIRON[\"X\"])} 1'",
    COMPUTED: "write its name: NAME ${…}",
    "trap": "let the trap expand the variable when it runs: trap '… \"$x\"' EXIT",
    "alias": 'write a function that has "$x" in place of the alias',
    "PS4": "let the shell expand the variable when it prints: PS4='$x '",
    "BASH_ENV": "let bash expand the variable when it starts: export X=${…} and BASH_ENV='$X'",
    "ENV": "let the shell expand the variable when it starts: export X=${…} and ENV='$X'",
    "compgen": "let bash expand the variable: compgen -W '$x'",
    "mapfile": "write a function and name it",
    "list": 'write declare -a x=("$y")',
    ">&": 'write > "$x" 2>&1',
}
"""How to write each of them so that the value stays a value."""

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "mksh", "ksh", "ash", "fish", "tcsh", "csh"))
# The option behind which code stands, and the name of that form. A shell's options end with the code: `-ec CODE`.
_BY_OPTION = {
    "perl": ("perl -e", r"-[A-Za-z0-9.]*[eE]"),
    "ruby": ("ruby -e", r"-[A-Za-z0-9.]*e"),
    "node": ("node -e", r"-p?e|-p|--eval|--print"),
    "nodejs": ("node -e", r"-p?e|-p|--eval|--print"),
    "php": ("php -r", r"-r"),
    "su": ("su -c", r"-c|--command"),
    "runuser": ("su -c", r"-c|--command"),
    "sg": ("su -c", r"-c"),
    "flock": ("flock -c", r"-c|--command"),
    "script": ("script -c", r"-[a-z]*c|--command"),
}
_SPLITS = r"-[A-Za-z0-9]*S|--split-string"
_SCRIPTED = frozenset(("perl", "ruby", "node", "nodejs", "php"))
_SHELL_CODE = r"-[A-Za-z]*c[A-Za-z]*"
_PYTHON_CODE = r"-[A-Za-z]*c"
_AWKS = frozenset(("awk", "gawk", "mawk", "nawk"))
_SEDS = frozenset(("sed", "gsed"))
_WRAPPERS = frozenset(
    ("sudo", "doas", "env", "nohup", "timeout", "nice", "ionice", "setsid", "stdbuf", "time", "xargs", "exec",
     "command", "builtin", "chroot", "busybox", "docker", "podman", "kubectl", "chronic", "unbuffer", "flock",
     "find", "ssh")
)  # fmt: skip
_TAKES_WORD = {
    "sh": frozenset(("-o", "+o", "-O", "+O", "--rcfile", "--init-file")),
    "awk": frozenset(("-F", "-v", "-i", "-l", "--assign", "--field-separator")),
    "sed": frozenset(("-l", "--line-length")),
    "ssh": frozenset(f"-{letter}" for letter in "BbcDEeFIiJLlmOopQRSWw"),
    "watch": frozenset(("-n", "--interval")),
    "env": frozenset(("-u", "-C", "--unset", "--chdir")),
    "xargs": frozenset(f"-{letter}" for letter in "adEILnPs"),
    "python": frozenset(("-m", "-W", "-X", "-I", "-r", "--require", "-d")),
}
_STANDARD_INPUT = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
SUSPECTS = frozenset(
    (
        "eval",
        "source",
        ".",
        "watch",
        "parallel",
        "ssh",
        "python",
        "at",
        "batch",
        "env",
        "xargs",
        *_BY_OPTION,
        *_AWKS,
        *_SEDS,
    )
)
"""Words without which no second interpreter is in a command; so are shells and Pythons."""


def complaint(form: str) -> str:
    """What is wrong with a value that is read in this form."""
    if form == COMPUTED:
        return "the name of the command is computed, so it may read the value as code"
    return f"`{form}` reads the value a second time, as code"


def is_suspect(word: str) -> bool:
    """May this word name a second interpreter?"""
    return word in SUSPECTS or word.endswith("sh") or word.startswith(("python", "pypy"))


def code_words(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The words of a command that are code, by number, each with the form that makes it code."""
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        rest = range(number + 1, len(words))
        if name in _SHELLS:
            yield from _behind_option(words, rest, "sh -c", _SHELL_CODE, "sh")
        elif _is_python(name):
            yield from _behind_option(words, rest, "python -c", _PYTHON_CODE, "python")
        elif name in _BY_OPTION:
            ends = "python" if name in _SCRIPTED else ""
            yield from _behind_option(words, rest, *_BY_OPTION[name], ends)
        elif name == "env":
            yield from _behind_option(words, rest, "env -S", _SPLITS, "env")
        elif not is_suspect(name) or not _is_command(words, number):
            continue
        elif name in _AWKS and not any(words[at].startswith(("-f", "--file")) for at in rest):
            yield from ((at, "awk") for at in _operands(words, rest, "awk")[:1])
        elif name in _SEDS:
            yield from _sed_words(words, rest)
        elif name == "eval":
            yield from ((at, "eval") for at in rest)
        elif name == "ssh":
            yield from ((at, "ssh") for at in _operands(words, rest, "ssh")[1:])
        elif name in ("watch", "parallel") and not {"-x", "--exec", "-q"}.intersection(words):
            end = words.index(":::") if ":::" in words else len(words)
            yield from ((at, name) for at in _operands(words, rest, "watch") if at < end)


def reader_of_input(words: Sequence[str]) -> str:
    """The form in which a command reads its standard input as code; empty if it does not."""
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        if not is_suspect(name) or not _is_command(words, number):
            continue
        rest = range(number + 1, len(words))
        if name == "xargs":
            return "xargs sh -c" if _puts_input_into_code(words, rest) else ""
        if name in _SHELLS:
            return "sh" if _reads_input(words, rest, "sh", _SHELL_CODE) else ""
        if _is_python(name):
            return "python" if _reads_input(words, rest, "python", _PYTHON_CODE) else ""
        if name in ("source", ".") and _reads_input(words, rest, "sh", _SHELL_CODE):
            return "source"
        if name == "ssh":
            command = [words[at] for at in _operands(words, rest, "ssh")[1:]]
            return "ssh" if not command or reader_of_input(" ".join(command).split()) else ""
        if name in ("at", "batch"):
            return "sh"
    return ""


def _puts_input_into_code(words: Sequence[str], rest: range) -> bool:
    """Does `xargs` put its input into the code of a command: in place of a mark, or as the word behind `-c`?"""
    operands = _operands(words, rest, "xargs")
    if not operands:
        return False
    mark = ""
    for at in range(rest.start, operands[0]):
        found = re.fullmatch(r"-[0-9a-z]*I(.*)|(?:-i|--replace(?:=|$))(.*)", words[at])
        if found is not None:
            mark = found[1] or found[2] or (words[at + 1] if words[at].endswith("I") else "{}")
    command = list(words[operands[0] :])
    code = [at for at, _ in code_words(command if mark else [*command, ""])]
    return any(mark in command[at] for at in code) if mark else len(command) in code


def runs_files(words: Sequence[str]) -> str:
    """The form in which a command runs the file that it is given: a shell, or `source`; empty if it does not."""
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        if _is_command(words, number) and (name in ("source", ".") or name in _SHELLS):
            return "source" if name in ("source", ".") else "sh -c"
    return ""


def _is_python(name: str) -> bool:
    return name.rstrip("0123456789.") in ("python", "pypy")


def _is_command(words: Sequence[str], number: int) -> bool:
    """Is this word run as a command: the first one, or one behind `sudo`, `env` and the like?"""
    return number == 0 or words[0].rpartition("/")[2] in _WRAPPERS or words[number - 1] == "--"


def _behind_option(
    words: Sequence[str], rest: range, form: str, option: str, ends: str = ""
) -> Iterator[tuple[int, str]]:
    """The word behind each option that announces code, or the option itself if the code is glued to it.

    Options of the kind `ends` end at the first operand: it is a script, and what follows are its arguments.
    """
    skips = False
    for at in rest:
        word = words[at]
        if skips or word[:1] not in ("-", "+") or word == "-":
            if ends and not skips:
                return
            skips = False
        elif re.fullmatch(option, word):
            after = at + 1
            while ends == "sh" and after < len(words) and words[after][:1] in ("-", "+"):
                after += 1
            if after < len(words):
                yield after, form
            if ends == "sh" or form == "python -c":
                return
            skips = True
        elif re.match(option, word) and (not word.startswith("--") or re.fullmatch(option, word.partition("=")[0])):
            yield at, form
        else:
            skips = word in _TAKES_WORD[ends] if ends else False


def _operands(words: Sequence[str], rest: range, kind: str) -> list[int]:
    """The operands of a command, by number, without its options and their arguments."""
    found: list[int] = []
    takes, skips, options_end = _TAKES_WORD[kind], False, False
    for at in rest:
        word = words[at]
        if skips:
            skips = False
        elif word == "--" and not options_end:
            options_end = True
        elif word[:1] == "-" and len(word) > 1 and not options_end:
            skips = word in takes
        else:
            found.append(at)
            # Options of `ssh` and of `watch` stand before the command, which has options of its own.
            options_end = options_end or (kind in ("watch", "xargs") or (kind == "ssh" and len(found) > 1))
    return found


def _sed_words(words: Sequence[str], rest: range) -> Iterator[tuple[int, str]]:
    """The scripts of `sed`; with `--sandbox` they can't run commands."""
    if any(words[at] == "--sandbox" for at in rest):
        return
    scripts = [at for at in rest if re.match(r"-[A-Za-z]*e|--expression", words[at])]
    for at in scripts:
        is_whole = re.fullmatch(r"-[A-Za-z]*e|--expression", words[at])
        yield (at + 1 if is_whole else at), "sed"
    if not scripts and not any(words[at].startswith(("-f", "--file")) for at in rest):
        yield from ((at, "sed") for at in _operands(words, rest, "sed")[:1])


def _reads_input(words: Sequence[str], rest: range, kind: str, code: str) -> bool:
    """Does an interpreter with these words run its standard input: has it no code and no file?"""
    skips = False
    for at in rest:
        word = words[at]
        if skips:
            skips = False
        elif re.fullmatch(code, word) or word == "-m":
            return False
        elif word in ("-", "-s", *_STANDARD_INPUT) or (kind == "sh" and re.fullmatch(r"-[a-z]*s[a-z]*", word)):
            return True
        elif word[:1] in ("-", "+"):
            skips = word in _TAKES_WORD[kind]
        else:
            return False
    return True
