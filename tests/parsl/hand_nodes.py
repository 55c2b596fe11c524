"""Nodes whose records a test writes by hand, and an executor in the test's own process that reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from resile.executors.contract import Launch
from resile.executors.fence import Fence
from resile.executors.local import wire
from resile.executors.local.spool import SUFFIX
from resile.executors.parsl.executor import ParslExecutor
from resile.executors.parsl.node import files
from resile.executors.parsl.orders import Item
from resile.model.executor import ExecutorSettings
from tests.parsl.cluster_runs import wait_for

ELSEWHERE = {
    "host": "elsewhere", "boot": "b", "pid": 1, "born": 1, "pool": "0", "block": "0", "tag": "t", "allocation": "",
    "node": "n1", "number": 5,
}  # fmt: skip


class HandNode:
    """A node on another machine, which writes what a test says."""

    def __init__(self, folder: Path, token: str, **identity: object) -> None:
        self.folder = folder / wire.FOLDER / token
        self.folder.mkdir(parents=True)
        (self.folder / files.NODE).write_text(json.dumps({**ELSEWHERE, **identity}))
        self._spool = str(self.folder / (token + SUFFIX))

    def announce(self) -> None:
        """Let the engine know of the node, as an agent does before it takes anything."""
        files.announce(str(self.folder.parent.parent), self.folder.name)

    def take(self, *lines: bytes) -> None:
        """Write lines about what it takes or drops."""
        files.append(str(self.folder / files.TAKEN), list(lines))

    def begin(self, job: int) -> None:
        """Write that the first attempt of a job has begun and runs."""
        key = wire.key_of(job, 1)
        started = wire.started_line(key, 1.0, 4, 1.0, b"-", 0, 0)
        files.append(self._spool, [wire.begins_line(key).rstrip(), started.rstrip()])

    def end(self, job: int) -> None:
        """Write that the first attempt of a job has ended with exit 0."""
        line = wire.ended_line(wire.key_of(job, 1), 1.0, 2.0, (0, 0.0, 0, 0), (b"-", 0, 0, 0, 0), b"", 0, 0)
        files.append(self._spool, [line.rstrip()])


def open_executor(folder: Path, number: int = 5, **settings: Any) -> ParslExecutor:
    """An executor of this process; it starts Parsl only if something waits for a block."""
    folder.mkdir(exist_ok=True)
    return ParslExecutor(
        str(folder),
        settings=ExecutorSettings(directory=str(folder), **settings),
        run=1,
        parallel=2,
        label="label",
        base_env={},
        directory=b"/",
        fence=Fence(str(folder), number, lambda: None),
    )


@contextmanager
def executor_in(folder: Path, number: int = 5, **settings: Any) -> Iterator[ParslExecutor]:
    """Such an executor, whose thread has ended what earlier engines left; it is closed with the test."""
    executor = open_executor(folder, number, **settings)
    try:
        wait_for("the thread has looked once", lambda: executor._nodes_at > 0.0)
        yield executor
    finally:
        executor.close(finished=True)


def submitted(executor: ParslExecutor, job: int, submission: str) -> Item:
    """Let the executor believe that Parsl has the first attempt of a job."""
    with executor._lock:
        item = executor._items[job, 1] = Item(launch=Launch(job, 1, (b"true",)), submission=submission)
    return item


def orders_in(folder: Path) -> list[bytes]:
    """The orders that the executor has written."""
    return files.Tail(str(folder / files.CLUSTER / files.ORDERS)).read()
