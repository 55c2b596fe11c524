"""Every rung beside every other: rule x retry x handler x goto x park, generated, against a naive interpreter."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest

from resile.model.failure import Outcome
from resile.model.rules import Match
from resile.model.workflow import Noop, Repair, Rule, Step
from tests.core.scheduling.test_dependencies import step
from tests.core.world import OK, World, failed, flow

MAX_LOOPS = 3


class Case(NamedTuple):
    """What the step `a` has on its ladder, and how it fails."""

    rule: int
    script_fails: bool
    retry: int
    remedy: str
    handler: str
    goto: bool
    last: str
    fails: int
    code: int


def rules_of(case: Case) -> tuple[Rule, ...]:
    """The ladder of a case, in the order of a native file."""
    rules: list[Rule] = []
    if case.rule:
        script = Repair(steps=(Step(name="script", action=Noop()),), on_failure="ignore")
        rules.append(Rule(then="retry", text="rule", match=Match(codes=(7,)), limit=case.rule, repair=script))
    if case.retry:
        fix = Repair(calls=("fix",), on_failure="fail") if case.remedy else None
        rules.append(Rule(then="retry", text="retry", limit=case.retry, repair=fix, cost=1 if fix else 0))
    if case.handler:
        handler = Repair(steps=(Step(name="handler", action=Noop()),))
        then, limit = ("retry", 2) if case.handler.startswith("again") else ("recovered", 1)
        rules.append(Rule(then=then, text="handler", limit=limit, repair=handler))  # type: ignore[arg-type]
    if case.goto:
        rules.append(Rule(then="goto", text="goto", target="s", limit=100, cost=1))
    if case.last:
        rules.append(Rule(then=case.last, text=case.last))  # type: ignore[arg-type]
    return tuple(rules)


def naive(case: Case) -> tuple[list[str], str]:
    """What must be executed, and how the run ends, told step by step."""
    left = {"rule": case.rule, "retry": case.retry, "goto": 100, case.last: 1}
    left["handler"] = {"": 0, "once": 1, "once-fails": 1, "again": 2, "again-fails": 2}[case.handler]
    loops, done, fails = 0, ["s"], case.fails
    while True:
        done.append("a")
        fails -= 1
        if fails < 0:
            return [*done, "b", "end"], "completed"
        answer = next(
            (
                name
                for name in ("rule", "retry", "handler", "goto", case.last)
                if name and left.get(name) and (name != "rule" or case.code == 7) and (name != "goto" or case.goto)
            ),
            "",
        )
        cost = 1 if answer == "goto" or (answer == "retry" and case.remedy) else 0
        if loops + cost > MAX_LOOPS:
            return [*done, "end"], "failed"
        loops += cost
        if answer:
            left[answer] -= 1
        if answer == "rule":
            done.append("script")
        elif answer == "retry" and case.remedy:
            done.append("fix")
            if case.remedy == "fails":
                return [*done, "end"], "failed"
        elif answer == "handler":
            done.append("handler")
            if case.handler.endswith("fails"):
                left["handler"] = 0
                below = next((name for name in ("goto", case.last) if name and (name != "goto" or case.goto)), "")
                if below == "goto":
                    if loops + 1 > MAX_LOOPS:
                        return [*done, "end"], "failed"
                    loops += 1
                    done.append("s")
                elif below == "tolerate":
                    return [*done, "b", "end"], "completed"
                else:
                    return (done, "parked") if below == "park" else ([*done, "end"], "failed")
            elif case.handler == "once":
                return [*done, "b", "end"], "completed"
        elif answer == "goto":
            done.append("s")
        elif answer == "tolerate":
            return [*done, "b", "end"], "completed"
        elif answer == "park":
            return done, "parked"
        elif not answer:
            return [*done, "end"], "failed"


CASES = [
    Case(*values)
    for values in itertools.product(
        (0, 2),
        (False, True),
        (0, 1),
        ("", "works", "fails"),
        ("", "once", "once-fails", "again", "again-fails"),
        (False, True),
        ("", "tolerate", "park"),
        (0, 1, 3, 99),
        (7, 8),
    )
    if (values[0] or not values[1]) and (values[2] or not values[3])
]


@pytest.mark.parametrize("handler", ["", "once", "once-fails", "again", "again-fails"])
@pytest.mark.parametrize("last", ["", "tolerate", "park"])
def test_every_combination_ends_as_the_naive_interpreter_says(handler: str, last: str) -> None:
    """Executions in order and the end of the run agree; no budget is exceeded."""
    cases = [case for case in CASES if (case.handler, case.last) == (handler, last)]
    assert len(cases) > 100
    for case in cases:
        bad = {"script": case.script_fails, "fix": case.remedy == "fails", "handler": handler.endswith("fails")}
        left = [case.fails]

        def outcome(
            name: str, _attempt: int, left: list[int] = left, bad: dict[str, bool] = bad, code: int = case.code
        ) -> Outcome:
            if name == "a":
                left[0] -= 1
                return failed(code) if left[0] >= 0 else OK
            return failed(5) if bad.get(name) else OK

        fix = Step(name="fix", action=Noop(), called_only=True)
        world = World(
            flow(step("s"), step("a", "s", rules=rules_of(case)), step("b", "a"), fix, loops_max=MAX_LOOPS), outcome
        )
        world.run()
        assert (case, world.executed, world.ended) == (case, *naive(case))
        assert world.state.scopes[1].loops <= MAX_LOOPS
