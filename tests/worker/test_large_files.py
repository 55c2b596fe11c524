"""Files that go to a worker with an attempt: whole, or refused in the attempt's own words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from resile.engine.host.worker_place import Held, assignment_of
from resile.executors.contract import Launch
from resile.executors.shared.worker_output import FILE_BYTES_MAX
from resile.store.server_tables import Claim


@pytest.mark.parametrize(("size", "is_sent"), [(FILE_BYTES_MAX, True), (FILE_BYTES_MAX + 1, False)])
def test_a_file_is_sent_whole_or_the_attempt_fails(tmp_path: Path, size: int, is_sent: bool) -> None:
    """A file at the limit arrives as it is; a larger one becomes a command that says why it fails."""
    path = tmp_path / "value"
    path.write_bytes(b"x" * size)
    held = Held(Claim(1, 1, 1, 1, "w", "t", 1.0), 1, str(tmp_path), "w")
    given = assignment_of(held, Launch(1, 1, (b"cat", bytes(path))), str(tmp_path))
    if is_sent:
        assert given.files == [(bytes(path), b"x" * size)]
        assert given.argv == [b"cat", bytes(path)]
        return
    done = subprocess.run(given.argv, capture_output=True, text=True)
    assert (given.files, done.returncode) == ([], 126)
    assert done.stderr == "a value of this step is larger than the 16 MiB for workers\n"
