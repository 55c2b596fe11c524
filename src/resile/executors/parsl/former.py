"""What nodes have written of attempts that no engine of today has started, until `find` asks for it.

Nodes are read in any order, and several may have written of one attempt. The newest submission that a node has taken
and not dropped counts, with what that node wrote of it.
"""

from __future__ import annotations

from resile.executors.contract import Ended, Lost, Withdrawn
from resile.executors.parsl.nodes import Happening, Key

_OVER = (Ended, Withdrawn, Lost)


class Former:
    """The records of attempts of earlier engines."""

    def __init__(self) -> None:
        # Of each attempt: by submission who took it, and by node what it wrote last.
        self._taken: dict[Key, dict[str, Happening]] = {}
        self._last: dict[Key, dict[str, Happening]] = {}

    def remember(self, happening: Happening) -> None:
        """Keep what a node has written."""
        if happening.taken:
            self._taken.setdefault(happening.key, {})[happening.taken] = happening
        elif happening.dropped:
            self._taken.get(happening.key, {}).pop(happening.dropped, None)
        else:
            self._last.setdefault(happening.key, {})[happening.node.token] = happening

    def get(self, key: Key) -> tuple[Happening | None, Happening | None]:
        """The newest taking of an attempt, and what its node wrote last; each None if there is none."""
        reports = self._last.get(key, {})
        newest = max(self._taken.get(key, {}).values(), key=_order, default=None)
        if newest is None:
            # A damaged line may have said who took it: what was written later is true all the same.
            return None, next(reversed(reports.values()), None)
        return newest, reports.get(newest.node.token)

    def forget(self, key: Key) -> tuple[Happening | None, Happening | None]:
        """Like `get`, once."""
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
    """Submissions in order: by the number of their engine, then by their own."""
    return tuple(map(int, happening.taken.split(".")))
