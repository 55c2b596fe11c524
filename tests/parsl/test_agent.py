"""The agent of a node, without Parsl: it takes attempts, starts each once, obeys orders and the fence, and ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from resile.engine.monitoring.series import read_series
from resile.executors.contract import Ended, Launch, Lost, Started, Withdrawn
from resile.executors.fence import Fence, FenceReader
from resile.executors.parsl.archive import write_archive
from resile.executors.parsl.node import files
from resile.executors.parsl.node.agent import ANSWER_SECONDS_MAX
from resile.executors.parsl.nodes import Happening, Nodes
from resile.executors.parsl.tasks import encode_config, encode_task
from tests.parsl.cluster_runs import wait_for


class Bench:
    """An agent whose manager only says where the agent listens, and waits."""

    def __init__(self, folder: Path, seconds: str = "0", grace: str = "0", provider: str = "local") -> None:
        self.folder = folder
        (folder / "launcher").mkdir()
        (folder / "cluster").mkdir()
        archive = folder / "cluster" / "node.pyz"
        write_archive(str(archive))
        self.fence = Fence(str(folder), 5, lambda: None)
        manager = f"echo $RESILE_NODE_SOCKET > {folder}/address; exec sleep 1000"
        options = ["0", "0", "2", seconds, grace, provider]
        words = [sys.executable, "-S", "-E", str(archive), str(folder), *options, "sh", "-c", manager]
        words += ["manager", f"--logdir={folder}"]
        self.agent = subprocess.Popen(words, env={**os.environ, "SLURM_JOB_ID": "77"})
        address = folder / "address"
        wait_for("the agent listens", lambda: address.exists() and address.read_text().endswith("\n"))
        self.address = address.read_text().strip()
        self.nodes = Nodes(str(folder))
        self.seen: list[Happening] = []
        self.config = self.config_with(sample_seconds=0.0)

    def config_with(self, sample_seconds: float) -> str:
        """What tasks say about the run."""
        return encode_config(
            "label", self.fence, 0.0, b"/", str(self.folder), (), dict(os.environb), sample_seconds=sample_seconds
        )

    def submit(self, submission: str, *launches: Launch) -> socket.socket:
        """Hand attempts in as a worker of Parsl does."""
        task = encode_task(self.config, submission, launches)
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.settimeout(60)
        client.connect(self.address)
        client.sendall(len(task).to_bytes(8, "big") + task)
        return client

    def order(self, line: bytes) -> None:
        """Write an order."""
        files.append(str(self.folder / "cluster" / "orders"), [line])

    def reports(self, kind: type) -> list[Happening]:
        """All reports of one kind so far."""
        self.seen += self.nodes.read()
        return [one for one in self.seen if isinstance(one.report, kind)]

    def dropped(self) -> list[str]:
        """The submissions that the node did not start."""
        self.seen += self.nodes.read()
        return [one.dropped for one in self.seen if one.dropped]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """An agent, which is ended with the test."""
    found = Bench(tmp_path)
    yield found
    found.agent.terminate()
    assert found.agent.wait(60) == 0


def launch_of(job: int, command: str, attempt: int = 1) -> Launch:
    """An attempt that runs a shell command."""
    return Launch(job, attempt, (b"sh", b"-c", command.encode()), grace_seconds=1.0)


def test_attempts_of_a_task_run_and_the_worker_is_told(bench: Bench) -> None:
    """The worker gets its word after all attempts have ended; the spool says how."""
    client = bench.submit("5.1", launch_of(1, "exit 0"), launch_of(2, "exit 3"))
    assert client.recv(1) == b"1"
    ended = {one.key: one.report.wait_status >> 8 for one in bench.reports(Ended) if isinstance(one.report, Ended)}
    assert ended == {(1, 1): 0, (2, 1): 3}


def test_a_node_announces_itself_before_it_takes_anything(bench: Bench) -> None:
    """Its number comes after those that the engine has closed, and its folder is whole when it gets its name."""
    assert files.Arrivals(str(bench.folder)).close() == []
    bench.submit("5.1", launch_of(1, "true"))
    wait_for("it has ended", lambda: bench.reports(Ended))
    (token,) = bench.nodes.known
    assert os.readlink(bench.folder / "cluster" / "nodes" / "2") == token
    assert files.Arrivals(str(bench.folder)).close() == [token]


def test_a_node_samples_its_attempts_where_the_run_wants_that(bench: Bench) -> None:
    """The series of an attempt is written when it ends."""
    bench.config = bench.config_with(sample_seconds=0.02)
    with bench.submit("5.1", launch_of(1, "sleep 1")) as client:
        assert client.recv(1) == b"1"
    (series,) = read_series(str(bench.folder))
    assert (series.job, series.attempt, series.interval_seconds) == (1, 1, 0.02)
    assert series.samples
    assert all(rss_bytes > 0 for _, rss_bytes, _ in series.samples)


def test_an_attempt_that_runs_is_not_started_again(bench: Bench) -> None:
    """A second task with the same attempt is refused; the first goes on."""
    first = bench.submit("5.1", launch_of(1, f"echo x >> {bench.folder}/starts; sleep 1000"))
    wait_for("it runs", lambda: bench.reports(Started))
    second = bench.submit("5.2", launch_of(1, f"echo x >> {bench.folder}/starts"))
    assert second.recv(1) == b"1"
    assert bench.dropped() == ["5.2"]
    bench.order(b"K 1 1 5.1")
    assert first.recv(1) == b"1"
    assert (bench.folder / "starts").read_text() == "x\n"
    assert [one.report.reason for one in bench.reports(Ended) if isinstance(one.report, Ended)] == ["killed"]


def test_what_was_given_up_never_starts(bench: Bench) -> None:
    """A node that takes a submission after the order reads the order before it starts anything."""
    bench.order(b"K 1 1 5.1")
    assert bench.submit("5.1", launch_of(1, f"touch {bench.folder}/ran")).recv(1) == b"1"
    assert bench.dropped() == ["5.1"]
    assert not (bench.folder / "ran").exists()
    assert bench.submit("5.2", launch_of(1, f"touch {bench.folder}/ran")).recv(1) == b"1"
    assert (bench.folder / "ran").exists()


def test_what_was_only_revoked_goes_on_if_it_runs(bench: Bench) -> None:
    """An engine that gives up a submission ends no attempt that a node has started by it."""
    bench.order(b"R 2 1 5.2")
    first = bench.submit("5.1", launch_of(1, f"until test -e {bench.folder}/go; do sleep 0.05; done"))
    wait_for("it runs", lambda: bench.reports(Started))
    bench.order(b"R 1 1 5.1")
    # The agent reads all orders before it starts an attempt, so it has read this one, too.
    assert bench.submit("5.2", launch_of(2, "exit 0")).recv(1) == b"1"
    assert bench.dropped() == ["5.2"]
    (bench.folder / "go").touch()
    assert first.recv(1) == b"1"
    (ended,) = [one.report for one in bench.reports(Ended) if isinstance(one.report, Ended)]
    assert (ended.job, ended.reason, ended.wait_status) == (1, "", 0)


def test_nothing_starts_behind_a_closed_fence(bench: Bench) -> None:
    """Once a newer engine has the run, an older one starts nothing."""
    Fence(str(bench.folder), 6, lambda: None)
    assert bench.submit("5.1", launch_of(1, f"touch {bench.folder}/ran")).recv(1) == b"1"
    assert bench.dropped() == ["5.1"]
    assert not (bench.folder / "ran").exists()


def test_a_fence_that_can_not_be_read_is_closed(tmp_path: Path) -> None:
    """Nothing starts while nobody knows who drives the run."""
    reader = FenceReader()
    reader.watch(os.fsencode(tmp_path))
    assert reader.is_closed()
    reader.close()


def test_a_worker_that_dies_leaves_its_attempt(bench: Bench) -> None:
    """The connection of a worker ends; its attempt goes on to its end."""
    client = bench.submit("5.1", launch_of(1, f"until test -e {bench.folder}/go; do sleep 0.05; done"))
    wait_for("it runs", lambda: bench.reports(Started))
    client.close()
    (bench.folder / "go").touch()
    assert len(wait_for("it ends", lambda: bench.reports(Ended))) == 1


def test_a_launcher_that_dies_is_replaced(bench: Bench) -> None:
    """Its attempt is lost and its processes end; what it had not begun is withdrawn; the next task runs."""
    task = bench.submit("5.1", *(launch_of(job, "sleep 1000") for job in (1, 2, 3)))
    started = wait_for("two run", lambda: len(found := bench.reports(Started)) == 2 and found)
    node = started[0].node
    assert node.author is not None
    os.kill(node.author.pid, signal.SIGKILL)
    assert task.recv(1) == b"1"
    bench.reports(Withdrawn)
    last = {one.key: type(one.report).__name__ for one in bench.seen if one.report is not None}
    assert last == {(1, 1): "Lost", (2, 1): "Lost", (3, 1): "Withdrawn"}
    assert bench.submit("5.2", launch_of(3, "exit 0")).recv(1) == b"1"


def test_sigterm_ends_the_attempts_and_says_so(bench: Bench) -> None:
    """An allocation that ends takes its attempts with it, and the node's folder has the reason."""
    bench.submit("5.1", launch_of(1, "sleep 1000"))
    started = wait_for("it runs", lambda: bench.reports(Started))
    bench.agent.send_signal(signal.SIGTERM)
    assert bench.agent.wait(60) == 0
    assert len(bench.reports(Ended)) == 1
    assert "SIGTERM" in started[0].node.fate()


