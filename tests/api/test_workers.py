"""Calls whose end is not theirs: workers and threads that fail, and calls that an engine before this one began."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from resile import Workflow
from resile.executors.contract import Adopted, Ended, Launch, Lost, Returned
from resile.executors.functions import executor as executor_module
from resile.executors.functions.calls import Begun, Call, Done, encode_record
from resile.executors.functions.executor import FunctionExecutor
from resile.executors.functions.spool import SPOOL_BYTES
from tests.api import functions as f
from tests.api.conftest import Place
from tests.api.test_executor import SECONDS_MAX, hear, launch, opened


@contextmanager
def file_bytes_max(limit: int) -> Iterator[None]:
    """No file of this process can grow beyond this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def limited(job: int, name: str, pipe: Path, timeout_seconds: float, grace_seconds: float) -> Launch:
    """A call in a worker process with limits, of a function that writes into a pipe when it has begun."""
    os.mkfifo(pipe)
    function = ("", "tests.api.functions", name)
    call = Call(job, 1, function, [str(pipe)], timeout_seconds=timeout_seconds, grace_seconds=grace_seconds)
    return Launch(job, 1, (), call=call)


def adopted(folder: Path, call: Launch) -> FunctionExecutor:
    """An executor that has found a call which the one before has begun and left."""
    assert call.call is not None
    first = opened(folder)
    first.start([call])
    assert Path(call.call.args[0]).read_text() == "begun"
    hear(first, 1, starts=True)
    first.close()
    second = opened(folder)
    second.find({(call.job, call.attempt): False})
    (found,) = hear(second, 1)
    assert isinstance(found, Adopted)
    return second


def test_an_exception_may_say_what_utf8_can_not_hold(place: Place, workers: Any) -> None:
    """Such text is spelled out, and the type is there for rules to match."""
    with Workflow("t", workers=workers) as flow:
        f.fail_in_bytes(os.fsdecode(b"caf\xe9"))
    run = place.run(flow)
    failure = place.failures(run)["fail_in_bytes"]
    assert (run.status, run.document["jobs"][0]["attempts"]) == ("completed", 2)
    assert (failure.message, failure.types[0]) == (r"ValueError: no file caf\udce9", "ValueError")
    assert failure.stderr.endswith(r"ValueError: no file caf\udce9" + "\n")


def test_a_result_is_not_lost_where_it_can_not_be_written_down(tmp_path: Path) -> None:
    """A thread whose spool takes no more tells what it has, and another takes its place."""
    executor = opened(tmp_path)
    with file_bytes_max(2 * SPOOL_BYTES):
        executor.start([launch(1, "give", "threads", "x" * 3 * SPOOL_BYTES), launch(2, "give", "threads", 2)])
        first, second = hear(executor, 2)
    assert isinstance(first, Returned)
    assert isinstance(second, Returned)
    assert (first.job, len(first.value), second.job, second.value) == (1, 3 * SPOOL_BYTES + 2, 2, b"2")
    executor.acknowledge()
    executor.close()
    assert list((tmp_path / "functions").iterdir()) == []


