"""Which steps have certainly run before which, by the needs, arcs and the order of a scope."""

from __future__ import annotations

from functools import cached_property

from resile.model.workflow import Step

ANCESTOR_VISITS_MAX = 2_000_000


class Ancestors:
    """Who has certainly run before whom. Looking costs a bounded number of visits in all."""

    def __init__(self, steps: tuple[Step, ...], is_list: bool) -> None:
        self.steps = steps
        self.is_list = is_list
        self.visits = 0

    @cached_property
    def in_order(self) -> bool:
        """Does the order of the file say who runs before whom?"""
        return self.is_list and not any(step.arcs or step.called_only for step in self.steps)

    @cached_property
    def place(self) -> dict[str, int]:
        """Where each step stands in the file."""
        return {step.name: number for number, step in enumerate(self.steps)}

    @cached_property
    def before(self) -> dict[str, list[str]]:
        """The steps that lead to each step at once; worked out when it is first asked, which most files never do."""
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
        """Does a path lead from `other` to `step`? Yes where finding out would take too long."""
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
