"""Attempts in doubt: the machine or the folder may have forgotten that they started, so only an end counts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from resile.executors.contract import Ended, Lost, Report, Withdrawn
from resile.executors.local import processes
from resile.executors.local.recovery import read_spool
from resile.model.failure import LogRange

from .driver import Driver, driving, lives, sh, wait_until_gone


def leave(folder: Path, *lines: bytes) -> Path:
    """Run an engine and a launcher to their ends, and let their spool end with these lines; its path."""
    with driving(folder) as driver:
        driver.shell("exit 3", job=1)
        pid = driver.launcher_pid()
    wait_until_gone(pid)
    spool = next((folder / "launcher").glob("*.spool"))
    with spool.open("ab") as file:
        file.write(b"".join(lines))
    return spool


def reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process run in another boot of the machine."""
    monkeypatch.setattr(processes, "boot_id", lambda: b"another-boot")


def found(driver: Driver, attempts: dict[tuple[int, int], bool]) -> dict[int, Report]:
    """What is reported of these attempts, by job."""
    driver.executor.find(attempts)
    return {report.job: report for report in driver.until(lambda reports: len(reports) >= len(attempts))}


def test_an_attempt_without_a_record_is_lost_only_in_doubt(tmp_path: Path) -> None:
    """Whole records without an attempt prove that it never started; records that may lack something prove nothing."""
    leave(tmp_path)
    with driving(tmp_path) as driver:
        reports = found(driver, {(1, 1): True, (2, 1): False, (3, 1): True})
    assert {job: type(report) for job, report in reports.items()} == {1: Ended, 2: Withdrawn, 3: Lost}
    assert isinstance(reports[1], Ended)
    assert reports[1].wait_status == 3 << 8


def test_a_withdrawal_says_nothing_about_the_next_start_under_its_number(tmp_path: Path) -> None:
    """The number of a withdrawn attempt is given out again, and that start may be what the machine forgot."""
    leave(tmp_path, b"W 2 1 5.0\n", b"W 3 1 5.0\n")
    with driving(tmp_path) as driver:
        reports = found(driver, {(2, 1): False, (3, 1): True})
    assert {job: type(report) for job, report in reports.items()} == {2: Withdrawn, 3: Lost}


@pytest.mark.parametrize(
    "damage", [b"E 2 1 5.0\n", b"\0\0\0\0\n", b"E 2 \0\0 5.0 6.0\n", b"E 2 1 5.0 6.0 0 0 0 t 0 0 0"]
)
def test_a_damaged_line_is_no_record(tmp_path: Path, damage: bytes) -> None:
    """What a power cut left of a line ends no attempt, and stops no engine."""
    leave(tmp_path, damage)
    with driving(tmp_path) as driver:
        reports = found(driver, {(1, 1): True, (2, 1): True})
    assert {job: type(report) for job, report in reports.items()} == {1: Ended, 2: Lost}


def test_an_executor_says_whose_records_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None in a new folder, those of this boot after an engine that left something open, else those of a former one."""
    with driving(tmp_path) as driver:
        assert driver.executor.records == "none"
        pid = driver.launcher_pid()
    wait_until_gone(pid)
    with driving(tmp_path) as driver:
        assert driver.executor.records == "here"
        driver.executor.close()
        reboot(monkeypatch)
        driver.executor = Driver(tmp_path).executor
        assert driver.executor.records == "former"
    for path in (tmp_path / "launcher").glob("*.spool"):
        path.unlink()
    with driving(tmp_path) as driver:
        assert driver.executor.records == "none"


def test_records_stay_until_nothing_is_open(tmp_path: Path) -> None:
    """A launcher leaves its spool behind although all of it is acknowledged, unless the engine has finished."""
    driver = Driver(tmp_path)
    driver.shell("true")
    driver.executor.acknowledge()
    pid = driver.launcher_pid()
    driver.executor.close()
    wait_until_gone(pid)
    assert len(list((tmp_path / "launcher").glob("*.spool"))) == 1


def test_a_launcher_that_dies_after_its_spool_is_gone_loses_what_waited(tmp_path: Path) -> None:
    """No record says whether the attempts in its queue have started, so they have not been withdrawn."""
    with driving(tmp_path, slots=1) as driver:
        driver.executor.start([sh(1, "exec sleep 600"), sh(2, "touch two")])
        pid = driver.started(1).pid
        launcher = driver.launcher_pid()
        next((tmp_path / "launcher").glob("*.spool")).unlink()
        os.kill(launcher, signal.SIGKILL)
        assert [report.job for report in driver.until_count(Lost, 2)] == [1, 2]
        assert not lives(pid)
    assert not (tmp_path / "two").exists()


def test_an_end_that_was_recorded_and_is_missing_shows_that_records_were_cut(tmp_path: Path) -> None:
    """Unless the launcher itself dropped lines, or another launcher wrote that end."""
    spool = leave(tmp_path)
    data, log = spool.read_bytes(), LogRange(f"launcher/{spool.stem}-0-0")
    shorter = data[: data.index(b"E 1 1 ")]
    found = []
    for text in (data, shorter, shorter.replace(b"\nB", b"\nC\nB")):
        spool.write_bytes(text)
        driver = Driver(tmp_path)
        found.append(
            (driver.executor.lacks_end(1, 1, log), driver.executor.lacks_end(1, 1, LogRange("launcher/x-0-0")))
        )
        pid = max(author.pid for path in spool.parent.glob("*.spool") if (author := read_spool(str(path))[0]))
        driver.executor.close(finished=True)
        wait_until_gone(pid)
    assert found == [(False, False), (True, False), (False, False)]


def test_the_records_of_another_epoch_end_only_what_still_ran_then(tmp_path: Path) -> None:
    """An attempt that never started is no problem, and what an attempt that ended left in the background goes on."""
    with driving(tmp_path) as driver:
        left = int(driver.out(driver.shell("sleep 600 > /dev/null 2>&1 & echo $!")))
        driver.executor.start([sh(2, "exec sleep 600")])
        runs, launcher = driver.started(2).pid, driver.launcher_pid()
        os.kill(launcher, signal.SIGKILL)
        wait_until_gone(launcher)
    with next((tmp_path / "launcher").glob("*.spool")).open("ab") as spool:
        spool.write(b"B 3 1\n")
    try:
        driver = Driver(tmp_path, label="1:2")
        assert (driver.executor.records, lives(runs), lives(left)) == ("none", False, True)
        driver.executor.close()
    finally:
        os.kill(left, signal.SIGKILL)
