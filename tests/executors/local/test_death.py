"""kill -9 of the engine, of the launcher, of both: what ended counts once, what runs is adopted or lost."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from resile.errors import ResileError
from resile.executors.contract import Adopted, Ended, Lost, OutputLost, Report, Started, Withdrawn
from resile.executors.local import recovery
from resile.executors.local.executor import SILENT_DEATHS_MAX
from resile.executors.local.greeting import read_greeting
from resile.executors.local.launcher import system_calls
from resile.executors.local.wire import frame

from .driver import driving, launcher_folder, lives, number_of, read_pid, sh, wait_for, wait_until_gone

ROOT = Path(__file__).parents[3]


@contextmanager
def dead_engine(folder: Path, *texts: str) -> Iterator[None]:
    """An engine that started these commands and was killed by kill -9 when two of them ran."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    argv = [sys.executable, "-m", "tests.executors.local.engine", str(folder), *texts]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, cwd=ROOT) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == b"ready\n"
        engine.kill()
        engine.wait()
    yield


def launcher_pid(folder: Path) -> int:
    """The process of the launcher that wrote the folder's spool."""
    spool = next(folder.rglob("launcher/*.spool"))
    author, _ = recovery.read_spool(str(spool))
    assert author is not None
    return author.pid


def kinds(reports: list[Report]) -> dict[int, list[str]]:
    """What was reported of each job, in order."""
    found: dict[int, list[str]] = {}
    for report in reports:
        found.setdefault(report.job, []).append(type(report).__name__)
    return found


def test_running_attempts_are_adopted(tmp_path: Path) -> None:
    """After kill -9 of the engine what runs is adopted and ends once, what waited is withdrawn, its log is whole."""
    os.mkfifo(tmp_path / "gate")
    with (
        dead_engine(tmp_path, "echo one; cat gate; exit 4", "echo $$ > two; exec sleep 600", "touch three"),
        driving(tmp_path) as driver,
    ):
        driver.executor.find(dict.fromkeys([(1, 1), (2, 1), (3, 1)], False))
        driver.until(lambda reports: len(reports) >= 3)
        assert kinds(driver.reports) == {1: ["Adopted"], 2: ["Adopted"], 3: ["Withdrawn"]}
        adopted = {report.job: report for report in driver.reports if isinstance(report, Adopted)}
        assert adopted[2].pid == read_pid(tmp_path / "two")
        driver.executor.acknowledge()
        assert len(list(launcher_folder(tmp_path).glob("*.spool"))) == 1
        (tmp_path / "gate").write_text("more\n")
        ended = driver.until_count(Ended, 1)[0]
        assert isinstance(ended, Ended)
        assert (ended.job, ended.wait_status, driver.out(ended)) == (1, 4 << 8, b"one\nmore\n")
        driver.executor.kill(2, 1)
        driver.until_count(Ended, 2)
        assert kinds(driver.reports) == {1: ["Adopted", "Ended"], 2: ["Adopted", "Ended"], 3: ["Withdrawn"]}
    assert not (tmp_path / "three").exists()


def test_exits_without_an_engine_are_in_the_spool(tmp_path: Path) -> None:
    """An attempt that ends while no engine is there is reported by the next one, though the launcher has gone."""
    os.mkfifo(tmp_path / "gate")
    with dead_engine(tmp_path, "read x < gate; exit 5", "sleep 0"):
        pid = launcher_pid(tmp_path)
        (tmp_path / "gate").write_text("go\n")
        wait_until_gone(pid)
    with driving(tmp_path) as driver:
        driver.executor.find(dict.fromkeys([(1, 1), (2, 1), (3, 1)], False))
        driver.until(lambda reports: len(reports) >= 3)
        ends = {report.job: report.wait_status for report in driver.reports if isinstance(report, Ended)}
        assert ends == {1: 5 << 8, 2: 0}
        assert kinds(driver.reports)[3] == ["Withdrawn"]
        spools = set(launcher_folder(tmp_path).glob("*.spool"))
        driver.executor.acknowledge()
        assert len(spools - set(launcher_folder(tmp_path).glob("*.spool"))) == 1


