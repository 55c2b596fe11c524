"""Makes a graph of a workflow: its steps, those inside maps, child workflows and handlers, and the edges between them.

    needs      a step waits for another        any      one of several is enough
    next       an arc that may be taken        success  what follows a success
    failure    what answers a failure: a handler, steps to run first, or an earlier step to go back to

Each step is one `GraphStep`; `inside` names the step whose items, workflow or handler it belongs to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count

from resile.commands.documents.answers import Graph, GraphEdge, GraphStep
from resile.commands.inspect import standing
from resile.commands.load import CompileOptions, compile_workflow
from resile.core.state import ROOT
from resile.engine.replay import current_workflow, fold_log, row_of
from resile.errors import shorten
from resile.model.status import STATUS_NAMES, Status
from resile.model.workflow import Child, FanOut, Noop, Rule, Step, SuccessActions, Workflow
from resile.store.server_tables import SharedStore

_INDEX = re.compile(r"\[\d+\]")
# A step that ran for several items has the first of these statuses that any of its jobs has.
_ORDER = ("failed", "pending_failed", "running", "recovering", "terminated", "canceled", "completed", "skipped")
LABEL_CHARACTERS_MAX = 60


def graph_of_file(path: str, options: CompileOptions = CompileOptions()) -> Graph:
    """The graph of the workflow in a file."""
    return _Builder({}).graph(compile_workflow(path, options), None, "")


def graph_of_run(store: SharedStore, number: int) -> Graph:
    """The graph of a run, each step with its status."""
    with store.reading():
        row = row_of(store, number)
        workflow = current_workflow(store, row)
        # If the steps have changed since, the rows of earlier epochs belong to other steps.
        first = fold_log(store, row).scopes[ROOT].first if row.epoch > 1 else 0
        # A retried item or child has a job for each visit; the last one has the present status.
        last = {(job.scope, job.step): job for job in store.jobs(number) if job.id >= first or job.scope != "root"}
        statuses: dict[tuple[str, str], Counter[str]] = {}
        for job in last.values():
            if job.status != Status.disabled:
                name = "recovered" if job.recovered else "tolerated" if job.tolerated else STATUS_NAMES[job.status]
                key = _INDEX.sub("", job.scope).rpartition("/")[2], job.step
                statuses.setdefault(key, Counter())[name] += 1
        return _Builder(statuses).graph(workflow, number, standing(store, row))


class _Builder:
    """Collects the steps and edges of one workflow, with the statuses of their jobs by scope and step."""

    def __init__(self, statuses: dict[tuple[str, str], Counter[str]]) -> None:
        self._statuses = statuses
        self._numbers = count(1)
        self._steps: list[GraphStep] = []
        self._edges: list[GraphEdge] = []

    def graph(self, workflow: Workflow, run: int | None, status: str) -> Graph:
        """The graph of the whole workflow."""
        self._add_scope(_with_end(workflow), None, "root")
        return Graph(workflow=workflow.name, run=run, status=status, steps=self._steps, edges=self._edges)

    def _add_scope(self, steps: Iterable[Step], inside: int | None, scope: str) -> list[int]:
        """Add the steps of one scope with the edges between them; return their numbers."""
        listed = list(steps)
        ids = {step.name: self._add_step(step, inside, scope) for step in listed}
        for step in listed:
            self._add_edges(step, ids)
        return list(ids.values())

    def _add_step(self, step: Step, inside: int | None, scope: str) -> int:
        """Add one step, and the steps that run in its place."""
        number = next(self._numbers)
        found = self._statuses.get((scope, step.name), Counter())
        status = next((word for word in (*_ORDER[:5], "tolerated", "recovered", *_ORDER[5:]) if word in found), "")
        counts = dict(found) if found.total() > 1 else {}
        status = status or next(iter(found), "")
        action = type(step.action).__struct_config__.tag
        self._steps.append(GraphStep(number, step.name, str(action), inside, status, counts))
        if isinstance(step.action, FanOut):
            self._add_scope(step.action.steps, number, step.action.scope or step.name)
        elif isinstance(step.action, Child):
            self._add_scope(_with_end(step.action.workflow), number, step.name)
        return number

    def _add_edges(self, step: Step, ids: dict[str, int]) -> None:
        """Add the edges that begin or end at a step."""
        own = ids[step.name]
        for need in step.needs:
            kind = "any" if len(need.any_of) > 1 else "needs"
            self._edges += [GraphEdge(ids[name], own, kind, "") for name in need.any_of if name in ids]
        for arc in step.arcs:
            if arc.step in ids:
                label = shorten(arc.when.source, LABEL_CHARACTERS_MAX) if arc.when is not None else ""
                self._edges.append(GraphEdge(own, ids[arc.step], "next", label))
        for rule in step.rules:
            steps = rule.repair.steps if rule.repair is not None else ()
            self._add_answer(own, steps, _answering_steps(rule), "failure", rule.text, ids, f"{step.name}.on_failure")
        if step.on_success is not None:
            after = step.on_success
            self._add_answer(own, after.steps, _answering_steps(after), "success", "", ids, f"{step.name}.on_success")

    def _add_answer(
        self,
        own: int,
        steps: tuple[Step, ...],
        named: dict[str, str],
        kind: str,
        text: str,
        ids: dict[str, int],
        scope: str,
    ) -> None:
        """Add the answer to a failure or a success: the steps of a handler, and the steps that it names."""
        label = shorten(text, LABEL_CHARACTERS_MAX)
        if steps:
            first = self._add_scope(steps, own, scope)[0]
            self._edges.append(GraphEdge(own, first, kind, label, "steps"))
        self._edges += [GraphEdge(own, ids[name], kind, label, how) for name, how in named.items() if name in ids]
        if kind == "failure" and not steps and not named:
            self._edges.append(GraphEdge(own, own, kind, label, "retry"))


def _with_end(workflow: Workflow) -> Iterator[Step]:
    """The steps of a workflow; with `end` if the file has one or an arc leads to it."""
    yield from workflow.steps
    if not isinstance(workflow.end.action, Noop) or any(arc.step == "end" for s in workflow.steps for arc in s.arcs):
        yield workflow.end


def _answering_steps(answer: Rule | SuccessActions) -> dict[str, str]:
    """The steps that an answer names, to run first or to go back to, and which of both."""
    calls = answer.calls if isinstance(answer, SuccessActions) else answer.repair.calls if answer.repair else ()
    targets = [answer.target, *(found.to or "" for found in answer.transitions)]
    return {**{target: "goto" for target in targets if target}, **dict.fromkeys(calls, "run")}
