"""Finds second interpreters in a command: the words that `sh -c`, `awk` or `ssh` read as code, and who reads its input.

    sh -c "echo ${x}"      the word behind `-c`              echo "${x}" | sh     the standard input
    awk "/${x}/" file      the first operand                 eval a ${x}          every operand

A value in such code is read a second time. The command still runs: its author may want just that. `resile check` warns
of it, and `HINTS` has the form in which the value stays a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from resile.languages.shell.interpreter_table import NAMED_NEXT, PROGRAMS, SHELLS, WRAPPERS, Program

_SPLITS = r"-[A-Za-z0-9]*S|--split-string"
_SHELL_CODE = r"-[A-Za-z]*c[A-Za-z]*|--command|--init-command"
_PYTHON_CODE = r"-[A-Za-z]*c"
_AWKS = frozenset(("awk", "gawk", "mawk", "nawk"))
_SEDS = frozenset(("sed", "gsed"))
_AWK_CODE = r"-[eE]|--source"
_AWK_FILE = r"-[A-Za-z]*f|--file|--exec"
_SED_FILE = r"-[A-Za-z]*f|--file"
_TAKES_WORD = {
    **{name: program.takes for name, program in PROGRAMS.items()},
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
_CALLBACK = r"-[a-z]*C"
_MAPS = ("mapfile", "readarray")
_ARGUMENTS = (":::", "::::", ":::+", "::::+")
SUSPECTS = frozenset(
    ("eval", "source", ".", "watch", "at", "batch", "env", "xargs", *_MAPS, *SHELLS, *PROGRAMS, *_AWKS, *_SEDS)
)
"""Words without which no second interpreter is in a command; so are shells and Pythons."""


def is_suspect(word: str) -> bool:
    """May this word name a second interpreter?"""
    return word in SUSPECTS or word.endswith("sh") or word.startswith(("python", "pypy"))


def code_words(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The words of a command that are code, by number, each with the form that makes it code."""
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        rest = range(number + 1, len(words))
        if name in SHELLS:
            yield from _behind_option(words, rest, "fish -c" if name == "fish" else "sh -c", _SHELL_CODE, "sh")
        elif _is_python(name):
            yield from _behind_option(words, rest, "python -c", _PYTHON_CODE, "python")
        elif name == "env":
            yield from _behind_option(words, rest, "env -S", _SPLITS, "env")
        elif is_suspect(name) and _is_command(words, number):
            if name in PROGRAMS:
                yield from _program_words(words, rest, name, PROGRAMS[name])
            yield from _own_words(words, rest, name)


def _own_words(words: Sequence[str], rest: range, name: str) -> Iterator[tuple[int, str]]:
    """The code in the words of a program that reads them in a way of its own."""
    if name in _AWKS:
        yield from _behind_option(words, rest, "awk", _AWK_CODE)
        if not any(re.match(f"{_AWK_FILE}|{_AWK_CODE}", words[at]) for at in rest):
            yield from ((at, "awk") for at in _operands(words, rest, "awk")[:1])
    elif name in _SEDS:
        yield from _sed_words(words, rest)
    elif name == "eval":
        yield from ((at, "eval") for at in rest)
    elif name == "ssh":
        yield from ((at, "ssh") for at in _operands(words, rest, "ssh")[1:])
    elif name == "parallel":
        yield from _parallel_words(words, rest)
    elif name == "watch" and not {"-x", "--exec"}.intersection(words):
        yield from ((at, name) for at in _operands(words, rest, "watch"))


def _program_words(words: Sequence[str], rest: range, name: str, program: Program) -> Iterator[tuple[int, str]]:
    """The code in the words of a program of the table."""
    for row in program.rows:
        operands = _operands(words, rest, name) if row.commands or row.operands >= 0 else []
        command = max(row.operands - 1, 0)
        if row.commands and (len(operands) <= command or words[operands[command]] not in row.commands):
            continue
        if row.operands >= 0:
            yield from ((at, row.form) for at in operands[row.operands :])
        for at, form in _behind_option(words, rest, row.form, row.option, name, program) if row.option else ():
            if re.search(row.only, words[at]):
                yield from ((end, form) for end in (range(at, rest.stop) if row.is_rest else (at,)))


def _parallel_words(words: Sequence[str], rest: range) -> Iterator[tuple[int, str]]:
    """The command of `parallel`; where it has none, its arguments are commands."""
    command, end = _parallel_command(words, rest)
    if not {"-q", "--quote"}.intersection(words):
        yield from ((at, "parallel") for at in command)
    if _appends_code([words[at] for at in command]):
        yield from ((at, "parallel") for at in range(end, rest.stop))


def _parallel_command(words: Sequence[str], rest: range) -> tuple[range, int]:
    """The words of the command of `parallel`, and where its arguments begin."""
    end = next((at for at in rest if words[at] in _ARGUMENTS), rest.stop)
    operands = _operands(words, range(rest.start, end), "parallel")
    return range(operands[0] if operands else end, end), end


def _appends_code(command: Sequence[str]) -> bool:
    """Does a command read a word behind its own words as code, or is that word a command of its own?"""
    return not command or len(command) in (at for at, _ in code_words([*command, ""]))


