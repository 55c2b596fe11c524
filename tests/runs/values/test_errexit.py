"""A command of several lines stops at the first line that fails; files of other systems keep their meaning."""

from __future__ import annotations

import pytest

from tests.cli.program import Program

FLOW = """\
resile: 1
name: flow
inputs: {word: {default: one}}
ROOT
steps:
  a:
    shell: COMMAND
    STEP
"""
TWO = "|\n      false\n      echo on >done\n    "
PIPE = "|\n      false | cat\n      echo on >done\n    "
VALUE = '"echo ${inputs.word} >done; false; true"'


@pytest.mark.parametrize(
    ("command", "root", "step", "code", "goes_on"),
    [
        (TWO, "", "", 1, False),
        (TWO, "", "errexit: false", 0, True),
        (TWO, "errexit: false", "", 0, True),
        (TWO, "errexit: false", "errexit: true", 1, False),
        (PIPE, "", "", 0, True),
        (PIPE, "", "shell_program: bash", 1, False),
        (VALUE, "", "", 0, True),
    ],
)
def test_where_a_command_stops(program: Program, command: str, root: str, step: str, code: int, goes_on: bool) -> None:
    """The first line that fails ends the step, unless the file says no; a value makes no line of its own."""
    program.write(FLOW.replace("COMMAND", command).replace("ROOT", root or "max_parallel: 1").replace("STEP", step))
    done = program.call("run", "flow.yaml", "--input", "word=one\nfalse\ntwo")
    assert (done.returncode, (program.folder / "done").exists()) == (code, goes_on)


def test_a_long_command_stops_too(program: Program) -> None:
    """A command that is too long for an argument is a file for the shell, which stops as well."""
    program.write(FLOW.replace("COMMAND", TWO.replace("false", "false # " + 140_000 * "x")).replace("ROOT\n", ""))
    text = (program.folder / "flow.yaml").read_text().replace("STEP", "")
    program.write(text)
    assert program.call("run", "flow.yaml").returncode == 1
    assert not (program.folder / "done").exists()


def test_check_says_where_the_meaning_changed(program: Program) -> None:
    """A file that is silent gets a notice with the place; one that says it, either way, gets none."""
    for step, codes in (("", ["since-0.2"]), ("errexit: true", []), ("errexit: false", [])):
        program.write(FLOW.replace("COMMAND", TWO).replace("ROOT\n", "").replace("STEP", step))
        (file,) = program.json("check", "flow.yaml")["files"]
        assert [found["code"] for found in file["diagnostics"]] == codes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("torc.yaml", "name: t\njobs:\n  - name: a\n    command: |\n      false\n      echo on >done\n"),
        ("prodigy.yml", "- shell: |\n    false\n    echo on >done\n"),
        (
            "visor.yaml",
            "version: '1.0'\nsteps:\n  a:\n    type: command\n    exec: |\n      false\n      echo on >done\n",
        ),
    ],
)
def test_files_of_other_systems_go_on(program: Program, name: str, text: str) -> None:
    """Their command goes on after a line that fails, and so does what `migrate` makes of the file."""
    program.write(text, name)
    for file in (name, "native.yaml"):
        assert program.call("run", file).returncode == 0
        assert (program.folder / "done").read_text() == "on\n"
        (program.folder / "done").unlink()
        program.write(program.call("migrate", name, code=0).stdout, "native.yaml")
