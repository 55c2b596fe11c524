"""A world with fan-outs: items that the test gives, outcomes that it dictates, timers that fire last."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from resile.core.actions import DropLetter, KeepLetter, KeepScope, ReadGroups, ReadItems, SetTimer, StartAttempt
from resile.core.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    GroupsRead,
    ItemsRead,
    Redriven,
    TimerFired,
)
from resile.core.fanout.progress import Fan
from resile.model.failure import Outcome
from resile.model.fanout import ErrorPolicy, Source
from resile.model.items import DeadLetter, Item, KeptScope, LetterGroup
from resile.model.workflow import FanOut, Need, Rule, Shell, Step, Workflow
from tests.core.world import OK, World

SH = Shell("x")


def step(name: str, *needs: str, **keys: object) -> Step:
    """A shell step."""
    return Step(name=name, action=SH, needs=tuple(Need((need,)) for need in needs), **keys)  # type: ignore[arg-type]


def fan(
    *steps: Step, name: str = "map", needs: tuple[str, ...] = (), rules: tuple[Rule, ...] = (), **keys: object
) -> Step:
    """A fan-out over values that the world gives."""
    policy = ErrorPolicy(**{key: keys.pop(key) for key in list(keys) if key in ErrorPolicy.__struct_fields__})  # type: ignore[arg-type]
    own = {key: keys.pop(key) for key in ("timeout_seconds",) if key in keys}
    action = FanOut(Source(values=()), steps or (step("work"),), policy, **keys)  # type: ignore[arg-type]
    return Step(name=name, action=action, needs=tuple(Need((need,)) for need in needs), rules=rules, **own)  # type: ignore[arg-type]


class Items(World):
    """A world with fan-outs: `total` items each, timers that fire when nothing else is left to do."""

    def __init__(
        self,
        workflow: Workflow,
        total: int = 3,
        item: Callable[[str, int, int], Outcome] = lambda _step, _index, _number: OK,
        parallel: int = 1,
        stuck: Callable[[str, int], bool] = lambda _step, _index: False,
    ) -> None:
        super().__init__(workflow, parallel=parallel)
        self.total, self.item, self.stuck = total, item, stuck
        self.timers: list[tuple[float, int, SetTimer]] = []
        self.set = 0
        self.letters: dict[str, DeadLetter] = {}
        self.kept: dict[int, KeptScope] = {}
        self.groups: list[LetterGroup] = []
        self.runs: list[str] = []
        self.source: list[Item] = []

    def feed(self, event: Event) -> list:  # type: ignore[type-arg]
        """As in any world, with the letters kept."""
        orders = super().feed(event)
        for action in orders:
            if isinstance(action, KeepLetter):
                self.letters[f"{action.letter.name}[{action.letter.item.index}]"] = action.letter
            elif isinstance(action, DropLetter):
                key = f"{action.name}[{action.index}]"
                if key in self.letters and self.letters[key].item.value == action.value:
                    del self.letters[key]
            elif isinstance(action, KeepScope):
                self.kept[action.kept.scope] = action.kept
        self.orders = [order for order in self.orders if not isinstance(order, KeepLetter | DropLetter | KeepScope)]
        return orders

    def perform(self) -> None:
        """Carry out the oldest order, or let the next timer fire."""
        if not self.orders:
            due, _, timer = heapq.heappop(self.timers)
            self.clock = max(self.clock, due)
            self.feed(TimerFired(self.clock, timer.job, timer.attempt, timer.repair, timer.item))
            return
        order = self.orders[0]
        match order:
            case SetTimer():
                self.orders.pop(0)
                self.set += 1
                heapq.heappush(self.timers, (order.due, self.set, order))
            case ReadItems():
                self.orders.pop(0)
                given = self.source or [Item(index, f"v{index}") for index in range(self.total)]
                chunk = tuple(given[order.place : order.place + min(order.count, 3)])
                end = order.place + len(chunk)
                self.feed(ItemsRead(self.clock, order.job, order.label, chunk, end, end >= len(given)))
            case ReadGroups():
                self.orders.pop(0)
                some = tuple(self.groups[order.place : order.place + order.count])
                after = order.place + len(some)
                self.feed(GroupsRead(self.clock, order.label, some, after, after >= len(self.groups)))
            case StartAttempt():
                self._attempt(order)
            case _:
                super().perform()

    def _attempt(self, order: StartAttempt) -> None:
        """Start an attempt and say what it came to."""
        job = self.state.jobs[order.job]
        where, name = self.state.scopes[job.scope], self.name(order.job)
        action = self.state.step_of(job).action
        index, number = (where.item.index, where.number) if where.item else (-1, order.attempt)
        if self.stuck(name, index):
            self.orders.pop(0)
            self.feed(AttemptStarted(self.clock, order.job, order.attempt))
            return
        self.orders.pop(0)
        self.clock += 1.0
        self.runs.append(f"{where.name}/{name}" if where.owner else name)
        outcome = self.item(name, index, number)
        if isinstance(action, FanOut) and outcome.failure is None:
            outcome = Outcome(exit_code=0, values={"items": self.total})
        self.feed(AttemptStarted(self.clock, order.job, order.attempt))
        self.feed(AttemptEnded(self.clock, order.job, order.attempt, outcome))

    def until_end(self) -> Items:
        """Start, and go on until the engine may stop."""
        if not self.log:
            self.start()
        for _ in range(50_000):
            if self.ended is not None:
                break
            self.perform()
        assert self.ended is not None
        return self

    def redrive(self, *selected: str, parallel: int = 1) -> Items:
        """Try these dead letters again, all or these, to the end."""
        chosen = [self.letters[key] for key in sorted(selected or self.letters)]
        self.source, self.groups, self.ended = [letter.item for letter in chosen], [], None
        for name, job in dict.fromkeys((letter.name, letter.job) for letter in chosen):
            own = [number for number, letter in enumerate(chosen) if (letter.name, letter.job) == (name, job)]
            around: list[dict[str, Any]] = []
            scope = chosen[own[0]].scope
            while scope not in self.state.scopes or scope in self.state.scopes_to_drop:
                around.insert(0, self.kept[scope].body)
                scope = self.kept[scope].outer
            self.groups.append(LetterGroup(name, job, len(own), own[0], tuple(around)))
        self.feed(Redriven(self.clock, chosen[0].map, len(chosen), "again", parallel))
        return self.until_end()

    @property
    def fan(self) -> Fan:
        """The first fan-out."""
        return next(iter(self.state.fans.values()))

    def types(self, *wanted: str) -> list[str]:
        """The notes of these types, in order."""
        return [note.type for note in self.notes if note.type in wanted]
