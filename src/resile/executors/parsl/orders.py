"""Attempts on their way: what the executor knows of each, and when short ones travel together."""

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

    Without a submission it waits here. `node` has taken it; then it has `begun`, and its leader runs. An attempt that
    `find` asked for, and of which there is no answer yet, is `sought`; `in_doubt` is what the engine said of it. One
    that its node has `ended` waits for the verdict on it.
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
        """The node that had it ends, or has ended: so does its block."""
        if self.pool is not None and node.identity is not None:
            self.pool.expect_end(node.identity.block, self.submission)


class Durations:
    """How long the last attempts of each step took, and those of each command, which many steps may have."""

    def __init__(self) -> None:
        self._last: dict[object, deque[float]] = {}

    def note(self, launch: Launch, ended: Ended) -> None:
        """An attempt has ended."""
        for group in (launch.step, launch.argv):
            self._last.setdefault(group, deque(maxlen=SHORT_COUNT)).append(ended.at - ended.started_at)

    def is_short(self, launch: Launch) -> bool:
        """Is an attempt expected to be short, because the last ones like it all were?"""
        return any(
            len(last := self._last.get(group, ())) == SHORT_COUNT and max(last) < SHORT_SECONDS
            for group in (launch.step, launch.argv)
        )
