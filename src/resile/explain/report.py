"""The JSON of `explain`: one entry for each job that failed, was retried or did not run, with its cause.

    StepReport -> AttemptReport, one for each attempt and judgement -> RuleReport, one for each considered rule
      |             |                                                  +-> inside: the reports of the repair's steps
      |             +-> inside: the reports of a child workflow        +-> items: ItemGroup -> ItemReport -> Execution
      +-> canceled, skipped, waiting: the jobs that did not run because of it

Everything is bounded: of thousands of entries the first few are kept and the rest are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct, field

from resile.core.rule_trace import SkipReason
from resile.explain.rule_reference import RuleReference
from resile.model.nested import step_name

NAMES_MAX = 20
STEPS_MAX = 1_000
ATTEMPTS_MAX = 100
GROUPS_MAX = 100
ITEMS_SHOWN_MAX = 2
CHAIN_MAX = 50

Decision = SkipReason | Literal["declined", "applied", "no budget"]
AttemptEvent = Literal[
    "failed", "lost", "interrupted", "ended", "passed", "after", "judged", "rejected", "circuit", "redriven"
]
Result = Literal[
    "",
    "retry",
    "recovered",
    "fallback",
    "tolerated",
    "goto",
    "parked",
    "failed",
    "no budget",
    "stopped",
    "dropped",
    "again",
]
Outcome = Literal["dead letter", "skipped", "passed"]
# The fields with the reports inside a report, in the order of the events.
NESTED_FIELDS = ("attempts", "inside", "items", "rules", "executions")


class Names(Struct, omit_defaults=True):
    """A count and the first names."""

    count: int = 0
    first: list[str] = []


def add_name(names: Names | None, name: str) -> Names:
    """Count one more name, and keep it if it is one of the first."""
    names = names or Names()
    names.count += 1
    if len(names.first) < NAMES_MAX:
        names.first.append(name)
    return names


class Link(Struct, frozen=True, omit_defaults=True):
    """A job in the chain of causes that kept another from running, with its status."""

    step: str
    job: int
    status: str


class RuleReport(Struct, omit_defaults=True):
    """A rule that the core considered for a failure: its decision, and the result if it was applied.

    `used` includes this use if the rule was applied. `loops` of `loops_max` are spent, for a rule that spends the loop
    budget.
    """

    rule: RuleReference
    then: str
    decision: Decision
    why: str = ""
    used: int = 0
    limit: int = 0
    wait_seconds: float = 0.0
    next_attempt: int = 0
    memory_bytes: int = 0
    runtime_seconds: float = 0.0
    target: str = ""
    calls: list[str] = []
    loops: int = 0
    loops_max: int = 0
    repair: Literal["", "running", "passed", "failed"] = ""
    problem: str = ""
    inside: list[StepReport] = []


class AttemptReport(Struct, omit_defaults=True):
    """One attempt, judgement or other event of a job; `seq` is its number in `resile events list`.

    `result` is the consequence of its failure, `then` the same in words. `child` is the workflow that the step runs,
    and `verdict` the status with which that workflow ended.
    """

    seq: int
    event: AttemptEvent
    attempt: int = 0
    kind: str = ""
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    signature: str = ""
    child: str = ""
    verdict: str = ""
    stdout: str = ""
    stderr: str = ""
    rules: list[RuleReport] = []
    problems: list[str] = []
    result: Result = ""
    then: str = ""
    inside: list[StepReport] = []
    items: list[ItemGroup] = []


class Execution(Struct, omit_defaults=True):
    """One execution of an item; `then` is its consequence in words."""

    number: int
    message: str = ""
    then: str = ""
    inside: list[StepReport] = []


class ItemReport(Struct, omit_defaults=True):
    """One item of a fan-out with its executions."""

    item: str
    executions: list[Execution] = []


class ItemGroup(Struct, omit_defaults=True):
    """Items that ended alike; `items` has the first ones in full."""

    outcome: Outcome
    reason: str = ""
    step: str = ""
    message: str = ""
    signature: str = ""
    names: Names = field(default_factory=Names)
    items: list[ItemReport] = []

    def add(self, name: str) -> None:
        """Count one more item."""
        add_name(self.names, name)


class StepReport(Struct, omit_defaults=True):
    """A job and its attempts; `inside` and `items` belong to an attempt that has not ended.

    `why` says in words why the job did not run, and `chain` leads from there to the cause. `omitted` counts the
    attempts that are left out.
    """

    job: int
    step: str
    scope: str
    where: str
    status: str = ""
    recovered: bool = False
    tolerated: bool = False
    attempts: list[AttemptReport] = []
    omitted: int = 0
    why: str = ""
    chain: list[Link] = []
    canceled: Names | None = None
    skipped: Names | None = None
    waiting: Names | None = None
    inside: list[StepReport] = []
    items: list[ItemGroup] = []

    def add(self, entry: AttemptReport) -> None:
        """Add an attempt; beyond ATTEMPTS_MAX only the first half and the latest are kept."""
        if len(self.attempts) >= ATTEMPTS_MAX:
            del self.attempts[ATTEMPTS_MAX // 2]
            self.omitted += 1
        self.attempts.append(entry)

    def reopen_passed(self, attempt: int) -> None:
        """Take back that this attempt passed, if that is the last entry: a check after it failed."""
        if self.attempts and self.attempts[-1].event == "passed" and self.attempts[-1].attempt == attempt:
            entry = self.attempts.pop()
            self.inside, self.items = entry.inside + self.inside, entry.items + self.items

    @property
    def name(self) -> str:
        """The job's name within the run."""
        return step_name(self.scope, self.step)


class Canceled(Struct, omit_defaults=True):
    """A user's request to cancel the run; the jobs in `names` never started because of it."""

    by: str = ""
    reason: str = ""
    names: Names | None = None


class Explanation(Struct):
    """A run, the reason for its status, and its steps that failed, were retried or did not run, by their start.

    `failures` counts attempts that failed or were lost. `omitted` counts the steps that are left out.
    """

    version: int
    run: int
    workflow: str
    status: str
    exit_code: int | None
    epoch: int
    resumed: int
    because: str
    failures: int
    canceled: Canceled | None
    steps: list[StepReport]
    omitted: int = 0
    inputs: dict[str, Any] = {}


def all_reports(reports: Iterable[Struct]) -> Iterator[StepReport]:
    """The reports of steps among these and inside them, outer ones first."""
    for report in reports:
        if isinstance(report, StepReport):
            yield report
        for name in NESTED_FIELDS:
            yield from all_reports(getattr(report, name, ()))
