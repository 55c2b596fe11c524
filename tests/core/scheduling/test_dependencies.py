"""How jobs follow each other: needs, list order, groups, skips, arcs, cancellation with its cause."""

from __future__ import annotations

import pytest

from resile.core.actions import StartAttempt
from resile.core.events import AttemptEnded, AttemptStarted
from resile.model.workflow import Arc, Condition, Need, Noop, Resources, Rule, Step
from tests.core.world import OK, World, failed, flow


def step(name: str, *needs: str, **keys: object) -> Step:
    """A step that needs each of these; `a|b` is a group."""
    groups = tuple(Need(tuple(need.split("|"))) for need in needs)
    return Step(name=name, action=Noop(), needs=groups, **keys)  # type: ignore[arg-type]


def after(name: str, previous: str, **keys: object) -> Step:
    """A step that follows another in list order."""
    return Step(name=name, action=Noop(), needs=(Need((previous,), True),), **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("resources", [Resources(cpus=4), Resources(memory_bytes=1000), Resources(gpus=2)])
def test_a_step_that_fits_exactly_runs(resources: Resources) -> None:
    """A step may take all CPUs, all memory or all GPUs of the machine, and the next one has to wait for it."""
    world = World(flow(step("a", resources=resources), step("b", resources=resources)), parallel=2).start()
    assert [world.name(order.job) for order in world.orders if isinstance(order, StartAttempt)] == ["a"]
    world.perform()
    assert [world.name(order.job) for order in world.orders if isinstance(order, StartAttempt)] == ["b"]


def test_a_chain_runs_in_order() -> None:
    """Each step starts after the one it needs."""
    world = World(flow(step("a"), step("b", "a"), step("c", "b"))).run()
    assert world.executed == ["a", "b", "c", "end"]


def test_a_failed_root_cancels_a_diamond_at_any_depth_at_once() -> None:
    """All dependents are canceled in the reaction to the failure, with the failed step as their cause."""
    world = World(
        flow(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"), step("e", "d")),
        lambda name, _: failed() if name == "a" else OK,
    ).start()
    world.perform()
    assert world.statuses() == {
        "a": "failed",
        "b": "canceled",
        "c": "canceled",
        "d": "canceled",
        "e": "canceled",
        "end": "pending",
    }
    assert {job.cause.step for job in world.state.jobs.values() if job.cause} == {"a"}
    assert world.types().count("step_canceled") == 4


def test_a_chain_of_150_is_canceled_at_once() -> None:
    """The length of the chain does not matter."""
    chain = [step("s0")] + [step(f"s{n}", f"s{n - 1}") for n in range(1, 150)]
    world = World(flow(*chain), lambda *_: failed()).start()
    world.perform()
    assert sum(status == "canceled" for status in world.statuses().values()) == 149


def test_a_failure_lets_unrelated_steps_go_on() -> None:
    """Only dependents are canceled."""
    world = World(flow(step("a"), step("b", "a"), step("c")), lambda name, _: failed() if name == "a" else OK).run()
    assert (world.executed, world.ended) == (["a", "c", "end"], "failed")


def test_a_group_waits_for_both_and_is_satisfied_by_either() -> None:
    """`a|b` runs after both have ended, when one of them succeeded."""
    world = World(
        flow(step("a"), step("b"), step("c", "a|b")), lambda name, _: failed() if name == "a" else OK, parallel=2
    ).run()
    assert (world.executed, world.statuses()["c"]) == (["a", "b", "c", "end"], "completed")


def test_a_group_without_any_success_cancels() -> None:
    """All members failed: what needs one of them is canceled."""
    world = World(flow(step("a"), step("b"), step("c", "a|b")), lambda *_: failed()).run()
    assert world.statuses()["c"] == "canceled"


def test_a_group_without_any_success_cancels_at_once() -> None:
    """What else the step needs makes no difference, so it is not waited for."""
    needy = step("d", "a|b", "c")
    world = World(flow(step("a"), step("b"), step("c"), needy), lambda name, _: OK if name == "c" else failed()).run()
    types = [(note.type, note.step) for note in world.notes]
    assert types.index(("step_canceled", "d")) < types.index(("step_started", "c"))


def test_a_skipped_step_satisfies_list_order_but_not_needs() -> None:
    """The next in the list runs; a step that needs the skipped one is skipped too, with its cause."""
    world = World(
        flow(step("a", when=Condition("x")), after("b", "a"), step("c", "a")), truth=lambda name: name != "a"
    ).run()
    assert world.statuses() == {"a": "skipped", "b": "completed", "c": "skipped", "end": "completed"}
    cause = world.state.jobs[3].cause
    assert cause is not None
    assert (cause.step, cause.status) == ("a", "skipped")


def test_the_cause_is_what_was_skipped_not_what_was_waited_for() -> None:
    """`b` completes last, but its success is not why `c` is skipped."""
    world = World(flow(step("a", when=Condition("x")), step("b"), step("c", "a", "b")), truth=lambda name: name != "a")
    cause = world.run().state.jobs[3].cause
    assert cause is not None
    assert (cause.step, cause.status) == ("a", "skipped")
    (skipped,) = [note for note in world.notes if (note.type, note.step) == ("step_skipped", "c")]
    (first,) = [note for note in world.notes if (note.type, note.step) == ("step_skipped", "a")]
    assert skipped.because == first.seq


def test_a_failed_need_wins_over_a_skipped_one() -> None:
    """Canceled, not skipped."""
    world = World(
        flow(step("a", when=Condition("x")), step("b"), step("c", "a", "b")),
        lambda name, _: failed() if name == "b" else OK,
        lambda name: name != "a",
    ).run()
    assert world.statuses()["c"] == "canceled"
    cause = world.state.jobs[3].cause
    assert cause is not None
    assert (cause.step, cause.status) == ("b", "failed")


def test_list_order_is_cut_by_a_failure() -> None:
    """What follows a failed step in a list is canceled."""
    world = World(flow(step("a"), after("b", "a"), after("c", "b")), lambda *_: failed()).run()
    assert world.statuses() == {"a": "failed", "b": "canceled", "c": "canceled", "end": "failed"}


def test_a_late_result_changes_nothing() -> None:
    """A report of another attempt number is dropped."""
    world = World(flow(step("a", rules=(Rule(then="retry", text="r", limit=1),)), step("b"))).start()
    world.feed(AttemptStarted(1.0, 1, 1))
    world.feed(AttemptEnded(2.0, 1, 1, failed()))
    world.feed(AttemptEnded(3.0, 1, 1, OK))
    assert world.statuses()["a"] != "completed"
    assert world.types("a") == ["step_started", "attempt_started", "attempt_failed", "retry_scheduled"]


def test_arcs_are_taken_instead_of_waited_for() -> None:
    """A step with incoming arcs runs when one is taken; the others are skipped, and what needs them."""
    world = World(
        flow(
            step("a", arcs=(Arc("b", Condition("x")), Arc("c", Condition("x")))),
            step("b"),
            step("c"),
            step("d", "c"),
        ),
        truth=lambda name: name == "a->b",
    ).run()
    assert world.executed == ["a", "b", "end"]
    assert world.statuses() == {"a": "completed", "b": "completed", "c": "skipped", "d": "skipped", "end": "completed"}


def test_only_the_first_true_arc_is_taken_in_mode_first() -> None:
    """`mode: first` stops at the first arc that holds."""
    arcs = (Arc("b", Condition("x")), Arc("c", Condition("x")))
    world = World(flow(step("a", arcs=arcs, arcs_mode="first"), step("b"), step("c"))).run()
    assert world.executed == ["a", "b", "end"]


def test_a_loop_of_arcs_ends_with_the_budget() -> None:
    """Every revisit costs 1; the one that can't be paid fails the scope with the exact message."""
    world = World(flow(step("a", arcs=(Arc("b"),)), step("b", arcs=(Arc("a"),)), step("c", "b"), loops_max=3)).run()
    assert world.executed.count("a") + world.executed.count("b") == 2 + 3
    assert world.ended == "failed"
    (spent,) = (note for note in world.notes if note.type == "loop_budget_exceeded")
    assert spent.data["message"] == "Routing loop budget exceeded (max_loops=3) during next goto"
    # The exit of that visit is caused by what the step noted last, not by some other event.
    *_, left = (note for note in world.notes if (note.type, note.job) == ("step.exit", spent.job))
    assert left.because == max(note.seq for note in world.notes if note.job == spent.job and note.seq < left.seq)


def test_a_step_may_loop_on_itself() -> None:
    """Polling: an arc to the step itself runs it again until the condition no longer holds."""
    answers = iter([True, True, False])
    world = World(flow(step("poll", arcs=(Arc("poll", Condition("x")),))), truth=lambda _: next(answers)).run()
    assert (world.executed, world.ended) == (["poll", "poll", "poll", "end"], "completed")


def test_an_arc_to_end_does_not_run_it_twice() -> None:
    """`end` runs once in all, after everything else."""
    world = World(flow(step("a", arcs=(Arc("end"),)), step("b", "a"))).run()
    assert world.executed == ["a", "b", "end"]


def test_resources_are_respected_when_packing() -> None:
    """Two jobs that each take all GPUs never run together; a smaller one slips past."""
    big = Resources(gpus=2)
    world = World(flow(step("a", resources=big), step("b", resources=big), step("c")), parallel=3).start()
    assert [(world.name(order.job), order.gpus) for order in world.orders] == [("a", (0, 1)), ("c", ())]  # type: ignore[union-attr]
    world.perform()
    assert [world.name(order.job) for order in world.orders] == ["c", "b"]  # type: ignore[union-attr]


def test_the_cause_is_the_need_that_decided_and_not_the_last_that_ended() -> None:
    """A step that was skipped, or failed in a group, is named although another need succeeded or was skipped later."""
    world = World(
        flow(step("a", when=Condition("x")), step("b"), step("c", "a", "b")), truth=lambda name: name != "a"
    ).run()
    causes = {world.name(job.id): job.cause for job in world.state.jobs.values() if job.cause is not None}
    assert [(name, cause.step, cause.status) for name, cause in causes.items()] == [("c", "a", "skipped")]
    world = World(
        flow(step("a"), step("b"), step("d", "a|b"), step("e", "b", when=Condition("x")), step("f", "d|e", "e")),
        lambda name, _: OK if name == "b" else failed(),
        truth=lambda name: name != "e",
    ).run()
    causes = {world.name(job.id): job.cause for job in world.state.jobs.values() if job.cause is not None}
    assert [(name, cause.step, cause.status) for name, cause in causes.items()] == [("f", "d", "failed")]


def test_an_arc_that_leads_back_does_not_keep_its_target_from_starting() -> None:
    """A loop in the middle: the step that is jumped back to still starts by its needs."""
    answers = iter([True, False])
    world = World(
        flow(step("a"), step("b", "a"), step("c", "b", arcs=(Arc("b", Condition("x")),)), step("d", "c")),
        truth=lambda _: next(answers),
    ).run()
    assert (world.executed, world.ended) == (["a", "b", "c", "b", "d", "end"], "completed")


def test_a_spent_budget_is_the_first_failure_and_the_cause_of_what_it_cancels() -> None:
    """The forbidden jump is not among the routes; the verdict is."""
    world = World(flow(step("a"), step("b", "a", arcs=(Arc("a"),)), step("c", "b"), loops_max=0)).run()
    assert [(route.action, route.target) for route in world.state.routes] == [("budget", None)]
    first = world.state.first_failure
    assert first is not None
    assert (first.step, first.message) == ("b", "Routing loop budget exceeded (max_loops=0) during next goto")
    cause = world.state.jobs[3].cause
    assert cause is not None
    assert (cause.step, cause.status) == ("b", "failed")
