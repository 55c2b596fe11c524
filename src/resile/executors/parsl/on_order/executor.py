"""The executor for ordered blocks: it submits the blocks that the core orders, and no others.

The executor gives an attempt only to a free worker that is connected, in a block of the scheduler that its step wants,
or of any scheduler if the step wants none. So no attempt waits at a block that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from resile.core.actions import ScheduleNodes
from resile.core.events import BlockEnded, BlockSubmitted, WorkerStarted
from resile.executors.contract import Launch
from resile.executors.parsl.executor import ParslExecutor
from resile.executors.parsl.on_order.pool import (
    BlockBegun,
    BlockEvent,
    BlockOver,
    CurrentNumber,
    EarlierAllocations,
    OrderedPool,
    Submitted,
)
from resile.executors.parsl.on_order.shapes import shape_of_request
from resile.executors.parsl.pools import Kind, Pool, Shape, now
from resile.executors.parsl.verdicts import never_started
from resile.model.cluster import Cluster
from resile.model.executor import ExecutorSettings
from resile.model.workflow import Step

News = BlockSubmitted | WorkerStarted | BlockEnded
# Stands for the scheduler of attempts whose step wants none.
ANY = ""


class OrderedExecutor(ParslExecutor):
    """Attempts on blocks that the core orders; see the Executor and Scheduling contracts for the methods."""

    def __init__(
        self, folder: str, *, settings: ExecutorSettings, cluster: Cluster, steps: Sequence[Step], run: int, **keys: Any
    ) -> None:
        """The `steps` of the workflow say how large its blocks are."""
        self._steps = steps
        self._blocks: dict[int, Shape] = {}
        self._news: list[News] = []
        self._block_numbers = CurrentNumber()
        # Since when attempts of a shape wait without a connected worker that may take them.
        self._stranded: dict[Shape, float] = {}
        self._former_blocks = EarlierAllocations(run, keys["label"]) if settings.provider == "slurm" else None
        super().__init__(folder, settings=settings, cluster=cluster, run=run, **keys)

    @property
    def _schedulers(self) -> Cluster:
        assert self._described is not None
        return self._described

    # --- the contract

    def schedule(self, order: ScheduleNodes) -> None:
        with self._lock:
            if order.block not in self._blocks:
                allocation = self._schedulers.allocations[order.allocation]
                self._blocks[order.block] = shape_of_request(self._schedulers, allocation, self._steps)
        self._has_work.set()

    def take_news(self) -> list[News]:
        with self._lock:
            news, self._news = self._news, []
        return news

    # --- on the way to a node

    def _numbers(self) -> Iterator[int]:
        return self._block_numbers

    def _shape_of(self, launch: Launch) -> Shape:
        """The shape under which an attempt waits: the scheduler that its step wants, and the nodes that it needs."""
        cluster = self._schedulers
        nodes = cluster.nodes.get(launch.step, 1)
        return Shape(kind=Kind(cluster.wanted.get(launch.step, ANY), nodes=nodes))

    def _dispatch(self) -> None:
        """Submit waiting attempts to pools with free workers that may take them."""
        if self._is_draining:
            return
        for shape, keys in self._waiting.items():
            for pool in self._takers(shape):
                room = pool.slots - len(pool.tasks) if keys else 0
                if room > 0:
                    room = min(room, self._parallel - self._in_flight())
                while keys and room > 0:
                    self._submit(pool, self._next_batch(keys, max(1, len(keys) // (2 * pool.slots))))
                    room -= 1

    def _in_flight(self) -> int:
        """The number of attempts that are on a node, or on their way to one."""
        return sum(bool(item.submission) for item in self._items.values())

    def _takers(self, shape: Shape) -> list[OrderedPool]:
        """The open pools whose workers may take attempts that wait under this shape."""
        assert shape.kind is not None
        found = []
        for pool in self._pools.values():
            kind = pool.shape.kind
            assert isinstance(pool, OrderedPool)
            assert kind is not None
            nodes = 1 if kind.per_node else kind.nodes
            if pool.is_open and shape.kind.scheduler in (ANY, kind.scheduler) and shape.kind.nodes <= nodes:
                found.append(pool)
        return found

    # --- the thread that tends pools

    def _make_pool(self, *given: Any, **keys: Any) -> Pool:
        return OrderedPool(*given, numbers=self._block_numbers, former=self._former_blocks, **keys)

    def _needed_shapes(self) -> list[Shape]:
        return list(dict.fromkeys(self._blocks.values()))

    def _tend_pools(self) -> None:
        """Let the pools submit the ordered blocks, and report what happened to blocks."""
        for shape, pool in list(self._pools.items()):
            assert isinstance(pool, OrderedPool)
            with self._lock:
                ordered = [number for number, wanted in self._blocks.items() if wanted == shape]
            for number in ordered:
                pool.wanted.setdefault(number, "")
            before = pool.slots
            pool.tend(0, self._busy_blocks(pool), now())
            with self._lock:
                events, pool.events = pool.events, []
                self._report_blocks(events)
                if events or pool.slots > before:
                    self._dispatch()
                self._leave(pool)
        self._refuse_stranded()

    def _report_blocks(self, events: list[BlockEvent]) -> None:
        """Pass events of blocks on to the engine, and forget blocks that are over."""
        for event in events:
            match event:
                case Submitted():
                    self._news.append(BlockSubmitted(self._now(), event.block, event.allocation, event.problem))
                case BlockBegun():
                    self._news.append(WorkerStarted(self._now(), event.block, event.node))
                case BlockOver():
                    del self._blocks[event.block]
                    self._news.append(BlockEnded(self._now(), event.block, event.reason))
        if events:
            self._wake()

    def _leave(self, pool: OrderedPool) -> None:
        """If all workers of a pool have exited, take back attempts that no node has taken, for other pools."""
        if not pool.slots:
            for key, item in list(self._items.items()):
                if item.pool is pool and item.node is None:
                    self._try_again([key], item.submission)

    def _refuse_stranded(self) -> None:
        """Fail attempts that have waited longer than the limit without a connected worker that may take them."""
        limit, stranded = self._settings.queue_limit_seconds, []
        with self._lock:
            for shape, keys in self._waiting.items():
                takers = self._takers(shape)
                if not keys or any(pool.slots for pool in takers):
                    self._stranded.pop(shape, None)
                elif now() - self._stranded.setdefault(shape, now()) >= limit:
                    del self._stranded[shape]
                    stranded.append((shape, takers))
        for shape, takers in stranded:
            # Ask Slurm without the lock, because it may be slow.
            why = f"no worker came up within {limit:g} s: {self._why_none(shape, takers)}"
            with self._lock:
                for key in list(self._waiting[shape]):
                    if self._give_up(key, self._items[key]):
                        self._end(key, never_started(key, self._now(), why))

    def _why_none(self, shape: Shape, takers: list[OrderedPool]) -> str:
        """Why no worker comes for attempts that wait under this shape."""
        assert shape.kind is not None
        waiting = [pool for pool in takers if pool.wanted]
        if waiting:
            return "; ".join(pool.reason() for pool in waiting)
        name = shape.kind.scheduler
        return f"no action schedules nodes of {name!r} now" if name else "no action schedules nodes for it now"

    def _work_of(self, pool: Pool) -> int:
        assert isinstance(pool, OrderedPool)
        return len(pool.wanted)


def open_blocks(
    folder: str, settings: ExecutorSettings, cluster: Cluster | None, steps: Sequence[Step], **keys: Any
) -> ParslExecutor:
    """Open the executor of a run on blocks: the core orders the blocks, or their number follows the work."""
    if settings.on_order and cluster is not None:
        return OrderedExecutor(folder, settings=settings, cluster=cluster, steps=steps, **keys)
    return ParslExecutor(folder, settings=settings, cluster=cluster, **keys)
