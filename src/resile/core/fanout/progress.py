"""What the core remembers of one fan-out: how far it has come, and how its items ended.

Items that are done leave nothing behind but a count, so a million of them take no memory.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from resile.model.items import Item, ItemFailure
from resile.model.limits import PATTERN_ITEMS_MAX, PATTERNS_MAX

Circuit = Literal["closed", "open", "half_open"]


class Waiting(Struct, frozen=True, gc=False):
    """An item between two executions; `number` is that of the next, `turn` its place in the order of all."""

    item: Item
    number: int
    due: float
    turn: int


class Pattern(Struct, gc=False):
    """Failures with the same signature."""

    kind: str
    message: str
    count: int = 0
    items: list[str] = []


class Fan(Struct, gc=False, omit_defaults=True):
    """One fan-out at work, or done.

    `total` items stand in the items file `label`, `taken` of them have been read, up to the byte `place`. `queue` are
    those that wait for their turn, `active` those that are open (index to scope); of these the `gated` had not begun
    when the circuit opened, and wait for it. `held` ones never started and are kept as dead letters. `stopped` says
    why nothing more starts. `passed` and `probes` belong to the half-open circuit. Of the `goal` of this drive, which
    may be a redrive of a few, `done` are over and `bad` ones failed. `opened` counts the turns given out; jobs that
    run in order stand in `held_back` by the turn of their item. Of the items of a redrive that are under way `counted`
    says as what they are in the numbers: failed so, or held. The jobs of its items come `after` that number, in
    this `epoch`.
    """

    total: int
    label: str
    epoch: int = 1
    after: int = 0
    parallel: int = 0
    place: int = 0
    taken: int = 0
    reading: bool = False
    last: bool = False
    redrive: bool = False
    stopped: str = ""
    expired: bool = False
    queue: list[Item] = []
    active: dict[int, int] = {}
    gated: list[int] = []
    counted: dict[int, tuple[ItemFailure, ...]] = {}
    waiting: dict[int, Waiting] = {}
    successful: int = 0
    failed: int = 0
    skipped: int = 0
    held: int = 0
    opened: int = 0
    held_back: dict[int, int] = {}
    goal: int = 0
    done: int = 0
    bad: int = 0
    circuit: Circuit = "closed"
    streak: int = 0
    passed: int = 0
    probes: int = 0
    tested_since: float = 0.0
    due: float = 0.0
    error_types: dict[str, int] = {}
    patterns: dict[str, Pattern] = {}
    unreported: list[tuple[str, str]] = []
    unreported_more: int = 0
    batch: int = 0

    @property
    def settled(self) -> int:
        """How many items have ended."""
        return self.successful + self.failed + self.skipped

    @property
    def held_now(self) -> int:
        """How many items are kept without having begun, or wait for an open circuit."""
        if self.circuit != "open":
            return self.held
        begun = self.done + len(self.active) - len(self.gated)
        return self.held + max(0, self.goal - begun - (0 if self.redrive else self.held))


def add(total: Fan, fan: Fan, times: int = 1) -> None:
    """Add the numbers of a fan-out to a total; with -1, take them out again."""
    total.total += times * fan.total
    total.successful += times * fan.successful
    total.failed += times * fan.failed
    total.skipped += times * fan.skipped
    total.held += times * fan.held
    for kind, count in fan.error_types.items():
        total.error_types[kind] = total.error_types.get(kind, 0) + times * count
        if not total.error_types[kind]:
            del total.error_types[kind]
    for signature, pattern in fan.patterns.items():
        known = total.patterns.get(signature)
        if known is None:
            if len(total.patterns) >= PATTERNS_MAX:
                continue
            known = total.patterns[signature] = Pattern(pattern.kind, pattern.message)
        known.count += times * pattern.count
        others = [name for name in known.items if name not in pattern.items]
        known.items = ([*others, *pattern.items] if times > 0 else others)[:PATTERN_ITEMS_MAX]
        if not known.count:
            del total.patterns[signature]


class Redrive(Struct, gc=False, omit_defaults=True):
    """Dead letters at work: those of the fan-outs `open`, and of more that are read from the file `label`.

    Of those that are over `done` items were tried, of which `bad` ones failed.

    Scopes that were `restored` for it are forgotten again when nothing in them is open. A `stopped` one opens no more.
    """

    map: str
    total: int
    label: str
    parallel: int
    place: int = 0
    reading: bool = False
    last: bool = False
    stopped: bool = False
    done: int = 0
    bad: int = 0
    open: list[int] = []
    restored: list[int] = []
