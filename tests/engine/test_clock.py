"""The clock of a run: the same for every engine of one boot, and never behind the log."""

from __future__ import annotations

import select
import time

import pytest

from resile.core.events import Machine
from resile.core.state import State
from resile.engine.clock import clock_of
from resile.store.lease import boot_id, boot_seconds

HOUR = 3600.0


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_run_keeps_its_clock_on_one_boot(jump: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second engine on the same boot tells the same time as the first, though the wall clock was set meanwhile."""
    first = clock_of()
    wall = time.time
    assert abs(first.now() - wall()) < 1.0
    monkeypatch.setattr(time, "time", lambda: wall() + jump)
    second = clock_of(State(machine=first.machine, last_at=first.now()))
    assert second.machine == first.machine
    before = first.now()
    assert before <= second.now() < before + 60.0
    assert abs(clock_of().now() - wall() - jump) < 1.0


def test_after_another_boot_the_clock_goes_on_from_the_last_event() -> None:
    """A clock that is behind the log goes on at the log's last time; one that is ahead of it is believed."""
    behind = clock_of(State(machine=Machine("another", 0.0), last_at=time.time() + HOUR))
    assert HOUR - 1.0 < behind.now() - time.time() < HOUR + 60.0
    ahead = clock_of(State(machine=Machine("another", 0.0), last_at=time.time() - HOUR))
    assert abs(ahead.now() - time.time()) < 1.0
    assert (behind.machine.boot, ahead.machine.boot) == (boot_id(), boot_id())


def test_a_log_without_a_machine_gets_the_wall_clock() -> None:
    """The runs of an older Resile go on with a clock of their own."""
    assert abs(clock_of(State(last_at=1.0)).now() - time.time()) < 1.0


def test_the_clock_waits_for_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait lasts as long as it was meant to, though the wall clock is an hour behind by then."""
    clock = clock_of()
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() - HOUR)
    began = boot_seconds()
    assert clock.wait(select.poll(), clock.now() + 0.05) == []
    assert 0.05 <= boot_seconds() - began < 10.0
