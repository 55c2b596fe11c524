"""A user's retry of a job: it runs again, what was canceled because of it waits for it, and the run ends again."""

from __future__ import annotations

import pytest

from resile.core.actions import KillAttempt, StartAttempt
from resile.core.events import AttemptEnded, AttemptStarted, RetryRequested, RunResumed
from resile.core.scheduling.retries import retry_problem
from tests.core.items import step
from tests.core.world import OK, World, failed, flow

FLOW = flow(step("a"), step("b", "a"), step("c", "b"), step("d"))


def go_on(world: World) -> World:
    """Perform what is left."""
    while world.orders:
        world.perform()
    return world


def test_a_failed_job_of_an_ended_run_opens_the_run_again() -> None:
    """The job runs once more, what it had canceled follows, `end` runs again, and the closing pair is written again."""
    world = World(FLOW, lambda name, attempt: failed() if (name, attempt) == ("a", 1) else OK).run()
    assert world.statuses() == {"a": "failed", "b": "canceled", "c": "canceled", "d": "completed", "end": "completed"}
    world.executed.clear()
    world.feed(RetryRequested(world.clock, 1, "ann", "fixed", offline=True))
    world.feed(RunResumed(world.clock, world.capacity))
    go_on(world)
    assert world.executed == ["a", "b", "c", "end"]
    assert set(world.statuses().values()) == {"completed"}
    assert (world.ended, world.state.verdict, world.state.epoch) == ("completed", "completed", 1)
    assert [note.type for note in world.notes if note.type.startswith("workflow_")][1:] == [
        "workflow_failed",
        "workflow_completed",
    ]
    judged = next(note for note in world.notes if note.type == "step_judged")
    assert (judged.step, judged.data) == ("a", {"verdict": "retry", "by": "ann", "reason": "fixed"})


def test_a_running_attempt_is_ended_first() -> None:
    """The attempt is killed, and the next one starts when that is over; how the first ended does not count."""
    world = World(FLOW, parallel=1).start()
    start = world.orders.pop(0)
    assert isinstance(start, StartAttempt)
    world.feed(AttemptStarted(1.0, start.job, 1))
    world.feed(RetryRequested(2.0, start.job, "ann"))
    assert [type(order) for order in world.orders] == [KillAttempt]
    world.orders.clear()
    world.feed(AttemptEnded(3.0, start.job, 1, failed(143, "canceled"), canceled=True))
    assert go_on(world).ended == "completed"
    assert world.executed.count("a") == 1
    assert world.state.jobs[start.job].attempt == 2


@pytest.mark.parametrize("job", [2, 4, 5, 99])
def test_what_has_nothing_to_retry_is_left_alone(job: int) -> None:
    """A canceled or completed job, `end`, and a job that does not exist: nothing happens."""
    world = World(FLOW, lambda name, _: failed() if name == "a" else OK).run()
    before = world.statuses()
    world.feed(RetryRequested(world.clock, job, offline=True))
    assert retry_problem(world.state, job) != ""
    assert (world.statuses(), world.state.phase) == (before, "ended")
