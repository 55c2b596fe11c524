"""Which steps certainly run before which, from the needs, arcs and list order of a scope."""

from __future__ import annotations

from functools import cached_property

from resile.model.workflow import Step

ANCESTOR_VISITS_MAX = 2_000_000


class Ancestors:
    """Answers whether one step certainly runs before another, within a total budget of visits."""

    def __init__(self, steps: tuple[Step, ...], is_list: bool) -> None:
        self.steps = steps
        self.is_list = is_list
        self.visits = 0

    @cached_property
    def in_order(self) -> bool:
        """Does list order alone decide which step runs first?"""
        return self.is_list and not any(step.arcs or step.called_only for step in self.steps)

    @cached_property
    def place(self) -> dict[str, int]:
        """Position of each step in the file."""
        return {step.name: number for number, step in enumerate(self.steps)}

    @cached_property
    def before(self) -> dict[str, list[str]]:
        """Direct predecessors of each step; computed on first use, since most files never need them."""
        before: dict[str, list[str]] = {}
        for step in self.steps:
            before.setdefault(step.name, []).extend(other for need in step.needs for other in need.any_of)
            for arc in step.arcs:
                before.setdefault(arc.step, []).append(step.name)
        return before

    def has(self, step: str, other: str) -> bool:
        """Does `other` run before `step`? Everything runs before `end`."""
        return step == "end" or self.has_before(step, other)

    def has_before(self, step: str, other: str) -> bool:
        """Does a path lead from `other` to `step`? Also true if the budget of visits runs out."""
        if self.in_order and step in self.place and other in self.place:
            return self.place[other] < self.place[step]
        seen: set[str] = set()
        found = list(self.before.get(step, ())) if step != "end" else []
        while found and self.visits < ANCESTOR_VISITS_MAX:
            self.visits += 1
            name = found.pop()
            if name == other:
                return True
            if name not in seen:
                seen.add(name)
                found.extend(self.before.get(name, ()))
        return bool(found)
