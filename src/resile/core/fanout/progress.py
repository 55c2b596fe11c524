"""The state of one fan-out: its progress, and how its items ended.

A finished item leaves only a count behind, so a million of them take no memory.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from resile.model.items import Item, ItemFailure
from resile.model.limits import PATTERN_ITEMS_MAX, PATTERNS_MAX

Circuit = Literal["closed", "open", "half_open"]


class Waiting(Struct, frozen=True, gc=False):
    """An item between two executions; `number` is that of the next execution, `turn` its place in the order."""

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
    """One fan-out, running or done.

    The items file `label` holds `total` items; `taken` of them have been read, up to the byte `place`. `queue` holds
    items that have been read and not opened; `active` maps the index of each open item to its scope. `gated` are open
    items that had not begun when the circuit opened, and wait for it. `held` counts items that never started and are
    kept as dead letters. `stopped` says why no more items start. `passed` and `probes` belong to the half-open circuit.
    `goal` is the number of items of this drive (in a redrive, of the selected letters); `done` of these are over and
    `bad` failed. `opened` counts the turns given out; `held_back` maps the turn of an item to its job that must run in
    order. `counted` maps each running item of a redrive to its last failure, by which the counts include it (none for a
    held item). Jobs of its items have numbers above `after` and belong to this `epoch`. `listed` and `listed_at` are
    the label and the time of the listing of all items. A fan-out that goes on `again` has only those to run that did
    not succeed in an earlier epoch; `kept` are the stored scopes of such items that have been read and not opened.
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
    listed: str = ""
    listed_at: float = 0.0
    again: bool = False
    kept: dict[int, dict[str, Any]] = {}

    @property
    def is_over(self) -> bool:
        """Has every listed item ended, or become a dead letter?"""
        return bool(self.listed and self.last) and not (self.queue or self.active or self.waiting)

    @property
    def settled(self) -> int:
        """How many items have ended."""
        return self.successful + self.failed + self.skipped

    @property
    def held_now(self) -> int:
        """How many items are held without having begun, or wait for an open circuit."""
        if self.circuit != "open":
            return self.held
        begun = self.done + len(self.active) - len(self.gated)
        return self.held + max(0, self.goal - begun - (0 if self.redrive else self.held))


def add(total: Fan, fan: Fan, times: int = 1) -> None:
    """Add the counts of a fan-out to a total; with -1, subtract them."""
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
        known.items = ([*others, *pattern.items] if times == 1 else others)[:PATTERN_ITEMS_MAX]
        if not known.count:
            del total.patterns[signature]


class Redrive(Struct, gc=False, omit_defaults=True):
    """A running redrive of dead letters: `open` are its fan-outs at work; more are read from the file `label`.

    In the fan-outs that are finished `done` items were tried, and `bad` of those failed. Scopes that were `restored`
    for it are dropped again when nothing in them is open. A `stopped` redrive opens no more items.
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
