"""Attempts in doubt: reserved in another boot, or before the executor's records were lost."""

from __future__ import annotations

from resile.core.actions import FindAttempt, StartAttempt
from resile.core.events import (
    AttemptEnded,
    AttemptStarted,
    CancelRequested,
    Judged,
    Machine,
    RunResumed,
    RunStarted,
)
from resile.model.workflow import Need, Shell, Step
from tests.core.world import OK, World, failed, flow

FIRST, SECOND = Machine("first", 0.0), Machine("second", 0.0)
LOST = failed(kind="lost")


def sh(name: str, *needs: str, **keys: object) -> Step:
    """A plain command."""
    return Step(name=name, needs=tuple(Need((need,)) for need in needs), action=Shell("true"), **keys)  # type: ignore[arg-type]


class Boots(World):
    """A world in which engines come and go."""

    def __init__(self, *steps: Step, parallel: int = 1, early: int = 0) -> None:
        super().__init__(flow(*steps), parallel=parallel)
        self.capacity = type(self.capacity)(parallel, cpus=4, early=early)
        self.feed(RunStarted(self.clock, self.capacity, machine=FIRST))
        self.orders.clear()

    def resume(self, machine: Machine | None, *, records_lost: bool = False) -> dict[str, bool]:
        """A new engine takes over: whether each attempt that it must find is in doubt."""
        self.orders.clear()
        found = self.feed(RunResumed(self.clock, self.capacity, "", machine, records_lost))
        return {self.name(order.job): order.in_doubt for order in found if isinstance(order, FindAttempt)}

    def starts(self) -> list[tuple[str, int]]:
        """What was ordered to start since the last look, and as which attempt."""
        found = [(self.name(order.job), order.attempt) for order in self.orders if isinstance(order, StartAttempt)]
        self.orders.clear()
        return found


def test_what_was_reserved_in_another_boot_is_in_doubt_until_it_is_over() -> None:
    """Also for a second engine of the new boot; attempts that were reserved in the new boot are not."""
    world = Boots(sh("a"), sh("b"))
    assert world.resume(FIRST) == {"a": False}
    assert world.resume(SECOND) == {"a": True}
    assert world.resume(SECOND) == {"a": True}
    world.feed(AttemptEnded(1.0, 1, 1, LOST))
    assert world.starts() == [("b", 1)]
    assert world.resume(SECOND) == {"b": False}
    assert world.replayed() == world.state


def test_what_was_reserved_before_records_were_lost_is_in_doubt() -> None:
    """The engine that finds them lost writes that down, so that the next one knows it too."""
    world = Boots(sh("a"))
    assert world.resume(FIRST, records_lost=True) == {"a": True}
    assert world.resume(FIRST) == {"a": True}


def test_what_has_started_is_never_withdrawn_for_want_of_a_record() -> None:
    """The log knows that it runs, so records without it have been cut off."""
    world = Boots(sh("a"), sh("b"), parallel=2)
    world.feed(AttemptStarted(1.0, 1, 1))
    assert world.resume(FIRST) == {"a": True, "b": False}


def test_a_run_of_an_older_version_is_in_doubt_only_by_its_records() -> None:
    """Its log does not name the machine."""
    world = World(flow(sh("a"))).start()
    found = world.feed(RunResumed(1.0, world.capacity, "", SECOND))
    assert [order.in_doubt for order in found if isinstance(order, FindAttempt)] == [False]


def test_the_number_of_a_lost_attempt_is_never_given_back() -> None:
    """The next attempt has the next number."""
    world = Boots(sh("a"))
    world.resume(SECOND)
    world.feed(AttemptEnded(1.0, 1, 1, LOST))
    assert world.starts() == [("a", 2)]


def test_an_early_attempt_that_is_lost_with_its_need_waits_for_it_again() -> None:
    """The need may have ended and let it start, so its number is used; it runs again only after the need."""
    world = Boots(sh("a"), sh("b", "a"), parallel=2, early=4)
    assert world.resume(SECOND) == {"a": True, "b": True}
    world.feed(AttemptEnded(1.0, 1, 1, LOST))
    world.feed(AttemptEnded(1.0, 2, 1, LOST))
    assert world.statuses() == {"a": "pending", "b": "blocked", "end": "blocked"}
    assert world.types("b") == ["attempt_lost"]
    world.orders.clear()
    world.feed(AttemptEnded(3.0, 1, 2, OK))
    assert world.starts() == [("b", 2)]
    world.feed(AttemptEnded(4.0, 2, 2, OK))
    assert world.statuses() == {"a": "completed", "b": "completed", "end": "pending"}
    assert world.replayed() == world.state


def test_an_early_attempt_that_must_not_run_again_is_parked_with_its_number() -> None:
    """Judged to be tried again, it waits for its need as it would have."""
    world = Boots(sh("a"), sh("b", "a", on_loss="park"), parallel=2, early=4)
    world.resume(SECOND)
    world.feed(AttemptEnded(1.0, 1, 1, LOST))
    world.feed(AttemptEnded(1.0, 2, 1, LOST))
    assert world.statuses()["b"] == "pending_failed"
    world.feed(Judged(2.0, 2, "retry"))
    assert world.statuses()["b"] == "blocked"
    world.feed(AttemptEnded(3.0, 1, 2, OK))
    assert {name: attempt for name, attempt in world.starts() if name == "b"} == {"b": 2}
    assert world.replayed() == world.state


def test_an_early_attempt_that_is_lost_in_a_stopping_run_ends_there() -> None:
    """A cancel leaves nothing that would wait for a need."""
    world = Boots(sh("a"), sh("b", "a"), parallel=2, early=4)
    world.feed(CancelRequested(0.5))
    world.resume(SECOND)
    world.feed(AttemptEnded(1.0, 1, 1, LOST))
    world.feed(AttemptEnded(1.0, 2, 1, LOST))
    assert world.statuses() == {"a": "failed", "b": "terminated", "end": "pending"}


def test_a_cancel_without_an_engine_reserves_nothing() -> None:
    """The engine that comes next reserves `end`, so no attempt is in doubt that no engine could have started."""
    world = Boots(sh("a", on_loss="park"))
    world.resume(SECOND)
    world.feed(AttemptEnded(1.0, 1, 1, LOST))
    world.feed(CancelRequested(2.0, offline=True))
    assert (world.statuses(), world.starts()) == ({"a": "canceled", "end": "ready"}, [])
    assert world.resume(Machine("third", 0.0)) == {}
    assert world.starts() == [("end", 1)]


def test_a_judgement_without_an_engine_reserves_nothing() -> None:
    """The step is ready, and the next engine starts it under the next number."""
    world = Boots(sh("a", on_loss="park"))
    world.resume(SECOND)
    world.feed(AttemptEnded(1.0, 1, 1, LOST))
    world.feed(Judged(2.0, 1, "retry", offline=True))
    assert (world.statuses()["a"], world.starts()) == ("ready", [])
    assert world.resume(Machine("third", 0.0)) == {}
    assert world.starts() == [("a", 2)]
