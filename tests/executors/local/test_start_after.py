"""Attempts that come after others: the launcher starts them by itself, or withdraws them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from resile.executors.contract import Ended, Launch, Started, Withdrawn
from tests.executors.local.driver import Driver, driving, sh, wait_until_gone


def after(launch: Launch, *jobs: int) -> Launch:
    """The same, after the first attempts of these jobs."""
    return replace(launch, after=tuple((job, 1) for job in jobs))


def test_what_comes_after_others_starts_when_all_have_ended_well(tmp_path: Path) -> None:
    """A chain and a join, given at once, run in order though there is room for all."""
    with driving(tmp_path, slots=4) as driver:
        driver.run(
            sh(1, "echo 1 >> log"),
            sh(2, "echo 2 >> log2"),
            after(sh(3, "cat log log2 > joined; echo 3 >> log"), 1, 2),
            after(sh(4, "echo 4 >> log"), 3),
        )
    assert (tmp_path / "joined").read_text() == "1\n2\n"
    assert (tmp_path / "log").read_text() == "1\n3\n4\n"


@pytest.mark.parametrize("text", ["exit 3", "kill -9 $$", "no-such-program-anywhere"])
def test_what_comes_after_a_failure_is_withdrawn_at_any_depth(tmp_path: Path, text: str) -> None:
    """The end is told before the withdrawals, and nothing of them ran."""
    with driving(tmp_path) as driver:
        driver.executor.start([sh(1, text), after(sh(2, "touch ran"), 1), after(sh(3, "touch ran"), 2)])
        driver.until_count(Withdrawn, 2)
        told = [(type(report).__name__, report.job) for report in driver.reports if not isinstance(report, Started)]
    assert told == [("Ended", 1), ("Withdrawn", 2), ("Withdrawn", 3)]
    assert not (tmp_path / "ran").exists()


def test_what_was_cut_has_not_ended_well_whatever_its_exit_code(tmp_path: Path) -> None:
    """A command that exits with 0 when its time is up is no reason to go on."""
    with driving(tmp_path) as driver:
        patient = sh(1, "trap 'exit 0' TERM; while :; do sleep 0.01; done", 0.2)
        driver.executor.start([patient, after(sh(2, "touch ran"), 1)])
        (withdrawn,) = driver.until_count(Withdrawn, 1)
        (ended,) = driver.until_count(Ended, 1)
    assert (ended.job, ended.wait_status, ended.reason, withdrawn.job) == (1, 0, "timeout", 2)  # type: ignore[union-attr]
    assert not (tmp_path / "ran").exists()


def test_an_attempt_that_is_over_already_counts(tmp_path: Path) -> None:
    """What ended well a moment ago lets the next start at once; what failed, or is unknown, has it withdrawn."""
    with driving(tmp_path) as driver:
        driver.run(sh(1, "true"), sh(2, "false"))
        assert driver.run(after(sh(3, "true"), 1))[3].wait_status == 0
        driver.executor.start([after(sh(4, "true"), 1, 2), after(sh(5, "true"), 99)])
        assert [report.job for report in driver.until_count(Withdrawn, 2)] == [4, 5]


def test_one_that_waits_can_be_taken_back(tmp_path: Path) -> None:
    """Killed before its time it never starts, nor what comes after it; the others do."""
    os.mkfifo(tmp_path / "gate")
    with driving(tmp_path) as driver:
        gated = [after(sh(2, "touch two"), 1), after(sh(3, "touch three"), 2), after(sh(4, "touch four"), 1)]
        driver.executor.start([sh(1, "read line < gate"), *gated])
        driver.started(1)
        driver.executor.kill(2, 1)
        assert [report.job for report in driver.until_count(Withdrawn, 2)] == [2, 3]
        (tmp_path / "gate").write_text("go\n")
        driver.until_count(Ended, 2)
    assert [name for name in ("two", "three", "four") if (tmp_path / name).exists()] == ["four"]


def test_a_drain_and_the_death_of_the_engine_take_back_what_waits(tmp_path: Path) -> None:
    """What has not started when nobody wants more never does; the next engine is told so."""
    os.mkfifo(tmp_path / "gate")
    with driving(tmp_path) as driver:
        driver.executor.start([sh(1, "read line < gate"), after(sh(2, "touch ran"), 1), after(sh(3, "touch ran"), 1)])
        driver.started(1)
        driver.executor.kill(3, 1)
        driver.executor.drain()
        assert [report.job for report in driver.until_count(Withdrawn, 2)] == [3, 2]
        driver.executor.start([after(sh(4, "touch ran"), 1)])
    again = Driver(tmp_path)
    again.executor.find(dict.fromkeys([(1, 1), (4, 1)], False))
    assert [report.job for report in again.until_count(Withdrawn, 1)] == [4]
    (tmp_path / "gate").write_text("go\n")
    again.until_count(Ended, 1)
    again.executor.close()
    assert not (tmp_path / "ran").exists()


def test_an_attempt_that_was_taken_back_may_come_again(tmp_path: Path) -> None:
    """What follows its second coming is not withdrawn because of its first."""
    with driving(tmp_path) as driver:
        driver.executor.start([sh(1, "false"), after(sh(2, "touch ran"), 1)])
        assert [report.job for report in driver.until_count(Withdrawn, 1)] == [2]
        again = replace(sh(1, "true"), attempt=2)
        follower = replace(sh(2, "echo 2 >> log"), after=((1, 2),))
        ended = driver.run(again, follower, after(sh(3, "echo 3 >> log"), 2))
    assert {job: report.wait_status for job, report in ended.items()} == {1: 0, 2: 0, 3: 0}
    assert (tmp_path / "log").read_text() == "2\n3\n"
    assert not (tmp_path / "ran").exists()


def test_what_was_taken_back_before_an_end_does_not_follow_it(tmp_path: Path) -> None:
    """A launcher that wakes late to both hears the engine before it goes on by itself."""
    os.mkfifo(tmp_path / "one")
    os.mkfifo(tmp_path / "two")
    with driving(tmp_path, slots=4) as driver:
        driver.executor.start([sh(1, "read line < one"), sh(2, "read line < two"), after(sh(3, "touch ran"), 1)])
        pids = [driver.started(job).pid for job in (1, 2)]
        launcher = driver.launcher_pid()
        os.kill(launcher, signal.SIGSTOP)
        try:
            (tmp_path / "two").write_text("go\n")
            wait_until_gone(pids[1])
            driver.executor.drain()
            (tmp_path / "one").write_text("go\n")
            wait_until_gone(pids[0])
        finally:
            os.kill(launcher, signal.SIGCONT)
        assert [report.job for report in driver.until_count(Withdrawn, 1)] == [3]
        driver.until_count(Ended, 2)
    assert not (tmp_path / "ran").exists()
