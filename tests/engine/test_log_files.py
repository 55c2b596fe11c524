"""The log files that people look for, written from what attempts wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from resile.engine.log_files import CHUNK_BYTES, export_attempt
from resile.executors.contract import OutputLost
from resile.model.failure import LogRange
from resile.store.contract import AttemptRow
from tests.executors.local.driver import driving, sh


def test_export_writes_the_seeds_names_where_there_is_output(tmp_path: Path) -> None:
    """Only streams with output become files, with the attempt's bytes, for their owner alone."""
    folder = tmp_path / "job_stdio"
    with driving(tmp_path, slots=1) as driver:
        driver.shell("echo before", job=1)
        ended = driver.run(sh(2, "echo out"))[2]
        export_attempt(driver.executor, 4, AttemptRow(2, 1, 3, 0.0, log=ended.log), str(folder))
    assert [path.name for path in folder.iterdir()] == ["job_wf4_j2_r1_a3.o"]
    assert (folder / "job_wf4_j2_r1_a3.o").read_bytes() == b"out\n"
    assert (folder / "job_wf4_j2_r1_a3.o").stat().st_mode & 0o777 == 0o600


def test_export_copies_more_than_one_chunk(tmp_path: Path) -> None:
    """Output of two and a half chunks is in the file byte for byte."""
    size = CHUNK_BYTES * 5 // 2
    with driving(tmp_path, slots=1) as driver:
        ended = driver.shell(f"yes 0123456 | head -c {size} >&2")
        export_attempt(driver.executor, 1, AttemptRow(1, 1, 1, 0.0, log=ended.log), str(tmp_path))
    assert (tmp_path / "job_wf1_j1_r1_a1.e").read_bytes() == (b"0123456\n" * (size // 8 + 1))[:size]


def test_export_of_output_that_is_gone_writes_nothing(tmp_path: Path) -> None:
    """A deleted segment is an error that leaves no empty file behind."""
    with driving(tmp_path, slots=1) as driver, pytest.raises(OutputLost):
        export_attempt(
            driver.executor,
            1,
            AttemptRow(1, 1, 1, 0.0, log=LogRange("launcher/x-0-0", 0, 9, 0, 9)),
            str(tmp_path / "to"),
        )
    assert not (tmp_path / "to").exists()
