"""Timeouts and kills: SIGTERM, a grace, SIGKILL, and nothing of a killed attempt survives."""

from __future__ import annotations

import os
from pathlib import Path

from resile.executors.contract import Ended
from resile.executors.local import processes

from .driver import driving, lives, read_pid, sh, wait_for, wait_until_gone


def test_a_timeout_asks_first(tmp_path: Path) -> None:
    """An attempt that is over its time gets SIGTERM, and what it does about it is its exit."""
    with driving(tmp_path) as driver:
        ended = driver.shell("trap 'echo bye; exit 7' TERM; while :; do sleep 0.01; done", timeout_seconds=0.2)
    assert (ended.reason, ended.wait_status) == ("timeout", 7 << 8)
    assert driver.out(ended) == b"bye\n"
    assert 0.2 <= ended.at - ended.started_at < 5


def test_one_that_does_not_listen_is_killed_after_its_grace(tmp_path: Path) -> None:
    """A process that ignores SIGTERM, and its child that does too, get SIGKILL when the grace is over."""
    text = "trap '' TERM; sh -c 'echo $$ > child; while :; do sleep 1; done' & while :; do sleep 1; done"
    with driving(tmp_path) as driver:
        ended = driver.shell(text, timeout_seconds=0.2, grace_seconds=0.3)
    assert (ended.reason, ended.wait_status) == ("timeout", 9)
    assert 0.5 <= ended.at - ended.started_at < 5
    assert not lives(read_pid(tmp_path / "child"))


def test_a_child_keeps_the_grace_when_its_shell_is_gone(tmp_path: Path) -> None:
    """A shell dies of SIGTERM at once; the command that it ran may still clean up, and its words are kept."""
    child = "trap 'sleep 0.2; echo cleaned; exit' TERM; touch ready; while :; do sleep 0.01; done"
    with driving(tmp_path) as driver:
        driver.executor.start([sh(1, f'sh -c "{child}"; true')])
        read = driver.started(1)
        while not (tmp_path / "ready").exists():
            assert lives(read.pid)
        driver.executor.kill(1, 1)
        ended = driver.until_count(Ended, 1)[0]
    assert isinstance(ended, Ended)
    assert (ended.reason, ended.wait_status) == ("killed", 15)
    assert driver.out(ended) == b"cleaned\n"


def test_a_kill_of_what_is_over_or_ending_changes_nothing(tmp_path: Path) -> None:
    """An attempt that its timeout ends keeps that reason and its grace; one that has ended is ignored."""
    text = "trap 'touch ending; until [ -e go ]; do sleep 0.01; done; exit 7' TERM; while :; do sleep 0.01; done"
    with driving(tmp_path) as driver:
        driver.shell("true", job=1)
        driver.executor.start([sh(2, text, 0.2, 60.0)])
        wait_for((tmp_path / "ending").exists)
        driver.executor.kill(2, 1)
        driver.executor.kill(1, 1)
        assert driver.run(sh(3, "touch go"))[3].wait_status == 0
        ended = {report.job: report for report in driver.until_count(Ended, 3) if isinstance(report, Ended)}
    assert (ended[2].reason, ended[2].wait_status) == ("timeout", 7 << 8)


def test_one_that_left_the_session_is_killed_too(tmp_path: Path) -> None:
    """A child that escaped by setsid does not survive its attempt's kill, even where it ignores SIGTERM."""
    escapee = "trap '' TERM; echo $$ > escapee; while :; do sleep 1; done"
    with driving(tmp_path) as driver:
        driver.executor.start([sh(1, f'setsid sh -c "{escapee.replace("$", chr(92) + "$")}" & wait', 0.0, 0.2)])
        escaped = read_pid(tmp_path / "escapee")
        driver.executor.kill(1, 1)
        driver.until_count(Ended, 1)
    assert not lives(escaped)


def test_a_daemon_of_a_killed_attempt_is_killed_by_its_mark(tmp_path: Path) -> None:
    """A double-forked daemon in a session of its own, its parents gone, is found and killed."""
    with driving(tmp_path) as driver:
        driver.executor.start([sh(1, "(setsid sh -c 'echo $$ > daemon; exec sleep 600' &) ; sleep 600", 0.0, 0.2)])
        daemon = read_pid(tmp_path / "daemon")
        driver.executor.kill(1, 1)
        ended = driver.until_count(Ended, 1)[0]
    assert isinstance(ended, Ended)
    assert ended.reason == "killed"
    assert not lives(daemon)


