"""What is told of a run: a tale for each job that did not simply succeed, down to the cause; ready for JSON.

    Tale -> Told, one for each attempt and judgement -> RuleTold, one for each rule that was looked at
      |       |                                           +-> inside: the repair's own tales
      |       +-> inside: the tales of a child workflow   +-> items: Group -> ItemTold -> Execution -> tales
      +-> canceled, skipped, waiting: what did not run because of it

Everything is bounded: of what comes in thousands the first few are kept, and the rest are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from resile.core.rule_trace import PassedOver

NAMES_MAX = 20
TALES_MAX = 1_000
TOLD_MAX = 100
GROUPS_MAX = 100
ITEMS_TOLD_MAX = 2
CHAIN_MAX = 50

Answer = PassedOver | Literal["declined", "answers", "no budget"]
What = Literal["failed", "lost", "interrupted", "ended", "passed", "after", "judged", "rejected", "circuit", "redriven"]
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


class Names(Struct, omit_defaults=True):
    """How many there are, and what the first of them are called."""

    count: int = 0
    first: list[str] = []


def one_more(names: Names | None, name: str) -> Names:
    """The same with one more, whose name is kept if it is one of the first."""
    names = names or Names()
    names.count += 1
    if len(names.first) < NAMES_MAX:
        names.first.append(name)
    return names


class Link(Struct, frozen=True, omit_defaults=True):
    """One link of the chain that kept a job from running: the job before it, and how that one stands."""

    step: str
    job: int
    status: str


class RuleTold(Struct, omit_defaults=True):
    """A rule that a failure came to, from which line, what it answered and what came of that.

    `used` counts this answer where it gave one. `loops` of `loops_max` are spent where it takes from that budget.
    """

    rule: str
    then: str
    answer: Answer
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
    inside: list[Tale] = []


class Told(Struct, omit_defaults=True):
    """One attempt, or something else that befell a job; `seq` finds it in `resile events ls`.

    `result` is what its failure led to, `then` the same in words. `child` is the workflow that the step runs,
    and `verdict` what that came to.
    """

    seq: int
    what: What
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
    rules: list[RuleTold] = []
    problems: list[str] = []
    result: Result = ""
    then: str = ""
    inside: list[Tale] = []
    items: list[Group] = []


class Execution(Struct, omit_defaults=True):
    """One execution of an item that did not simply succeed; `then` says what followed from it."""

    number: int
    message: str = ""
    then: str = ""
    inside: list[Tale] = []


class ItemTold(Struct, omit_defaults=True):
    """One item of a fan-out, from its first execution on."""

    item: str
    executions: list[Execution] = []


class Group(Struct, omit_defaults=True):
    """Items that came to the same end in the same way; `items` tells of the first ones in full."""

    outcome: Outcome
    reason: str = ""
    step: str = ""
    message: str = ""
    signature: str = ""
    names: Names | None = None
    items: list[ItemTold] = []

    def add(self, name: str) -> None:
        """One more item."""
        self.names = one_more(self.names, name)


class Tale(Struct, omit_defaults=True):
    """A job and all that befell it; `inside` and `items` are of an attempt that is not over yet.

    `why` says in words what kept it from running, and `chain` leads from there to where the trouble began.
    """

    job: int
    step: str
    scope: str
    where: str
    status: str = ""
    recovered: bool = False
    tolerated: bool = False
    told: list[Told] = []
    omitted: int = 0
    why: str = ""
    chain: list[Link] = []
    canceled: Names | None = None
    skipped: Names | None = None
    waiting: Names | None = None
    inside: list[Tale] = []
    items: list[Group] = []

    def add(self, told: Told) -> None:
        """Something more befell it; of very many the first half and the last are kept."""
        if len(self.told) >= TOLD_MAX:
            del self.told[TOLD_MAX // 2]
            self.omitted += 1
        self.told.append(told)

    @property
    def name(self) -> str:
        """What the job is called among all of a run."""
        return full_name(self.scope, self.step)


class Canceled(Struct, omit_defaults=True):
    """Somebody asked for the run to stop; `names` never started because of that."""

    by: str = ""
    reason: str = ""
    names: Names | None = None


class Explanation(Struct):
    """A run, why it stands as it does, and the tales of what went other than well, in the order of their beginning.

    `failures` are attempts that failed or were lost. `more` tales were left out, because there are so many.
    """

    run: int
    workflow: str
    status: str
    exit_code: int | None
    epoch: int
    resumed: int
    because: str
    failures: int
    canceled: Canceled | None
    tales: list[Tale]
    more: int = 0


def full_name(scope: str, step: str) -> str:
    """A step's name, with its scope in front where that is not the run itself."""
    return step if scope in ("", "root") else f"{scope}/{step}"


def everything(tales: Iterable[Tale]) -> Iterator[Tale]:
    """Some tales and all that are inside of them, the outer ones first."""
    for tale in tales:
        yield tale
        for told in tale.told:
            yield from everything(told.inside)
            yield from _of_items(told.items)
            for rule in told.rules:
                yield from everything(rule.inside)
        yield from everything(tale.inside)
        yield from _of_items(tale.items)


def _of_items(groups: Iterable[Group]) -> Iterator[Tale]:
    """The tales of some items."""
    for group in groups:
        for item in group.items:
            for execution in item.executions:
                yield from everything(execution.inside)
