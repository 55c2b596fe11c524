"""What can happen to a run. Each disturbance leaves a case whose command runs again or has ended."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.torture.cases import DESCRIPTORS, LEASE_SECONDS, SECONDS_MAX, Case, send
from tests.torture.places import Disk

# A lost attempt is tried again three times, then it is parked.
LOSSES_MAX = 3


def kill_engine(case: Case) -> None:
    """Kill -9 of the command; another goes on."""
    case.process.kill()
    case.process.wait()
    case.go_on()


def kill_any(case: Case) -> None:
    """Kill -9 of any process: engine, launcher, step, sandbox or worker."""
    case.losses += 1
    found = case.processes()
    if found:
        send(case.chance.choice(found), signal.SIGKILL)
    if case.wait(case.chance.uniform(0.0, 0.3)):
        case.go_on()


def kill_all(case: Case) -> None:
    """Kill -9 of everything at once."""
    case.losses += 1
    case.signal_all(signal.SIGKILL)
    case.go_on()


def stop_past_lease(case: Case) -> None:
    """The engine stands still, another takes over, then the first wakes up."""
    case.losses += 1
    first = case.process
    send(first.pid, signal.SIGSTOP)
    if not case.exists():
        send(first.pid, signal.SIGCONT)
        return
    case.begun = True
    case.wait(LEASE_SECONDS + case.chance.uniform(0.0, 1.0))
    case.go_on()
    case.wait(case.chance.uniform(0.0, 1.0))
    send(first.pid, signal.SIGCONT)
    first.wait(SECONDS_MAX)


def second_engine(case: Case) -> None:
    """A second engine is refused while the first one drives the run."""
    if case.exists():
        case.start("resume", "1").wait(SECONDS_MAX)


def few_descriptors(case: Case) -> None:
    """An engine that may open few files goes on."""
    case.process.kill()
    case.process.wait()
    case.go_on(descriptors=case.chance.choice(DESCRIPTORS))


def set_clock(case: Case) -> None:
    """The wall clock jumps by an hour."""
    case.clock.write_text(case.chance.choice(("+3600", "-3600", "+0")))


def cut_power(case: Case) -> None:
    """The machine dies with everything on it, and starts again."""
    assert isinstance(case.place, Disk)
    for one in case.machine:
        one.losses += 1

    def signal_all(number: int) -> None:
        for one in case.machine:
            one.signal_all(number)

    case.place.cut_power(signal_all)
    for one in case.machine:
        one.go_on()


def fill_disk(case: Case) -> None:
    """The disk is full for a while."""
    assert isinstance(case.place, Disk)
    ballast = case.place.fill()
    case.wait(case.chance.uniform(0.0, 1.0))
    ballast.unlink()
    for one in case.machine:
        if one.wait(case.chance.uniform(0.0, 0.5)) and one.process.returncode:
            one.go_on()


EVERYWHERE: tuple[Callable[[Case], None], ...] = (
    kill_engine, kill_any, kill_all, stop_past_lease, second_engine, few_descriptors, set_clock,
)  # fmt: skip
ON_DISK: tuple[Callable[[Case], None], ...] = (cut_power, fill_disk)
LOSING: frozenset[Callable[[Case], None]] = frozenset({kill_any, kill_all, stop_past_lease, cut_power})


def choose(case: Case) -> Callable[[Case], None]:
    """Any disturbance that the place allows and the rule for lost attempts survives."""
    possible = [*EVERYWHERE, *(ON_DISK * 2 if isinstance(case.place, Disk) else ())]
    return case.chance.choice([one for one in possible if case.losses < LOSSES_MAX or one not in LOSING])
