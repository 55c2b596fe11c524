"""Attempts start in order, as many at a time as there are slots, and are reported exactly once."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from resile.executors.contract import Ended, Launch, Started, Withdrawn
from resile.executors.local import processes

from .driver import Driver, driving, launcher_folder, number_of, sh, wait_for, wait_until_gone


def test_exit_code_times_and_usage_are_reported(tmp_path: Path) -> None:
    """An attempt that exits with 3 is reported with its status, a start before its end, CPU and memory."""
    with driving(tmp_path) as driver:
        ended = driver.shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3")
    assert ended.wait_status == 3 << 8
    assert ended.started_at < ended.at
    assert ended.cpu_seconds > 0
    assert 1 << 20 < ended.rss_bytes_max < 64 << 20
    assert (ended.reason, ended.spawn_error) == ("", 0)


def test_a_signal_is_reported_as_the_wait_status(tmp_path: Path) -> None:
    """An attempt that kills itself has the signal in its status."""
    with driving(tmp_path) as driver:
        assert driver.shell("kill -SEGV $$").wait_status & 0x7F == 11


def test_one_slot_runs_in_order(tmp_path: Path) -> None:
    """With one slot the attempts run one after the other, in the order in which they were given."""
    with driving(tmp_path, slots=1) as driver:
        driver.run(*(sh(job, f"echo {job} >> order") for job in (3, 1, 2)))
    assert (tmp_path / "order").read_text().split() == ["3", "1", "2"]


def test_as_many_run_at_once_as_there_are_slots(tmp_path: Path) -> None:
    """Two attempts that wait for each other end in two slots, and a third waits for a slot."""
    for name in "ab":
        os.mkfifo(tmp_path / name)
    with driving(tmp_path) as driver:
        driver.run(sh(1, "echo x > a; cat b"), sh(2, "cat a; echo y > b"), sh(3, "true"))
        starts = [report.job for report in driver.reports if isinstance(report, Started)]
        first_end = next(index for index, report in enumerate(driver.reports) if isinstance(report, Ended))
        third = next(i for i, report in enumerate(driver.reports) if isinstance(report, Started) and report.job == 3)
    assert (set(starts[:2]), starts[2:]) == ({1, 2}, [3])
    assert third > first_end
    assert driver.executor.queued_count() == 0


def test_what_is_given_out_at_once_starts_in_its_order(tmp_path: Path) -> None:
    """Eight attempts for eight free slots begin one after the other, as they were given."""
    with driving(tmp_path, slots=8) as driver:
        driver.executor.start([sh(job, "exec sleep 600") for job in range(1, 9)])
        spool = next(iter(wait_for(lambda: list(launcher_folder(tmp_path).glob("*.spool")))))
        wait_for(lambda: spool.read_bytes().count(b"\nS ") == 8)
        said = [line.split()[1] for line in spool.read_bytes().splitlines() if line.startswith(b"S ")]
        for job in range(1, 9):
            driver.executor.kill(job, 1)
        driver.until_count(Ended, 8)
    assert said == [b"%d" % number_of(job) for job in range(1, 9)]


def test_no_words_and_an_empty_word_are_no_programs(tmp_path: Path) -> None:
    """Each is reported as what could not be executed, and the launcher goes on."""
    with driving(tmp_path) as driver:
        ends = driver.run(Launch(1, 1, ()), Launch(2, 1, (b"",)), Launch(3, 1, (b"true",)))
    assert [ends[job].spawn_error for job in (1, 2, 3)] == [errno.EINVAL, errno.ENOENT, 0]


def test_what_is_heard_at_once_is_told_in_the_order_of_the_starts(tmp_path: Path) -> None:
    """A start and its end are one report, unless an attempt that began later ended sooner: then the start is told."""
    said = (
        b"B 1 1\nB 2 1\nS 1 1 5.0 71 1.0 seg 0 0\nS 2 1 6.0 72 1.0 seg 0 0\n"
        b"E 2 1 6.0 7.0 0 0.0 0 seg 0 0 0 0 - 0 - 0\nB 3 1\nS 3 1 7.5 73 1.0 seg 0 0\n"
        b"E 1 1 5.0 8.0 0 0.0 0 seg 0 0 0 0 - 0 - 0\nE 3 1 7.5 9.0 0 0.0 0 seg 0 0 0 0 - 0 - 0\n"
    )
    with driving(tmp_path) as driver:
        driver.executor._ours.update(dict.fromkeys(((1, 1), (2, 1), (3, 1)), False))
        driver.executor._take(said)
        reports = driver.executor.reports()
    assert [(type(report), report.job, getattr(report, "pid", 0)) for report in reports] == [
        (Started, 1, 71),
        (Ended, 2, 72),
        (Ended, 1, 0),
        (Ended, 3, 73),
    ]


def test_two_thousand_attempts_are_each_reported_once(tmp_path: Path) -> None:
    """Of 2,000 attempts each starts once and ends once, whatever was acknowledged in between."""
    with driving(tmp_path) as driver:
        driver.executor.start([Launch(job, 1, (b"true",)) for job in range(2000)])
        driver.until(lambda reports: (driver.executor.acknowledge() or len(reports)) >= 4000)
        starts = sorted(report.job for report in driver.reports if isinstance(report, Started))
        ends = sorted(report.job for report in driver.reports if isinstance(report, Ended))
        assert starts == ends == list(range(2000))
        spool = next(launcher_folder(tmp_path).glob("*.spool"))
        assert spool.stat().st_size < 1 << 20


def test_the_environment_is_added_to_and_path_is_the_attempts_own(tmp_path: Path) -> None:
    """An attempt sees the base environment, its own additions, and is looked up in its own PATH."""
    tool = tmp_path / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "$GREETING $HOME"\n')
    tool.chmod(0o755)
    env = ((b"PATH", os.fsencode(tool.parent) + b":/usr/bin:/bin"), (b"GREETING", b"hi"))
    with driving(tmp_path) as driver:
        ends = driver.run(Launch(1, 1, (b"tool",), env), Launch(2, 1, (b"tool",)))
    assert driver.out(ends[1]) == f"hi {os.environ['HOME']}\n".encode()
    assert (ends[2].spawn_error, ends[2].spawn_stage) == (errno.ENOENT, "exec")


def test_a_program_is_found_in_the_attempts_own_folders(tmp_path: Path) -> None:
    """Of the attempt's PATH a folder and a file that can't run are passed over; relative parts start where it runs."""
    for folder in ("a/tool", "b", "inner/c"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "b" / "tool").write_text("not a program")
    (tmp_path / "inner" / "c" / "tool").write_text("#!/bin/sh\necho found in $PWD\n")
    (tmp_path / "inner" / "c" / "tool").chmod(0o755)
    before = os.fsencode(tmp_path / "a") + b":" + os.fsencode(tmp_path / "b")
    found = ((b"PATH", before + b"::c"),)
    refused = ((b"PATH", before),)
    with driving(tmp_path) as driver:
        ends = driver.run(
            Launch(1, 1, (b"tool",), found, cwd=b"inner"),
            Launch(2, 1, (b"tool",), refused),
            Launch(3, 1, (b"tool",), refused, cwd=b"missing"),
        )
    assert driver.out(ends[1]) == f"found in {tmp_path}/inner\n".encode()
    assert (ends[2].spawn_error, ends[2].spawn_stage) == (errno.EACCES, "exec")
    assert (ends[3].spawn_error, ends[3].spawn_stage) == (errno.ENOENT, "cwd")


def test_a_variable_that_all_attempts_have_can_be_changed_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an attempt says of a variable counts for it alone, and stands once in its environment; so does its mark."""
    monkeypatch.setenv("RESILE_ATTEMPT", "outer:7:7")
    with driving(tmp_path) as driver:
        ends = driver.run(
            Launch(1, 1, (b"env",), ((b"HOME", b"/moon"), (b"HOME", b"/mars"))),
            Launch(2, 1, (b"env",)),
        )
    for job, home in ((1, "/mars"), (2, os.environ["HOME"])):
        said = [line for line in driver.out(ends[job]).decode().splitlines() if line.startswith(("HOME=", "RESILE_A"))]
        assert sorted(line.partition(":")[2] or line for line in said) == sorted(
            [f"HOME={home}", f"{number_of(job)}:1"]
        )


