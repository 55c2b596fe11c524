"""The engine in simulated time: leases, interrupts and kills, without a process and without waiting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from resile.core.events import CancelRequested
from resile.engine.neighbours.lease_keeper import LEASE_SECONDS
from resile.engine.session import take
from resile.executors.contract import Launch, Started
from resile.model.failure import LogRange
from resile.model.rules import Backoff
from resile.model.workflow import Resources, Rule, Shell, Step
from resile.store.contract import Lease
from resile.store.errors import LeaseHeld
from tests.core.world import flow
from tests.engine.simulated import START, HandClock, SimulatedExecutor, Simulation


def shell(name: str, **keys: object) -> Step:
    """A step that would run a command."""
    return Step(name=name, action=Shell("true"), **keys)  # type: ignore[arg-type]


def test_a_run_takes_simulated_time_only(tmp_path: Path) -> None:
    """Two attempts of one second each, side by side, and `end`, which takes no time, end after one simulated second."""
    simulation = Simulation(flow(shell("a"), shell("b")), str(tmp_path))
    assert simulation.drive() == "completed"
    run = simulation.store.run(simulation.row.id)
    assert run is not None
    assert (run.status, run.started_at, run.ended_at) == ("completed", START, START + 1.0)
    assert [(row.job, row.started_at, row.ended_at) for row in simulation.store.attempts(run.id)] == [
        (1, START, START + 1.0),
        (2, START, START + 1.0),
        (3, START + 1.0, START + 1.0),
    ]


def test_the_lease_is_renewed_while_a_step_runs_longer_than_it(tmp_path: Path) -> None:
    """After 31 simulated seconds of one attempt the lease, which lasts 30, is still held, renewed every 10 seconds."""
    executor = SimulatedExecutor(HandClock(), seconds=35.0)
    simulation = Simulation(flow(shell("a")), str(tmp_path), executor)
    held: list[float] = []

    def look() -> None:
        """See until when the lease holds."""
        lease = simulation.store.lease(simulation.row.id, executor.clock.boot_seconds())
        held.append(0.0 if lease is None else lease.expires_boot_seconds)

    for seconds in (9.0, 11.0, 31.0):
        executor.clock.plan(seconds, look)
    assert simulation.drive() == "completed"
    assert [round(seconds) for seconds in held] == [LEASE_SECONDS, 10 + LEASE_SECONDS, 30 + LEASE_SECONDS]


def test_a_kill_comes_after_the_starts_that_were_ordered_before_it(tmp_path: Path) -> None:
    """A start and its kill in one batch reach the executor in this order, so the kill finds the attempt."""
    simulation = Simulation(flow(shell("a"), shell("b")), str(tmp_path))
    assert simulation.drive(CancelRequested(START, "me", "")) == "canceled"
    assert simulation.executor.calls == [("start", 1, 1), ("start", 2, 1), ("kill", 1, 1), ("kill", 2, 1)]


class LateReports(SimulatedExecutor):
    """An executor whose second attempt had started before the drain, and is reported only after the first is over."""

    def start(self, launches: Sequence[Launch]) -> None:
        """Begin the first one; keep quiet about the second."""
        super().start([launch for launch in launches if launch.job == 1])
        self.launches += [launch for launch in launches if launch.job != 1]

    def kill(self, job: int, attempt: int) -> None:
        """End it; with the first, the start of the second is reported."""
        super().kill(job, attempt)
        if job == 1:
            self.running[2, 1] = self.clock.now()
            self.report(Started(2, 1, self.clock.now(), 8, LogRange("2-1")))
            self.clock.plan(self.seconds, lambda: self.end(2, 1))


def test_the_second_interrupt_kills_what_is_reported_later(tmp_path: Path) -> None:
    """An attempt whose start is reported after the second Ctrl-C is killed too, once."""
    executor = LateReports(HandClock(), seconds=1000.0)
    simulation = Simulation(flow(shell("a"), shell("b")), str(tmp_path), executor)
    heard: list[str] = []

    def interrupt(name: str) -> None:
        """Press Ctrl-C."""
        assert simulation.engine is not None
        simulation.engine.interrupt(lambda: heard.append(name))

    executor.clock.plan(1.0, lambda: interrupt("first"))
    executor.clock.plan(2.0, lambda: interrupt("second"))
    assert simulation.drive() == "interrupted"
    assert executor.calls == [("start", 1, 1), ("drain", 0, 0), ("kill", 1, 1), ("kill", 2, 1)]
    assert (heard, executor.clock.now()) == (["first", "second"], START + 2.0)


@pytest.mark.parametrize(
    ("timeout", "runtime", "limit"),
    [(5.0, 3.0, 3.0), (3.0, 5.0, 3.0), (None, 4.0, 4.0), (4.0, None, 4.0), (None, None, 0.0)],
)
def test_an_attempt_has_the_shorter_of_two_limits(
    tmp_path: Path, timeout: float | None, runtime: float | None, limit: float
) -> None:
    """Of a timeout and a granted runtime the shorter one is the attempt's limit; without either it has none."""
    resources = Resources(runtime_seconds=runtime) if runtime is not None else None
    simulation = Simulation(flow(shell("a", timeout_seconds=timeout, resources=resources)), str(tmp_path))
    assert simulation.drive() == "completed"
    assert [launch.timeout_seconds for launch in simulation.executor.launches] == [limit]