def test_a_damaged_line_is_passed_over(bench: Bench) -> None:
    """A line of the spool whose checksum is wrong counts as not written."""
    assert bench.submit("5.1", launch_of(1, "exit 0")).recv(1) == b"1"
    path = next((bench.folder / "launcher").glob("*/*.spool"))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"E 1 1", b"E 1 2"))
    assert not bench.reports(Ended)
    path.write_bytes(whole)
    bench.nodes = Nodes(str(bench.folder))
    assert len(bench.reports(Ended)) == 1


@pytest.mark.slow
def test_a_launcher_that_does_not_end_is_killed(bench: Bench) -> None:
    """A stopped launcher can't obey: after a limit the agent kills it, and ends what it left."""
    bench.submit("5.1", launch_of(1, "sleep 1000"))
    started = wait_for("it runs", lambda: bench.reports(Started))
    author = started[0].node.author
    assert author is not None
    os.kill(author.pid, signal.SIGSTOP)
    bench.agent.send_signal(signal.SIGTERM)
    assert bench.agent.wait(120) == 0
    assert [one.key for one in bench.reports(Lost)] == [(1, 1)]
    assert isinstance(started[0].report, Started)
    for pid in (author.pid, started[0].report.pid):
        wait_for("it is gone", lambda pid=pid: not os.path.exists(f"/proc/{pid}"))


