"""The log files that people look for, written from what attempts wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resile.core.state import new_state
from resile.engine.log_files import LogFiles, export_attempt
from resile.engine.paths import named_logs
from resile.executors.contract import OutputLost
from resile.model.failure import Failure, Kind, LogRange
from resile.model.limits import OUTPUT_PIECE_BYTES
from resile.store.contract import AttemptRow
from tests.core.world import flow
from tests.executors.local.driver import driving, sh


def test_export_writes_the_seeds_names_where_there_is_output(tmp_path: Path) -> None:
    """An attempt that wrote anything has both files, with its bytes, for their owner alone; any other has none."""
    folder = tmp_path / "job_stdio"
    with driving(tmp_path, slots=1) as driver:
        driver.shell("echo before", job=1)
        ended = driver.run(sh(2, "echo out"))[2]
        silent = driver.run(sh(3, "true"))[3]
        stem = str(folder / "job_wf4_j2_r1_a3")
        row = AttemptRow(2, 1, 3, 0.0, log=ended.log)
        assert export_attempt(driver.executor, 4, row, str(folder)) == [f"{stem}.o", f"{stem}.e"]
        assert export_attempt(driver.executor, 4, AttemptRow(3, 1, 1, 0.0, log=silent.log), str(folder)) == []
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert files == {"job_wf4_j2_r1_a3.o": b"out\n", "job_wf4_j2_r1_a3.e": b""}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_export_copies_more_than_one_chunk(tmp_path: Path) -> None:
    """Output of two and a half chunks is in the file byte for byte."""
    size = OUTPUT_PIECE_BYTES * 5 // 2
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


@pytest.mark.parametrize("jobs", [1_000, 1_001])
def test_a_run_of_very_many_jobs_has_files_of_failed_attempts_only(tmp_path: Path, jobs: int) -> None:
    """Up to 1,000 jobs each attempt that wrote anything has its files; beyond, only those that failed."""
    state = new_state(flow())
    state.last_job = jobs
    with driving(tmp_path, slots=1) as driver:
        log = driver.shell("echo out", job=1).log
        files = LogFiles(driver.executor, str(tmp_path), 4, state)
        files.write(AttemptRow(1, 1, 1, 0.0, log=log), at_once=True)
        files.write(AttemptRow(2, 1, 1, 0.0, log=log, failure=Failure(Kind.EXIT, "exit 1", 1)), at_once=False)
        files.close()
    written = ["job_wf4_j1_r1_a1.e", "job_wf4_j1_r1_a1.o", "job_wf4_j2_r1_a1.e", "job_wf4_j2_r1_a1.o"]
    assert sorted(os.listdir(named_logs(str(tmp_path)))) == written[2 if jobs > 1_000 else 0 :]
