"""The executor of functions by itself: what it keeps until it is acknowledged, and what it lets go."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from resile.executors.contract import Launch, Lost, Report, Returned, Started, Withdrawn
from resile.executors.fence import Fence
from resile.executors.functions import spool, waker
from resile.executors.functions.calls import Call
from resile.executors.functions.executor import FunctionExecutor
from resile.executors.functions.spool import SPOOL_BYTES, Spool, records_of

SECONDS_MAX = 30.0


def opened(folder: Path, slots: int = 1, clock_offset: float = 0.0) -> FunctionExecutor:
    """An executor in this folder."""
    fence = Fence(str(folder), time.time_ns() // 1000, lambda: None)
    return FunctionExecutor(
        str(folder), slots=slots, path=sys.path, env=os.environ, fence=fence, clock_offset=clock_offset
    )


def launch(job: int, name: str, workers: str, *args: Any) -> Launch:
    """A call of one of the functions of the tests."""
    call = Call(job, 1, ("", "tests.api.functions", name), list(args))
    return Launch(job, 1, (), call=call, threads=workers == "threads")


def hear(executor: FunctionExecutor, count: int, *, starts: bool = False) -> list[Report]:
    """The next reports, at least so many: of starts, or of anything else."""
    found: list[Report] = []
    poll = select.poll()
    poll.register(executor.fileno(), select.POLLIN)
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count and time.monotonic() < deadline:
        poll.poll(1000)
        found += [report for report in executor.reports() if isinstance(report, Started) is starts]
    return found


def test_reports_have_the_time_of_the_run(tmp_path: Path, workers: Any) -> None:
    """Workers and threads stamp their records with the seconds since the boot plus the engine's offset."""
    offset = 5_000_000_000.0
    executor = opened(tmp_path, clock_offset=offset)
    began = time.clock_gettime(time.CLOCK_BOOTTIME) + offset
    executor.start([launch(1, "add", workers, 1, 2), launch(2, "add", workers, 1, "x")])
    executor.find(dict.fromkeys([(9, 1)], False))
    reports = hear(executor, 3)
    times = [getattr(report, "started_at", report.at) for report in reports] + [report.at for report in reports]
    assert len(times) == 6
    assert [at for at in times if not began <= at < began + 60.0] == []
    executor.close()


def test_what_was_not_acknowledged_is_found_again(tmp_path: Path, workers: Any) -> None:
    """A result that nobody recorded is told to the next engine, and a call that nobody began is withdrawn."""
    first = opened(tmp_path)
    first.start([launch(1, "add", workers, 1, 2)])
    (report,) = hear(first, 1)
    assert isinstance(report, Returned)
    first.close()
    second = opened(tmp_path)
    second.find(dict.fromkeys([(1, 1), (2, 1)], False))
    found, missing = hear(second, 2)
    assert isinstance(found, Returned)
    assert (found.job, found.value) == (1, b"3")
    assert isinstance(missing, Withdrawn)
    second.acknowledge()
    second.close()
    assert list((tmp_path / "functions").iterdir()) == []


def test_a_call_in_doubt_without_a_result_is_lost(tmp_path: Path, workers: Any) -> None:
    """A result counts, but nothing proves that a call in doubt was never begun."""
    first = opened(tmp_path)
    first.start([launch(1, "add", workers, 1, 2)])
    hear(first, 1)
    first.close()
    second = opened(tmp_path)
    second.find({(1, 1): True, (2, 1): True})
    assert [type(report) for report in hear(second, 2)] == [Returned, Lost]
    second.close()


def test_records_of_another_boot_are_no_results(tmp_path: Path, workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were never synced, so parts of them may be missing."""
    first = opened(tmp_path)
    first.start([launch(1, "add", workers, 1, 2)])
    hear(first, 1)
    first.close()
    monkeypatch.setattr(spool, "boot_id", lambda: b"another-boot")
    second = opened(tmp_path)
    second.find({(1, 1): True})
    assert [type(report) for report in hear(second, 1)] == [Lost]
    second.close()


def test_what_was_acknowledged_is_let_go(tmp_path: Path, workers: Any) -> None:
    """After the last acknowledgement nothing is left of the spools, and nothing is found of them."""
    first = opened(tmp_path, slots=2)
    first.start([launch(job, "give", workers, job) for job in range(1, 51)])
    values = {report.job: report.value for report in hear(first, 50) if isinstance(report, Returned)}
    assert values == {job: b"%d" % job for job in range(1, 51)}
    assert first.queued_count() == 0
    first.acknowledge()
    first.close()
    assert list((tmp_path / "functions").iterdir()) == []


def test_drain_takes_back_what_nobody_has_begun(tmp_path: Path) -> None:
    """Calls that wait are withdrawn, each told once, and never made."""
    executor = opened(tmp_path)
    path = str(tmp_path / "began")
    executor.start([launch(1, "slow", "processes", path), *(launch(n, "give", "processes", n) for n in range(2, 9))])
    hear(executor, 1, starts=True)
    executor.drain()
    withdrawn = [report.job for report in hear(executor, 7) if isinstance(report, Withdrawn)]
    assert withdrawn == list(range(2, 9))
    executor.kill(1, 1)
    (ended,) = hear(executor, 1)
    assert (ended.job, getattr(ended, "reason", "")) == (1, "killed")
    executor.acknowledge()
    executor.close()


def test_to_close_does_not_wait_for_the_next_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks after time limits is sent home at once, however long it would still have waited."""
    monkeypatch.setattr(waker, "TICK_SECONDS", 4 * SECONDS_MAX)
    executor = opened(tmp_path)
    executor.start([launch(1, "add", "threads", 1, 2)])
    begin = time.monotonic()
    executor.close()
    assert time.monotonic() - begin < SECONDS_MAX


def test_a_full_spool_is_followed_by_the_next(tmp_path: Path) -> None:
    """Records that do not fit into one file stand in the next, larger ones in a file of their own."""
    from resile.executors.functions.calls import Done, encode_record

    spool = Spool(str(tmp_path / "w"), "thread")
    sizes = [1, SPOOL_BYTES // 2, SPOOL_BYTES // 2, 3 * SPOOL_BYTES, 1]
    for number, size in enumerate(sizes, 1):
        spool.add(encode_record(Done(number, 1, 0.0, 0.0, b"x" * size)))
    spool.close()
    assert [
        (found.job, len(found.value)) for found in records_of(str(tmp_path / "w")) if isinstance(found, Done)
    ] == list(enumerate(sizes, 1))
    assert spool.number == 4


def test_a_thread_that_was_left_behind_disturbs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that ends long after everybody has stopped waiting for it touches nothing of the executor."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    before = set(threading.enumerate())
    executor = opened(tmp_path)
    executor.start([launch(1, "read", "threads", str(pipe))])
    hear(executor, 1, starts=True)
    hands = [thread for thread in threading.enumerate() if thread not in before]
    executor.kill(1, 1)
    (ended,) = hear(executor, 1)
    assert (ended.job, getattr(ended, "reason", "")) == (1, "killed")
    executor.acknowledge()
    executor.close()
    os.close(os.open(pipe, os.O_WRONLY))
    for thread in hands:
        thread.join(SECONDS_MAX)
    assert (raised, [thread for thread in hands if thread.is_alive()]) == ([], [])
