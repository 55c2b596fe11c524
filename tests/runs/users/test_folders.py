"""The folders of state and output: made for their owner only, and refused where another user could plant something."""

from __future__ import annotations

import os
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from resile.errors import ResileError
from resile.model.folders import make_folder, refuse_shared
from tests.cli.program import Program
from tests.runs.users.other_user import OTHER, as_other, require_root

FLOW = """
resile: 1
steps:
  feed: {shell: cat, stdin: "text ${steps.list.output}", needs: [list]}
  list: {shell: "echo one; echo two"}
  each: {map: {input: "echo '[1, 2]'", steps: {go: {shell: "echo ${item}"}}}}
"""
OPEN_UMASK = 0
ACL = "system.posix_acl_access"


def modes_below(folder: Path) -> dict[str, str]:
    """The permissions of a folder and of everything in it, by path; sockets are left out."""
    found = [folder, *folder.rglob("*")]
    return {str(path): f"{stat.S_IMODE(path.lstat().st_mode):o}" for path in found if not path.is_socket()}


def run_open(program: Program, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the workflow with a umask that forbids nothing."""
    program.write(FLOW)
    argv = [*program.argv, "run", "flow.yaml", *words]
    return subprocess.run(
        argv, cwd=program.folder, env=program.env, umask=OPEN_UMASK, capture_output=True, text=True, timeout=60
    )


def test_everything_is_made_for_its_owner_only(program: Program, shared: Path) -> None:
    """Whatever the umask, each folder of state and output is 0700 and each file in it 0600."""
    assert run_open(program).returncode == 0
    modes = modes_below(shared / "resile")
    names = {Path(path).name for path in modes}
    assert {"resile.db", "output", "runs", "wf1_r1", "launcher", "job_stdio", "items", "scripts"} <= names
    assert any(path.endswith(".jsonl") for path in modes)
    wrong = {path: mode for path, mode in modes.items() if mode != ("700" if Path(path).is_dir() else "600")}
    assert wrong == {}


def test_the_socket_of_a_launcher_is_for_its_owner_only(program: Program, shared: Path) -> None:
    """Whatever the umask, its mode is 0600."""
    program.write(f'resile: 1\nsteps: [{{id: look, shell: "find {shared} -type s -printf %m > mode"}}]\n')
    argv = [*program.argv, "run", "flow.yaml"]
    assert subprocess.run(argv, cwd=program.folder, env=program.env, umask=OPEN_UMASK, timeout=60).returncode == 0
    assert (program.folder / "mode").read_text() == "600"


@pytest.mark.parametrize("place", ["state", "output"])
@pytest.mark.parametrize(
    ("mode", "command"),
    [(0o777, "chmod go-w"), (0o1777, "chmod go-w"), (0o703, "chmod go-w"), (0o755, ""), (0o775, ""), (0o2775, "")],
)
def test_a_folder_that_others_can_write_is_refused(
    program: Program, shared: Path, place: str, mode: int, command: str
) -> None:
    """Exit 2 with the folder, its mode and the command that mends it; its owner's group may write, all may read."""
    folder = shared / "resile" if place == "state" else shared / "output"
    folder.mkdir()
    folder.chmod(mode)
    program.write(FLOW)
    words = ["run", "flow.yaml", "--output", str(shared / "output")]
    if not command:
        program.call(*words, code=0)
        return
    said = program.call(*words, code=2).stderr
    assert f"others can write to the folder {folder} (mode {mode:04o})" in said
    assert f"`{command} {folder}`" in said
    assert list(folder.iterdir()) == []
    subprocess.run(["sh", "-c", f"{command} {folder}"], check=True)
    program.call(*words, code=0)


def test_another_group_counts_as_others(shared: Path) -> None:
    """A folder that a group may write which is not its owner's own is refused, and so is one with an access list."""
    require_root()
    folder = shared / "folder"
    folder.mkdir()
    os.chown(folder, os.geteuid(), OTHER)
    folder.chmod(0o770)
    with pytest.raises(ResileError) as caught:
        refuse_shared(str(folder))
    assert (caught.value.code, caught.value.hint) == ("folder-shared", f"lock them out: `chmod g-w {folder}`")
    os.chown(folder, os.geteuid(), os.getegid())
    refuse_shared(str(folder))
    with suppress(OSError):
        os.setxattr(folder, ACL, acl_for(OTHER))
    if ACL not in os.listxattr(folder):
        # This disk has no access lists.
        return
    with pytest.raises(ResileError) as caught:
        refuse_shared(str(folder))
    assert caught.value.hint == f"lock them out: `setfacl -b {folder}`"


def acl_for(user: int) -> bytes:
    """An access list that lets one more user read and write."""
    unnamed = 0xFFFFFFFF
    entries = [(0x01, 7, unnamed), (0x02, 7, user), (0x04, 5, unnamed), (0x10, 7, unnamed), (0x20, 0, unnamed)]
    parts = [
        tag.to_bytes(2, "little") + allowed.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, allowed, who in entries
    ]
    return (2).to_bytes(4, "little") + b"".join(parts)


@pytest.mark.parametrize("place", ["state", "output"])
def test_a_folder_of_another_user_is_refused(program: Program, shared: Path, place: str) -> None:
    """A second user who makes the folder first, open or closed, gets nothing into it; root is refused as well."""
    require_root()
    folder = shared / "resile" if place == "state" else shared / "output"
    assert as_other(lambda: folder.mkdir(mode=0o755)) is None
    program.write(FLOW)
    said = program.call("run", "flow.yaml", "--output", str(shared / "output"), code=2).stderr
    assert (
        f"the folder {folder} (mode 0755) belongs to user nobody (uid {OTHER}), and this is user root (uid 0)" in said
    )
    assert f"`chown -R 0 {folder}`" in said
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("place", ["state", "output"])
def test_a_link_of_another_user_is_refused(program: Program, shared: Path, place: str) -> None:
    """A second user can't lead the state or the output into a folder of the first."""
    require_root()
    link, target = (shared / "resile" if place == "state" else shared / "output"), program.folder / "mine"
    target.mkdir(mode=0o700)
    assert as_other(lambda: link.symlink_to(target)) is None
    program.write(FLOW)
    said = program.call("run", "flow.yaml", "--output", str(shared / "output"), code=2).stderr
    assert f"{link} is a link that user nobody (uid {OTHER}) made" in said
    assert list(target.iterdir()) == []


def test_a_link_of_ones_own_is_followed(program: Program, shared: Path) -> None:
    """A user may keep the output on another disk: the folder behind the link is judged."""
    target = shared / "target"
    target.mkdir(mode=0o755)
    (shared / "output").symlink_to(target)
    program.write(FLOW)
    program.call("run", "flow.yaml", "--output", str(shared / "output"), code=0)
    target.chmod(0o777)
    assert "others can write" in program.call("run", "flow.yaml", "--output", str(shared / "output"), code=2).stderr


def test_the_folder_of_a_named_database_is_not_judged(program: Program, shared: Path) -> None:
    """A team may share that folder; the output folder in it is judged."""
    program.write(FLOW)
    words = ["run", "flow.yaml", "--db", str(shared / "r.db")]
    program.call(*words, code=0)
    (shared / "output").chmod(0o777)
    assert "others can write" in program.call(*words, code=2).stderr


def test_a_later_engine_judges_the_output_folder_again(program: Program, shared: Path) -> None:
    """What was private when the run began may be open now: nothing is started there."""
    program.write("resile: 1\nsteps:\n  a: {shell: echo >> ran}\n")
    program.call("run", "flow.yaml", code=0)
    (shared / "resile" / "output").chmod(0o777)
    said = program.call("rerun", "1", code=2).stderr
    assert "others can write" in said
    assert "--output" not in said
    assert (program.folder / "ran").read_text() == "\n"


def test_reading_the_state_judges_its_folder(program: Program, shared: Path) -> None:
    """A database that another user may have put there is not believed."""
    program.write(FLOW)
    program.call("run", "flow.yaml", code=0)
    program.call("status", "1", code=0)
    (shared / "resile").chmod(0o777)
    assert "others can write" in program.call("status", "1", code=2).stderr


def test_missing_folders_above_are_private_too(tmp_path: Path) -> None:
    """Every folder that is made is for its owner only, and those that exist stay as they are."""
    tmp_path.chmod(0o755)
    make_folder(str(tmp_path / "a" / "b" / "c"))
    make_folder(str(tmp_path / "a" / "b"))
    assert [f"{(tmp_path / name).stat().st_mode & 0o777:o}" for name in ("a", "a/b", "a/b/c", ".")] == [
        "700",
        "700",
        "700",
        "755",
    ]
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        make_folder(str(tmp_path / "file"))
