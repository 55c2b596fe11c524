"""Requests blocks of nodes when triggers hold: each request exactly once for each time.

A request gets the next number as its block, in the same event in which its trigger holds. So an engine that dies
between the two knows at its next start which blocks there must be: a resume repeats the order for each open one, and
the executor submits a block only if it is not there.

    on_workflow_start, on_workflow_complete    the run begins; every step but `end` is over
    on_jobs_ready, on_jobs_complete            all of its steps have become ready, or are over
    on_worker_start, on_worker_complete        a node of a block takes steps; it no longer does
    auto_schedule_on_ready_jobs                a step is ready, and no open block may take it

The first six hold once in an epoch, or each time anew if the request is persistent.
"""

from __future__ import annotations

from collections.abc import Iterable

from resile.core.actions import ScheduleNodes
from resile.core.block_state import Block, Blocks
from resile.core.events import BlockEnded, BlockSubmitted, WorkerStarted
from resile.core.reaction import Reaction
from resile.core.state import ROOT, Job, State
from resile.model.cluster import AUTO, Allocation, Cluster
from resile.model.status import PENDING, READY


def begin_blocks(reaction: Reaction, because: int) -> None:
    """Begin an epoch without blocks, and request those that the start of the run asks for."""
    state = reaction.state
    cluster, executor = state.workflow.cluster, state.workflow.executor
    last = state.blocks.last if state.blocks is not None else 0
    state.blocks = None
    if cluster is None or executor is None or not executor.on_order:
        return
    watched = [state.plan.index[name] for one in cluster.allocations for name in one.steps]
    counts = dict.fromkeys(watched, 0)
    state.blocks = Blocks([0] * len(cluster.allocations), last, ready=counts, settled=dict(counts))
    for index, allocation in enumerate(cluster.allocations):
        if allocation.trigger == "on_workflow_start":
            _request(reaction, state.blocks, index, allocation, because)


def follow_triggers(reaction: Reaction, blocks: Blocks) -> None:
    """After each event: make the requests whose triggers hold now."""
    state = reaction.state
    cluster = state.workflow.cluster
    assert cluster is not None
    if state.phase != "ended" and blocks.is_due:
        for index, allocation in enumerate(cluster.allocations):
            times = _times(state, blocks, allocation)
            for _ in range(blocks.fired[index], times if allocation.persistent else min(times, 1)):
                _request(reaction, blocks, index, allocation, state.seq)
    if state.phase != "ended" and (blocks.fresh or blocks.is_short):
        waiting = state.jobs if blocks.is_short else blocks.fresh
        _request_for(reaction, blocks, cluster, [job for number in waiting if (job := state.jobs.get(number))])
    blocks.fresh, blocks.is_due, blocks.is_short = [], False, False


def _times(state: State, blocks: Blocks, allocation: Allocation) -> int:
    """How often a trigger has held in this epoch; the start of the run was answered when it began."""
    match allocation.trigger:
        case "on_jobs_ready":
            return _least(state, blocks.ready, allocation.steps)
        case "on_jobs_complete":
            return _least(state, blocks.settled, allocation.steps)
        case "on_worker_start":
            return blocks.workers_started
        case "on_worker_complete":
            return blocks.workers_ended
        case "on_workflow_complete":
            return blocks.completions
        case _:
            return 0


def _least(state: State, counts: dict[int, int], names: Iterable[str]) -> int:
    """How often all of these steps did something; one that does not run in this epoch did it once, if another did."""
    steps = [state.plan.index[name] for name in names]
    if not any(counts[step] for step in steps):
        return 0
    first = state.scopes[ROOT].first
    return min(counts[step] or int(state.jobs[first + step].counts_as_success) for step in steps)


def _request_for(reaction: Reaction, blocks: Blocks, cluster: Cluster, jobs: list[Job]) -> None:
    """Request a block for jobs that wait where no open block may take them."""
    state = reaction.state
    for job in jobs:
        if job.status is not READY and not (job.status is PENDING and job.runs_attempt):
            continue
        name = state.step_of(job).name if job.scope == ROOT else ""
        for index, allocation in enumerate(cluster.allocations):
            is_meant = allocation.trigger == AUTO and (not allocation.steps or name in allocation.steps)
            there = {cluster.allocations[block.allocation].scheduler for block in blocks.open.values()}
            if (
                is_meant
                and cluster.may_take(allocation.scheduler, name)
                and not any(cluster.may_take(scheduler, name) for scheduler in there)
            ):
                _request(reaction, blocks, index, allocation, job.because)


def _request(reaction: Reaction, blocks: Blocks, index: int, allocation: Allocation, because: int) -> None:
    """Request the blocks of an allocation."""
    blocks.fired[index] += 1
    numbers = range(blocks.last + 1, blocks.last + allocation.count + 1)
    blocks.last += allocation.count
    data = {"trigger": allocation.trigger, "scheduler": allocation.scheduler, "blocks": list(numbers)}
    seq = reaction.note_run("nodes_scheduled", "running", because, **data)
    for number in numbers:
        blocks.open[number] = Block(index, seq)
        reaction.order(ScheduleNodes(number, index, seq))


def complete_workflow(reaction: Reaction, blocks: Blocks) -> None:
    """Every step but `end` is over: requests that wait for that are made."""
    blocks.completions += 1
    blocks.is_due = True
    follow_triggers(reaction, blocks)


def repeat_orders(reaction: Reaction, blocks: Blocks, because: int) -> None:
    """A new engine: the workers of the former one are gone, and every open block must be there."""
    for number, block in blocks.open.items():
        blocks.workers_ended += block.workers
        block.workers, block.tried, blocks.is_due = 0, False, True
        reaction.order(ScheduleNodes(number, block.allocation, because))


def take_block_event(reaction: Reaction, event: BlockSubmitted | WorkerStarted | BlockEnded) -> None:
    """Note what became of a block: the batch system has it or not, a worker started in it, or it has ended."""
    blocks, number = reaction.state.blocks, event.block
    block = blocks.open.get(number) if blocks is not None else None
    if blocks is None or block is None:
        return
    match event:
        case BlockSubmitted(problem=""):
            block.tried = True
            reaction.note_run(
                "allocation_submitted", "running", block.because, block=number, allocation=event.allocation
            )
        case BlockSubmitted():
            block.tried = True
            reaction.note_run("allocation_refused", "running", block.because, block=number, reason=event.problem)
        case WorkerStarted():
            block.workers += 1
            blocks.workers_started += 1
            blocks.is_due = True
            reaction.note_run("worker_started", "running", block.because, block=number, node=event.node)
        case BlockEnded():
            del blocks.open[number]
            blocks.workers_ended += block.workers
            # Jobs that wait may need another one.
            blocks.is_due = blocks.is_short = True
            data = {"block": number, "workers": block.workers, "reason": event.reason}
            reaction.note_run("allocation_ended", "running", block.because, **data)