def test_nothing_is_lost_when_the_next_engine_dies_before_it_acknowledged(tmp_path: Path) -> None:
    """An engine that found the results and died is followed by one that finds them again."""
    with dead_engine(tmp_path, "exit 6"):
        wait_until_gone(launcher_pid(tmp_path))
    for _ in range(2):
        with driving(tmp_path) as driver:
            driver.executor.find(dict.fromkeys([(1, 1)], False))
            assert [report.job for report in driver.until_count(Ended, 1)] == [1]


def test_engine_and_launcher_dead(tmp_path: Path) -> None:
    """When both are killed what ran is lost and its processes are gone, escapees too; what waited is withdrawn."""
    escapee = "setsid sh -c 'echo $$ > escapee; exec sleep 600' & echo $$ > leader; wait"
    # Without its tag and its parent, in a group of its own: only its session says whose it is.
    code = "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(600)"
    bare = f"(env -i {sys.executable} -c '{code}' > bare &); echo $$ > second; exec sleep 600"
    with dead_engine(tmp_path, escapee, bare, "touch three"):
        pids = [read_pid(tmp_path / name) for name in ("escapee", "leader", "bare", "second")]
        assert os.getpgid(pids[2]) != os.getpgid(pids[3]) == os.getsid(pids[2])
        launcher = launcher_pid(tmp_path)
        os.kill(launcher, signal.SIGKILL)
        wait_until_gone(launcher)
    with driving(tmp_path) as driver:
        driver.executor.find(dict.fromkeys([(1, 1), (2, 1), (3, 1)], False))
        driver.until(lambda reports: len(reports) >= 3)
        assert kinds(driver.reports) == {1: ["Lost"], 2: ["Lost"], 3: ["Withdrawn"]}
        assert not any(lives(pid) for pid in pids)
        assert driver.run(sh(1, "echo again", attempt=2))[1].wait_status == 0
    assert not (tmp_path / "three").exists()


def test_a_launcher_that_dies_under_its_engine(tmp_path: Path) -> None:
    """Ended before its death: reported; running: lost and gone; queued: withdrawn; the next start works."""
    with driving(tmp_path) as driver:
        driver.shell("exit 3", job=9)
        driver.executor.start([sh(1, "echo $$ > one; exec sleep 600"), sh(2, "sleep 600"), sh(3, "touch three")])
        driver.started(2)
        os.kill(driver.launcher_pid(), signal.SIGKILL)
        driver.until_count(Lost, 2)
        driver.until_count(Withdrawn, 1)
        expected = {9: ["Started", "Ended"], 1: ["Started", "Lost"], 2: ["Started", "Lost"], 3: ["Withdrawn"]}
        assert kinds(driver.reports) == expected
        assert driver.executor.queued_count() == 0
        assert not lives(read_pid(tmp_path / "one"))
        assert driver.run(sh(4, "exit 8"))[4].wait_status == 8 << 8
        driver.executor.acknowledge()
        assert len(list(launcher_folder(tmp_path).glob("*.spool"))) == 1


def test_exits_that_reached_the_spool_count(tmp_path: Path) -> None:
    """An end that the launcher wrote down but did not tell before it was killed is reported from the spool."""
    os.mkfifo(tmp_path / "gate")
    with driving(tmp_path) as driver:
        driver.executor.start([sh(1, "read x < gate; exit 3")])
        driver.started(1)
        pid = driver.launcher_pid()
        (tmp_path / "gate").write_text("go\n")
        spool = next(launcher_folder(tmp_path).glob("*.spool"))
        wait_for(lambda: b"\nE %d 1 " % number_of(1) in spool.read_bytes())
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid)
        ended = driver.until_count(Ended, 1)[0]
        assert isinstance(ended, Ended)
        assert ended.wait_status == 3 << 8


def test_leftovers_of_ended_attempts_survive_the_launcher(tmp_path: Path) -> None:
    """Only what is in doubt is killed: a background process of an attempt that had ended is left alone."""
    with driving(tmp_path) as driver:
        driver.shell("sleep 600 > out 2>&1 & echo $! > left", job=1)
        driver.executor.start([sh(2, "sleep 600")])
        driver.started(2)
        os.kill(driver.launcher_pid(), signal.SIGKILL)
        driver.until_count(Lost, 1)
    left = read_pid(tmp_path / "left")
    assert lives(left)
    os.kill(left, signal.SIGKILL)


