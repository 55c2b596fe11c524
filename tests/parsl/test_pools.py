"""Pools of blocks: blocks that end before a step began in them are a problem, and are not replaced for ever at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from parsl.jobs.states import JobState, JobStatus

from resile.executors.parsl.pools import NO_SHAPE, Pool
from resile.model.executor import ExecutorSettings


class Batch:
    """What a pool uses of Parsl: blocks are there at once, and end as a test says."""

    def __init__(self, folder: Path) -> None:
        self.statuses: dict[str, JobStatus] = {}
        self.jobs: dict[str, str] = {}
        settings = ExecutorSettings(directory=str(folder), provider="slurm", blocks_max=3)
        self.pool = Pool(
            0, NO_SHAPE, settings, folder=str(folder), run_folder=str(folder), make_provider=lambda _: None
        )
        # How long the manager of a block has been idle; a block without one has no entry.
        self.idle: dict[str, float] = {}
        self.canceled: list[str] = []
        self.second = 0.0
        # When Parsl asked the batch system although it had done so less than a minute before.
        self.asked_early: list[float] = []
        parts: dict[str, Any] = {
            "poll_facade": self._poll,
            "_last_poll_time": 1.0,
            "status_facade": self.statuses,
            "blocks_to_job_id": self.jobs,
            "scale_out_facade": self._start,
            "connected_managers": self._managers,
            "_hold_block": lambda _: None,
            "provider": SimpleNamespace(cancel=self._cancel),
        }
        self.pool._executor = cast(Any, SimpleNamespace(**parts))

    def tend(self, second: float) -> None:
        """Tend the pool, which has one attempt."""
        self.second = second
        self.pool.tend(1, {}, second)

    def _poll(self) -> None:
        executor: Any = self.pool._executor
        if not executor._last_poll_time:
            self.asked_early.append(self.second)
        executor._last_poll_time = self.second

    def _start(self, count: int) -> list[str]:
        names = [str(len(self.jobs) + number) for number in range(count)]
        for name in names:
            self.jobs[name], self.statuses[name] = name, JobStatus(JobState.RUNNING)
        return names

    def _managers(self) -> list[dict[str, Any]]:
        managers = ({"block_id": name, "idle_duration": idle} for name, idle in self.idle.items())
        return [{**one, "active": True, "tasks": 0} for one in managers]

    def _cancel(self, jobs: list[str]) -> list[bool]:
        self.canceled += jobs
        return [True] * len(jobs)

    def refuse(self, status: JobStatus) -> None:
        """Give no block any more, with this answer."""
        executor: Any = self.pool._executor
        self.statuses["0"] = status
        executor.scale_out_facade = lambda _: []

    def end(self, state: JobState) -> None:
        """End all blocks."""
        self.statuses.update({name: JobStatus(state) for name in self.statuses})


def test_blocks_that_come_and_fail_are_a_problem(tmp_path: Path) -> None:
    """They are replaced later each time, and the work counts as stuck since the first."""
    batch = Batch(tmp_path)
    for second in range(1, 101):
        batch.tend(float(second))
        batch.end(JobState.FAILED)
    assert len(batch.jobs) == 8
    assert batch.pool.stuck_since == 1.0
    assert batch.pool.reason() == "a block ended before a step began in it"


def test_a_block_that_is_refused_is_a_problem_in_the_words_of_the_batch_system(tmp_path: Path) -> None:
    """What Parsl says around them tells nobody anything."""
    batch = Batch(tmp_path)
    said = "Failed to start block 0: Cannot launch job resile-1-1: no id; recode=1, stdout=, stderr=sbatch: error:\n no"
    batch.refuse(JobStatus(JobState.FAILED, said))
    batch.tend(1.0)
    assert batch.pool.reason() == "sbatch: error: no"


def test_blocks_that_work_are_replaced_at_once(tmp_path: Path) -> None:
    """They are no problem."""
    batch = Batch(tmp_path)
    for second in range(1, 11):
        batch.tend(float(second))
        batch.pool.note_work(str(second - 1))
        batch.end(JobState.COMPLETED)
    assert len(batch.jobs) == 10
    assert batch.pool.problem == ""


def test_the_longest_idle_block_ends(tmp_path: Path) -> None:
    """That is no problem, and the next work has a new block at once, whatever the batch system says of the old one."""
    batch = Batch(tmp_path)
    batch.pool.tend(3, {}, 1.0)
    limit = batch.pool.settings.idle_seconds
    batch.idle = {"0": limit + 1.0, "1": limit + 2.0, "2": limit}
    batch.pool.tend(2, {}, 2.0)
    assert (batch.canceled, list(batch.pool.blocks)) == (["1"], ["0", "2"])
    batch.pool.tend(0, {}, 3.0)
    assert (batch.canceled, list(batch.pool.blocks)) == (["1", "0"], ["2"])
    batch.pool.tend(3, {}, 4.0)
    assert (batch.pool.problem, list(batch.pool.blocks)) == ("", ["2", "3", "4"])


def test_a_block_without_a_manager_goes_on_for_its_attempts(tmp_path: Path) -> None:
    """It takes no more, so others have a new block; and it is never ended as idle, whatever Parsl thinks of it."""
    batch = Batch(tmp_path)
    batch.pool.tend(1, {}, 1.0)
    batch.pool.note_work("0")
    batch.pool.tend(2, {"0": 1}, 2.0)
    assert list(batch.pool.blocks) == ["0", "1"]
    batch.idle = {"1": 1000.0}
    batch.pool.tend(1, {"0": 1}, 3.0)
    assert (batch.canceled, list(batch.pool.blocks)) == (["1"], ["0"])


def test_a_block_that_is_known_to_end_is_asked_about_at_once(tmp_path: Path) -> None:
    """Then less and less often, because the batch system may take its time; its task is forgotten when it has ended."""
    batch = Batch(tmp_path)
    batch.tend(1.0)
    batch.pool.note_work("0")
    batch.pool.tasks |= {"1.1", "1.2"}
    batch.pool.expect_end("0", "1.1")
    for second in range(2, 70):
        batch.tend(float(second))
    assert batch.pool.tasks == {"1.1", "1.2"}
    assert batch.asked_early == [2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 63.0]
    batch.end(JobState.CANCELLED)
    batch.tend(70.0)
    assert list(batch.jobs) == ["0", "1"]
    for second in range(71, 140):
        batch.tend(float(second))
    assert batch.pool.tasks == {"1.2"}
    assert len(batch.asked_early) == 7
    batch.pool.expect_end("1", "1.3")
    batch.tend(140.0)
    assert batch.asked_early[7:] == [140.0]
