"""A recovery answers the failures that it names, with grants for these alone, and leaves all others as they are."""

from __future__ import annotations

import pytest
from msgspec import structs

from resile.core.actions import StartAttempt
from resile.core.epochs.recovery import opened_jobs
from resile.core.events import EpochStarted, Grant, Judged, Remedy, RetryRequested, RunResumed
from resile.core.scheduling.reservations import resources_for
from resile.model.failure import Failure
from resile.model.status import Status
from resile.model.workflow import Need, Noop, Resources, Step, Workflow
from tests.core.items import step
from tests.core.world import OK, World, failed, flow

BOTH = flow(step("a"), step("b"), step("after_a", "a"), step("after_b", "b"), step("both", "a", "b"))


def recovered(world: World, *remedies: Remedy) -> World:
    """The world after a recovery with these remedies."""
    world.executed.clear()
    world.feed(EpochStarted(world.clock, True, "ann", None, remedies))
    world.feed(RunResumed(world.clock, world.capacity))
    while world.orders:
        world.perform()
    return world


def failing(flow: Workflow, *names: str) -> World:
    """A world in which these steps fail until they are mended by `world.broken.clear()`."""
    broken = set(names)
    world = World(flow, lambda name, _attempt: failed() if name in broken else OK)
    world.broken = broken  # type: ignore[attr-defined]
    return world.run()


def test_other_failures_stay_with_what_they_canceled() -> None:
    """`a` runs again and what waited for it; `b`, and what needs both, stay as they were."""
    world = failing(BOTH, "a", "b")
    world.broken.discard("a")  # type: ignore[attr-defined]
    recovered(world, Remedy(1, "a", "lost"))
    assert world.executed == ["a", "after_a", "end"]
    assert world.statuses() == {
        "a": "completed",
        "b": "failed",
        "after_a": "completed",
        "after_b": "canceled",
        "both": "canceled",
        "end": "completed",
    }
    assert (world.ended, world.state.epoch) == ("failed", 2)
    recovered(world, Remedy(2, "b", "unknown"))
    world.broken.clear()  # type: ignore[attr-defined]
    recovered(world, Remedy(2, "b", "unknown"))
    assert (world.executed, world.ended) == (["b", "after_b", "both", "end"], "completed")
    assert world.replayed() == world.state


def test_what_stays_canceled_is_canceled_because_of_the_failure_that_stays() -> None:
    """`a` completes now, but `both` is canceled because of `b`: a retry of `b` runs it."""
    world = failing(BOTH, "a", "b")
    world.broken.discard("a")  # type: ignore[attr-defined]
    recovered(world, Remedy(1, "a", "lost"))
    cause = world.state.jobs[5].cause
    assert cause is not None
    assert (cause.step, cause.status) == ("b", "failed")
    world.broken.clear()  # type: ignore[attr-defined]
    world.executed.clear()
    world.feed(RetryRequested(world.clock, 2, "ann", "fixed", offline=True))
    world.feed(RunResumed(world.clock, world.capacity))
    while world.orders:
        world.perform()
    assert (world.executed, world.ended) == (["b", "after_b", "both", "end"], "completed")


def test_a_grant_is_for_one_job_and_never_shrinks() -> None:
    """Another job with the same request keeps what it asks for, and a smaller grant is ignored."""
    asked = Resources(memory_bytes=100, runtime_seconds=5.0)
    steps = [Step(name=name, action=Noop(), resources=asked) for name in ("a", "b")]
    world = failing(flow(*steps), "a", "b")
    recovered(world, Remedy(1, "a", "oom", Grant(memory_bytes=150)), Remedy(2, "b", "lost"))
    given = [resources_for(world.state, world.state.jobs[number]) for number in (1, 2)]
    assert [found and (found.memory_bytes, found.runtime_seconds) for found in given] == [(150, 5.0), (100, 5.0)]
    recovered(world, Remedy(1, "a", "timeout", Grant(memory_bytes=120, runtime_seconds=8.0)))
    found = resources_for(world.state, world.state.jobs[1])
    assert found is not None
    assert (found.memory_bytes, found.runtime_seconds) == (150, 8.0)
    noted = [note.data["remedies"] for note in world.notes if "remedies" in note.data]
    assert noted[0] == [
        {"job": 1, "step": "a", "diagnosis": "oom", "memory_bytes": 150},
        {"job": 2, "step": "b", "diagnosis": "lost"},
    ]


def test_a_rerun_of_what_failed_keeps_the_grants_and_a_whole_one_drops_them() -> None:
    """Grants belong to the jobs of this run until everything starts over."""
    world = failing(flow(Step(name="a", action=Noop(), resources=Resources(memory_bytes=100))), "a")
    recovered(world, Remedy(1, "a", "oom", Grant(memory_bytes=150)))
    world.feed(EpochStarted(world.clock, True))
    assert world.state.jobs[1].memory_bytes == 150
    world.feed(EpochStarted(world.clock, False))
    assert (world.state.jobs[1].memory_bytes, world.state.grants) == (0, {})


def test_a_failure_that_is_parked_waits_for_its_judge_with_all_that_needs_it() -> None:
    """The run is parked; a judgement runs the step again, and what it had canceled follows."""
    world = failing(BOTH, "a")
    parked = Remedy(1, "a", "unknown", park=True, failure=Failure("exit", "exit code 3", 3))
    recovered(world, parked)
    assert (world.executed, world.ended, world.state.parked) == ([], "parked", 1)
    assert world.statuses()["a"] == "pending_failed"
    assert [note.data["message"] for note in world.notes if note.type == "step_parked"] == ["exit code 3"]
    world.broken.clear()  # type: ignore[attr-defined]
    world.feed(Judged(world.clock, 1, "retry", "ann"))
    while world.orders:
        world.perform()
    assert (world.executed, world.ended) == (["a", "after_a", "both", "end"], "completed")


def test_a_step_that_may_follow_a_failure_runs_beside_one_that_stays() -> None:
    """A need that a failure satisfies counts as over although its step stays failed."""
    cares = Need(("a",))
    indifferent = Need(("b",), failure_satisfies=True)
    last = Step(name="last", action=Noop(), needs=(cares, indifferent))
    world = failing(flow(step("a"), step("b"), last), "a", "b")
    assert world.statuses()["last"] == "canceled"
    world.broken.clear()  # type: ignore[attr-defined]
    recovered(world, Remedy(1, "a", "lost"))
    assert (world.executed, world.statuses()["b"], world.statuses()["last"]) == (
        ["a", "last", "end"],
        "failed",
        "completed",
    )


def test_a_retry_on_request_carries_a_grant() -> None:
    """The next attempt has the memory that the request grants."""
    world = failing(flow(Step(name="a", action=Noop(), resources=Resources(memory_bytes=100))), "a")
    world.feed(RetryRequested(world.clock, 1, "ann", "more", offline=True, grant=Grant(memory_bytes=300)))
    orders = world.feed(RunResumed(world.clock, world.capacity))
    assert [type(order) for order in orders] == [StartAttempt]
    assert (world.state.memory_bytes_used, world.state.jobs[1].memory_bytes) == (300, 300)


@pytest.mark.parametrize("status", [Status.terminated, Status.running])
def test_what_was_ended_with_the_run_runs_again(status: Status) -> None:
    """A job that a critical failure ended, or that was never over, is no failure of its own."""
    world = failing(BOTH, "a")
    other = world.state.jobs[2]
    world.state.jobs[2] = structs.replace(other, status=status)
    assert opened_jobs(world.state, {1}) == {1, 2, 3, 5}