def test_a_process_that_was_never_recorded_is_lost_not_withdrawn(tmp_path: Path) -> None:
    """A launcher killed between spawn and spool leaves a marked process: it is killed and the attempt is lost."""
    with driving(tmp_path) as driver:
        driver.executor.start([sh(1, "echo $$ > one; exec sleep 600")])
        one = read_pid(tmp_path / "one")
        spool = next(launcher_folder(tmp_path).glob("*.spool"))
        wait_for(lambda: b"\nS %d 1 " % number_of(1) in spool.read_bytes())
        launcher = driver.launcher_pid()
        os.kill(launcher, signal.SIGKILL)
        wait_until_gone(launcher)
        header = spool.read_bytes().partition(b"\n")[0] + b"\n"
        spool.write_bytes(header + b"S %d 1 17" % number_of(1))
        lost = driver.until_count(Lost, 1)[0]
        assert isinstance(lost, Lost)
    assert not lives(one)


def test_a_later_epoch_does_not_take_results_of_an_earlier_one(tmp_path: Path) -> None:
    """Attempts of another label are ended, dead or alive, and never answer for this one's."""
    with dead_engine(tmp_path, "echo $$ > one; exec sleep 600", "exit 3"):
        one = read_pid(tmp_path / "one")
        with driving(tmp_path, label="1:2") as driver:
            driver.executor.find(dict.fromkeys([(1, 1), (2, 1)], False))
            driver.until(lambda reports: len(reports) >= 2)
            assert kinds(driver.reports) == {1: ["Withdrawn"], 2: ["Withdrawn"]}
            assert not lives(one)
            assert driver.run(sh(1, "exit 2"))[1].wait_status == 2 << 8


def test_a_bad_frame_costs_the_connection_not_the_attempts(tmp_path: Path) -> None:
    """Somebody who talks nonsense is cut off; the launcher goes on, and an engine can connect again."""
    os.mkfifo(tmp_path / "gate")
    with dead_engine(tmp_path, "cat gate", "true"):
        for nonsense in (b"\xff\xff\xff\xff", frame(b"?"), frame(b"S", b"x"), frame(b"K"), frame(b"A", b"-")):
            connection = wait_for(lambda: system_calls.connect(os.fsencode(launcher_folder(tmp_path))))
            connection.sendall(nonsense)
            while connection.recv(65536):
                pass
            connection.close()
        with driving(tmp_path) as driver:
            driver.executor.find(dict.fromkeys([(1, 1)], False))
            driver.until_count(Adopted, 1)
            (tmp_path / "gate").write_text("fine")
            ended = driver.until_count(Ended, 1)[0]
            assert isinstance(ended, Ended)
            assert driver.out(ended) == b"fine"


def test_four_that_say_nothing_may_wait(tmp_path: Path) -> None:
    """One more costs the connection that came first, so that silent ones can't keep an engine out."""
    os.mkfifo(tmp_path / "gate")
    with dead_engine(tmp_path, "cat gate", "true"):
        folder = os.fsencode(launcher_folder(tmp_path))
        first, *others = [wait_for(lambda: system_calls.connect(folder)) for _ in range(4)]
        fifth = wait_for(lambda: system_calls.connect(folder))
        fifth.sendall(frame(b"?"))
        assert fifth.recv(1) == first.recv(1) == b""
        assert select.select(others, [], [], 0)[0] == []
        for connection in (first, *others, fifth):
            connection.close()
        (tmp_path / "gate").write_text("fine")


def test_an_engine_that_does_not_read_holds_up_nobody(tmp_path: Path) -> None:
    """Attempts go on and end though their reports do not fit into the socket; all of them come later."""
    with driving(tmp_path) as driver:
        count = 3000
        driver.executor.start([sh(job, ":") for job in range(count)])
        spool = next(iter(wait_for(lambda: list(launcher_folder(tmp_path).glob("*.spool")))))
        wait_for(lambda: b"\nE %d 1 " % number_of(count - 1) in spool.read_bytes())
        driver.until_count(Ended, count)
        starts = [report.job for report in driver.reports if isinstance(report, Started)]
        assert sorted(starts) == list(range(count))


