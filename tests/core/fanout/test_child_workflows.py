"""Child workflows and critical steps in the core."""

from __future__ import annotations

from msgspec.structs import replace

from resile.core.actions import AnswerValue
from resile.core.events import (
    CancelRequested,
    Capacity,
    RunResumed,
    ValueAnswered,
)
from resile.core.state import ROOT
from resile.model.builtin_actions import Transform
from resile.model.failure import Outcome
from resile.model.rules import Match
from resile.model.workflow import Arc, Child, Rule, Step
from tests.core.items import SH, Items, fan, step
from tests.core.world import OK, failed, flow


def test_a_child_workflow_gives_its_verdict_to_its_parent() -> None:
    """The child's steps and its `end` run in the scope of the step; then the parent goes on."""
    child = flow(step("one"), step("two", "one"), end=Step(name="end", action=SH))
    world = Items(flow(Step(name="sub", action=Child("c.yaml", child)), step("after", "sub"))).until_end()
    assert world.runs == ["sub", "sub/one", "sub/two", "sub/end", "after", "end"]
    assert world.ended == "completed"


def test_a_failed_child_fails_its_step_and_the_ladder_answers() -> None:
    """First visit fails, the parent's retry opens a second one, which passes."""
    child = flow(step("one"), step("two", "one"))
    sub = Step(name="sub", action=Child("c.yaml", child), rules=(Rule(then="retry", text="retry"),))
    tries: list[str] = []

    def bad(name: str, _index: int, _number: int) -> Outcome:
        """`one` fails the first time."""
        tries.append(name)
        return failed(4) if name == "one" and tries.count("one") == 1 else OK

    world = Items(flow(sub), item=bad).until_end()
    assert world.runs == ["sub", "sub/one", "sub/end", "sub", "sub/one", "sub/two", "sub/end", "end"]
    assert world.ended == "completed"
    # Nothing is left of the first visit for a rerun to go on with.
    assert (world.state.jobs[1].child_scope, world.state.jobs[1].again) == (0, 0)
    assert [note.data["message"] for note in world.notes if note.type == "attempt_failed" and note.step == "sub"] == [
        "one failed: exit code 4"
    ]


def test_rules_see_a_failed_child_as_exit_code_1() -> None:
    """Whatever code its own step ended with."""
    for code, answered in ((1, "completed"), (4, "failed")):
        rule = Rule(then="tolerate", text="t", match=Match(codes=(code,)))
        sub = Step(name="sub", action=Child("c.yaml", flow(step("one"))), rules=(rule,))
        world = Items(flow(sub), item=lambda name, *_: failed(4) if name == "one" else OK).until_end()
        assert (world.ended, world.state.jobs[1].exit_code) == (answered, 1)


def test_a_child_that_loops_too_often_fails_alone() -> None:
    """An arc leads to a step of the child that runs already: its second visit is beyond the child's budget."""
    arcs = {"a": (Arc("b"),), "c": (Arc("b"),)}
    steps = [Step(name=name, action=SH, arcs=arcs.get(name, ())) for name in ("a", "c", "b")]
    sub = Step(name="sub", action=Child("c.yaml", flow(*steps, loops_max=0)))
    world = Items(flow(sub, step("after")), parallel=3).until_end()
    assert sorted(world.runs) == ["after", "end", "sub", "sub/a", "sub/b", "sub/c", "sub/end"]
    assert world.types("loop_budget_exceeded") == ["loop_budget_exceeded"]
    assert [note.type for note in world.notes if note.step == "b"][-3:] == [
        "loop_budget_exceeded",
        "step.exit",
        "step_failed",
    ]
    assert (world.statuses(), world.ended) == ({"sub": "failed", "after": "completed", "end": "completed"}, "failed")


def valued(*rules: Rule) -> Step:
    """A step that makes a value of what a child of one step gives."""
    return Step(name="sub", action=Child("c.yaml", flow(step("one"))), transform=Transform(), rules=rules)


def judged(world: Items) -> list[tuple[str, str, list[str]]]:
    """What became of each attempt of the step that runs the child: its type, the child's verdict, who failed there."""
    kinds = ("attempt_succeeded", "attempt_failed")
    notes = [note for note in world.notes if note.step == "sub" and note.type in kinds]
    return [(note.type, note.data["verdict"], note.data["failed_steps"]) for note in notes]


