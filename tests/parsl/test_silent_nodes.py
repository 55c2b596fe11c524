"""Nodes of other machines that give no sign of life: what they run ends before it runs elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

from resile.executors.contract import Lost, Report, Started, Withdrawn
from resile.executors.parsl.executor import ParslExecutor
from resile.executors.parsl.nodes import SILENT_SECONDS_MAX
from tests.parsl.hand_nodes import HandNode, executor_in, orders_in, submitted
from tests.parsl.test_slurm_fails import DOWN, commands, write

__all__ = ["commands"]


def fall_silent(executor: ParslExecutor, folder: Path, **identity: object) -> None:
    """A node takes and begins an attempt, and is silent for longer than it may."""
    submitted(executor, 1, "5.1")
    hand = HandNode(folder, "aa", **identity)
    hand.take(b"T 1 1 5.1")
    hand.begin(1)
    assert [type(one) for one in executor.reports()] == [Started]
    node = executor._nodes.known["aa"]
    assert not node.is_silent()
    node._seen_at -= SILENT_SECONDS_MAX + 1


def settle(executor: ParslExecutor) -> list[Report]:
    """Look at the nodes; what that reports."""
    with executor._lock:
        executor._settle_gone()
    return executor.reports()


def test_a_silent_node_is_ordered_to_end_what_it_has(tmp_path: Path) -> None:
    """The attempt is lost; should the node come back, it ends it."""
    with executor_in(tmp_path) as executor:
        with executor._lock:
            fall_silent(executor, tmp_path)
            assert [type(one) for one in settle(executor)] == [Lost]
        assert orders_in(tmp_path) == [b"K 1 1 5.1"]


def test_a_silent_allocation_is_canceled_first(tmp_path: Path, commands: Path) -> None:
    """Nothing is reported before Slurm has ended the allocation; a Slurm that does not answer is asked again."""
    folder, canceled = tmp_path / "run", tmp_path / "canceled"
    write(commands, scontrol="exit 0", squeue="exit 0", scancel=f"echo $* >> {canceled}")
    with executor_in(folder, provider="slurm") as executor:
        with executor._lock:
            write(commands, scontrol="echo JobId=7 JobName=a JobState=RUNNING")
            fall_silent(executor, folder, allocation="7")
            assert settle(executor) == []
            assert canceled.read_text() == "7\n"
            write(commands, scontrol=DOWN)
            assert settle(executor) == []
            write(commands, scontrol="echo JobId=7 JobName=a JobState=CANCELLED")
            (ended,) = settle(executor)
        assert isinstance(ended, Withdrawn)
        assert "preempted" in ended.why


def test_a_node_that_lives_is_asked_of_nobody(tmp_path: Path, commands: Path) -> None:
    """Slurm is not asked about nodes that give signs of life, and a beat ends a silence."""
    write(commands, scontrol=f"echo x >> {tmp_path}/asked")
    with executor_in(tmp_path / "run") as executor:
        with executor._lock:
            fall_silent(executor, tmp_path / "run", allocation="7")
            os.utime(tmp_path / "run" / "launcher" / "aa" / "node", (1.0, 1.0))
            assert settle(executor) == []
        assert not (tmp_path / "asked").exists()