def test_a_big_environment_arrives_whole(tmp_path: Path) -> None:
    """A megabyte of environment, more than a socket takes at once, reaches the attempt."""
    env = tuple((b"BIG%d" % number, b"x" * 100_000) for number in range(10))
    with driving(tmp_path) as driver:
        ended = driver.run(Launch(1, 1, (b"sh", b"-c", b"echo ${#BIG0} ${#BIG9}"), env))[1]
    assert driver.out(ended) == b"100000 100000\n"


def test_too_much_for_the_system_is_a_spawn_error(tmp_path: Path) -> None:
    """An argument longer than the kernel takes is reported, not raised."""
    with driving(tmp_path) as driver:
        ended = driver.run(Launch(1, 1, (b"true", b"x" * (1 << 18))))[1]
    assert (ended.spawn_error, ended.spawn_stage) == (errno.E2BIG, "exec")


def test_a_nul_can_not_be_started(tmp_path: Path) -> None:
    """An argument with a NUL ends with a spawn error and disturbs nobody else."""
    with driving(tmp_path) as driver:
        ends = driver.run(Launch(1, 1, (b"echo", b"a\0b")), Launch(2, 1, (b"echo", b"fine")))
    assert ends[1].spawn_error == errno.EINVAL
    assert driver.out(ends[2]) == b"fine\n"


