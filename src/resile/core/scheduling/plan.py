"""The static shape of a scope: indexes and adjacency, computed once so that scheduling never rescans.

Edges are kept as step indexes. `waiting` is the in-degree by needs; a step in `arc_targets` waits for an arc
to be taken to it as well.
"""

from __future__ import annotations

from resile.core.recovery.matching import ladder_of
from resile.model.nested import steps_with_inner_steps
from resile.model.workflow import Child, FanOut, Need, Resources, Step, Workflow


class Plan:
    """Adjacency of one list of steps of a `workflow`; the last one is `end` where the list is the whole workflow.

    `rules` are the ladders of the steps. `inner` are the plans of the scopes that its fan-outs and child workflows
    open, by step. Where the plan or an inner one has `critical` steps, a failure may keep waiting jobs from ever
    starting. `joins` maps each step with `join: all` to all steps that may lead there. `rows` has the dependents of a
    step as a slice where they are neighbours with the same needs: these always wait for equally many steps.
    reserve_ahead.py computes `steady` when it first needs it.
    """

    __slots__ = (
        "arc_targets",
        "critical",
        "dependents",
        "end",
        "grouped",
        "index",
        "inner",
        "joins",
        "rows",
        "rules",
        "steady",
        "steps",
        "waiting",
        "workflow",
    )

    def __init__(self, steps: tuple[Step, ...], end: Step | None, workflow: Workflow) -> None:
        self.workflow = workflow
        self.steps = steps if end is None else (*steps, end)
        self.end = len(steps) if end is not None else -1
        self.rules = [ladder_of(step) for step in self.steps]
        self.inner: dict[int, Plan] = {}
        self.critical = has_critical(self.steps)
        self.steady: bool | None = None
        self.index = {step.name: number for number, step in enumerate(self.steps)}
        self.dependents: list[list[int]] = [[] for _ in self.steps]
        self.rows: list[slice | None] = [None] * len(self.steps)
        self.waiting = [0] * len(self.steps)
        self.grouped = [False] * len(self.steps)
        self._count_needs(steps)
        self.arc_targets = self._waiting_for_arcs() if any(step.arcs for step in steps) else frozenset()
        self.joins = {
            number: self._sources_of(number) for number in self.arc_targets if self.steps[number].join == "all"
        }

    def _count_needs(self, steps: tuple[Step, ...]) -> None:
        """Count the needs of each step, and list the dependents of each, in the order of the file."""
        # Neighbouring steps often share one tuple of needs, which is then examined once.
        groups: list[tuple[tuple[Need, ...], list[int]]] = []
        for number, step in enumerate(steps):
            if groups and step.needs is groups[-1][0]:
                groups[-1][1].append(number)
            elif step.needs:
                groups.append((step.needs, [number]))
        for needs, numbers in groups:
            needed = {name for need in needs for name in need.any_of}
            grouped = any(len(need.any_of) > 1 or need.failure_satisfies for need in needs)
            for number in numbers:
                self.waiting[number], self.grouped[number] = len(needed), grouped
            row = slice(numbers[0], numbers[-1] + 1)
            in_row = 1 < len(numbers) == row.stop - row.start
            for name in needed:
                source = self.index[name]
                self.rows[source] = row if in_row and not self.dependents[source] else None
                self.dependents[source] += numbers

    def _sources_of(self, number: int) -> frozenset[int]:
        """All other steps that lead to this one by arcs or needs, at any distance."""
        found: set[int] = set()
        work = {number}
        while work:
            work = {
                source
                for source, step in enumerate(self.steps)
                if source not in found and any(self.index[arc.step] in work for arc in step.arcs)
            } | {self.index[name] for there in work for need in self.steps[there].needs for name in need.any_of} - found
            found |= work
        return frozenset(found - {number})

    def _waiting_for_arcs(self) -> frozenset[int]:
        """The steps that do not start by themselves: at least one forward arc leads to them.

        An arc leads back if its target lies on the path from where the run begins to the arc's source. A run begins
        with the steps that no arc or need leads to, and with the steps that `begins` marks, else the first of the file.
        """
        arcs = [[self.index[arc.step] for arc in step.arcs] for step in self.steps]
        led_to = {target for targets in arcs for target in targets}
        asked = [number for number, step in enumerate(self.steps) if step.begins]
        first = [] if asked else [0]
        alone = [number for number, count in enumerate(self.waiting) if not (count or number in led_to)]
        begin = sorted({*asked, *first, *alone})
        back: set[tuple[int, int]] = set()
        seen = [False] * len(self.steps)
        on_the_way = [False] * len(self.steps)
        for root in begin:
            stack = [] if seen[root] else [(root, iter(arcs[root] + self.dependents[root]))]
            while stack:
                number, onward = stack[-1]
                seen[number] = on_the_way[number] = True
                for target in onward:
                    if on_the_way[target]:
                        back.add((number, target))
                    elif not seen[target]:
                        stack.append((target, iter(arcs[target] + self.dependents[target])))
                        break
                else:
                    on_the_way[number] = False
                    stack.pop()
        forward = {target for source, targets in enumerate(arcs) for target in targets if (source, target) not in back}
        return frozenset(forward - {self.end, *first, *asked})


def has_critical(steps: tuple[Step, ...]) -> bool:
    """Is one of these steps, or a step inside them, critical, or can one of its rules halt the others?"""
    if any(step.critical or any(rule.halts for rule in step.rules) for step in steps):
        return True
    for host in steps_with_inner_steps(steps):
        match host.action:
            case FanOut(steps=inner) | Child(workflow=Workflow(steps=inner)) if has_critical(inner):
                return True
    return False


def queue_key(resources: Resources | None) -> str:
    """The queue of a job: jobs that ask for the same resources share one."""
    if resources is None or not (resources.cpus or resources.memory_bytes or resources.gpus):
        return ""
    return f"{resources.cpus}/{resources.memory_bytes}/{resources.gpus}"


def plan_of(workflow: Workflow) -> Plan:
    """The plan of a workflow's root scope."""
    return Plan(workflow.steps, workflow.end, workflow)
