"""A second user on the machine, with every file's path known, reads nothing of a run and starts nothing in it."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resile.executors.local import wire
from tests.cli.program import Program
from tests.runs.users.other_user import as_other, require_root

SECRET = "hunter2-very-secret"
FLOW = """
resile: 1
secrets: [TOKEN]
steps:
  each: {map: {input: "printf '[\\"item-data\\"]'", steps: {go: {shell: "echo ${item}"}}}}
  waits: {shell: 'cat; echo "$TOKEN"; echo > began; read go < gate', stdin: "held value", needs: [each]}
"""


@pytest.fixture
def state(program: Program, shared: Path) -> Iterator[Path]:
    """The state folder of a run that is going on, below a folder that all users share."""
    require_root()
    began, gate = program.gate("began"), program.gate("gate")
    program.write(FLOW)
    program.env["TOKEN"] = SECRET
    with program.start("run", "flow.yaml") as engine:
        began.wait()
        yield shared / "resile"
        gate.open()
        assert engine.end() == 0, engine.text


def test_no_file_of_a_run_can_be_read_or_replaced(state: Path) -> None:
    """Not the database, the output, the items or the scripts, by any path; the folder can't be listed or moved."""
    files = [path for path in state.rglob("*") if path.is_file()]
    kinds = {path.suffix for path in files} | {path.name for path in files}
    assert {"resile.db", "resile.db-wal", ".spool", ".o", ".jsonl", ".stdin"} <= kinds
    assert as_other(lambda: readable(files)) == []
    assert as_other(lambda: os.listdir(state)) == "PermissionError"
    assert as_other(lambda: (state / "new").write_text("planted")) == "PermissionError"
    assert as_other(lambda: os.rename(state, f"{state}-moved")) == "PermissionError"
    assert as_other(lambda: os.unlink(state / "resile.db")) == "PermissionError"


def test_not_even_in_folders_of_an_older_version(state: Path) -> None:
    """Where folders can be entered, as older versions made them, the files are still for their owner only."""
    for folder in (state, *(path for path in state.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    files = [path for path in state.rglob("*") if path.is_file()]
    assert as_other(lambda: readable(files)) == []
    assert as_other(lambda: [path for path in files if os.access(path.parent, os.W_OK)]) == []


def readable(files: list[Path]) -> list[Path]:
    """Those of the files that this user can open, for reading or for writing."""
    found = []
    for path in files:
        for flags in (os.O_RDONLY, os.O_WRONLY):
            try:
                os.close(os.open(path, flags))
            except PermissionError:
                continue
            found.append(path)
    return found


def test_the_launcher_starts_nothing_for_another_user(state: Path) -> None:
    """Even where the socket can be reached, it says and does nothing; no other socket of the run has a name."""
    (path,) = [path for path in state.rglob("*") if path.is_socket()]
    assert as_other(lambda: talk_to(path, state)) == "PermissionError"
    for folder in (state, *(path for path in state.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    path.chmod(0o777)
    assert as_other(lambda: talk_to(path, state)) in (b"", "ConnectionResetError", "BrokenPipeError")
    assert not (state / "planted").exists()
    named = [line.split()[7] for line in Path("/proc/net/unix").read_text().splitlines()[1:] if len(line.split()) > 7]
    # The launcher binds its socket through the descriptor of its folder.
    assert [name for name in named if name.startswith(("@resile", str(state)))] == []


def talk_to(path: Path, folder: Path) -> bytes:
    """Connect to a launcher, order an attempt, and return what the launcher says."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        argv = [b"sh", b"-c", b"touch %s/planted" % os.fsencode(folder)]
        order = [wire.START, b"77", b"1", b"0", b"0", b"", b"3", b"0", b"", *argv]
        connection.sendall(wire.frame(*order))
        return connection.recv(4096)


def test_no_process_of_a_run_shows_a_secret(state: Path) -> None:
    """All users see command lines, and no secret or value on standard input is in one; the environment is closed."""
    variable = b"XDG_STATE_HOME=%s\0" % os.fsencode(state.parent)
    ours = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if variable in told_by(pid, "environ")]
    # The engine, the launcher, and the step.
    assert len(ours) >= 3
    assert any(SECRET.encode() in told_by(pid, "environ") for pid in ours)
    seen = as_other(lambda: [told_by(pid, "cmdline") for pid in ours])
    assert isinstance(seen, list)
    assert [words for words in seen if SECRET.encode() in words or b"held value" in words] == []
    for name in ("environ", "fd", "mem", "cwd/flow.yaml"):
        answers = {as_other(opening(f"/proc/{pid}/{name}")) for pid in ours}
        assert answers == {"PermissionError"}, name


def opening(path: str) -> Callable[[], str]:
    """Opens or lists a path."""

    def attempt() -> str:
        if stat.S_ISDIR(os.stat(path).st_mode):
            return str(os.listdir(path))
        with open(path, "rb") as file:
            return repr(file.read(10))

    return attempt


def told_by(pid: int, name: str) -> bytes:
    """A file that the kernel has about a process; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