def test_a_missing_program_uses_the_fallback(tmp_path: Path) -> None:
    """Where argv can't be executed the fallback is, and a shell then says what was wrong."""
    with driving(tmp_path) as driver:
        missing = Launch(1, 1, (b"no-such-program",), fallback=(b"sh", b"-c", b"no-such-program"))
        plain = Launch(2, 1, (b"no-such-program",))
        ends = driver.run(missing, plain)
    assert ends[1].wait_status == 127 << 8
    assert b"not found" in driver.err(ends[1])
    assert (ends[2].spawn_error, ends[2].spawn_stage) == (errno.ENOENT, "exec")
    assert ends[2].log.segment == ""


def test_working_directories(tmp_path: Path) -> None:
    """An attempt runs in its directory, a relative one is the run's, and a missing one is a spawn error."""
    (tmp_path / "inner").mkdir()
    pwd = (b"pwd",)
    with driving(tmp_path) as driver:
        launches = [
            Launch(job, 1, pwd, cwd=cwd)
            for job, cwd in enumerate((b"", b"inner", os.fsencode(tmp_path / "inner"), b"missing", b""))
        ]
        ends = driver.run(*launches)
    inner, home = f"{tmp_path}/inner\n".encode(), f"{tmp_path}\n".encode()
    assert [driver.out(ends[job]) for job in (0, 1, 2, 4)] == [home, inner, inner, home]
    assert (ends[3].spawn_error, ends[3].spawn_stage) == (errno.ENOENT, "cwd")


def test_a_missing_program_is_blamed_in_a_directory_that_was_missing_before(tmp_path: Path) -> None:
    """An attempt fails at the run's directory while that is missing, and at its program once it is there."""
    directory = tmp_path / "later"
    driver = Driver(tmp_path, directory=directory)
    try:
        first = driver.shell("true", job=1)
        directory.mkdir()
        second = driver.run(Launch(2, 1, (b"no-such-program",)))[2]
        third = driver.shell("pwd", job=3)
        assert driver.out(third) == os.fsencode(directory) + b"\n"
    finally:
        driver.executor.close()
    assert (first.spawn_error, first.spawn_stage) == (errno.ENOENT, "cwd")
    assert (second.spawn_error, second.spawn_stage) == (errno.ENOENT, "exec")
    assert third.wait_status == 0


def test_attempts_start_with_default_signals_and_no_input(tmp_path: Path) -> None:
    """No ordinary signal is ignored or blocked, stdin is empty, and only three descriptors are open."""
    with open(tmp_path / "inherited", "w") as file:
        os.set_inheritable(file.fileno(), True)
        with driving(tmp_path) as driver:
            ended = driver.shell("grep -E '^Sig(Blk|Ign)' /proc/self/status; cat; ls /proc/self/fd | wc -l")
    blocked, ignored, descriptors = driver.out(ended).split()[1::2] + driver.out(ended).split()[4:]
    assert (int(blocked, 16), int(ignored, 16) & 0x7FFFFFFF, descriptors) == (0, 0, b"4")


