"""Which servers drove an epoch: the file in its folder, its own or one that all new runs of a server share."""

from __future__ import annotations

import os
from pathlib import Path

from resile.executors.local.shared_records import profile_of, servers_of, write_down, write_down_new


def make_epoch(folder: Path, run: int) -> str:
    """The folder of the first epoch of a run."""
    path = folder / f"wf{run}_r1"
    path.mkdir()
    return str(path)


def test_new_runs_share_one_file(tmp_path: Path) -> None:
    """The first run makes the server's pointer; later ones are names of it, and each run has its own profile."""
    server = tmp_path / "server"
    server.mkdir()
    folders = [make_epoch(tmp_path, run) for run in (7, 8, 9)]
    for run, folder in zip((7, 8, 9), folders, strict=True):
        write_down_new(folder, str(server), profile_of(run, 1))
    assert [servers_of(folder) for folder in folders] == [{str(server): profile_of(run, 1)} for run in (7, 8, 9)]
    assert os.path.samefile(f"{folders[1]}/servers", f"{folders[2]}/servers")
    assert servers_of(folders[1], str(server)) == {}


def test_a_second_server_changes_nothing_for_other_runs(tmp_path: Path) -> None:
    """A server that takes one run over adds itself in the folder of that run alone."""
    server = tmp_path / "server"
    server.mkdir()
    folders = [make_epoch(tmp_path, run) for run in (1, 2, 3)]
    for run, folder in zip((1, 2, 3), folders, strict=True):
        write_down_new(folder, str(server), profile_of(run, 1))
    write_down(folders[2], "/other", 42)
    write_down(folders[2], "/other", 42)
    assert servers_of(folders[2]) == {str(server): profile_of(3, 1), "/other": 42}
    assert servers_of(folders[1]) == {str(server): profile_of(2, 1)}
