"""What the executor knows of each attempt that has not ended, and which attempts are expected to be short."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from resile.executors.contract import Ended, Launch
from resile.executors.parsl.nodes import Node
from resile.executors.parsl.pools import Pool
from resile.model.failure import LogRange

Key = tuple[int, int]
SHORT_SECONDS = 0.1
SHORT_COUNT = 10
BATCH_MAX = 16


class Item(Struct):
    """One attempt that has not ended.

    While it has no submission it waits in the executor. `node` is the node that has taken it; `begun` says that its
    node has begun it. `find` sets `sought` until a node's record answers it, and `in_doubt` as the engine says.
    `ended` is the report of an attempt that its node has ended: it waits until the executor knows why.
    """

    launch: Launch | None = None
    pool: Pool | None = None
    submission: str = ""
    node: Node | None = None
    begun: bool = False
    started_at: float = 0.0
    log: LogRange | None = None
    leader: tuple[int, float] | None = None
    sought: bool = False
    in_doubt: bool = False
    is_killed: bool = False
    ended: Ended | None = None

    def expect_end(self, node: Node) -> None:
        """Tell the pool that the block of this node ends, or has ended."""
        if self.pool is not None and node.identity is not None:
            self.pool.expect_end(node.identity.block, self.submission)


class Durations:
    """The durations of the last attempts of each step, and of each command, because many steps may share one."""

    def __init__(self) -> None:
        self._last: dict[object, deque[float]] = {}

    def note(self, launch: Launch, ended: Ended) -> None:
        """Note how long an attempt took."""
        for group in (launch.step, launch.argv):
            self._last.setdefault(group, deque(maxlen=SHORT_COUNT)).append(ended.at - ended.started_at)

    def is_short(self, launch: Launch) -> bool:
        """Were the last SHORT_COUNT attempts of its step, or of its command, all short?"""
        return any(
            len(last := self._last.get(group, ())) == SHORT_COUNT and max(last) < SHORT_SECONDS
            for group in (launch.step, launch.argv)
        )