def test_a_queued_attempt_can_be_withdrawn(tmp_path: Path) -> None:
    """Killing one that waits withdraws exactly that one; draining withdraws the rest; what runs goes on."""
    os.mkfifo(tmp_path / "gate")
    with driving(tmp_path, slots=1) as driver:
        driver.executor.start([sh(1, "cat gate"), sh(2, "touch two"), sh(3, "touch three"), sh(4, "touch four")])
        driver.started(1)
        assert driver.executor.queued_count() == 3
        driver.executor.kill(3, 1)
        withdrawn = driver.until_count(Withdrawn, 1)
        assert [report.job for report in withdrawn] == [3]
        driver.executor.drain()
        withdrawn = driver.until_count(Withdrawn, 3)
        assert [report.job for report in withdrawn] == [3, 2, 4]
        (tmp_path / "gate").write_text("go")
        ended = driver.until_count(Ended, 1)[0]
        assert isinstance(ended, Ended)
        assert (ended.job, ended.wait_status) == (1, 0)
        assert driver.run(sh(5, "exit 5"))[5].wait_status == 5 << 8
    assert not any((tmp_path / name).exists() for name in ("two", "three", "four"))


def test_the_launcher_and_its_files_go_when_all_is_acknowledged(tmp_path: Path) -> None:
    """After the last acknowledgement only the segments are left, readable by their owner alone."""
    driver = Driver(tmp_path)
    driver.shell("echo hi")
    pid = driver.launcher_pid()
    driver.executor.acknowledge()
    driver.executor.close(finished=True)
    wait_until_gone(pid)
    left = sorted(path.name.partition("-")[2] for path in (tmp_path / "launcher").iterdir())
    assert left == ["0-0.e", "0-0.o"]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "launcher").iterdir()} == {0o600}
    assert (tmp_path / "launcher").stat().st_mode & 0o777 == 0o700


def test_a_long_folder_is_no_obstacle(tmp_path: Path) -> None:
    """The launcher can be found again in a folder whose path is longer than a socket's may be."""
    folder = tmp_path / ("deep" * 30) / ("deeper" * 30)
    folder.mkdir(parents=True)
    os.mkfifo(folder / "gate")
    with driving(folder) as driver:
        driver.executor.start([sh(1, "cat gate; echo done")])
        driver.started(1)
    with driving(folder) as later:
        later.executor.find(dict.fromkeys([(1, 1)], False))
        (folder / "gate").write_text("go")
        ended = later.until_count(Ended, 1)[0]
        assert isinstance(ended, Ended)
        assert later.out(ended) == b"godone\n"


def test_a_start_is_told_by_itself_or_with_the_end_and_never_twice(tmp_path: Path) -> None:
    """Whichever it is, somebody hears the pid of every attempt exactly once."""
    with driving(tmp_path) as driver:
        driver.executor.start([Launch(number, 1, (b"true",)) for number in range(1, 41)])
        driver.until(lambda reports: sum(isinstance(report, Ended) for report in reports) == 40)
    started = [report for report in driver.reports if isinstance(report, Started)]
    assert sorted(report.job for report in started) == list(range(1, 41))
    assert all(report.pid > 0 for report in started)


def test_reports_have_the_time_of_the_run(tmp_path: Path) -> None:
    """Start, end, refusal and loss are told in seconds since the boot plus the engine's offset, never by the wall."""
    offset = 5_000_000_000.0
    driver = Driver(tmp_path, clock_offset=offset)
    began = processes.boot_seconds() + offset
    ended = driver.shell("true", 1)
    refused = driver.run(Launch(2, 1, (b"/no/such/program",)), Launch(3, 1, (b"a\0b",)))
    driver.executor.find(dict.fromkeys([(9, 1)], False))
    (withdrawn,) = driver.until_count(Withdrawn, 1)
    times = [ended.started_at, ended.at, refused[2].at, refused[3].at, withdrawn.at]
    assert [at for at in times if not began - 0.001 <= at < began + 60.0] == []
    driver.executor.close()
    again = Driver(tmp_path, clock_offset=offset + 100.0)
    assert again.shell("true", 4).started_at >= began + 99.0
    again.executor.close()
