"""Steps that a run leaves out: they count as done when they could start, and nothing of them runs."""

from __future__ import annotations

from resile.core.events import EpochStarted, RunResumed
from resile.model.workflow import Arc, Condition, Need, Shell, Step
from tests.core.world import World, failed, flow


def step(name: str, *needs: str, **keys: object) -> Step:
    """A shell step."""
    return Step(name=name, action=Shell("x"), needs=tuple(Need((need,)) for need in needs), **keys)  # type: ignore[arg-type]


def go(world: World) -> World:
    """Drive a run to its end."""
    while world.ended is None:
        world.perform()
    return world


def ends(world: World) -> list[tuple[str, str]]:
    """Each end of a step, in order."""
    return [
        (note.step, note.type)
        for note in world.notes
        if note.type in ("step_completed", "step_skipped", "step_failed", "step_canceled")
    ]


def test_a_step_that_is_left_out_counts_as_done_in_its_place() -> None:
    """What needs a step that is left out waits for the steps before that one, and then runs."""
    world = go(World(flow(step("a"), step("b", "a", left_out=True), step("c", "b")), parallel=3).start())
    assert world.executed == ["a", "c", "end"]
    assert ends(world) == [
        ("a", "step_completed"),
        ("b", "step_skipped"),
        ("c", "step_completed"),
        ("end", "step_completed"),
    ]
    assert next(note for note in world.notes if note.type == "step_skipped").data == {"reason": "left out of this run"}
    assert world.state.verdict == "completed"


def test_a_failure_before_a_step_that_is_left_out_still_cancels_what_follows() -> None:
    """Leaving a step out does not let its dependents run after the failure of the step before it."""
    flow_ = flow(step("a"), step("b", "a", left_out=True), step("c", "b"))
    world = go(World(flow_, lambda *_: failed(), parallel=3).start())
    assert ends(world)[:3] == [("a", "step_failed"), ("b", "step_canceled"), ("c", "step_canceled")]
    assert world.state.verdict == "failed"


def test_a_long_chain_is_left_out_at_once() -> None:
    """Steps that are left out one after another are passed over in the event that starts the run."""
    chain = [step("s0", left_out=True)]
    chain += [step(f"s{number}", f"s{number - 1}", left_out=True) for number in range(1, 3000)]
    world = World(flow(*chain, step("last", "s2999")), parallel=1).start()
    assert [note.type for note in world.notes].count("step_skipped") == 3000
    assert go(world).executed == ["last", "end"]


def test_the_condition_of_a_step_that_is_left_out_is_not_asked() -> None:
    """A step that is left out has no `when` to answer: its dependents run."""
    left = step("a", left_out=True, when=Condition("x", "js"))
    world = go(World(flow(left, step("b", "a")), truth=lambda _: False).start())
    assert world.executed == ["b", "end"]


def test_arcs_lead_on_through_a_step_that_is_left_out() -> None:
    """An arc that leads to a step that is left out leads on along that step's arcs."""
    steps = (
        step("a", arcs=(Arc("b"),)),
        step("b", left_out=True, arcs=(Arc("c"),)),
        step("c"),
    )
    assert go(World(flow(*steps)).start()).executed == ["a", "c", "end"]


def test_a_step_that_begins_a_run_does_not_wait_for_an_arc() -> None:
    """A step that begins a run starts at once, also in the middle of a loop, and the loop leads back as written."""
    steps = (
        step("a", arcs=(Arc("b"),)),
        step("b", begins=True, arcs=(Arc("c"),)),
        step("c", arcs=(Arc("a", Condition("x", "js")),)),
    )
    asked = iter((True, False))
    world = go(World(flow(*steps), truth=lambda _: next(asked)).start())
    assert world.executed == ["b", "c", "a", "b", "c", "end"]


def test_a_step_that_is_left_out_hangs_on_an_arc_that_was_never_taken() -> None:
    """Behind a step that no arc reached, a step that is left out is skipped, and the run ends."""
    steps = (
        step("a", arcs=(Arc("b", Condition("x", "js")),)),
        step("b"),
        Step(name="c", action=Shell("x"), needs=(Need(("b",), True),), left_out=True),
        step("d", "c"),
    )
    world = go(World(flow(*steps), truth=lambda _: False).start())
    assert world.executed == ["a", "d", "end"]


def test_an_epoch_leaves_out_the_same_steps() -> None:
    """A rerun leaves out what the run left out."""
    world = go(World(flow(step("a", left_out=True), step("b", "a"))).start())
    world.ended = None
    world.feed(EpochStarted(world.clock))
    world.feed(RunResumed(world.clock, world.capacity))
    assert go(world).executed == ["b", "end", "b", "end"]
