"""Requests of blocks of nodes: each is made exactly once for each time that its trigger holds."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from resile.core.actions import ScheduleNodes
from resile.core.events import BlockEnded, BlockSubmitted, EpochStarted, RunResumed, WorkerStarted
from resile.model.cluster import Allocation, Cluster, Scheduler
from resile.model.executor import ExecutorSettings
from resile.model.failure import Outcome
from resile.model.workflow import Need, Rule, Shell, Step, Workflow
from tests.core.world import OK, World, failed, flow

SCHEDULERS = {"x": Scheduler(60.0), "y": Scheduler(60.0), "wide": Scheduler(60.0, 2)}
ORDERED = ExecutorSettings("/shared", "slurm", on_order=True)


def job(name: str, *needs: str, **keys: Any) -> Step:
    """A step."""
    return Step(name=name, action=Shell("true"), needs=tuple(Need((need,)) for need in needs), **keys)


def clustered(*steps: Step, actions: tuple[Allocation, ...], **keys: Any) -> Workflow:
    """A workflow whose blocks come on order."""
    return flow(*steps, executor=ORDERED, cluster=Cluster(SCHEDULERS, actions, **keys))


class Blocks(World):
    """A world in which the batch system takes every block at once, and each has a worker."""

    def __init__(self, workflow: Workflow, **keys: Any) -> None:
        super().__init__(workflow, **keys)
        self.capacity = replace(self.capacity, parallel=100)
        self.requested: list[tuple[int, str]] = []

    def perform(self) -> None:
        order = self.orders[0]
        if not isinstance(order, ScheduleNodes):
            super().perform()
            return
        self.orders.pop(0)
        cluster = self.state.workflow.cluster
        assert cluster is not None
        allocation = cluster.allocations[order.allocation]
        self.requested.append((order.block, f"{allocation.trigger} {allocation.scheduler}"))
        self.feed(BlockSubmitted(self.clock, order.block, f"1{order.block}"))

    def work(self) -> None:
        """Carry out all orders."""
        while self.orders:
            self.perform()

    def begin(self) -> Blocks:
        """Start, and carry out only the orders for nodes."""
        self.start()
        self.ask()
        return self

    def ask(self) -> None:
        """Carry out the orders for nodes."""
        others = [order for order in self.orders if not isinstance(order, ScheduleNodes)]
        self.orders = [order for order in self.orders if isinstance(order, ScheduleNodes)]
        while self.orders and isinstance(self.orders[0], ScheduleNodes):
            self.perform()
        self.orders = others + self.orders

    def scheduled(self) -> list[tuple[str, list[int]]]:
        """The requests that the log has: trigger and blocks."""
        return [(note.data["trigger"], note.data["blocks"]) for note in self.notes if note.type == "nodes_scheduled"]


def test_every_trigger_of_steps_and_the_run() -> None:
    """Each request is made at its moment, with as many blocks as it asks for, before the run ends."""
    actions = (
        Allocation("x", "on_workflow_start", count=2),
        Allocation("x", "on_jobs_ready", ("b", "c")),
        Allocation("y", "on_jobs_complete", ("b", "c")),
        Allocation("y", "on_workflow_complete", count=3),
    )
    world = Blocks(clustered(job("a"), job("b", "a"), job("c", "a"), job("d", "c"), actions=actions))
    world.run()
    assert world.ended == "completed"
    assert world.scheduled() == [
        ("on_workflow_start", [1, 2]),
        ("on_jobs_ready", [3]),
        ("on_jobs_complete", [4]),
        ("on_workflow_complete", [5, 6, 7]),
    ]
    assert world.requested == [
        (1, "on_workflow_start x"), (2, "on_workflow_start x"), (3, "on_jobs_ready x"), (4, "on_jobs_complete y"),
        *((number, "on_workflow_complete y") for number in (5, 6, 7)),
    ]  # fmt: skip


def test_jobs_ready_waits_for_all_of_them() -> None:
    """A request for several steps is made when the last of them is ready, not before."""
    actions = (Allocation("x", "on_jobs_ready", ("b", "c")),)
    world = Blocks(clustered(job("a"), job("b"), job("c", "a"), actions=actions)).begin()
    assert world.scheduled() == []
    world.work()
    assert world.scheduled() == [("on_jobs_ready", [1])]


def test_a_run_that_is_not_on_order_requests_nothing() -> None:
    """On one machine, or where blocks follow the work, the settings change nothing."""
    workflow = clustered(job("a"), actions=(Allocation("x", "on_workflow_start"),))
    for executor in (None, replace(ORDERED, on_order=False)):
        world = Blocks(replace(workflow, executor=executor)).run()
        assert (world.requested, world.ended) == ([], "completed")


@pytest.mark.parametrize(("persistent", "times"), [(False, 1), (True, 3)])
def test_persistent_requests_are_made_again(persistent: bool, times: int) -> None:
    """A request for a step that is tried three times is made once, or each time if it is persistent."""
    again = Rule(text="again", limit=2, then="retry")
    actions = (Allocation("x", "on_jobs_ready", ("a",), persistent=persistent),)

    def outcome(step: str, attempt: int) -> Outcome:
        return failed() if step == "a" and attempt < 3 else OK

    world = Blocks(clustered(job("a", rules=(again,)), actions=actions), outcome=outcome).run()
    assert world.ended == "completed"
    assert [block for block, _ in world.requested] == list(range(1, times + 1))


@pytest.mark.parametrize("persistent", [False, True])
def test_workers(persistent: bool) -> None:
    """The first worker that starts, and the first that ends, or each of them, makes a request."""
    actions = (
        Allocation("x", "on_workflow_start", count=2),
        Allocation("y", "on_worker_start", persistent=persistent),
        Allocation("y", "on_worker_complete", persistent=persistent),
    )
    world = Blocks(clustered(job("a"), actions=actions)).begin()
    world.feed(WorkerStarted(1.0, 1, "n1"))
    world.feed(WorkerStarted(1.0, 1, "n2"))
    world.feed(BlockEnded(2.0, 2, "never started"))
    world.feed(BlockEnded(2.0, 1))
    # A late word about a block that is over changes nothing.
    world.feed(BlockEnded(2.0, 1))
    world.feed(WorkerStarted(2.0, 1, "n1"))
    starts = [("on_worker_start", [3]), ("on_worker_start", [4])]
    ends = [("on_worker_complete", [5]), ("on_worker_complete", [6])]
    assert world.scheduled()[1:] == (starts + ends if persistent else [starts[0], ("on_worker_complete", [4])])


def test_auto_schedule() -> None:
    """A ready step for which no block is there gets one, a retried one too, and one whose block has ended."""
    again = Rule(text="again", limit=1, then="retry")
    actions = (Allocation("x", "auto_schedule_on_ready_jobs"),)
    workflow = clustered(job("a", rules=(again,)), job("b", "a"), actions=actions)
    world = Blocks(workflow, outcome=lambda name, attempt: failed() if (name, attempt) == ("a", 1) else OK).begin()
    assert world.requested == [(1, "auto_schedule_on_ready_jobs x")]
    # The block is there: neither the retry nor another step needs a second one.
    world.perform()
    world.ask()
    assert len(world.requested) == 1
    # The retry waits, and its block ends.
    world.feed(BlockEnded(9.0, 1, "idle"))
    world.ask()
    assert [block for block, _ in world.requested] == [1, 2]
    world.work()
    assert (world.ended, len(world.requested)) == ("completed", 2)


def test_auto_schedule_looks_at_who_may_take_a_step() -> None:
    """A block of another scheduler, or with too few nodes, does not count; the first request that helps is made."""
    actions = (
        Allocation("y", "on_workflow_start"),
        Allocation("x", "auto_schedule_on_ready_jobs"),
        Allocation("wide", "auto_schedule_on_ready_jobs"),
    )
    steps = (job("pinned"), job("big"), job("free"))
    world = Blocks(clustered(*steps, actions=actions, wanted={"pinned": "x"}, nodes={"big": 2})).begin()
    assert world.scheduled() == [
        ("on_workflow_start", [1]), ("auto_schedule_on_ready_jobs", [2]), ("auto_schedule_on_ready_jobs", [3]),
    ]  # fmt: skip
    assert [name for _, name in world.requested][1:] == [
        "auto_schedule_on_ready_jobs x", "auto_schedule_on_ready_jobs wide",
    ]  # fmt: skip


def test_auto_schedule_for_some_steps() -> None:
    """A request that names steps is made for those only."""
    actions = (Allocation("x", "auto_schedule_on_ready_jobs", ("b",)),)
    world = Blocks(clustered(job("a"), job("b", "a"), actions=actions)).begin()
    assert world.requested == []
    world.work()
    assert world.requested == [(1, "auto_schedule_on_ready_jobs x")]


def test_a_resume_repeats_the_orders_for_open_blocks() -> None:
    """The same blocks, no new ones: those that have ended are not among them; their workers are gone."""
    actions = (Allocation("x", "on_workflow_start", count=3), Allocation("y", "on_worker_complete"))
    world = Blocks(clustered(job("a"), actions=actions)).begin()
    world.feed(WorkerStarted(1.0, 2, "n1"))
    world.feed(BlockEnded(2.0, 1, "time is over"))
    orders = world.feed(RunResumed(3.0, world.capacity))
    assert [(order.block, order.allocation) for order in orders if isinstance(order, ScheduleNodes)] == [
        (2, 0), (3, 0), (4, 1),
    ]  # fmt: skip


def test_the_run_waits_until_the_batch_system_was_asked() -> None:
    """A request at the very end is made; one that is refused keeps the run from nothing."""
    world = Blocks(clustered(job("a"), actions=(Allocation("x", "on_workflow_complete"),)))
    world.start()
    while not isinstance(world.orders[0], ScheduleNodes):
        world.perform()
    order = world.orders.pop(0)
    assert isinstance(order, ScheduleNodes)
    while world.orders:
        world.perform()
    assert world.state.phase == "ending"
    world.feed(BlockSubmitted(9.0, order.block, problem="no such partition"))
    assert world.state.phase == "ended"
    (note,) = (note for note in world.notes if note.type == "allocation_refused")
    assert note.data == {"block": 1, "reason": "no such partition"}


def test_an_epoch_begins_anew() -> None:
    """A rerun of what failed requests nodes for what runs again; blocks have new numbers."""
    actions = (
        Allocation("x", "on_workflow_start"),
        Allocation("x", "on_jobs_ready", ("a",)),
        Allocation("y", "on_jobs_ready", ("a", "b")),
    )
    workflow = clustered(job("a"), job("b", "a"), actions=actions)
    broken = ["b"]
    world = Blocks(workflow, outcome=lambda name, _: failed() if name in broken else OK).run()
    assert (world.ended, [block for block, _ in world.requested]) == ("failed", [1, 2, 3])
    broken.clear()
    world.feed(EpochStarted(50.0, True))
    world.orders = []
    world.feed(RunResumed(51.0, world.capacity))
    world.work()
    assert world.ended == "completed"
    # `a` does not run again, so nothing is requested for it alone.
    assert world.requested[3:] == [(4, "on_workflow_start x"), (5, "on_jobs_ready y")]


def test_steps_that_the_run_leaves_out() -> None:
    """A request for several steps is made for those that run."""
    left_out = replace(job("a"), left_out=True)
    actions = (Allocation("x", "on_jobs_ready", ("a", "b")), Allocation("x", "on_jobs_ready", ("a",)))
    world = Blocks(clustered(left_out, job("b", "a"), actions=actions)).run()
    assert (world.ended, world.requested) == ("completed", [(1, "on_jobs_ready x")])
