"""A thread of the launcher that dies: the attempt of its slot is lost, and all others go on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from resile.executors.contract import Ended, Lost

from .driver import Driver, driving, lives, read_pid, sh, wait_for, wait_until_gone

# A launcher in which a thread ends the thread of each attempt that the file `doomed` names, as an error there would.
DOOMED = """
import os, select, sys
from _thread import start_new_thread
from ctypes import c_ulong, py_object, pythonapi
from resile.executors.local.launcher import main

def end(doomed):
    while True:
        select.select([], [], [], 0.005)
        try:
            key = open(doomed, "rb").read()
        except OSError:
            continue
        for thread, frame in sys._current_frames().items():
            while frame is not None:
                slot = frame.f_locals.get("slot")
                if frame.f_code.co_name == "serve" and (slot.key or b"idle") == key:
                    pythonapi.PyThreadState_SetAsyncExc(c_ulong(thread), py_object(RuntimeError))
                    os.unlink(doomed)
                frame = frame.f_back

start_new_thread(end, (sys.argv[1],))
main.main()
"""


@pytest.fixture(autouse=True)
def fragile_launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers whose threads can be ended."""
    script, program = tmp_path / "doomed.py", tmp_path / "python"
    script.write_text(DOOMED)
    source = Path(__file__).parents[3] / "src"
    program.write_text(f"#!/bin/sh\nPYTHONPATH={source} exec {sys.executable} {script} {tmp_path / 'doomed'}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_only_the_attempt_of_a_dead_thread_is_lost(tmp_path: Path) -> None:
    """The attempt whose thread dies as its leader ends is lost with the rest of its processes, and all others end."""
    os.mkfifo(tmp_path / "one")
    os.mkfifo(tmp_path / "two")
    with driving(tmp_path) as driver:
        first = sh(1, "(trap '' TERM; echo $$ > outer; exec sleep 600) & read line < one")
        driver.executor.start([first, sh(2, "read line < two; echo 2"), sh(3, "echo 3")])
        pids = [driver.started(job).pid for job in (1, 2)]
        sleeper = read_pid(tmp_path / "outer") and wait_for(lambda: child_of(pids[0]))
        launcher = driver.launcher_pid()
        doom(tmp_path, "1 1")
        (tmp_path / "one").write_text("go\n")
        (lost,) = driver.until_count(Lost, 1)
        assert isinstance(lost, Lost)
        assert (lost.job, lost.attempt, lost.why) == (1, 1, "the launcher's thread that watched it died")
        third = driver.until_count(Ended, 1)[0]
        assert isinstance(third, Ended)
        assert (third.job, driver.out(third)) == (3, b"3\n")
        assert lives(pids[1])
        (tmp_path / "two").write_text("go\n")
        second = driver.until_count(Ended, 2)[1]
        assert isinstance(second, Ended)
        assert (second.job, second.wait_status, driver.out(second)) == (2, 0, b"2\n")
        assert driver.launcher_pid() == launcher
        wait_until_gone(sleeper)
        (crash,) = Path(driver.folder, "launcher").glob("*.crash")
        assert crash.read_text().splitlines()[-1] == "RuntimeError"


def test_the_next_engine_hears_what_a_dead_thread_lost(tmp_path: Path) -> None:
    """The spool keeps the line, so that an engine that comes later reports the attempt as lost."""
    os.mkfifo(tmp_path / "one")
    os.mkfifo(tmp_path / "two")
    driver = Driver(tmp_path)
    driver.executor.start([sh(1, "read line < one"), sh(2, "read line < two")])
    for job in (1, 2):
        driver.started(job)
    doom(tmp_path, "1 1")
    (tmp_path / "one").write_text("go\n")
    driver.until_count(Lost, 1)
    driver.executor.close()
    again = Driver(tmp_path)
    again.executor.find(dict.fromkeys([(1, 1), (2, 1)], False))
    assert [report.job for report in again.until_count(Lost, 1)] == [1]
    (tmp_path / "two").write_text("go\n")
    assert [report.job for report in again.until_count(Ended, 1)] == [2]
    again.executor.acknowledge()
    again.executor.close()


def test_the_attempt_of_a_thread_that_died_idle_is_lost(tmp_path: Path) -> None:
    """The slot of a thread that died without an attempt gets at most one more, which never starts."""
    os.mkfifo(tmp_path / "gate")
    with driving(tmp_path, slots=1) as driver:
        driver.shell("true", job=1)
        doom(tmp_path, "idle")
        # The exception reaches the thread when it has work: the attempt is lost, and the next one has a new slot.
        driver.executor.start([sh(2, "touch ran")])
        assert [report.job for report in driver.until_count(Lost, 1)] == [2]
        assert driver.shell("echo 3", job=3).wait_status == 0
    assert not (tmp_path / "ran").exists()


def doom(folder: Path, key: str) -> None:
    """End the thread of an attempt, or one that has none: as soon as it wakes from its system call."""
    (folder / "beside").write_text(key)
    (folder / "beside").rename(folder / "doomed")
    wait_for(lambda: not (folder / "doomed").exists())


def child_of(pid: int) -> int:
    """The first child of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else 0
