"""Attempts for which the system has no process, with the real limit of a user who is not root (`ulimit -u`)."""

from __future__ import annotations

import errno
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from resile.executors.contract import Ended, Launch, Withdrawn

from .driver import DROP, USER, Driver, sh, wait_for

REAL_PYTHON = sys.executable
# In so many folders the launcher looks for a program in vain, so that it spawns the attempt long after its line `B`.
FOLDERS = 300_000
NEXT_ENGINE = """
import sys
from pathlib import Path
from resile.executors.contract import Withdrawn
from tests.executors.local.driver import Driver

driver = Driver(Path(sys.argv[1]))
driver.executor.find(dict.fromkeys([(1, 1)], False))
print([report.job for report in driver.until_count(Withdrawn, 1)])
driver.executor.close()
"""


@pytest.fixture(autouse=True)
def as_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers run as a user whose processes are limited: not as root, for whom the kernel has no limit."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(DROP)} {sys.executable} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@contextmanager
def limited(driver: Driver) -> Iterator[None]:
    """For the time of a block the launcher can start neither process nor thread."""
    pid = driver.launcher_pid()
    wait_for(lambda: os.stat(f"/proc/{pid}").st_uid == USER or not DROP)
    set_limit(pid, 1)
    try:
        yield
    finally:
        set_limit(pid, resource.getrlimit(resource.RLIMIT_NPROC)[0])


def set_limit(pid: int, processes: int) -> None:
    """Set the limit of a process, as its own user."""
    limit = "unlimited" if processes == resource.RLIM_INFINITY else processes
    subprocess.run([*DROP, "prlimit", f"--pid={pid}", f"--nproc={limit}:"], check=True)


@contextmanager
def started(folder: Path, slots: int, gates: int = 0) -> Iterator[Driver]:
    """A driver with as many slots as have run an attempt, and some attempts that wait for a pipe `gate`."""
    os.mkfifo(folder / "gate")
    driver = Driver(folder, slots=slots)
    try:
        driver.executor.start([sh(90 + number, "read line < gate") for number in range(slots)])
        for number in range(slots):
            driver.started(90 + number)
        (folder / "gate").write_text("\n" * slots)
        driver.until_count(Ended, slots)
        driver.executor.start([sh(80 + number, "read line < gate") for number in range(gates)])
        for number in range(gates):
            driver.started(80 + number)
        driver.reports.clear()
        yield driver
    finally:
        driver.executor.close()


def wait_for_line(driver: Driver, line: bytes) -> None:
    """Wait until the launcher's spool has a line."""
    spool = next(Path(driver.folder, "launcher").glob("*.spool"))
    wait_for(lambda: line in spool.read_bytes().splitlines())


def touch(is_slow: bool) -> Launch:
    """An attempt that would make the file `ran`; for a slow one the launcher first searches a long PATH."""
    path = (b"PATH", b":" * FOLDERS + b"/usr/bin:/bin")
    return Launch(1, 1, (b"touch", b"ran"), env=(path,) if is_slow else ())


def test_an_attempt_waits_for_a_process(tmp_path: Path) -> None:
    """While the user has no process left an attempt waits, another one ends, and it starts once there is one."""
    with started(tmp_path, slots=2, gates=1) as driver:
        with limited(driver):
            driver.executor.start([sh(1, "echo done")])
            wait_for_line(driver, b"B 1 1")
            (tmp_path / "gate").write_text("\n")
            assert [report.job for report in driver.until_count(Ended, 1)] == [80]
            assert driver.executor.queued_count() == 1
        first, second = driver.until_count(Ended, 2)
        assert isinstance(second, Ended)
        assert (first.job, second.job, second.wait_status, second.spawn_error) == (80, 1, 0, 0)
        assert driver.out(second) == b"done\n"


