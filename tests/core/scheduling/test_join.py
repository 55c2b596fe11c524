"""Steps at which paths meet: they run once, when no path that is under way can lead there any more."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from resile.core.actions import StartAttempt
from resile.core.events import ArcsAnswered, AttemptEnded, AttemptStarted, CancelRequested, EpochStarted, RunResumed
from resile.core.state import decode, encode
from resile.model.failure import Outcome
from resile.model.status import TERMINAL
from resile.model.workflow import Arc, Condition, Need, Noop, Shell, Step
from tests.core.world import OK, World, failed, flow


def step(name: str, *next_steps: str, join: str = "any", **keys: object) -> Step:
    """A shell step with arcs to others."""
    arcs = tuple(Arc(target) for target in next_steps)
    return Step(name=name, action=Shell("x"), arcs=arcs, join=join, **keys)  # type: ignore[arg-type]


FORK = flow(step("s", "a", "b"), step("a", "m"), step("b", "m"), step("m", join="all"))


def end(world: World, name: str, outcome: object = OK) -> None:
    """An attempt of this step has started and come to this."""
    job = next(job for job in world.state.jobs.values() if world.state.step_of(job).name == name)
    world.feed(AttemptStarted(world.clock, job.id, job.attempt))
    world.feed(AttemptEnded(world.clock, job.id, job.attempt, outcome))  # type: ignore[arg-type]


def go(world: World) -> World:
    """Carry out all orders but those that were carried out by hand."""
    world.orders = [order for order in world.orders if not _is_over(world, order)]
    while world.ended is None:
        world.perform()
    return world


def _is_over(world: World, order: object) -> bool:
    """Has the attempt that this order starts ended already?"""
    return isinstance(order, StartAttempt) and world.state.jobs[order.job].status in TERMINAL


def fails_once(*names: str) -> Callable[[str, int], Outcome]:
    """The first execution of each of these fails."""
    left = set(names)

    def outcome(name: str, _attempt: int) -> Outcome:
        """What comes next."""
        if name in left:
            left.remove(name)
            return failed()
        return OK

    return outcome


def test_paths_meet_once_whichever_is_slower() -> None:
    """With `all` the meeting point runs after both, with `any` once for each."""
    for slow, fast in (("a", "b"), ("b", "a")):
        world = World(FORK, parallel=2).start()
        end(world, "s")
        end(world, fast)
        assert world.statuses()["m"] == "blocked"
        end(world, slow)
        assert world.statuses()["m"] == "pending"
        assert go(world).executed.count("m") == 1
    twice = World(flow(step("s", "a", "b"), step("a", "m"), step("b", "m"), step("m"))).run()
    assert twice.executed.count("m") == 2


def test_only_paths_that_were_taken_are_waited_for() -> None:
    """What no arc reached, or failed on the way, holds nothing up."""
    one = (Arc("a"), Arc("b", Condition("x")))
    steps = (Step(name="s", action=Shell("x"), arcs=one), step("a", "m"), step("b", "m"), step("m", join="all"))
    assert World(flow(*steps), truth=lambda name: name != "s->b").run().executed == ["s", "a", "m", "end"]
    world = World(FORK, fails_once("b")).run()
    assert (world.executed, world.ended) == (["s", "a", "b", "m", "end"], "failed")


def test_longer_paths_and_meetings_behind_meetings_come_in_order() -> None:
    """A step that is itself waited for is waited for in its turn."""
    world = World(
        flow(
            step("s", "a", "b", "far"),
            step("far", "last"),
            step("a", "m"),
            step("b", "c"),
            step("c", "m"),
            step("m", "last", join="all"),
            step("last", join="all"),
        )
    ).run()
    assert world.executed.index("c") < world.executed.index("m") < world.executed.index("last")
    assert len(world.executed) == len(set(world.executed))


def test_two_that_lead_to_each_other_do_not_wait_for_ever() -> None:
    """The one that was reached first goes first; then the other, for as long as the budget lasts."""
    world = World(flow(step("s", "x", "y"), step("x", "y", join="all"), step("y", "x", join="all"), loops_max=2)).run()
    assert world.executed[:3] == ["s", "x", "y"]
    assert world.ended == "failed"


def test_a_loop_back_to_a_meeting_point_runs_it_again() -> None:
    """Nothing else is under way, so there is nothing to wait for."""
    answers = iter((True, True, False))
    steps = (
        step("s", "a", "b"),
        step("a", "m"),
        step("b", "m"),
        Step(name="m", action=Shell("x"), join="all", arcs=(Arc("check"),)),
        Step(name="check", action=Shell("x"), arcs=(Arc("m", Condition("x")),)),
    )
    world = World(flow(*steps), truth=lambda _: next(answers)).run()
    assert world.executed == ["s", "a", "b", "m", "check", "m", "check", "m", "check", "end"]


def test_what_each_path_carries_is_there() -> None:
    """At a meeting point and at `end` the values of all arrivals come together; of one name the last counts."""
    arcs = {name: (Arc("m", args={name: name}), Arc("end", args={name: name})) for name in ("a", "b")}
    steps = (step("s", "a", "b"), *(Step(name=name, action=Shell("x"), arcs=arcs[name]) for name in arcs))
    world = World(flow(*steps, step("m", join="all")), parallel=2)
    world.start()
    end(world, "s")
    for number, name in ((2, "a"), (3, "b")):
        end(world, name)
        carried = {target: {name: number, "last": name} for target in ("m", "end")}
        world.feed(ArcsAnswered(world.clock, number, (True, True), given=carried))
    expected = {"a": 2, "b": 3, "last": "b"}
    assert world.state.scopes[1].arc_arguments == {"m": expected, "end": expected}


def test_a_cancel_lets_nothing_go_that_waits() -> None:
    """It is canceled like everything that has not started."""
    world = World(FORK, parallel=2).start()
    end(world, "s")
    end(world, "a")
    world.feed(CancelRequested(world.clock))
    end(world, "b", failed(143, "canceled"))
    assert world.statuses()["m"] == "canceled"


def test_a_rerun_of_what_failed_waits_again() -> None:
    """The meeting point had failed with one path: both are there before it runs again."""
    world = World(FORK, fails_once("b", "m")).run()
    before = len(world.executed)
    world.ended = None
    world.feed(EpochStarted(world.clock, True))
    world.feed(RunResumed(world.clock, world.capacity))
    go(world)
    assert (world.executed[before:], world.ended) == (["b", "m", "end"], "completed")


def test_needs_and_joins_go_together() -> None:
    """A meeting point that needs a step too waits for both."""
    joined = Step(name="m", action=Noop(), join="all", needs=(Need(("n",)),))
    world = World(flow(step("s", "a", "b"), step("a", "m"), step("b", "m"), step("n"), joined)).run()
    assert world.ended == "completed"
    assert world.executed.index("m") > max(world.executed.index(name) for name in ("a", "b", "n"))


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """Arcs that lead forwards only, among up to nine steps."""
    count = draw(st.integers(2, 9))
    return [
        draw(st.lists(st.integers(number + 1, count - 1), unique=True, max_size=3)) if number < count - 1 else []
        for number in range(count)
    ]


@settings(max_examples=150)
@given(graphs(), st.integers(1, 4), st.data())
def test_in_any_graph_each_reached_step_runs_once_after_all_that_lead_to_it(
    arcs: list[list[int]], parallel: int, data: st.DataObject
) -> None:
    """Where every step joins, a run is the order of a partial order; and a crash after any event changes nothing."""
    steps = [step(f"s{number}", *(f"s{target}" for target in to), join="all") for number, to in enumerate(arcs)]
    led_to = {target for to in arcs for target in to}
    steps = [
        one if number in led_to else step(one.name, *(arc.step for arc in one.arcs)) for number, one in enumerate(steps)
    ]
    world = World(flow(*steps), parallel=parallel)
    world.start()
    while world.ended is None:
        world.orders.sort(key=lambda _: data.draw(st.integers(0, 3)))
        world.perform()
        world.state = decode(encode(world.state), world.state.workflow)
    ran = [name for name in world.executed if name != "end"]
    assert sorted(ran) == sorted(set(ran))
    for source, to in enumerate(arcs):
        for target in to:
            assert ran.index(f"s{source}") < ran.index(f"s{target}")
