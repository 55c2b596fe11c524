"""A launcher of many runs: each attempt has the fence, folder, secrets, environment and directory of its profile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resile.executors.contract import Ended, Launch, Withdrawn
from resile.executors.fence import Fence
from resile.executors.local import wire
from resile.executors.local.segments import SegmentReader
from resile.executors.local.server_executor import ServerExecutor

from .driver import Driver, sh, wait_until_gone


class Server(Driver):
    """The driver of a launcher of many runs."""

    executor: ServerExecutor


@contextmanager
def serving(folder: Path, slots: int = 2) -> Iterator[Server]:
    """A driver whose attempts are all over when the test is."""
    driver = Server(folder, slots, kind=ServerExecutor)
    try:
        yield driver
    finally:
        driver.executor.close()


def job_of(profile: int, job: int = 1) -> int:
    """The number of a job of a profile, as the launcher sees it."""
    return profile << wire.JOB_BITS | job


def define(driver: Server, profile: int, folder: Path, **env: str) -> Fence:
    """Define a profile with a folder and a fence of its own; the word `secretN` is hidden in it."""
    folder.mkdir(exist_ok=True)
    fence = Fence(str(folder), time.time_ns() // 1000, lambda: None)
    driver.executor.define(
        profile,
        fence=fence.path,
        folder=str(folder),
        directory=os.fsencode(folder),
        secrets=[b"secret%d" % profile],
        env={b"PATH": os.environb[b"PATH"], **{key.encode(): text.encode() for key, text in env.items()}},
    )
    return fence


def test_each_profile_has_its_own_surroundings(tmp_path: Path) -> None:
    """Two attempts see the environment and directory of their profiles, and each hides its own secrets only."""
    with serving(tmp_path, slots=1) as driver:
        for number in (1, 2):
            define(driver, number, tmp_path / f"run{number}", WHO=f"run {number}")
        text = 'echo "$WHO in $(pwd)"; echo secret1 secret2 >&2'
        ends = driver.run(sh(job_of(1), text), sh(job_of(2), text))
        logs = {number: ends[job_of(number)].log for number in (1, 2)}
    for number, hidden in ((1, b"*** secret2\n"), (2, b"secret1 ***\n")):
        reader = SegmentReader(str(tmp_path / f"run{number}"))
        assert reader.read_output(logs[number], "out") == f"run {number} in {tmp_path}/run{number}\n".encode()
        assert reader.read_output(logs[number], "err") == hidden


def test_an_attempt_of_the_connection_itself_is_as_before(tmp_path: Path) -> None:
    """Between two attempts of a profile one without a profile has the settings of the first frame."""
    with serving(tmp_path, slots=1) as driver:
        define(driver, 1, tmp_path / "run1")
        ends = driver.run(sh(job_of(1), "echo one"), sh(7, "pwd"), sh(job_of(1, 2), "echo two"))
        assert driver.out(ends[7]) == f"{tmp_path}\n".encode()
        reader = SegmentReader(str(tmp_path / "run1"))
        assert [reader.read_output(ends[job_of(1, job)].log, "out") for job in (1, 2)] == [b"one\n", b"two\n"]


def test_a_directory_of_the_attempt_counts_from_that_of_its_profile(tmp_path: Path) -> None:
    """A relative directory is one below the profile's, and one that is missing is reported as that."""
    with serving(tmp_path) as driver:
        define(driver, 1, tmp_path / "run1")
        (tmp_path / "run1" / "below").mkdir()
        here, gone = Launch(job_of(1), 1, (b"pwd",), cwd=b"below"), Launch(job_of(1, 2), 1, (b"pwd",), cwd=b"gone")
        ends = driver.run(here, gone)
        said = SegmentReader(str(tmp_path / "run1")).read_output(ends[job_of(1)].log, "out")
    assert said == f"{tmp_path}/run1/below\n".encode()
    assert ends[job_of(1, 2)].spawn_stage == "cwd"


def test_a_closed_fence_stops_the_attempts_of_its_profile_only(tmp_path: Path) -> None:
    """After a newer engine has closed the fence of one run, the other run's attempts still start."""
    with serving(tmp_path) as driver:
        for number in (1, 2):
            define(driver, number, tmp_path / f"run{number}")
        Fence(str(tmp_path / "run1"), time.time_ns() // 1000, lambda: None)
        driver.executor.start([sh(job_of(1), "touch ran"), sh(job_of(2), "touch ran")])
        driver.until_count(Ended, 1)
        (withdrawn,) = driver.until_count(Withdrawn, 1)
    assert withdrawn.job == job_of(1)
    assert [(tmp_path / f"run{number}" / "ran").exists() for number in (1, 2)] == [False, True]


def test_an_unknown_or_forgotten_profile_starts_nothing(tmp_path: Path) -> None:
    """Attempts whose profile was never defined, or was dropped, are withdrawn."""
    with serving(tmp_path) as driver:
        define(driver, 1, tmp_path / "run1")
        driver.executor.forget(1)
        driver.executor.start([sh(job_of(1), "touch ran"), sh(job_of(9), "touch ran")])
        withdrawn = driver.until_count(Withdrawn, 2)
    assert {report.job for report in withdrawn} == {job_of(1), job_of(9)}
    assert not (tmp_path / "run1" / "ran").exists()


def test_the_next_launcher_knows_the_profiles(tmp_path: Path) -> None:
    """After the launcher died, attempts of a profile that was defined before start in a new one."""
    with serving(tmp_path) as driver:
        define(driver, 1, tmp_path / "run1", WHO="me")
        driver.run(sh(job_of(1), "true"))
        pid = driver.launcher_pid()
        os.kill(pid, 9)
        wait_until_gone(pid)
        # The first look takes what the launcher had still sent, the second one finds the connection closed.
        driver.executor.reports()
        driver.executor.reports()
        ends = driver.run(sh(job_of(1, 2), "echo $WHO"))
        reader = SegmentReader(str(tmp_path / "run1"))
        assert reader.read_output(ends[job_of(1, 2)].log, "out") == b"me\n"


def test_segments_are_made_for_output_only(tmp_path: Path) -> None:
    """The folder of a run whose attempts print nothing gets no file."""
    with serving(tmp_path) as driver:
        define(driver, 1, tmp_path / "run1").close()
        define(driver, 1, tmp_path / "run1")
        driver.run(sh(job_of(1), "true"))
    assert [path.name for path in (tmp_path / "run1").iterdir() if path.suffix != ".fence"] == []