@pytest.mark.parametrize("order", ["kill", "drain"])
@pytest.mark.parametrize("is_slow", [False, True])
def test_an_attempt_that_waits_for_a_process_can_be_withdrawn(tmp_path: Path, order: str, is_slow: bool) -> None:
    """A kill or an interrupt ends the wait at once, also if it comes just before, and the attempt never starts."""
    with started(tmp_path, slots=1) as driver, limited(driver):
        driver.executor.start([touch(is_slow)])
        wait_for_line(driver, b"B 1 1")
        if order == "kill":
            driver.executor.kill(1, 1)
        else:
            driver.executor.drain()
        assert [report.job for report in driver.until_count(Withdrawn, 1)] == [1]
        assert driver.reports == driver.until_count(Withdrawn, 1)
    assert not (tmp_path / "ran").exists()


def test_an_attempt_waits_for_the_first_thread(tmp_path: Path) -> None:
    """A launcher that can't open any slot, because it gets no thread for it, tries again."""
    driver = Driver(tmp_path, slots=2)
    try:
        with limited(driver):
            driver.executor.start([sh(1, "true"), sh(2, "true")])
            # The launcher makes the files of a slot before its thread.
            wait_for(lambda: list(Path(driver.folder, "launcher").glob("*-0-0.o")))
            assert driver.executor.reports() == []
        ends = driver.until_count(Ended, 2)
        # Both run at once, so either may end first.
        assert sorted((end.job, end.wait_status, end.spawn_error) for end in ends if isinstance(end, Ended)) == [
            (1, 0, 0),
            (2, 0, 0),
        ]
    finally:
        driver.executor.close()


def test_the_next_engine_does_not_wait_for_what_waits_for_a_process(tmp_path: Path) -> None:
    """Another engine gets the launcher at once, and the waiting attempt is withdrawn for it."""
    with started(tmp_path, slots=1) as driver, limited(driver):
        driver.executor.start([sh(1, "touch ran")])
        wait_for_line(driver, b"B 1 1")
        # As the user of the launcher, which talks to no other.
        other = [*DROP, REAL_PYTHON, "-c", NEXT_ENGINE, str(tmp_path)]
        done = subprocess.run(other, cwd=Path(__file__).parents[3], capture_output=True, check=False)
        assert done.stdout == b"[1]\n", done.stderr.decode()
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize("slots_open", [0, 1])
def test_an_attempt_fails_after_a_minute_without_a_process(tmp_path: Path, slots_open: int) -> None:
    """After a minute without a process, or a thread for the first slot, the failure has kind `spawn`."""
    from resile.executors.outcome import kind_of
    from tests.executors.local import driver as patience

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patience, "DEADLINE_SECONDS", 90.0)
        driver = Driver(tmp_path, slots=1)
        if slots_open:
            driver.shell("true", job=9)
        driver.reports.clear()
        with limited(driver):
            driver.executor.start([sh(1, "touch ran"), sh(2, "touch ran")][: 2 - slots_open])
            ends = driver.until_count(Ended, 2 - slots_open)
        assert {end.spawn_error for end in ends if isinstance(end, Ended)} == {errno.EAGAIN}
        assert {kind_of(end) for end in ends if isinstance(end, Ended)} == {"spawn"}
        assert driver.shell("echo again", job=3).wait_status == 0
        driver.executor.close()
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_run_without_a_process_for_its_launcher_names_the_limit(tmp_path: Path) -> None:
    """If there is no process for the launcher for a while, `run` exits with 2 and says which limit to look at."""
    (tmp_path / "flow.yaml").write_text("resile: 1\nname: t\nsteps: {a: {shell: 'true'}}\n")
    done = subprocess.run(
        [*DROP, "prlimit", "--nproc=1:", REAL_PYTHON, "-m", "resile.cli.main", "run", "flow.yaml"],
        env={**os.environ, "RESILE_DB": str(tmp_path / "resile.db")},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert "can't start the launcher: Resource temporarily unavailable" in done.stderr.decode()
    assert "ulimit -u" in done.stderr.decode()