def test_what_was_not_acknowledged_survives_an_orderly_close(tmp_path: Path) -> None:
    """Closing says nothing about what is on disk: the next engine is told again."""
    with driving(tmp_path) as driver:
        driver.shell("exit 3")
    with driving(tmp_path) as later:
        later.executor.find(dict.fromkeys([(1, 1)], False))
        ended = later.until_count(Ended, 1)[0]
        assert isinstance(ended, Ended)
        assert ended.wait_status == 3 << 8


@pytest.mark.parametrize(("has_ctypes", "hint"), [(True, "*.crash"), (False, "built without ctypes")])
def test_a_launcher_that_always_dies_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ctypes: bool, hint: str
) -> None:
    """An interpreter that can't run the launcher is reported after some tries, with its reason where that is known."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    if not has_ctypes:
        monkeypatch.setitem(sys.modules, "ctypes", None)
    with driving(tmp_path) as driver:
        for attempt in range(1, SILENT_DEATHS_MAX):
            driver.executor.start([sh(1, "true", attempt=attempt)])
            driver.until_count(Withdrawn, attempt)
        driver.executor.start([sh(1, "true", attempt=SILENT_DEATHS_MAX)])
        with pytest.raises(ResileError, match="dies as soon as it is started") as caught:
            driver.until_count(Withdrawn, SILENT_DEATHS_MAX)
        assert hint in caught.value.hint


def test_another_number_of_slots_at_a_resume(tmp_path: Path) -> None:
    """Slots that come and go with the engines never share a segment."""
    for name in ("one", "two"):
        os.mkfifo(tmp_path / name)
    with driving(tmp_path, slots=2) as first:
        first.executor.start([sh(1, "cat one"), sh(2, "cat two")])
        first.started(2)
    with driving(tmp_path, slots=1) as second:
        second.executor.find(dict.fromkeys([(1, 1), (2, 1)], False))
        (tmp_path / "one").write_text("1")
        second.until_count(Ended, 1)
    with driving(tmp_path, slots=2) as third:
        third.executor.find(dict.fromkeys([(2, 1)], False))
        third.run(sh(3, "echo 3"))
        (tmp_path / "two").write_text("2")
        ends = {report.job: report for report in third.until_count(Ended, 2) if isinstance(report, Ended)}
        assert (third.out(ends[2]), third.out(ends[3])) == (b"2", b"3\n")
        assert ends[2].log.segment != ends[3].log.segment


def test_a_number_given_out_again_has_the_newest_word(tmp_path: Path) -> None:
    """An attempt that was withdrawn and later ran under the same number has ended, whichever spool is read first."""
    with driving(tmp_path, slots=1) as driver:
        driver.executor.start([sh(1, "sleep 600"), sh(2, "true")])
        driver.started(1)
        driver.executor.kill(2, 1)
        driver.until_count(Withdrawn, 1)
        os.kill(driver.launcher_pid(), signal.SIGKILL)
        driver.until_count(Lost, 1)
        assert driver.run(sh(2, "exit 5"))[2].wait_status == 5 << 8
    assert len(list(launcher_folder(tmp_path).glob("*.spool"))) == 2
    with driving(tmp_path) as later:
        later.executor.find(dict.fromkeys([(2, 1)], False))
        ended = later.until(bool)[0]
        assert isinstance(ended, Ended)
        assert ended.wait_status == 5 << 8


def test_a_greeting_may_be_followed_by_news_at_once() -> None:
    """What a launcher says right behind its greeting is kept apart from it, though it comes in one piece."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"H 1 t 5 6 boot 1:1\nS 1 1 0 9 0 t-0-0 0 0\nR\nE 1 1 and so")
        assert read_greeting(ours) == ([b"H 1 t 5 6 boot 1:1", b"S 1 1 0 9 0 t-0-0 0 0"], b"E 1 1 and so")