def reader_of_input(words: Sequence[str]) -> str:
    """The form in which a command reads its standard input as code; empty if it does not."""
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        if not is_suspect(name) or not _is_command(words, number):
            continue
        rest = range(number + 1, len(words))
        if name == "xargs":
            return "xargs sh -c" if _puts_input_into_code(words, rest) else ""
        if name in SHELLS:
            return "sh" if _reads_input(words, rest, "sh", _SHELL_CODE) else ""
        if _is_python(name):
            return "python" if _reads_input(words, rest, "python", _PYTHON_CODE) else ""
        if found := _own_reader(words, rest, name):
            return found
        if name in PROGRAMS and PROGRAMS[name].reads:
            return _program_reader(words, rest, name, PROGRAMS[name])
    return ""


def _own_reader(words: Sequence[str], rest: range, name: str) -> str:
    """The form in which a program with rules of its own reads its standard input as code."""
    if name in ("source", ".") and _reads_input(words, rest, "sh", _SHELL_CODE):
        return "source"
    if name == "ssh":
        far = [words[at] for at in _operands(words, rest, "ssh")[1:]]
        return "ssh" if not far or reader_of_input(" ".join(far).split()) else ""
    if name in ("at", "batch"):
        return "sh"
    if name in _AWKS:
        return "awk" if _has_file(words, rest, _AWK_FILE) else ""
    if name in _SEDS:
        return "sed" if _has_file(words, rest, _SED_FILE) and "--sandbox" not in words else ""
    if name == "parallel":
        command, end = _parallel_command(words, rest)
        return name if end == rest.stop and _appends_code([words[at] for at in command]) else ""
    if name in _MAPS:
        called = [words[at].rpartition("C")[2].split() for at, _ in _behind_option(words, rest, name, _CALLBACK)]
        return "mapfile" if any(call[:1] == ["let"] or _appends_code([*call, "0"]) for call in called) else ""
    return ""


def _program_reader(words: Sequence[str], rest: range, name: str, program: Program) -> str:
    """The form in which a program of the table reads its standard input as code."""
    if any(True for _ in _program_words(words, rest, name, program)):
        return ""
    operands = _operands(words, rest, name)
    if program.file and any(re.fullmatch(program.file, words[at].partition("=")[0]) for at in rest):
        return program.reads if _has_file(words, rest, program.file) else ""
    is_named = any(words[at] in ("-", *_STANDARD_INPUT) for at in rest)
    if program.needs_dash or (program.has_script and operands):
        return program.reads if is_named and (not operands or words[operands[0]] in ("-", *_STANDARD_INPUT)) else ""
    return program.reads


def _has_file(words: Sequence[str], rest: range, option: str) -> bool:
    """Does an option name the standard input as the file with the code?"""
    found = [words[at].rpartition("=")[2] for at, _ in _behind_option(words, rest, "file", option)]
    return any(re.sub(r"^-[A-Za-z]*f(?=[-/])", "", word) in ("-", *_STANDARD_INPUT) for word in found)


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
    return any(mark in command[at] for at, _ in code_words(command)) if mark else _appends_code(command)


def runs_files(words: Sequence[str]) -> str:
    """The form in which a command runs the file that it is given: a shell, or `source`; empty if it does not."""
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        if _is_command(words, number) and (name in ("source", ".") or name in SHELLS):
            return "source" if name in ("source", ".") else "sh -c"
    return ""


def script_files(words: Sequence[str]) -> Iterator[str]:
    """The files that a command runs: itself, if it has a folder, and the script of an interpreter."""
    for number, word in enumerate(words):
        if not _is_command(words, number):
            continue
        name = word.rpartition("/")[2]
        rest = range(number + 1, len(words))
        program = PROGRAMS.get(name)
        if "/" in word:
            yield word
        file = _AWK_FILE if name in _AWKS else _SED_FILE if name in _SEDS else program.file if program else ""
        if file:
            yield from (words[at].rpartition("=")[2] for at, _ in _behind_option(words, rest, "file", file))
        is_script = name in SHELLS or name in ("source", ".") or _is_python(name)
        kind = "python" if _is_python(name) else name if program else "sh"
        if is_script or (program and program.has_script):
            yield from (words[at] for at in _operands(words, rest, kind)[:1])


def _is_python(name: str) -> bool:
    return name.rstrip("0123456789.") in ("python", "pypy")


def _is_command(words: Sequence[str], number: int) -> bool:
    """Is this word run as a command: the first one, or one behind `sudo`, `env` and the like?"""
    if number == 0 or words[number - 1] == "--":
        return True
    return words[0].rpartition("/")[2] in WRAPPERS and words[number - 1] not in NAMED_NEXT


def _behind_option(
    words: Sequence[str], rest: range, form: str, option: str, kind: str = "", program: Program | None = None
) -> Iterator[tuple[int, str]]:
    """The word behind each option that announces code, or the option itself if the code is glued to it.

    Options of this kind end at the first operand: it is a script, and what follows are its arguments.
    """
    skips = False
    ends = "" if program and not program.has_script else kind
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
            skips = word in _TAKES_WORD[kind] if kind else False


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