def test_the_value_of_a_child_is_asked_for_and_may_fail_its_step() -> None:
    """The child went well, what it gave did not, and the rules of the step answer."""
    asked: list[str] = []

    def value(name: str, _attempt: int) -> Outcome:
        """The value is wrong the first time."""
        if name.startswith("value of"):
            asked.append(name)
            return Outcome(0, values={"sub": 7}) if len(asked) > 1 else failed(0, "check")
        return OK

    world = Items(flow(valued(Rule(then="retry", text="retry")), step("after", "sub")))
    world.outcome = value
    world.until_end()
    assert world.runs == ["sub", "sub/one", "sub/end", "sub", "sub/one", "sub/end", "after", "end"]
    assert judged(world) == [("attempt_failed", "completed", []), ("attempt_succeeded", "completed", [])]
    assert world.state.frame_of(ROOT).values == {"sub": 7}


def test_the_value_of_a_failed_child_is_asked_for_too() -> None:
    """What is left of it is for those that go on without it; the failure is that of the child."""
    bad = Items(
        flow(valued(Rule(then="tolerate", text="go on"))), item=lambda name, _i, _n: failed(4) if name == "one" else OK
    )
    world = bad.until_end()
    assert judged(world) == [("attempt_failed", "failed", ["one"])]
    assert world.ended == "completed"


def test_a_late_value_changes_nothing() -> None:
    """An answer about another attempt, or about a step that was canceled meanwhile, is dropped."""
    world = Items(flow(valued(), step("after", "sub")))
    world.start()
    while not any(isinstance(order, AnswerValue) for order in world.orders):
        world.perform()
    (order,) = world.orders
    assert isinstance(order, AnswerValue)
    world.feed(ValueAnswered(world.clock, order.job, order.attempt + 1, OK))
    assert world.state.jobs[order.job].waits_for == "value"
    world.feed(CancelRequested(world.clock, "me"))
    world.until_end()
    assert world.ended == "canceled"
    assert judged(world) == []


def test_a_new_engine_asks_for_the_value_again() -> None:
    """The answer was owed when the old one went away."""
    world = Items(flow(valued()))
    world.start()
    while not any(isinstance(order, AnswerValue) for order in world.orders):
        world.perform()
    owed = world.orders.pop()
    world.feed(RunResumed(world.clock, world.capacity, "other"))
    assert [type(order) for order in world.orders] == [AnswerValue]
    assert world.orders[0] == replace(owed, because=world.orders[0].because)
    assert world.until_end().ended == "completed"


def test_a_cancel_goes_down_into_a_child() -> None:
    """What the child runs is killed, its `end` still runs, then the parent's."""
    child = flow(step("one"), step("two", "one"), end=Step(name="end", action=SH))
    world = Items(flow(Step(name="sub", action=Child("c", child))), stuck=lambda name, _index: name == "one")
    world.start()
    while world.orders:
        world.perform()
    world.feed(CancelRequested(world.clock, "me"))
    world.until_end()
    assert world.runs == ["sub", "sub/end", "end"]
    assert world.ended == "canceled"


def test_a_child_that_takes_too_long_fails_by_timeout() -> None:
    """`timeout` on the step holds for the whole child."""
    child = flow(step("one"))
    sub = Step(name="sub", action=Child("c", child), timeout_seconds=5.0)
    world = Items(flow(sub), stuck=lambda name, _index: name == "one").until_end()
    assert world.ended == "failed"
    kinds = [note.data.get("kind") for note in world.notes if note.type == "attempt_failed" and note.step == "sub"]
    assert kinds == ["timeout"]


def test_a_critical_step_takes_its_siblings_along() -> None:
    """Running siblings are killed, queued ones never start; all are neither success nor failure; `end` runs once."""
    steps = (step("a", critical=True), step("b"), step("c", "b"), step("d"))
    world = Items(
        flow(*steps),
        parallel=2,
        item=lambda name, *_: failed() if name == "a" else OK,
        stuck=lambda name, _: name == "b",
    )
    world.capacity = Capacity(parallel=2, cpus=4, memory_bytes=1000)
    world.until_end()
    assert world.runs == ["a", "end"]
    assert world.statuses() == {"a": "failed", "b": "terminated", "c": "canceled", "d": "canceled", "end": "completed"}
    assert world.ended == "failed"


def test_an_ordinary_failure_lets_siblings_finish() -> None:
    """Without `critical` they drain."""
    world = Items(flow(step("a"), step("b"), step("c", "b")), item=lambda name, *_: failed() if name == "a" else OK)
    world.until_end()
    assert world.runs == ["a", "b", "c", "end"]


def test_a_critical_step_inside_an_item_concerns_that_item() -> None:
    """The sibling in the same item is stopped; the next item is untouched."""
    inside = (step("a", critical=True), step("b"))
    bad = lambda name, index, _number: failed() if (name, index) == ("a", 0) else OK  # noqa: E731
    world = Items(flow(fan(*inside)), total=2, item=bad).until_end()
    assert world.runs == ["map", "map[0]/a", "map[1]/a", "map[1]/b", "end"]
    assert world.ended == "completed"