class Frozen(SimulatedExecutor):
    """An executor that keeps its engine waiting for longer than a lease, while another engine takes the run."""

    simulation: Simulation
    taken: Lease

    def start(self, launches: Sequence[Launch]) -> None:
        """Let 31 seconds pass, take the lease, and begin."""
        self.clock.time += LEASE_SECONDS + 1
        self.taken = take(self.simulation.store, self.simulation.row.id, self.clock.boot_seconds())
        super().start(launches)


def test_an_engine_that_stood_still_for_longer_than_its_lease_loses_the_run(tmp_path: Path) -> None:
    """After 31 simulated seconds without a renewal another engine has the lease, and the first can't write any more."""
    executor = Frozen(HandClock())
    simulation = executor.simulation = Simulation(flow(shell("a")), str(tmp_path), executor)
    with pytest.raises(LeaseHeld):
        simulation.drive()
    held = simulation.store.lease(simulation.row.id, executor.clock.boot_seconds())
    assert held is not None
    assert held.token == executor.taken.token
    assert "attempt_started" not in simulation.events


class FirstFails(SimulatedExecutor):
    """An executor of which the first attempt of each job fails, and the others pass."""

    def end(self, job: int, attempt: int, status: int = 0, reason: str = "") -> None:
        """Exit with 1 the first time."""
        super().end(job, attempt, status or (1 << 8 if attempt == 1 else 0), reason)


def retrying(name: str, seconds: float) -> Step:
    """A step that is tried again after so many seconds."""
    return shell(name, rules=(Rule(then="retry", text="retry", wait=Backoff("fixed", seconds)),))


def test_a_retry_waits_until_its_time_has_come(tmp_path: Path) -> None:
    """Each failed step begins again after its own backoff, the one with the shorter first."""
    executor = FirstFails(HandClock())
    simulation = Simulation(flow(retrying("a", 500.0), retrying("b", 100.0)), str(tmp_path), executor)
    assert simulation.drive() == "completed"
    attempts = [(row.job, row.attempt, row.started_at) for row in simulation.store.attempts(simulation.row.id)]
    again = [(1, 2, START + 501.0), (2, 2, START + 101.0)]
    assert sorted(row for row in attempts if row[0] < 3) == sorted([(1, 1, START), (2, 1, START), *again])


def test_an_interrupt_ends_the_wait_for_a_retry(tmp_path: Path) -> None:
    """Nothing runs, so the engine stops at once; the retry is the next engine's."""
    executor = FirstFails(HandClock())
    simulation = Simulation(flow(retrying("a", 500.0)), str(tmp_path), executor)

    def interrupt() -> None:
        """Press Ctrl-C."""
        assert simulation.engine is not None
        simulation.engine.interrupt(lambda: None)

    executor.clock.plan(50.0, interrupt)
    assert simulation.drive() == "interrupted"
    assert (executor.calls, executor.clock.now()) == ([("start", 1, 1), ("drain", 0, 0)], START + 50.0)
