"""A launcher that meets an error that it does not expect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# A thread of a launcher meets an error while no descriptor is free.
DYING = """
import os, resource, sys, threading
from resile.executors.local.launcher.main import Launcher

launcher = Launcher(os.dup(0))
launcher.attempts.folder, launcher.attempts.token = os.fsencode(sys.argv[1]), b"token"
taken = []
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass

def fail():
    try:
        raise RuntimeError("unexpected")
    except RuntimeError:
        launcher.crash()

threading.Thread(target=fail).start()
launcher.run()
"""


@pytest.mark.parametrize("is_there", [True, False])
def test_a_crash_ends_the_launcher_without_a_free_descriptor(tmp_path: Path, is_there: bool) -> None:
    """A thread that fails ends the whole launcher, with its error beside the spool if the folder is still there."""
    folder = tmp_path / "folder"
    if is_there:
        folder.mkdir()
    ours, theirs = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", DYING, str(folder)],
            stdin=ours,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            timeout=20,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 1
    if is_there:
        assert (folder / "token.crash").read_text().splitlines()[-1] == "RuntimeError: unexpected"