def limit_file_size(pid: int, limit: int) -> None:
    """Let a process write files only up to this size, which is how a full disk looks to it."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))


def test_output_that_does_not_fit_on_the_disk_is_known_to_be_lost(tmp_path: Path) -> None:
    """Its range has all that was printed, so it can't be read whole, and no later output gets into it."""
    with driving(tmp_path) as driver:
        driver.shell("true", job=1)
        limit_file_size(driver.launcher_pid(), 8192)
        ended = driver.run(sh(2, "head -c 20000 /dev/zero"))[2]
        assert (ended.wait_status, ended.spawn_error, ended.spawn_stage) == (0, errno.EFBIG, "output")
        assert ended.log.out_length == 20000
        with pytest.raises(OutputLost) as lost:
            driver.out(ended)
        assert lost.value.data == bytes(8192)
        limit_file_size(driver.launcher_pid(), resource.RLIM_INFINITY)
        after = driver.run(sh(3, "echo after"))[3]
        assert (driver.out(after), after.log.segment != ended.log.segment) == (b"after\n", True)
        assert not driver.executor.is_whole(ended.log)


def test_a_full_disk_stops_new_starts_until_there_is_room(tmp_path: Path) -> None:
    """While the spool takes no more nothing is started; when it does again all lines are in it, in order."""
    with driving(tmp_path, slots=1) as driver:
        driver.shell("true", job=1)
        launcher = driver.launcher_pid()
        spool = next(launcher_folder(tmp_path).glob("*.spool"))
        limit_file_size(launcher, spool.stat().st_size + 5)
        driver.shell("true", job=2)
        ended = driver.run(sh(3, "touch three"))[3]
        assert (ended.spawn_error, ended.spawn_stage) == (errno.ENOSPC, "output")
        assert not recovery.has_all_lines(str(spool), [])
        limit_file_size(launcher, resource.RLIM_INFINITY)
        wait_for(lambda: b"\nE %d 1 " % number_of(3) in spool.read_bytes())
        wait_for(lambda: recovery.has_all_lines(str(spool), []))
        assert driver.run(sh(4, "exit 4"))[4].wait_status == 4 << 8
        lines = [line.split()[:2] for line in spool.read_bytes().splitlines()[1:]]
        said = ("B", 1), ("S", 1), ("E", 1), ("B", 2), ("E", 2), ("E", 3), ("B", 4), ("S", 4), ("E", 4)
        assert lines == [[kind.encode(), b"%d" % number_of(job)] for kind, job in said]
    assert not (tmp_path / "three").exists()


def test_a_file_for_output_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    """The system's own number is reported, not a guess that the disk is full."""
    with driving(tmp_path, slots=2) as driver:
        os.mkfifo(tmp_path / "fifo")
        driver.executor.start([sh(1, "echo > here; exec cat < fifo")])
        wait_for((tmp_path / "here").exists)
        (tmp_path / "launcher").rename(tmp_path / "aside")
        ended = driver.run(sh(2, "touch two"))[2]
        (tmp_path / "aside").rename(tmp_path / "launcher")
        assert (ended.spawn_error, ended.spawn_stage) == (errno.ENOENT, "output")
        (tmp_path / "fifo").write_text("")
        driver.until_count(Ended, 1)
    assert not (tmp_path / "two").exists()


def test_an_engine_that_dies_before_its_launcher_got_to_work(tmp_path: Path) -> None:
    """Orders that still wait in the socket of a launcher that has just been started are obeyed at once or never."""
    launch = sh(1, "echo $$ >> one; exec sleep 600")
    with driving(tmp_path) as driver:
        driver.executor.start([launch])
    with driving(tmp_path) as later:
        later.executor.find({(1, 1): False})
        (found,) = later.until(lambda reports: len(reports) == 1)
        if isinstance(found, Withdrawn):
            later.executor.start([launch])
        else:
            assert isinstance(found, Adopted)
        read_pid(tmp_path / "one")
        later.executor.kill(1, 1)
        later.until_count(Ended, 1)
    assert len((tmp_path / "one").read_text().split()) == 1
