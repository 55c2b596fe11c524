"""The state of a report while a log is folded: the report of each job, its position, and its open failure.

The report of a job is inside that of the job that made it run: the owner of its repair, its caller, the step of its
child workflow, or the execution of its item. When an item or a child workflow ends, its jobs are dropped here as in the
core; their notable events are in the owner's report by then.
"""

from __future__ import annotations

from typing import Any

from resile.core.recovery.matching import ladder_of
from resile.core.rule_trace import enable_tracing
from resile.core.state import SUCCESS, Job, Scope, State, new_state
from resile.explain import report as reports
from resile.explain.rule_reference import RuleReference
from resile.model.nested import names_of
from resile.model.rules import Origin
from resile.model.status import STATUS_NAMES
from resile.model.workflow import Rule, Workflow


class Timeline:
    """The reports of one run while its log is folded."""

    def __init__(self, workflow: Workflow, wanted: str | None) -> None:
        self.state: State = new_state(workflow)
        self.walks = enable_tracing(self.state)
        self.wanted_name = wanted
        self.resumed = 0
        self.start_over()

    def start_over(self) -> None:
        """Start a new epoch; only the last epoch is reported."""
        self.reports: dict[int, reports.StepReport] = {}
        self.top_level: list[reports.StepReport] = []
        self.omitted = 0
        self.failures = 0
        self.canceled: reports.Canceled | None = None
        self.failed_steps: list[str] = []
        # By job: the failure that no next attempt and no end has followed yet.
        self.open: dict[int, reports.AttemptReport] = {}
        # By job: the rule applied to its failure, the jobs that called it, the problem of its own expression.
        self.asked: dict[int, int] = {}
        self.callers: dict[int, list[int]] = {}
        self.problems: dict[int, str] = {}
        # By scope: the job that stopped it.
        self.stoppers: dict[int, int] = {}
        # For items: executions by scope, open items by (job, item), groups by (job, outcome and failure).
        self.executions: dict[int, reports.Execution] = {}
        self.items: dict[tuple[int, str], reports.ItemReport] = {}
        self.groups: dict[tuple[int, str, str, str, str], reports.ItemGroup] = {}
        # For the current reaction: the job that a note ended, the note that caused a job's end, and the results of
        # items.
        self.ends: dict[int, int] = {}
        self.reasons: dict[int, int] = {}
        self.over: set[int] = set()
        self.letters: dict[tuple[int, str], dict[str, Any]] = {}
        self.again: dict[tuple[int, str], dict[str, Any]] = {}

    def report_of(self, number: int) -> reports.StepReport:
        """The report of a job; created on first use."""
        found = self.reports.get(number)
        if found is not None:
            return found
        job = self.state.jobs[number]
        scope, step = self.state.scopes[job.scope], self.state.step_of(job)
        report = reports.StepReport(number, step.name, scope.name, self.place_of(job.scope, step.origin))
        self.reports[number] = report
        siblings = self._siblings_of(job, scope)
        if len(siblings) < reports.STEPS_MAX or self.is_wanted(job):
            siblings.append(report)
        else:
            self.omitted += 1
        return report

    def _siblings_of(self, job: Job, scope: Scope) -> list[reports.StepReport]:
        """The list that the report of a job belongs to."""
        callers = self.callers.get(job.id)
        if callers and self.state.step_of(job).called_only:
            return self._children_of(self.report_of(callers[0]))
        if not scope.owner:
            return self.top_level
        if scope.kind == "item":
            return self.execution_of(scope).inside
        owner = self.report_of(scope.owner)
        return owner.inside if scope.kind == "child" or scope.rule == SUCCESS else self._children_of(owner)

    def _children_of(self, report: reports.StepReport) -> list[reports.StepReport]:
        """The list inside the rule being applied, or else inside the current attempt."""
        rule = self.applied_rule_of(report.job)
        return report.inside if rule is None else rule.inside

    def end_call_of(self, number: int) -> None:
        """A called step ended: its next report belongs to its next caller."""
        callers = self.callers.get(number)
        if callers:
            del callers[0]

    def applied_rule_of(self, number: int) -> reports.RuleReport | None:
        """The rule applied to the open failure of a job."""
        entry = self.open.get(number)
        return entry.rules[-1] if entry is not None and entry.rules and entry.rules[-1].decision == "applied" else None

    def execution_of(self, scope: Scope) -> reports.Execution:
        """The report of one execution of an item; created on first use."""
        found = self.executions.get(scope.id)
        if found is None:
            found = self.executions[scope.id] = reports.Execution(scope.number)
        return found

    def place_of(self, scope: int, origin: Origin) -> str:
        """`file:line:column`; the file alone where there is no line."""
        file = self.state.workflow_of(scope).file
        return f"{file}:{origin.line}:{origin.column}" if origin.line else file

    def rule_of(self, job: Job, number: int) -> Rule:
        """A rule of a job by its number."""
        return ladder_of(self.state.step_of(job))[number]

    def reference_to(self, job: Job, rule: Rule) -> RuleReference:
        """A rule of a job, with its position."""
        origin = rule.origin
        if not origin.line:
            return RuleReference(None, None, None, rule.text)
        file = origin.file or self.state.workflow_of(job.scope).file
        return RuleReference(file, origin.line, origin.column, rule.text)

    def report_if_wanted(self, number: int) -> None:
        """Create the report of a wanted job, whatever its result."""
        if self.is_wanted(self.state.jobs[number]):
            self.report_of(number)

    def implicit_rules_of(self, job: Job) -> int:
        """How many rules of a job are not written in its file."""
        step = self.state.step_of(job)
        return len(ladder_of(step)) - len(step.rules)

    def is_wanted(self, job: Job) -> bool:
        """Is this the wanted job, or a job of the wanted item?"""
        wanted = self.wanted_name
        if wanted is None:
            return False
        scope, name = self.state.scopes[job.scope], self.state.step_of(job).name
        asked = wanted in (str(job.id), *names_of(scope.name, name))
        return asked or (scope.kind == "item" and scope.name == wanted)

    def is_wanted_item(self, name: str, jobs: range) -> bool:
        """Is this the wanted item, or an item around it?"""
        wanted = self.wanted_name
        if wanted is None:
            return False
        return wanted == name or wanted.startswith(f"{name}/") or (wanted.isdecimal() and int(wanted) in jobs)

    def forget(self, scope: Scope) -> None:
        """Drop the jobs of an item or a child workflow that ended."""
        inside = range(scope.first, scope.first + len(scope.waiting))
        for number in inside:
            report = self.reports.pop(number, None)
            if report is not None:
                report.status = STATUS_NAMES[self.state.jobs[number].status]
                self.open.pop(number, None)
                self.asked.pop(number, None)
                self.callers.pop(number, None)
                self.problems.pop(number, None)
        self.stoppers.pop(scope.id, None)
        if scope.nested:
            for other in [found for found in self.state.scopes.values() if found.owner in inside]:
                self.forget(other)