def test_a_kill_leaves_other_attempts_alone(tmp_path: Path) -> None:
    """Only the processes of the killed attempt are signalled."""
    os.mkfifo(tmp_path / "gate")
    with driving(tmp_path) as driver:
        driver.executor.start([sh(1, "sleep 600"), sh(2, "setsid cat gate")])
        driver.started(2)
        driver.executor.kill(1, 1)
        driver.until_count(Ended, 1)
        (tmp_path / "gate").write_text("untouched")
        ends = {report.job: report for report in driver.until_count(Ended, 2) if isinstance(report, Ended)}
    assert (ends[1].reason, ends[2].reason, ends[2].wait_status) == ("killed", "", 0)
    assert driver.out(ends[2]) == b"untouched"


def test_a_stopped_attempt_can_be_ended(tmp_path: Path) -> None:
    """SIGTERM reaches a process that was stopped, because it is continued."""
    with driving(tmp_path) as driver:
        ended = driver.shell("kill -STOP $$", timeout_seconds=0.2, grace_seconds=20.0)
    assert (ended.reason, ended.wait_status) == ("timeout", 15)


def test_what_a_normal_end_leaves_running_is_left_alone(tmp_path: Path) -> None:
    """A background process outlives the attempt that started it and can't write into a later one's range."""
    os.mkfifo(tmp_path / "gate")
    leftover = "(cat gate; echo INTRUDER; echo INTRUDER >&2; touch wrote; exec sleep 600) & echo $! > pid"
    with driving(tmp_path, slots=1) as driver:
        first = driver.shell(f"{leftover}; echo first", job=1)
        pid = read_pid(tmp_path / "pid")
        assert lives(pid)
        second = driver.run(sh(2, "echo go > gate; until [ -e wrote ]; do :; done; echo second"))[2]
        assert (driver.out(first), driver.out(second), driver.err(second)) == (b"first\n", b"second\n", b"")
        assert lives(pid)
    os.kill(pid, 9)
    wait_until_gone(pid)


def test_the_last_of_very_many_orphans_is_known_too(tmp_path: Path) -> None:
    """The kernel lists a page of children at a time; one beyond the first page still can't write into a later range."""
    os.mkfifo(tmp_path / "gate")
    many = "echo $$ > group; i=0; while [ $i -lt 1000 ]; do sleep 600 & i=$((i+1)); done"
    leftover = "(cat gate; echo INTRUDER; touch wrote) &"
    with driving(tmp_path, slots=1) as driver:
        driver.shell(many, job=1)
        try:
            driver.run(sh(2, leftover))
            third = driver.run(sh(3, "echo go > gate; until [ -e wrote ]; do :; done; echo third"))[3]
            assert driver.out(third) == b"third\n"
        finally:
            os.killpg(read_pid(tmp_path / "group"), 9)


def test_orphans_of_a_running_attempt_do_not_pile_up(tmp_path: Path) -> None:
    """What a long attempt leaves behind falls to the launcher, which takes its exit while the attempt goes on."""
    many = "i=0; while [ $i -lt 50 ]; do (sh -c 'echo $$ >> pids' &); i=$((i+1)); done; touch done; exec sleep 600"
    with driving(tmp_path) as driver:
        driver.executor.start([sh(1, many)])
        wait_for(lambda: (tmp_path / "done").exists() and len((tmp_path / "pids").read_text().split()) == 50)
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        wait_for(lambda: all(processes.read_process(pid) is None for pid in pids))
        assert not any(isinstance(report, Ended) for report in driver.reports)
        driver.executor.kill(1, 1)
        driver.until_count(Ended, 1)


def test_a_daemon_of_a_running_attempt_can_not_write_into_a_later_range(tmp_path: Path) -> None:
    """One that left session and parents while its attempt still ran is treated the same."""
    os.mkfifo(tmp_path / "gate")
    daemon = "(setsid sh -c 'echo $$ > pid; cat gate; echo INTRUDER; touch wrote; exec sleep 600' &)"
    with driving(tmp_path, slots=1) as driver:
        first = driver.shell(f"{daemon}; until [ -e pid ]; do :; done; echo first", job=1)
        second = driver.run(sh(2, "echo go > gate; until [ -e wrote ]; do :; done; echo second"))[2]
        assert (driver.out(first), driver.out(second)) == (b"first\n", b"second\n")
    pid = read_pid(tmp_path / "pid")
    os.kill(pid, 9)
    wait_until_gone(pid)