@pytest.mark.slow
def test_before_its_end_a_node_tells_its_attempts(tmp_path: Path) -> None:
    """SIGTERM, and then the time that is left instead of their own grace; what does not end in it is killed."""
    bench = Bench(tmp_path, seconds="10", grace="4", provider="slurm")
    own = Launch(1, 1, (b"sh", b"-c", b"trap 'sleep 1; exit 0' TERM; while :; do sleep 0.05; done"), grace_seconds=0.0)
    deaf = Launch(2, 1, (b"sh", b"-c", b"trap '' TERM; while :; do sleep 0.05; done"), grace_seconds=1000.0)
    bench.submit("5.1", own, deaf)
    assert bench.agent.wait(60) == 0
    ended = {one.key: one.report.wait_status for one in bench.reports(Ended) if isinstance(one.report, Ended)}
    assert ended == {(1, 1): 0, (2, 1): signal.SIGKILL}
    (node,) = bench.nodes.known.values()
    assert node.fate() == files.EXPIRES


@pytest.mark.parametrize(("provider", "allocation"), [("local", ""), ("slurm", "77")])
def test_only_blocks_of_slurm_are_allocations(tmp_path: Path, provider: str, allocation: str) -> None:
    """An engine in an allocation of its own has blocks on its machine: those are not that allocation."""
    bench = Bench(tmp_path, provider=provider)
    assert bench.submit("5.1", launch_of(1, "exit 0")).recv(1) == b"1"
    bench.agent.terminate()
    assert bench.agent.wait(60) == 0
    ((one, *_),) = [bench.reports(Ended)]
    assert one.node.identity is not None
    assert one.node.identity.allocation == allocation


@pytest.mark.slow
@pytest.mark.parametrize(("said", "code"), [("", 0), ("INFO: Successfully connected to interchange\n", None)])
def test_a_block_whose_engine_died_before_it_came_up_ends(tmp_path: Path, said: str, code: int | None) -> None:
    """Parsl's manager would wait for an answer for ever; one that got it late goes on."""
    log = tmp_path / "block-0" / "x" / "manager.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"ERROR: Failed to connect to interchange (tcp://127.0.0.1:1\n{said}")
    bench = Bench(tmp_path)
    with suppress(subprocess.TimeoutExpired):
        bench.agent.wait(2 * ANSWER_SECONDS_MAX)
    assert bench.agent.poll() == code
    bench.agent.terminate()
    assert bench.agent.wait(60) == 0
