"""Renders every context with every payload and runs what is accepted, many commands in each process of a shell.

A command runs in a subshell with an empty input; the batch then looks for the canary. The commands of one batch share
a new folder, so a file that one of them makes can't be taken for another's canary: only `CANARY` counts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from resile.languages.references import MISSING, ValueRefused
from resile.languages.shell.grammar import read
from resile.languages.shell.lexer import Hole
from resile.languages.shell.quoting import render_shell
from tests.languages.shell.fuzz.contexts import POSIX, Context
from tests.languages.shell.fuzz.payloads import CANARY

BATCH = 400
SECONDS_MAX = 60
# The programs that contexts find; `perl` and `python3` take long to start, so only one shell has them.
PROGRAMS_FOUND = tuple("awk bash cat dash env find nohup rm sed sh timeout touch tr xargs".split())  # noqa: SIM905
SLOW_PROGRAMS = ("perl", "python3")
SLOW_SHELL = "dash"
MARK = "@-mark-@"
COMMANDS = {"busybox": ["busybox", "sh"], POSIX: ["bash", "--posix"]}
PROGRAMS = {"busybox": "ash", POSIX: "sh"}
PRELUDE = "p() { printf '<%s>' \"$@\"; }\n"


class Case(NamedTuple):
    """One rendered command, and the context and value that it comes from."""

    shell: str
    context: Context
    value: str
    command: str
    is_good: bool = False


class Outcome(NamedTuple):
    """What a command printed, and whether a canary appeared."""

    case: Case
    output: bytes
    has_canary: bool


def installed(shell: str) -> bool:
    """Is this shell here?"""
    return shutil.which(COMMANDS.get(shell, [shell])[0]) is not None


def holes(text: str, shell: str) -> list[Hole]:
    """The values of a context as the lexer judges them."""
    return [piece for piece in read(text, PROGRAMS.get(shell, shell)) if isinstance(piece, Hole)]


def render(text: str, value: str, shell: str) -> str:
    """A context with its value; raises ValueRefused."""
    return render_shell(text, lambda name: value if name == "v" else MISSING, PROGRAMS.get(shell, shell))


def cases(contexts: Iterable[Context], shell: str, values: Iterable[str]) -> Iterator[Case]:
    """Every command that is accepted; the safe form stands for a context that is refused or warned of."""
    for context in contexts:
        if shell not in context.shells:
            continue
        text = context.safe or context.text
        for value in values:
            if _hangs(shell, text, value):
                continue
            try:
                yield Case(shell, context, value, render(text, value, shell))
            except ValueRefused:
                continue


def _hangs(shell: str, text: str, value: str) -> bool:
    """Does this shell never end, from a plain file too? ksh with bytes that are no UTF-8 in a here-document."""
    return shell == "ksh" and "<<" in text and any("\udc80" <= character <= "\udcff" for character in value)


def outcomes(wanted: list[Case]) -> Iterator[Outcome]:
    """Run commands, in batches on as many threads as there are processors."""
    batches: list[list[Case]] = []
    for case in wanted:
        if not batches or len(batches[-1]) >= BATCH or batches[-1][0].shell != case.shell:
            batches.append([])
        batches[-1].append(case)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for done in pool.map(_run_batch, batches):
            yield from done


def _run_batch(batch: list[Case]) -> list[Outcome]:
    printed, errors = _printed(batch)
    if printed.count(f"\n{MARK}".encode()) <= len(batch):
        # ksh sometimes misses the end of a child and waits for ever; a payload would show again.
        printed, errors = _printed(batch)
    chunks = printed.split(f"\n{MARK}".encode())[1:]
    alarm = f"{MARK}!".encode()
    assert len(chunks) == len(batch) + 1, (batch[min(len(chunks), len(batch)) - 1], errors[-500:])
    assert not chunks[-1].endswith(alarm), ("a command left running made the canary", batch[0], batch[-1])
    pairs = zip(batch, chunks, strict=False)
    return [Outcome(case, chunk.removesuffix(alarm), chunk.endswith(alarm)) for case, chunk in pairs]


def _printed(batch: list[Case]) -> tuple[bytes, bytes]:
    """What the shell prints that runs these commands one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "cwd")
        empty.mkdir()
        script = Path(folder, "script")
        lines = [
            f"printf '\\n{MARK}'; ( eval {quote(case.command)} ) 2>/dev/null </dev/null; "
            f"[ -e {CANARY} ] && {{ printf '{MARK}!'; rm -f {CANARY}; }}\n"
            for case in batch
        ]
        end = f"wait; printf '\\n{MARK}'; [ -e {CANARY} ] && printf '{MARK}!'\n"
        script.write_bytes((PRELUDE + "".join(lines) + end).encode("utf-8", "surrogateescape"))
        programs = Path(folder, "bin")
        _link_programs(programs, batch[0].shell)
        program, *words = COMMANDS.get(batch[0].shell, [batch[0].shell])
        command = [str(shutil.which(program)), *words, str(script)]
        process = subprocess.Popen(
            command,
            cwd=empty,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**_ENVIRONMENT, "PATH": str(programs)},
        )
        try:
            return process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()


def _link_programs(folder: Path, shell: str) -> None:
    """Make a folder of the programs that the contexts may find; without it they would reach for `ssh` and `sudo`."""
    folder.mkdir()
    for name in (*PROGRAMS_FOUND, *(SLOW_PROGRAMS if shell == SLOW_SHELL else ())):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)


_ENVIRONMENT = {"HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
