"""A run that a server leaves and takes again, without a new server in between: its attempts are where they were."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from errno import EIO
from pathlib import Path
from typing import cast

import pytest

from resile.executors.contract import Adopted, Ended, Started
from resile.executors.local.executor import LocalExecutor
from tests.executors.local.driver import Driver, sh

from .form import SharedForm

ATTEMPT = {(1, 1): False}


@contextmanager
def leaving(folder: Path) -> Iterator[tuple[Driver, SharedForm]]:
    """A driver of one run, and the server that may leave the run and take it again."""
    driver = Driver(folder, kind=cast("type[LocalExecutor]", SharedForm))
    with closing(driver.executor):
        yield driver, cast("SharedForm", driver.executor)


def test_an_attempt_that_runs_is_adopted(tmp_path: Path) -> None:
    """It is neither withdrawn nor started again, and ends as it would have."""
    os.mkfifo(tmp_path / "gate")
    with leaving(tmp_path) as (driver, server):
        server.start([sh(1, "read x < gate; exit 3")])
        begun = driver.started(1)
        server.leave()
        server.take_again()
        server.find(ATTEMPT)
        (found,) = driver.until_count(Adopted, 1)
        assert (found.job, found.pid) == (1, begun.pid)
        (tmp_path / "gate").write_text("go\n")
        (ended,) = driver.until_count(Ended, 1)
        assert ended.wait_status == 3 << 8
        server.acknowledge()


@pytest.mark.parametrize("told", [False, True])
def test_an_end_that_was_not_recorded_is_told_again(tmp_path: Path, told: bool) -> None:
    """Whether it came before the run was left, or while no engine had it; once it is recorded it is not told."""
    os.mkfifo(tmp_path / "gate")
    with leaving(tmp_path) as (driver, server):
        server.start([sh(1, "read x < gate; echo said; exit 3")])
        driver.started(1)
        if told:
            (tmp_path / "gate").write_text("go\n")
            driver.until_count(Ended, 1)
        server.leave()
        if not told:
            (tmp_path / "gate").write_text("go\n")
            server.wait_for_news()
        driver.reports.clear()
        server.take_again()
        server.find(ATTEMPT)
        (ended,) = driver.until_count(Ended, 1)
        assert [type(report) for report in driver.reports if not isinstance(report, Started)] == [Ended]
        assert (ended.wait_status, ended.spawn_error, driver.out(ended)) == (3 << 8, 0, b"said\n")
        server.acknowledge()
        assert server.kept() == set()


def test_output_that_is_gone_by_then_is_known_to_be_lost(tmp_path: Path) -> None:
    """The end that the spool has counts, and says that the output before it could not be kept."""
    os.mkfifo(tmp_path / "gate")
    with leaving(tmp_path) as (driver, server):
        server.start([sh(1, "read x < gate; echo said; exit 3")])
        segment = driver.started(1).log.segment
        server.leave()
        (tmp_path / "gate").write_text("go\n")
        server.wait_for_news()
        (tmp_path / f"{segment}.o").write_bytes(b"")
        server.take_again()
        server.find(ATTEMPT)
        (ended,) = driver.until_count(Ended, 1)
        assert (ended.wait_status, ended.spawn_error, ended.spawn_stage) == (3 << 8, EIO, "output")
        server.acknowledge()


def test_records_of_a_run_that_is_not_taken_again_are_forgotten(tmp_path: Path) -> None:
    """Where another server has the run, what runs of it here is ended, and nothing is kept of it."""
    with leaving(tmp_path) as (driver, server):
        server.start([sh(1, "exec sleep 600")])
        driver.started(1)
        server.leave()
        assert server.kept() == {1}
        server.end_records()
        server.wait_for_news()
        server.end_records()
        assert server.kept() == set()
