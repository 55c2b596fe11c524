"""Completion: the candidates of `__complete`, and what each shell that is installed makes of them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from resile.cli.complete import SHIMS, answer
from resile.cli.grammar import Command
from resile.cli.table import ALIASES, COMMANDS, RENAMED
from tests.cli.program import Program

# How each shell is asked what it offers for the last of some words; `@RESILE@` is a command that runs `resile`.
FISH = """\
function resile; @RESILE@ $argv; end
@SHIM@
complete -C '@LINE@' | string replace -r '\\t.*' ''; true
"""
# Stands in for the function that would show candidates in an interactive shell.
ZSH = """\
compdef() { :; }
resile() { @RESILE@ "$@"; }
compadd() { while [[ $1 != -a ]]; do shift; done; print -rl -- ${(P)2}; }
_files() {
    local -a found
    found=(${words[CURRENT]}*(N))
    [[ $1 == -/ ]] && found=(${words[CURRENT]}*(N/))
    print -rl -- $found
}
@SHIM@
words=(@WORDS@); CURRENT=$#words; _resile || true
"""


@pytest.mark.parametrize("shell", SHIMS)
def test_shims(program: Program, shell: str) -> None:
    """The command prints the shim of a shell, which asks `resile __complete`, and the shell reads it if it is there."""
    script = program.call("completion", shell, code=0).stdout
    assert script == SHIMS[shell]
    assert "resile __complete -- " in script
    if shutil.which(shell) is not None:
        done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_option_is_offered(command: Command) -> None:
    """Behind a command each of its options is offered with its help."""
    lines = answer([*command.name.split(), "--"]).splitlines()
    assert lines[0] == "words"
    for option in command.options:
        assert f"{option.names[-1]}\t{option.help}" in lines


@pytest.mark.parametrize("old", [*ALIASES, *RENAMED])
def test_old_names_are_understood(old: str) -> None:
    """Behind another spelling of a command its options are offered, but the spelling itself is not."""
    new = ALIASES.get(old) or RENAMED[old]
    assert answer([*old.split(), "-"]) == answer([*new.split(), "-"])
    *first, last = old.split()
    assert last not in [line.partition("\t")[0] for line in answer([*first, last]).splitlines()]


def test_candidates_have_their_meaning() -> None:
    """The answer has a word for the shell, then a candidate on each line with its meaning behind a tab."""
    assert answer(["rere"]) == "words\n"
    meaning = "run all steps of a run again, or those that did not complete, or that changed"
    assert answer(["rer"]) == f"words\nrerun\t{meaning}\n"
    assert answer(["run", ""]) == "files\n"
    assert answer(["run", "x", "--output", ""]) == "folders\n"
    assert answer(["run", "x", "--color=never", "y"]) == "words\n"
    assert answer([]).startswith("words\nrun\t")


def bash(program: Program, words: list[str]) -> str:
    """A script in which bash completes the last of some words."""
    listed = " ".join(f"'{word}'" for word in words)
    # `resile` itself is found as a function, because the package need not be installed where the tests run.
    resile = f"resile() {{ '{program.argv[0]}' -m resile.cli.main \"$@\"; }}\n"
    call = f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _resile; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return f"{resile}{SHIMS['bash']}\n{call}"


def zsh(program: Program, words: list[str]) -> str:
    """A script in which zsh completes the last of some words."""
    script = ZSH.replace("@RESILE@", f"'{program.argv[0]}' -m resile.cli.main").replace("@SHIM@", SHIMS["zsh"])
    return script.replace("@WORDS@", " ".join(f"'{word}'" for word in words))


def fish(program: Program, words: list[str]) -> str:
    """A script in which fish completes the last of some words."""
    script = FISH.replace("@RESILE@", f"'{program.argv[0]}' -m resile.cli.main").replace("@SHIM@", SHIMS["fish"])
    return script.replace("@LINE@", " ".join(words))


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}


def complete(program: Program, line: str, shell: str = "bash") -> list[str]:
    """What a shell offers for the last word of a line."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [shell, "-c", SCRIPTS[shell](program, line.split(" "))],
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("resile re", ["resume", "rerun", "reset", "recover", "resources", "rehearse"]),
        ("resile --db x.db ch", ["check"]),
        ("resile events ", ["list", "follow"]),
        ("resile events list 1 --t", ["--type", "--token-file"]),
        ("resile dlq s", ["show", "stats"]),
        ("resile dlq retry 1 --f", ["--filter", "--force"]),
        ("resile dlq export 1 f", ["flow.yaml"]),
        ("resile events list 1 --type circuit_h", ["circuit_half_opened"]),
        ("resile run --max", ["--max-parallel", "--max-loops"]),
        ("resile run --color ", ["auto", "always", "never"]),
        ("resile run flow.yaml --output d", ["deep"]),
        ("resile run f", ["flow.yaml"]),
        ("resile check flow.yaml f", ["flow.yaml"]),
        ("resile run flow.yaml ", []),
        ("resile completion z", ["zsh"]),
        ("resile judge 1 test ret", ["retry", "retry-with"]),
        ("resile judge 1 test skip --output d", []),
        ("resile rehearse f", ["flow.yaml"]),
    ],
)
def test_bash_completes(program: Program, line: str, offered: list[str]) -> None:
    """Commands, options, spelled-out values, files and folders are offered where they belong."""
    program.write("resile: 1\n")
    (program.folder / "deep").mkdir()
    assert complete(program, line) == offered


@pytest.mark.parametrize("shell", SCRIPTS)
def test_shells_agree(program: Program, shell: str) -> None:
    """Each shell offers commands, options, choices, files and folders alike."""
    program.write("resile: 1\n")
    (program.folder / "deep").mkdir()
    offered = ["recover", "rehearse", "rerun", "reset", "resources", "resume"]
    assert sorted(complete(program, "resile re", shell)) == offered
    assert complete(program, "resile dlq st", shell) == ["stats"]
    assert complete(program, "resile run --no-f", shell) == ["--no-failure-routing"]
    assert complete(program, "resile completion z", shell) == ["zsh"]
    assert complete(program, "resile run f", shell) == ["flow.yaml"]
    assert [name.rstrip("/") for name in complete(program, "resile run x --output d", shell)] == ["deep"]


def test_bash_completes_runs(program: Program) -> None:
    """Where a run is expected the runs of the database are offered, and none where there is no database."""
    assert complete(program, "resile logs ") == []
    program.write('resile: 1\nname: one\nsteps:\n  only: {shell: "true"}\n')
    program.call("run", "flow.yaml", code=0)
    program.call("run", "flow.yaml", code=0)
    assert sorted(complete(program, "resile logs ")) == ["1", "2"]


def test_bash_completes_steps(program: Program) -> None:
    """Behind a run the names of its steps are offered."""
    program.write('resile: 1\nname: one\nsteps:\n  build: {shell: "true"}\n  bench: {shell: "true"}\n')
    program.call("run", "flow.yaml", code=0)
    assert complete(program, "resile logs 1 b") == ["build", "bench"]
    assert complete(program, "resile judge 1 be") == ["bench"]
    assert complete(program, "resile logs 7 b") == []
