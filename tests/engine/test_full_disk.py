"""No room for what steps print: the run stops, it is not the step's fault, and a resume goes on once there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import Place


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 KB."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)], check=False)
    if made.returncode:
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_under_the_output_stops_the_run_and_a_resume_finishes_it(place: Place, small: Path) -> None:
    """Exit 130; after making room the step runs again and completes, at no cost to its rules."""
    text = "resile: 1\nsteps:\n- {id: a, shell: head -c 600000 /dev/zero; echo a >> effects}\n"
    text += "- {id: b, shell: echo b >> effects}\n"
    code, document = place.run(text, "--output", str(small / "out"))
    assert (code, document["error"]["code"]) == (130, "disk-full")
    subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
    code, document = place.call("resume", "1")
    assert (code, document["status"], document["routes"]) == (0, "completed", [])
    assert place.text("effects").split()[-1] == "b"
