"""The book kept while a log is folded: which tale a job has, where it stands, and which of its failures is open.

A tale stands inside that of the job for whose sake the job ran: the owner of its repair, the step that called for it,
the child workflow's step, the item. When an item or a child is over the book forgets its jobs, as the core does; what
is worth telling of them stands in the tale of their owner by then.
"""

from __future__ import annotations

from typing import Any

from resile.core.event_log import STATUS_NAMES
from resile.core.recovery.matching import ladder_of
from resile.core.rule_trace import listen
from resile.core.state import SUCCESS, Job, Scope, State, new_state
from resile.explain.report import TALES_MAX, Canceled, Execution, Group, ItemTold, RuleTold, Tale, Told, full_name
from resile.model.rules import Origin, Rule
from resile.model.workflow import Workflow


class Book:
    """Everything that has been heard of one run."""

    def __init__(self, workflow: Workflow, wanted: str | None) -> None:
        self.state: State = new_state(workflow)
        self.walks = listen(self.state)
        self.sought = wanted
        self.resumed = 0
        self.start_over()

    def start_over(self) -> None:
        """Another epoch begins: what is said of a run is said of its last."""
        self.tales: dict[int, Tale] = {}
        self.top: list[Tale] = []
        self.more = 0
        self.failures = 0
        self.canceled: Canceled | None = None
        self.failed_steps: list[str] = []
        # By job: the failure that no next attempt and no end has followed yet.
        self.open: dict[int, Told] = {}
        # By job: the rule that answers it, which jobs called for it, what was wrong with an expression of its own.
        self.asked: dict[int, int] = {}
        self.callers: dict[int, list[int]] = {}
        self.problems: dict[int, str] = {}
        # By scope: the job that stopped it.
        self.stoppers: dict[int, int] = {}
        # Of items: their executions by scope, those not over by (job, item), groups by (job, how they ended).
        self.executions: dict[int, Execution] = {}
        self.items: dict[tuple[int, str], ItemTold] = {}
        self.groups: dict[tuple[int, str, str, str, str], Group] = {}
        # Of the present reaction: which job came to a bad end by a note, the note that was a job's reason for that,
        # and what became of items.
        self.ends: dict[int, int] = {}
        self.reasons: dict[int, int] = {}
        self.over: set[int] = set()
        self.letters: dict[tuple[int, str], dict[str, Any]] = {}
        self.again: dict[tuple[int, str], dict[str, Any]] = {}

    def tale(self, number: int) -> Tale:
        """The tale of a job, begun where there is none yet."""
        found = self.tales.get(number)
        if found is not None:
            return found
        job = self.state.jobs[number]
        scope, step = self.state.scopes[job.scope], self.state.step_of(job)
        tale = Tale(number, step.name, scope.name, self.place(job.scope, step.origin))
        self.tales[number] = tale
        shelf = self._shelf(job, scope)
        if len(shelf) < TALES_MAX or self.is_wanted(job):
            shelf.append(tale)
        else:
            self.more += 1
        return tale

    def _shelf(self, job: Job, scope: Scope) -> list[Tale]:
        """Where the tale of a job stands."""
        callers = self.callers.get(job.id)
        if callers and self.state.step_of(job).called_only:
            return self._under(self.tale(callers[0]))
        if not scope.owner:
            return self.top
        if scope.kind == "item":
            return self.execution(scope).inside
        owner = self.tale(scope.owner)
        return owner.inside if scope.kind == "child" or scope.rule == SUCCESS else self._under(owner)

    def _under(self, tale: Tale) -> list[Tale]:
        """Inside the rule that is being carried out, or else inside what the job does now."""
        rule = self.answering(tale.job)
        return tale.inside if rule is None else rule.inside

    def visited(self, number: int) -> None:
        """A job that somebody called for has come to its end; the next caller's visit follows."""
        callers = self.callers.get(number)
        if callers:
            del callers[0]

    def answering(self, number: int) -> RuleTold | None:
        """The rule that answers the open failure of a job."""
        told = self.open.get(number)
        return told.rules[-1] if told is not None and told.rules and told.rules[-1].answer == "answers" else None

    def execution(self, scope: Scope) -> Execution:
        """What is told of one execution of an item."""
        found = self.executions.get(scope.id)
        if found is None:
            found = self.executions[scope.id] = Execution(scope.number)
        return found

    def place(self, scope: int, origin: Origin) -> str:
        """`file:line:column`; the file alone for what stands nowhere in it."""
        file = self.state.workflow_of(scope).file
        return f"{file}:{origin.line}:{origin.column}" if origin.line else file

    def rule(self, job: Job, number: int) -> Rule:
        """A rule of a job by its number."""
        return ladder_of(self.state.step_of(job))[number]

    def want(self, number: int) -> None:
        """Begin the tale of a job that somebody asked for, whatever becomes of it."""
        if self.is_wanted(self.state.jobs[number]):
            self.tale(number)

    def implicit(self, job: Job) -> int:
        """How many rules a job has that its file does not say."""
        step = self.state.step_of(job)
        return len(ladder_of(step)) - len(step.rules)

    def is_wanted(self, job: Job) -> bool:
        """Is this the job that somebody asked for, or a job of the item?"""
        wanted = self.sought
        if wanted is None:
            return False
        scope, name = self.state.scopes[job.scope], self.state.step_of(job).name
        asked = wanted in (name, str(job.id), full_name(scope.name, name))
        return asked or (scope.kind == "item" and scope.name == wanted)

    def is_wanted_item(self, name: str, jobs: range) -> bool:
        """Is this the item that somebody asked for, or the one that it is in?"""
        wanted = self.sought
        if wanted is None:
            return False
        return wanted == name or wanted.startswith(f"{name}/") or (wanted.isdecimal() and int(wanted) in jobs)

    def forget(self, scope: Scope) -> None:
        """An item or a child is over: its jobs will not be heard of again."""
        inside = range(scope.first, scope.first + len(scope.waiting))
        for number in inside:
            tale = self.tales.pop(number, None)
            if tale is not None:
                tale.status = STATUS_NAMES[self.state.jobs[number].status]
                self.open.pop(number, None)
                self.asked.pop(number, None)
                self.callers.pop(number, None)
                self.problems.pop(number, None)
        self.stoppers.pop(scope.id, None)
        if scope.nested:
            for other in [found for found in self.state.scopes.values() if found.owner in inside]:
                self.forget(other)
