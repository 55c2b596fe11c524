"""Files that a log trusts: written beside, flushed, renamed, and their folder flushed, in this order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from resile.model.folders import put_in_place
from tests.engine.conftest import Place

TRACE = "trace=openat,fsync,fdatasync,rename,renameat,renameat2,close"


def traced(place: Place, *words: str) -> list[str]:
    """The system calls of a command that concern files, with their paths."""
    if shutil.which("strace") is None:
        assert os.environ.get("CI") != "true", "CI must have strace"
        pytest.skip("strace is not installed")
    argv = ["strace", "-f", "-y", "-s", "300", "-o", "trace", "-e", TRACE, sys.executable, "-m", "resile.cli.main"]
    done = subprocess.run([*argv, *words], cwd=place.folder, env=place.env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return whole_calls((place.folder / "trace").read_text().splitlines())


def whole_calls(lines: list[str]) -> list[str]:
    """The lines of strace, with the two halves of a call that another thread came between as one line, at its end."""
    found: list[str] = []
    begun: dict[str, str] = {}
    for line in lines:
        thread = line.split(maxsplit=1)[0]
        if line.endswith("<unfinished ...>"):
            begun[thread] = line.removesuffix("<unfinished ...>")
        elif " resumed>" in line and thread in begun:
            found.append(begun.pop(thread).rstrip() + line.partition(" resumed>")[2])
        else:
            found.append(line)
    return found


def test_a_call_in_two_halves_is_one_line() -> None:
    """strace divides a call where another thread made one meanwhile."""
    lines = ['7 rename("/a.part", "/a" <unfinished ...>', "8 close(3)  = 0", "7 <... rename resumed>)  = 0"]
    assert whole_calls(lines) == ["8 close(3)  = 0", '7 rename("/a.part", "/a")  = 0']


def order_of(lines: list[str], name: str) -> list[str]:
    """What became of a file of this name: flushes of it and of its folder, and the rename, in order."""
    found: list[str] = []
    folder = ""
    for line in lines:
        if "rename" in line and re.search(rf"/{re.escape(name)}\"", line) and line.rstrip().endswith("= 0"):
            found.append("rename")
            folder = os.path.dirname(re.findall(r'"([^"]*)"', line)[-1])
        elif re.search(rf"f(data)?sync\(\d+<[^>]*/\.?{re.escape(name)}\.part>", line):
            found.append("file")
        elif folder and re.search(rf"fsync\(\d+<{re.escape(folder)}>", line):
            found.append("folder")
    return found


def test_a_file_in_place_is_whole_or_absent(tmp_path: Path) -> None:
    """It has its content under its name, and nothing is left beside it."""
    part, path = str(tmp_path / "x.part"), str(tmp_path / "x")
    with open(part, "wb") as file:
        file.write(b"all of it")
        put_in_place(file, part, path)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("x", b"all of it")]


@pytest.mark.parametrize(
    ("step", "name"),
    [
        ("write_file: {path: written, content: text}", "written"),
        ("map: {input: [1, 2], steps: [{shell: 'true'}]}", "j1_r1_a1.jsonl"),
    ],
)
def test_what_the_log_trusts_is_on_disk_before_it_is_in_place(place: Place, step: str, name: str) -> None:
    """The file is flushed before the rename, and the folder after it."""
    (place.folder / "flow.yaml").write_text(f"resile: 1\nsteps:\n- {{id: a, {step}}}\n")
    assert order_of(traced(place, "run", "flow.yaml"), name)[:3] == ["file", "rename", "folder"]


def test_an_exported_file_is_on_disk_before_it_is_in_place(place: Place) -> None:
    """`logs --export` flushes each file before it gets its name, and the folder afterwards."""
    place.run("resile: 1\nsteps:\n- {id: a, shell: echo a}\n")
    lines = traced(place, "logs", "1", "--export", str(place.folder / "exported"))
    assert order_of(lines, "job_wf1_j1_r1_a1.o")[:3] == ["file", "rename", "folder"]


def test_output_is_on_disk_before_the_commit_that_speaks_of_it(place: Place) -> None:
    """The writer flushes the segment with output once, then the database's log, and no segment without output."""
    (place.folder / "flow.yaml").write_text("resile: 1\nsteps:\n- {id: a, shell: echo a}\n- {id: b, shell: 'true'}\n")
    lines = traced(place, "run", "flow.yaml", "--output", "out")
    flushed = [line for line in lines if re.search(r"f(data)?sync\(", line)]
    kinds = ["segment" if ".o>" in line else "database" for line in flushed if ".o>" in line or "-wal>" in line]
    assert kinds.count("segment") == 1
    assert kinds[kinds.index("segment") + 1] == "database"
    assert not any(".e>" in line for line in flushed)
