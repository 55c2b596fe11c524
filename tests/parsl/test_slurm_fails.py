"""Slurm's commands fail: that is an error with their words, and nothing else is left open by it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from resile.commands.cluster.allocations import allocation_list
from resile.errors import ResileError
from resile.executors.contract import Lost, Report, Withdrawn
from resile.executors.parsl import slurm
from resile.executors.parsl.nodes import Node
from resile.executors.parsl.pools import NO_SHAPE, SILENT_SECONDS_MAX, Pool
from resile.executors.parsl.verdicts import PREEMPTIONS_MAX, Verdicts
from resile.model.executor import ExecutorSettings
from tests.parsl.hand_nodes import HandNode, open_executor

DOWN = "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for commands that are found before all others."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def write(folder: Path, **scripts: str) -> None:
    """Write commands."""
    for name, text in scripts.items():
        # The one before may be running.
        beside = folder / f"{name}.new"
        beside.write_text(f"#!/bin/sh\n{text}\n")
        beside.chmod(0o755)
        beside.rename(folder / name)


def test_a_controller_that_is_down_is_an_error(commands: Path) -> None:
    """It never looks as if there were no allocations, or as if they were canceled."""
    write(commands, scontrol=DOWN, squeue=DOWN, scancel=DOWN)
    for call in (
        slurm.all_allocations,
        lambda: slurm.look_up(["7"]),
        lambda: slurm.cancel(["7"]),
        lambda: allocation_list(cast(Any, None), None),
    ):
        with pytest.raises(ResileError, match="Unable to contact slurm controller") as raised:
            call()
        assert raised.value.code == "slurm-failed"


def test_an_allocation_that_is_forgotten_or_over_need_not_be_canceled(commands: Path) -> None:
    """`scancel` fails for it, too; for one that still runs that is an error."""
    write(
        commands,
        scancel="echo 'scancel: error: no' >&2; exit 1",
        scontrol="echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
    )
    slurm.cancel(["7"])
    assert slurm.look_up(["7"]) == {}
    for state in ("COMPLETED", "COMPLETING"):
        write(commands, scontrol=f"echo JobId=7 JobName=a JobState={state}")
        slurm.cancel(["7"])
    write(commands, scontrol="echo JobId=7 JobName=a JobState=RUNNING")
    with pytest.raises(ResileError, match="scancel: error: no"):
        slurm.cancel(["7"])


def test_a_close_that_fails_closes_the_rest(tmp_path: Path, commands: Path) -> None:
    """One pool fails and Slurm is down: the other pool and the fence are closed, and the error is raised."""
    write(commands, scontrol="exit 0", squeue="exit 0")
    closed: list[str] = []

    def fail(**_: object) -> None:
        closed.append("bad")
        raise RuntimeError("no")

    executor = open_executor(tmp_path / "x", provider="slurm")
    write(commands, scontrol=DOWN)
    good = SimpleNamespace(close=lambda **_: closed.append("good"), tend=lambda *_: None, stuck_since=0.0, shape=1)
    bad = SimpleNamespace(close=fail, tend=lambda *_: None, stuck_since=0.0, shape=2)
    executor._pools = cast(Any, {1: good, 2: bad})
    with pytest.raises(ResileError, match="Unable to contact"):
        executor.close(finished=True)
    assert closed == ["bad", "good"]
    assert executor._fence._is_removed


def test_a_batch_system_may_be_silent_for_a_while(tmp_path: Path) -> None:
    """A pool asks again; after long it gives up with the reason."""
    settings = ExecutorSettings(directory=str(tmp_path), provider="slurm")
    pool = Pool(0, NO_SHAPE, settings, folder=str(tmp_path), run_folder=str(tmp_path), make_provider=lambda _: None)
    answers = [False, False, True, False, False]

    def poll() -> None:
        if not answers.pop(0):
            raise subprocess.TimeoutExpired("squeue", 30)

    pool._executor = cast(Any, SimpleNamespace(poll_facade=poll, status_facade={}))
    for at in (1.0, SILENT_SECONDS_MAX, 2 * SILENT_SECONDS_MAX, 3 * SILENT_SECONDS_MAX):
        pool.tend(0, {}, at)
    assert "squeue" in pool.problem
    with pytest.raises(subprocess.TimeoutExpired):
        pool.tend(0, {}, 4 * SILENT_SECONDS_MAX + 1)


def test_slurm_is_asked_once_for_all_attempts_of_an_allocation(tmp_path: Path, commands: Path) -> None:
    """Many attempts end with their node; what Slurm says of it is the evidence of each."""
    write(commands, scontrol=f"echo x >> {tmp_path}/asked; echo JobId=7 JobName=a JobState=PREEMPTED")
    HandNode(tmp_path, "aa", allocation="7")
    verdicts, node = Verdicts(str(tmp_path)), Node(str(tmp_path), "aa")
    ends = [verdicts.of((job, 1), node, 1.0, 2.0, None) for job in range(5)]
    assert [type(one) for one in ends] == [Withdrawn] * 5
    assert (tmp_path / "asked").read_text() == "x\n"


def test_the_next_engine_goes_on_counting_preemptions(tmp_path: Path, commands: Path) -> None:
    """Ten are free in all: a resume does not make them ten more, and one that it finds again counts once."""
    write(commands, scontrol='echo "JobId=$4 JobName=a JobState=PREEMPTED"')
    for number in range(PREEMPTIONS_MAX + 1):
        HandNode(tmp_path, f"n{number}", allocation=str(number))

    def end_of(verdicts: Verdicts, number: int) -> Report:
        return verdicts.of((3, number + 1), Node(str(tmp_path), f"n{number}"), 1.0, 2.0, None)

    first = Verdicts(str(tmp_path))
    ends = [end_of(first, number) for number in range(6)]
    second = Verdicts(str(tmp_path))
    ends += [end_of(second, number) for number in range(5, PREEMPTIONS_MAX)]
    assert [type(one) for one in ends] == [Withdrawn] * 11
    last = end_of(Verdicts(str(tmp_path)), PREEMPTIONS_MAX)
    assert isinstance(last, Lost)
    assert last.why.startswith("preempted 11 times: ")
    other = Verdicts(str(tmp_path)).of((4, 1), Node(str(tmp_path), "n0"), 1.0, 2.0, None)
    assert isinstance(other, Withdrawn), "each job has its own"
