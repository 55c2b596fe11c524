"""What a session finds out before an engine goes on: whether the records of the attempts in flight can be trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from resile.core.events import Capacity, EpochStarted, RunResumed
from resile.engine.journal import Journal
from resile.engine.session import Session, take
from resile.executors.contract import Records
from resile.model.workflow import Need, Shell, Step
from resile.store.memory import MemoryStore
from tests.core.world import flow
from tests.engine.simulated import SimulatedExecutor, Simulation

CHAIN = flow(Step(name="a", action=Shell("true")), Step(name="b", action=Shell("true"), needs=(Need(("a",)),)))
# Seconds since the boot at which no lease of a dead engine holds any more.
LATER = 1e6


class PowerCut(Exception):
    """The engine dies at this moment."""


def cut_power() -> None:
    """End the engine as a power cut does."""
    raise PowerCut


def records_lost(
    simulation: Simulation, records: Records = "here", cut: tuple[int, int] | None = None, now: float = LATER
) -> bool:
    """What the resume of the next engine says of the records, where its executor has such ones."""
    executor = SimulatedExecutor(simulation.clock)
    executor.records = records
    executor.cut = set() if cut is None else {cut}
    store = MemoryStore(simulation.database)
    session = Session(
        store,
        simulation.row,
        simulation.state,
        env={},
        listener=lambda _state, _notes: None,
        clock=simulation.clock,
        executor=executor,
    )
    lease = take(store, simulation.row.id, now)
    resumed = RunResumed(simulation.clock.now(), Capacity(parallel=2))
    drive = session.open(lease, [resumed], store.writer(), 2)
    drive.engine.close(False)
    store.release_lease(lease)
    (event,) = drive.events
    assert isinstance(event, RunResumed)
    return event.records_lost


def dead(folder: Path, seconds: float) -> Simulation:
    """A run whose engine died so many seconds after it began; each step takes one second."""
    simulation = Simulation(CHAIN, str(folder))
    simulation.clock.plan(seconds, cut_power)
    with pytest.raises(PowerCut):
        simulation.drive()
    return simulation


def test_records_without_the_last_end_are_lost(tmp_path: Path) -> None:
    """The store knows the end of `a`: records that have it are whole, those that lack it were cut."""
    simulation = dead(tmp_path, 1.5)
    assert not records_lost(simulation)
    assert records_lost(simulation, cut=(1, 1))
    assert not records_lost(simulation, cut=(2, 1))


def test_records_of_an_earlier_epoch_prove_nothing(tmp_path: Path) -> None:
    """Only ends of this epoch must be in its records, and of those the last one whose output the store knows."""
    simulation = dead(tmp_path, 1.5)
    store, run = MemoryStore(simulation.database), simulation.row.id
    writer = store.writer()
    journal = Journal(writer, run, take(store, run, LATER).token)
    first = next(store.attempts(run, 1))
    later = replace(first, attempt=2, ended_at=first.ended_at and first.ended_at + 9.0)
    journal.copy_attempts([replace(later, epoch=0), replace(later, attempt=3, log=None)])
    journal.submit(simulation.state)
    writer.flush()
    writer.close()
    assert [(row.epoch, row.attempt) for row in store.attempts(run, 1)] == [(0, 2), (1, 1), (1, 3)]
    for attempt in (2, 3):
        assert not records_lost(simulation, cut=(1, attempt), now=attempt * LATER)
    assert records_lost(simulation, cut=(1, 1), now=4 * LATER)


def test_records_of_another_boot_are_lost(tmp_path: Path) -> None:
    """So are those that are not there, of a run whose log names its machine; an older one had none when it closed."""
    simulation = dead(tmp_path, 1.5)
    assert records_lost(simulation, "former")
    simulation.state.machine = simulation.clock.machine
    assert records_lost(simulation, "none")
    simulation.state.machine = None
    assert not records_lost(simulation, "none")
    assert records_lost(simulation, "former")


def test_before_the_first_end_there_is_nothing_to_miss(tmp_path: Path) -> None:
    """No end is recorded, so the records can't lack it."""
    assert not records_lost(dead(tmp_path, 0.5), cut=(1, 1))


def test_ends_of_an_earlier_epoch_say_nothing(tmp_path: Path) -> None:
    """The records of an epoch are its own: an end of the last epoch need not be among them."""
    simulation = Simulation(CHAIN, str(tmp_path))
    assert simulation.drive() == "completed"
    simulation.executor = SimulatedExecutor(simulation.clock)
    simulation.clock.plan(0.5, cut_power)
    simulation.first = EpochStarted(simulation.clock.now())  # type: ignore[assignment]
    simulation.store = MemoryStore(simulation.database)
    simulation.store.release_lease(take(simulation.store, simulation.row.id, LATER))
    resumed = RunResumed(simulation.clock.now(), Capacity(parallel=2))
    with pytest.raises(PowerCut):
        simulation.drive(resumed)
    assert (simulation.state.epoch, simulation.state.in_flight) == (2, 1)
    for cut in ((1, 1), (2, 1), (3, 1)):
        assert not records_lost(simulation, cut=cut)
