"""The completion scripts: they parse, and bash really completes with them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from resile.cli.complete import bash, fish, zsh
from resile.cli.table import COMMANDS
from tests.cli.program import Program

SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_scripts_are_whole(program: Program, shell: str) -> None:
    """The command prints the script, every marker filled, every option in it."""
    script = program.call("completion", shell, code=0).stdout
    assert script == SCRIPTS[shell]()
    assert "@COMMANDS@" not in script
    for command in COMMANDS:
        for option in command.options:
            assert option.key in script


@pytest.mark.parametrize("shell", SCRIPTS)
def test_scripts_parse(shell: str) -> None:
    """Each shell that is there reads its script without complaint."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n"], input=SCRIPTS[shell](), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def complete(program: Program, line: str) -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    listed = " ".join(f"'{word}'" for word in words)
    script = (
        f"{bash()}\nCOMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _resile; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    # `resile` itself is found as a function, because the package need not be installed where the tests run.
    resile = f"resile() {{ '{program.argv[0]}' -m resile.cli.main \"$@\"; }}\n"
    done = subprocess.run(
        ["bash", "-c", resile + script],
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
        ("resile re", ["resume", "rerun", "reset"]),
        ("resile --db x.db ch", ["check"]),
        ("resile events ", ["list", "follow"]),
        ("resile events list 1 --t", ["--type"]),
        ("resile dlq s", ["show", "stats"]),
        ("resile dlq retry 1 --f", ["--filter", "--force"]),
        ("resile dlq export 1 f", ["flow.yaml"]),
        ("resile events list 1 --type circuit_h", ["circuit_half_opened"]),
        ("resile run --max", ["--max-parallel"]),
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
