"""The static shape of a scope: indexes and adjacency, computed once so that scheduling never rescans.

Edges are kept as step indexes. `waiting` is the in-degree by needs; a step with incoming arcs waits for one
to be taken as well.
"""

from __future__ import annotations

from resile.model.workflow import Resources, Step, Workflow


class Plan:
    """Adjacency of one list of steps; the last one is `end` where the scope is a whole workflow."""

    __slots__ = ("arc_targets", "ask", "dependents", "end", "grouped", "index", "queue_keys", "steps", "waiting")

    def __init__(self, steps: tuple[Step, ...], end: Step | None) -> None:
        self.steps = steps if end is None else (*steps, end)
        self.end = len(steps) if end is not None else -1
        self.index = {step.name: number for number, step in enumerate(self.steps)}
        self.dependents: list[list[int]] = [[] for _ in self.steps]
        self.waiting = [0] * len(self.steps)
        self.grouped = [False] * len(self.steps)
        self.queue_keys = [queue_key(step.resources) for step in self.steps]
        targets: set[int] = set()
        for number, step in enumerate(steps):
            needed = {name for need in step.needs for name in need.any_of}
            self.grouped[number] = any(len(need.any_of) > 1 for need in step.needs)
            self.waiting[number] = len(needed)
            for name in needed:
                self.dependents[self.index[name]].append(number)
            for arc in step.arcs:
                targets.add(self.index[arc.step])
        targets.discard(self.end)
        self.arc_targets = frozenset(targets)


def queue_key(resources: Resources | None) -> str:
    """Jobs that ask for the same share of the machine wait in the same queue."""
    if resources is None or not (resources.cpus or resources.memory_bytes or resources.gpus):
        return ""
    return f"{resources.cpus}/{resources.memory_bytes}/{resources.gpus}"


def plan_of(workflow: Workflow) -> Plan:
    """The plan of a workflow's root scope."""
    return Plan(workflow.steps, workflow.end)
