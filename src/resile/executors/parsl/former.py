"""Remembers what nodes have written about attempts of earlier engines, until `find` asks for it.

The engine reads the nodes in any order, and several nodes may have written about one attempt. The newest submission
that a node has taken and not dropped counts, and what that node wrote about the attempt.
"""

from __future__ import annotations

from resile.executors.contract import Ended, Lost, Withdrawn
from resile.executors.parsl.nodes import Happening, Key

_OVER = (Ended, Withdrawn, Lost)


class Former:
    """The records of attempts of earlier engines."""

    def __init__(self) -> None:
        # For each attempt: the line by which a node took it, by submission; the last report, by the node's token.
        self._taken: dict[Key, dict[str, Happening]] = {}
        self._last: dict[Key, dict[str, Happening]] = {}

    def remember(self, happening: Happening) -> None:
        """Keep a line that a node has written."""
        if happening.taken:
            self._taken.setdefault(happening.key, {})[happening.taken] = happening
        elif happening.dropped:
            self._taken.get(happening.key, {}).pop(happening.dropped, None)
        else:
            self._last.setdefault(happening.key, {})[happening.node.token] = happening

    def get(self, key: Key) -> tuple[Happening | None, Happening | None]:
        """The line by which a node last took an attempt, and that node's last report of it; None for a missing one."""
        reports = self._last.get(key, {})
        newest = max(self._taken.get(key, {}).values(), key=_order, default=None)
        if newest is None:
            # The line by which a node took it may be damaged; its reports count all the same.
            return None, next(reversed(reports.values()), None)
        return newest, reports.get(newest.node.token)

    def forget(self, key: Key) -> tuple[Happening | None, Happening | None]:
        """Like `get`, and forget the attempt."""
        found = self.get(key)
        self._taken.pop(key, None)
        self._last.pop(key, None)
        return found

    def busy_nodes(self) -> set[str]:
        """The nodes that may still run one of these attempts."""
        busy = {}
        for key in {*self._taken, *self._last}:
            taken, last = self.get(key)
            one = last or taken
            if one is not None and not isinstance(one.report, _OVER):
                busy[one.node.token] = one.node
        return {token for token, node in busy.items() if not node.is_gone()}


def _order(happening: Happening) -> tuple[int, ...]:
    """The sort key of a submission: the number of its engine, then its own number."""
    return tuple(map(int, happening.taken.split(".")))
