"""`pr`, `files` and `branch` of a Visor file come from git, as they were when the run started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.program import Program

TEXT = r"""
version: "1.0"
steps:
  shown:
    type: command
    exec: "printf '%s\n' '{{ pr.title }}' '{{ pr.author }}' '{{ pr.branch }}' '{{ pr.base }}' {{ fileCount }}
      {% for one in files %}{{ one.filename }}:{{ one.status }}:+{{ one.additions }}-{{ one.deletions }} {% endfor %}
      > ../shown"
  later: {type: command, depends_on: [shown], exec: "touch ../later", if: "branch === 'topic' && filesCount === 4"}
  gate:
    type: command
    exec: "echo x"
    fail_if: "!filesChanged.includes('new.txt') || pr.files.length !== metadata.filesCount || !metadata.hasChanges"
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A checkout whose branch `topic` has changes, committed, not committed, and unknown to git."""
    folder = tmp_path / "work"
    folder.mkdir()
    made = Program(folder)
    made.env["RESILE_DB"] = str(tmp_path / "db")
    git = ["git", "-c", "user.name=Ann", "-c", "user.email=a@b.c"]

    def call(*words: str) -> None:
        subprocess.run([*git, *words], cwd=folder, check=True, timeout=20)

    call("init", "-q", "-b", "main")
    for name in ("kept", "gone", "both"):
        (folder / name).write_text("one\n")
    made.write(TEXT, "flow.yaml")
    call("add", "-A")
    call("commit", "-qm", "base")
    call("checkout", "-qb", "topic")
    (folder / "new.txt").write_text("a\nb\n")
    (folder / "gone").unlink()
    call("add", "-A")
    call("commit", "-qm", "say what's new")
    (folder / "both").write_text("two\n")
    (folder / "unknown").write_text("x\n")
    return made


def test_a_run_sees_what_differs_from_the_base(program: Program) -> None:
    """Title and author are those of the last commit; what is not committed counts."""
    document = program.json("run", "flow.yaml", "--output", "../out", code=0)
    assert (program.folder.parent / "shown").read_text().splitlines() == [
        "say what's new", "Ann", "topic", "main", "4",
        "both:modified:+1-1", "gone:removed:+0-1", "new.txt:added:+2-0", "unknown:added:+0-0",
    ]  # fmt: skip
    assert (program.folder.parent / "later").exists()
    assert document["exit_code"] == 0


def test_the_base_can_be_another_one(program: Program) -> None:
    """`--base HEAD` leaves what is not committed; an unknown one is refused before anything runs."""
    program.json("run", "flow.yaml", "--output", "../out", "--base", "HEAD", code=1)
    shown = (program.folder.parent / "shown").read_text().splitlines()
    assert shown[3:] == ["HEAD", "2", "both:modified:+1-1", "unknown:added:+0-0"]
    error = program.json("run", "flow.yaml", "--base", "nowhere", code=2)["error"]
    assert (error["code"], error["message"]) == ("base", "--base nowhere: git knows no such commit")


def test_a_base_that_nothing_uses_is_refused(program: Program) -> None:
    """A native file, and a Visor file that does not ask for it."""
    for text in ("resile: 1\nsteps: [{shell: 'true'}]\n", "version: '1'\nsteps: {a: {type: noop}}\n"):
        program.write(text, "other.yaml")
        assert program.json("run", "other.yaml", "--base", "main", code=2)["error"]["code"] == "base"


def test_outside_of_a_checkout_there_are_no_files(tmp_path: Path) -> None:
    """The run goes on, with nothing to show."""
    program = Program(tmp_path)
    program.write(
        'version: "1.0"\nsteps: {a: {type: command, exec: "echo {{ files | size }}{{ pr.title }} > shown"}}\n'
    )
    program.json("run", "flow.yaml", code=0)
    assert (tmp_path / "shown").read_text() == "0\n"
