"""Engines with older and newer leases at one launcher: work of the older one is refused."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from resile.errors import ResileError
from resile.executors.contract import Adopted, Ended, Lost, Withdrawn
from resile.executors.fence import OPEN, Fence, FenceAt, create_open
from resile.executors.local import executor, prestart

from .driver import Driver, driving, lives, sh, wait_for


class LeaseLost(Exception):
    """What the store says to an engine whose lease another one has."""


def lose() -> None:
    """Try to renew a lost lease."""
    raise LeaseLost


def test_a_newer_fence_closes_the_older_ones(tmp_path: Path) -> None:
    """The newest engine alone has an open fence, and an older one that opens its fence later is refused."""
    first, second = Fence(str(tmp_path), 5, lose), Fence(str(tmp_path), 7, lose)
    assert (first.is_closed(), second.is_closed()) == (True, False)
    second.check()
    with pytest.raises(LeaseLost):
        first.check()
    with pytest.raises(LeaseLost):
        Fence(str(tmp_path), 6, lose)
    assert [path.name for path in tmp_path.iterdir()] == ["engine-7.fence"]
    assert not second.is_closed()
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_fences_of_one_file_close_one_by_one(tmp_path: Path) -> None:
    """A server's fences are names of one file: closing one, by its name, leaves those of other runs open."""
    shared = tmp_path / "runs.fence"
    os.close(create_open(str(shared)))
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
    one, two = (Fence(str(tmp_path / run), 5, lose, shared=str(shared)) for run in ("one", "two"))
    assert os.path.samefile(one.path, two.path)
    seen = [FenceAt(os.fsencode(fence.path)) for fence in (one, two)]
    newer = Fence(str(tmp_path / "one"), 7, lose)
    assert [fence.is_closed() for fence in (one, two, newer)] == [True, False, False]
    assert [fence.is_closed() for fence in seen] == [True, False]
    with pytest.raises(LeaseLost):
        one.check()
    two.close()
    assert seen[1].is_closed()
    assert shared.read_bytes() == OPEN


def test_a_fence_is_a_file_of_its_own_where_it_cannot_be_shared(tmp_path: Path) -> None:
    """Without the file of the server, or without room for one more name, an engine makes its own."""
    fence = Fence(str(tmp_path), 5, lose, shared=str(tmp_path / "gone"))
    assert Path(fence.path).read_bytes() == OPEN
    assert not fence.is_closed()
    fence.close()
    assert list(tmp_path.iterdir()) == []


def test_a_fence_without_a_newer_engine_is_named(tmp_path: Path) -> None:
    """If the store confirms the lease although a newer fence is there, the message says what to remove."""
    newer = Fence(str(tmp_path), 7, lose)
    with pytest.raises(ResileError) as refused:
        Fence(str(tmp_path), 6, lambda: None)
    assert refused.value.message == "another engine has taken over the folder of this run"
    assert refused.value.hint == f"if no other engine drives this run, remove {tmp_path}/engine-*.fence"
    newer.close()


def test_the_launcher_of_a_newer_engine_refuses_the_older_one(tmp_path: Path) -> None:
    """An engine that comes late to a launcher with a newer engine is refused, and that one is not disturbed."""
    os.mkfifo(tmp_path / "gate")
    now = time.time_ns() // 1000
    with driving(tmp_path) as newer:
        newer.executor.start([sh(1, "read line < gate")])
        pid = newer.started(1).pid
        # As if this engine had been stopped after it opened its fence, and before it connected.
        late = Fence(str(tmp_path / "launcher"), now - 10**9, lose)
        with pytest.raises(LeaseLost):
            Driver(tmp_path, fence=late)
        assert lives(pid)
        (tmp_path / "gate").write_text("go\n")
        assert [report.job for report in newer.until_count(Ended, 1)] == [1]


def test_an_engine_whose_launcher_was_taken_over_ends_and_kills_nothing(tmp_path: Path) -> None:
    """The former engine finds its connection closed; what runs is the newer engine's, and nothing starts any more."""
    os.mkfifo(tmp_path / "gate")
    older = Driver(tmp_path, confirm=lose)
    older.executor.start([sh(1, "echo $$ >> one; read line < gate")])
    pid = older.started(1).pid
    with driving(tmp_path) as newer:
        newer.executor.find({(1, 1): False})
        newer.until_count(Adopted, 1)
        older.executor.start([sh(2, "touch ran")])
        with pytest.raises(LeaseLost):
            older.until_count(Ended, 1)
        with pytest.raises(LeaseLost):
            older.executor.start([sh(3, "touch ran")])
        older.executor.close()
        assert lives(pid)
        (tmp_path / "gate").write_text("go\n")
        assert [report.job for report in newer.until_count(Ended, 1)] == [1]
    assert not (tmp_path / "ran").exists()


def test_nothing_starts_once_the_fence_is_closed(tmp_path: Path) -> None:
    """A queued attempt whose turn comes after a newer engine closed the fence is withdrawn, though it was accepted."""
    os.mkfifo(tmp_path / "gate")
    with driving(tmp_path, slots=1) as older:
        older.executor.start([sh(1, "read line < gate"), sh(2, "touch ran")])
        older.started(1)
        newer = Fence(str(tmp_path), time.time_ns() // 1000, lose)
        (tmp_path / "gate").write_text("go\n")
        assert [report.job for report in older.until_count(Withdrawn, 1)] == [2]
        assert [report.job for report in older.until_count(Ended, 1)] == [1]
        newer.close()
    assert not (tmp_path / "ran").exists()


def test_a_new_launcher_of_an_older_engine_starts_nothing(tmp_path: Path) -> None:
    """A launcher that is configured after its engine's fence was closed ends, and leaves the folder's socket alone."""
    started = prestart.prestart()
    launcher = started.pid
    os.kill(launcher, signal.SIGSTOP)
    older = Driver(tmp_path, launcher=started)
    older.executor.start([sh(1, "touch ran")])
    newer = Fence(str(tmp_path), time.time_ns() // 1000, lose)
    os.kill(launcher, signal.SIGCONT)
    wait_for(lambda: not lives(launcher))
    assert not (tmp_path / "launcher" / "socket").exists()
    assert not (tmp_path / "ran").exists()
    older.executor.close()
    newer.close()


def test_a_stopped_launcher_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next engine kills a launcher that does not answer, with its attempts, and reports them as lost."""
    assert executor.CONNECT_SECONDS_MAX + executor.GREETING_SECONDS_MAX <= 60.0
    monkeypatch.setattr(executor, "CONNECT_SECONDS_MAX", 0.2)
    monkeypatch.setattr(executor, "GREETING_SECONDS_MAX", 0.2)
    first = Driver(tmp_path)
    first.executor.start([sh(1, "exec sleep 600")])
    pid, launcher = first.started(1).pid, first.launcher_pid()
    os.kill(launcher, signal.SIGSTOP)
    with driving(tmp_path) as second:
        second.executor.find({(1, 1): False})
        assert [report.job for report in second.until_count(Lost, 1)] == [1]
        wait_for(lambda: not lives(pid) and not lives(launcher))
        assert second.shell("echo 2", job=1).wait_status == 0
    first.executor.close()
