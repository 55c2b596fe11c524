"""The launcher of a node that dies: what it had written and not sent counts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from resile.executors.contract import Launch
from resile.executors.fence import Fence
from resile.executors.local import wire
from resile.executors.parsl.node import files
from resile.executors.parsl.node.launchers import Config, NodeLauncher
from resile.executors.parsl.tasks import encode_config
from tests.parsl.cluster_runs import wait_for


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[NodeLauncher]:
    """A launcher of this process, as an agent has one."""
    fence = Fence(str(tmp_path), 5, lambda: None)
    config = encode_config("label", fence, 0.0, b"/", str(tmp_path), (), dict(os.environb))
    found = NodeLauncher(str(tmp_path), {}, 2, Config(json.loads(config)))
    yield found
    found.close()
    fence.close()


def start(launcher: NodeLauncher, job: int, command: str) -> None:
    """Start the first attempt of a job."""
    frame = wire.start_frame(Launch(job, 1, (b"sh", b"-c", command.encode())))
    assert frame is not None
    launcher.start((job, 1), frame)


def spooled(launcher: NodeLauncher) -> list[list[bytes]]:
    """What the spool says: the kind of each line, and its job."""
    return [line.split()[:2] for line in files.Tail(launcher.spool).read()[1:]]


def test_lines_that_a_dead_launcher_did_not_send_count(launcher: NodeLauncher, tmp_path: Path) -> None:
    """One attempt runs, one has ended, and the agent has heard of neither: the first is lost, and its process ends."""
    start(launcher, 1, f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    start(launcher, 2, "exit 0")
    wait_for("both are in the spool", lambda: {(b"S", b"1"), (b"E", b"2")} <= {tuple(one) for one in spooled(launcher)})
    pid = int((tmp_path / "pid").read_text())
    before = spooled(launcher)
    os.kill(launcher.pid, signal.SIGKILL)
    while launcher.connection.recv(1 << 16):
        """What was sent is dropped, as if it had never been."""
    assert sorted(launcher.receive()) == [(1, 1), (2, 1)]
    assert spooled(launcher) == [*before, [b"L", b"1"]]
    wait_for("its process has ended", lambda: not os.path.exists(f"/proc/{pid}"))
