"""A folder that all users of the machine share, as /tmp is, and the program in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Program


@pytest.fixture
def shared() -> Iterator[Path]:
    """A sticky folder that everybody can write."""
    folder = Path(tempfile.mkdtemp(prefix="resile-users-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def program(tmp_path: Path, shared: Path) -> Program:
    """The program in a private folder; its state and its output are in the shared one."""
    program = Program(tmp_path)
    del program.env["RESILE_DB"]
    program.env["XDG_STATE_HOME"] = str(shared)
    return program
