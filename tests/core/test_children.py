"""Child workflows and critical steps in the core."""

from __future__ import annotations

from resile.core.events import (
    CancelRequested,
    Capacity,
)
from resile.model.failure import Outcome
from resile.model.rules import Rule
from resile.model.workflow import Child, Step
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
    assert [note.data["message"] for note in world.notes if note.type == "attempt_failed" and note.step == "sub"] == [
        "one failed: exit code 4"
    ]


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