def test_a_thread_that_can_not_go_on_is_replaced(tmp_path: Path) -> None:
    """A call that a thread could not write down before it made it is lost, and the next one is made."""
    now = time.time()
    begun = len(encode_record(Begun(1, 1, now)))
    around = len(encode_record(Done(1, 1, now, now, b"x" * SPOOL_BYTES, cpu_seconds=0.1, spool=1))) - SPOOL_BYTES
    # As much as leaves room for the end of the file, and for nothing else.
    full = SPOOL_BYTES - begun - around - 3 * 4 - 2
    before = set(threading.enumerate())
    executor = opened(tmp_path)
    executor.start([launch(1, "give", "threads", "x" * full)])
    (first,) = hear(executor, 1)
    assert isinstance(first, Returned)
    (thread,) = (one for one in threading.enumerate() if one not in before and one.name != "resile ticker")
    with file_bytes_max(SPOOL_BYTES // 2):
        executor.start([launch(2, "give", "threads", 2)])
        thread.join(SECONDS_MAX)
    assert not thread.is_alive()
    executor.start([launch(3, "give", "threads", 3)])
    lost, last = hear(executor, 2)
    assert isinstance(lost, Lost)
    assert (lost.job, lost.why) == (2, "its thread could not go on: OSError: [Errno 27] File too large")
    assert isinstance(last, Returned)
    assert (last.job, last.value) == (3, b"3")
    executor.acknowledge()
    executor.close()


def test_a_full_disk_ends_no_call_in_a_worker_process(tmp_path: Path) -> None:
    """A worker that can't write down what came of a call tells it all the same, and makes the next."""
    with file_bytes_max(2 * SPOOL_BYTES):
        executor = opened(tmp_path)
        executor.start([launch(1, "grow", "processes", 3 * SPOOL_BYTES), launch(2, "give", "processes", 2)])
        first, second = hear(executor, 2)
    assert isinstance(first, Returned)
    assert isinstance(second, Returned)
    assert (first.job, len(first.value), second.job, second.value) == (1, 3 * SPOOL_BYTES + 2, 2, b"2")
    executor.acknowledge()
    executor.close()


def test_a_call_that_vanished_with_its_worker_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies as it takes a call leaves nothing of it, and nobody waits for it for ever."""
    monkeypatch.setattr(executor_module, "PERHAPS_TAKEN_SECONDS", 0.2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    executor = opened(tmp_path)
    executor.start([launch(1, "read", "processes", str(pipe)), launch(2, "give", "processes", "x" * 300_000)])
    hear(executor, 1, starts=True)
    # Where the worker looks for its next call there is nothing, so it fails before it has begun it.
    (tmp_path / "functions" / "call_j2_a1").unlink()
    executor.start([launch(3, "give", "processes", 3)])
    pipe.write_text("go")
    reports = sorted(hear(executor, 3), key=lambda report: report.job)
    assert [(type(report), report.job) for report in reports] == [(Returned, 1), (Lost, 2), (Returned, 3)]
    executor.acknowledge()
    executor.close()


@pytest.mark.parametrize(("name", "status"), [("stay", signal.SIGTERM), ("stay_deaf", signal.SIGKILL)])
def test_an_adopted_call_is_killed_as_any_other(tmp_path: Path, name: str, status: int) -> None:
    """SIGTERM, the grace time, SIGKILL; and the report says that somebody asked for it."""
    executor = adopted(tmp_path, limited(1, name, tmp_path / "pipe", 0.0, 0.2))
    executor.kill(1, 1)
    (ended,) = hear(executor, 1)
    assert isinstance(ended, Ended)
    assert (ended.job, ended.reason, ended.wait_status) == (1, "killed", status)
    executor.acknowledge()
    executor.close()
    assert [path.name for path in (tmp_path / "functions").iterdir()] == []


def test_an_adopted_thread_is_left_to_itself(tmp_path: Path) -> None:
    """A call that a thread makes for an engine before this one can't be ended, and nobody waits for it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    first = opened(tmp_path)
    first.start([launch(1, "read", "threads", str(pipe))])
    hear(first, 1, starts=True)
    first.close()
    second = opened(tmp_path)
    second.find(dict.fromkeys([(1, 1)], False))
    (found,) = hear(second, 1)
    assert isinstance(found, Adopted)
    second.kill(1, 1)
    (ended,) = hear(second, 1)
    assert isinstance(ended, Ended)
    assert (ended.job, ended.reason) == (1, "killed")
    second.acknowledge()
    second.close()
    pipe.write_text("too late")


@pytest.mark.parametrize(("name", "status"), [("stay", signal.SIGTERM), ("stay_deaf", signal.SIGKILL), ("end_well", 0)])
def test_an_adopted_call_has_no_more_time_than_it_had(tmp_path: Path, name: str, status: int) -> None:
    """A call beyond its timeout has failed for that, whoever watches it and whatever it says to that."""
    executor = adopted(tmp_path, limited(1, name, tmp_path / "pipe", 1.0, 0.2))
    (ended,) = hear(executor, 1)
    assert isinstance(ended, Ended)
    assert (ended.job, ended.reason, ended.wait_status) == (1, "timeout", status)
    assert ended.at - ended.started_at >= 1.0
    executor.close()


@pytest.mark.parametrize(("name", "status"), [("stay", signal.SIGTERM), ("stay_deaf", signal.SIGKILL), ("end_well", 0)])
def test_a_call_beyond_its_time_failed_for_that(tmp_path: Path, name: str, status: int) -> None:
    """Whatever a function does when it is told to end, and whichever signal it took, its kind is timeout."""
    executor = opened(tmp_path)
    call = limited(1, name, tmp_path / "pipe", 0.5, 0.2)
    executor.start([call])
    assert (tmp_path / "pipe").read_text() == "begun"
    hear(executor, 1, starts=True)
    (ended,) = hear(executor, 1)
    assert isinstance(ended, Ended)
    assert (ended.reason, ended.wait_status) == ("timeout", status)
    executor.close()


def test_what_was_printed_before_an_exit_is_kept(place: Place) -> None:
    """A function that ends its process with exit code 0 has failed, and what it printed is in the log."""
    with Workflow("t") as flow:
        f.say_and_leave()
    run = place.run(flow)
    failure = place.failures(run)["say_and_leave"]
    assert (failure.message, failure.stdout) == ("the function ended its process before it returned", "farewell\n")
