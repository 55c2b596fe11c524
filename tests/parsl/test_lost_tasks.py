"""Tasks that Parsl loses: what a node has goes on, what no node has is submitted again, and no error is swallowed."""

from __future__ import annotations

import os
import select
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from resile.errors import ResileError
from resile.executors.contract import Ended, Started, Withdrawn
from resile.executors.parsl.executor import ParslExecutor
from resile.executors.parsl.pools import Pool
from tests.parsl.hand_nodes import HandNode, executor_in, orders_in, submitted


def lose(executor: ParslExecutor, *jobs: int, submission: str) -> None:
    """Say that Parsl has lost the task with the first attempts of these jobs."""
    future: Future[None] = Future()
    pool = cast(Pool, SimpleNamespace(tasks={submission}))
    future.add_done_callback(executor._make_callback(pool, [(job, 1) for job in jobs], submission))
    future.set_exception(ConnectionError("the manager is gone"))


def test_a_lost_task_does_not_end_what_runs(tmp_path: Path) -> None:
    """The node had taken the attempt: it gets no order, and its end is reported."""
    with executor_in(tmp_path) as executor:
        submitted(executor, 1, "5.1")
        hand = HandNode(tmp_path, "aa")
        hand.take(b"T 1 1 5.1")
        hand.begin(1)
        lose(executor, 1, submission="5.1")
        assert orders_in(tmp_path) == []
        hand.end(1)
        assert [type(one) for one in executor.reports()] == [Started, Ended]


def test_what_no_node_has_is_revoked_and_waits_again(tmp_path: Path) -> None:
    """The order only revokes: should a node have started it just now, it goes on, and only `kill` ends it."""
    with executor_in(tmp_path) as executor:
        submitted(executor, 1, "5.1")
        item = submitted(executor, 2, "5.2")
        HandNode(tmp_path, "aa").take(b"T 2 1 5.2")
        with executor._lock:
            lose(executor, 1, 2, submission="5.1")
            assert orders_in(tmp_path) == [b"R 1 1 5.1"]
            assert [key for keys in executor._waiting.values() for key in keys] == [(1, 1)]
            executor.kill(1, 1)
        assert [type(one) for one in executor.reports()] == [Withdrawn]
        executor.kill(2, 1)
        assert orders_in(tmp_path) == [b"R 1 1 5.1", b"K 2 1 5.2"]
        assert item.node is not None


def test_a_node_that_no_listing_shows_yet_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a shared disk a list of names may be old: a node that has announced itself is known all the same."""
    with executor_in(tmp_path) as executor:
        item = submitted(executor, 1, "5.1")
        listdir = os.listdir
        monkeypatch.setattr(os, "listdir", lambda path: [] if str(path).endswith("launcher") else listdir(path))
        hand = HandNode(tmp_path, "aa")
        hand.announce()
        hand.take(b"T 1 1 5.1")
        with executor._lock:
            lose(executor, 1, submission="5.1")
            assert list(executor._waiting.values()) == []
            assert item.node is not None
        hand.begin(1)
        hand.end(1)
        assert [type(one) for one in executor.reports()] == [Started, Ended]


def test_an_engine_that_stops_reads_first_what_has_begun(tmp_path: Path) -> None:
    """An attempt whose start `drain` has seen counts as queued until the engine has read that it runs."""
    with executor_in(tmp_path) as executor:
        submitted(executor, 1, "5.1")
        hand = HandNode(tmp_path, "aa")
        hand.take(b"T 1 1 5.1")
        hand.begin(1)
        executor.drain()
        assert executor.queued_count() == 1
        assert [type(one) for one in executor.reports()] == [Started]
        assert executor.queued_count() == 0


def test_an_error_while_a_task_ends_reaches_the_engine(tmp_path: Path) -> None:
    """Parsl swallows what its callbacks raise; the engine is woken up and raises it."""
    with executor_in(tmp_path) as executor:
        submitted(executor, 1, "5.1")
        (tmp_path / "cluster" / "orders").mkdir()
        with executor._lock:
            lose(executor, 1, submission="5.1")
        assert select.select([executor], [], [], 60)[0]
        with pytest.raises(ResileError, match="Is a directory") as raised:
            executor.reports()
        assert raised.value.code == "executor-failed"
