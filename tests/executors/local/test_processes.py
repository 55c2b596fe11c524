"""What is read about processes, and whether one is the process that was started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resile.executors.local.processes import Process, is_leader, read_file


def process(start_ticks: int) -> Process:
    """A process that started so many hundredths of a second after the machine."""
    fields = [b"S", b"1", b"7", b"7", *[b"0"] * 15, b"%d" % start_ticks]
    return Process(7, fields)


@pytest.mark.parametrize("limit", [0, 1, 65_536, 65_537, 70_000, 70_001])
def test_a_file_is_read_up_to_its_limit(tmp_path: Path, limit: int) -> None:
    """Exactly as many bytes are read as are allowed, or as there are."""
    content = bytes(range(7)) * 10_000
    (tmp_path / "file").write_bytes(content)
    assert read_file(os.fsencode(tmp_path / "file"), limit) == content[:limit]


def test_a_file_that_can_not_be_read_is_empty(tmp_path: Path) -> None:
    """One that is missing, and a folder."""
    assert read_file(os.fsencode(tmp_path / "missing"), 9) == read_file(os.fsencode(tmp_path), 9) == b""


def test_a_leader_started_within_the_second_before_its_report() -> None:
    """A process that started earlier, or after its report, has the same number by chance."""
    assert [is_leader(process(1_000), at) for at in (9.89, 9.91, 10.0, 11.0, 11.01)] == [False, True, True, True, False]
    assert not is_leader(None, 10.0)
