"""Attempts that are reserved before what they need has ended: when, and what becomes of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from resile.core.actions import AnswerCondition, KillAttempt, Order, StartAttempt
from resile.core.events import (
    AttemptEnded,
    AttemptStarted,
    AttemptWithdrawn,
    CancelRequested,
    Capacity,
    ConditionAnswered,
    EpochStarted,
    RunResumed,
    RunStarted,
)
from resile.core.react import react
from resile.core.state import new_state
from resile.model.builtin_actions import Check
from resile.model.failure import Outcome
from resile.model.workflow import (
    Arc,
    Capture,
    Condition,
    Need,
    Noop,
    Repair,
    Resources,
    Rule,
    Shell,
    Step,
    SuccessActions,
    Workflow,
)
from tests.core.reference import expected
from tests.core.world import OK, World, failed, flow

RETRY = Rule(then="retry", text="retry", limit=1)


def sh(name: str, *needs: str, **keys: object) -> Step:
    """A plain command."""
    keys.setdefault("action", Shell("true"))
    return Step(name=name, needs=tuple(Need((need,)) for need in needs), **keys)  # type: ignore[arg-type]


def orders_of(workflow: Workflow, early: int = 8, parallel: int = 2) -> list[tuple[str, tuple[str, ...]]]:
    """What is ordered to start at once: each step, and after which."""
    state, actions = react(new_state(workflow), RunStarted(0.0, Capacity(parallel, early=early, cpus=4)))
    starts = [action for action in actions if isinstance(action, StartAttempt)]

    def name(job: int) -> str:
        return state.step_of(state.jobs[job]).name

    return [(name(order.job), tuple(name(job) for job, _ in order.after)) for order in starts]


class Early(World):
    """A world whose executor starts what comes after others by itself, and withdraws it when one of them fails."""

    def __init__(self, *args: object, early: int = 4, **keys: object) -> None:
        super().__init__(*args, **keys)  # type: ignore[arg-type]
        self.capacity = Capacity(self.capacity.parallel, 1, cpus=4, memory_bytes=1000, gpus=2, early=early)
        self.well: dict[tuple[int, int], bool] = {}

    def perform(self) -> None:
        """Carry out the oldest order that can be; what waits for a failed attempt is withdrawn."""
        due = (order for order in self.orders if all(key in self.well for key in getattr(order, "after", ())))
        first = next(due)
        self.orders.remove(first)
        self.orders.insert(0, first)
        if not isinstance(first, StartAttempt):
            super().perform()
        elif all(self.well[key] for key in first.after):
            super().perform()
            self.well[first.job, first.attempt] = self._ended_well(first)
        else:
            self.orders.pop(0)
            self.well[first.job, first.attempt] = False
            self.feed(AttemptWithdrawn(self.clock, first.job, first.attempt))

    def _ended_well(self, order: StartAttempt) -> bool:
        """Was this attempt's exit code 0?"""
        ended = [event for event in self.log if isinstance(event, AttemptEnded)]
        last = next(event for event in reversed(ended) if (event.job, event.attempt) == (order.job, order.attempt))
        return last.outcome.exit_code == 0


def test_a_chain_is_reserved_as_far_as_there_is_room() -> None:
    """Each link comes after the one before; as many are early as the engine may have."""
    chain = flow(sh("a"), sh("b", "a"), sh("c", "b"), sh("d", "c"))
    assert orders_of(chain, early=2) == [("a", ()), ("b", ("a",)), ("c", ("b",))]
    assert orders_of(chain, early=0) == [("a", ())]


def test_an_early_order_says_because_of_what() -> None:
    """A chain is reserved because of what let its first step start."""
    state = new_state(flow(sh("a"), sh("b", "a"), sh("c", "b")))
    _, actions = react(state, RunStarted(0.0, Capacity(2, early=8, cpus=4)))
    reasons = [action.because for action in actions if isinstance(action, StartAttempt)]
    assert reasons[0] > 0
    assert reasons == [reasons[0]] * 3


def test_a_step_that_ran_before_runs_once_in_the_next_epoch() -> None:
    """An early attempt is the one visit that a rerun asks for, like one that waits for its need."""
    rules = (Rule(then="tolerate", text="tolerate"),)
    world = Early(flow(sh("a", rules=rules), sh("b", "a")), lambda *_: failed() if broken else OK)
    broken = [True]
    world.run()
    broken.clear()
    world.executed.clear()
    world.well.clear()
    world.feed(EpochStarted(world.clock, True))
    world.feed(RunResumed(world.clock, world.capacity))
    assert [(world.name(order.job), len(order.after)) for order in starts_of(world)] == [("a", 0), ("b", 1)]
    while world.orders:
        world.perform()
    assert (world.executed, world.ended) == (["a", "b", "end"], "completed")
    assert world.replayed() == world.state


def starts_of(world: World) -> list[StartAttempt]:
    """The orders to start that are not carried out yet."""
    return [order for order in world.orders if isinstance(order, StartAttempt)]


def test_nothing_is_early_beside_a_critical_step() -> None:
    """Its failure may keep everything from starting that has not."""
    assert orders_of(flow(sh("a"), sh("b", "a"), sh("c")), parallel=3) == [("a", ()), ("c", ()), ("b", ("a",))]
    assert orders_of(flow(sh("a"), sh("b", "a"), sh("c", critical=True)), parallel=3) == [("a", ()), ("c", ())]


def test_what_will_be_skipped_is_not_reserved() -> None:
    """One of its needs was skipped before the other, which stands behind it, came into flight."""
    steps = (sh("no", when=Condition("x")), sh("x"), sh("b", "x", resources=Resources(1)), sh("c", "no", "b"))
    world = Early(flow(*steps), truth=lambda _name: False, parallel=3).start()
    answer = next(order for order in world.orders if isinstance(order, AnswerCondition))
    world.orders.remove(answer)
    world.feed(ConditionAnswered(1.0, answer.job, False))
    world.feed(AttemptEnded(2.0, 2, 1, OK))
    started = [world.name(order.job) for order in world.orders if isinstance(order, StartAttempt)]
    assert started == ["x", "b"]


def test_what_needs_several_comes_after_all_of_them() -> None:
    """A join waits for everything that it needs, unless that is too much to name."""
    names = ("a", "b", "c", "d", "e")
    wide = [sh(name) for name in names]
    assert orders_of(flow(*wide[:4], sh("j", *names[:4])), parallel=9)[-1] == ("j", names[:4])
    assert orders_of(flow(*wide, sh("j", *names)), parallel=9) == [(name, ()) for name in names]


def test_ready_ones_go_first() -> None:
    """While something that is ready waits for room, nothing is reserved early."""
    assert orders_of(flow(sh("a"), sh("b", "a"), sh("c")), parallel=1) == [("a", ())]


def test_nothing_is_overtaken() -> None:
    """Steps that one end lets go on start in the order of the file, so an early one waits where another is not."""
    first = sh("b", "a", action=Shell("echo ${steps.a.output}"))
    assert orders_of(flow(sh("a"), first, sh("c", "a"))) == [("a", ())]
    assert orders_of(flow(sh("a"), sh("c", "a"), first)) == [("a", ()), ("c", ("a",))]


def test_only_what_is_certain_is_reserved_early() -> None:
    """Not what asks for a value, a condition or a share of the machine; nor after what exit 0 does not decide."""
    for second in (
        sh("b", "a", action=Shell("echo ${steps.a.output}")),
        sh("b", "a", action=Shell("echo {{ a }}")),
        sh("b", "a", action=Shell("cat", stdin="${x}")),
        sh("b", "a", action=Noop()),
        sh("b", "a", env={"X": "${steps.a.output}"}),
        sh("b", "a", working_dir="${dir}"),
        sh("b", "a", when=Condition("x")),
        sh("b", "a", resources=Resources(cpus=1)),
        sh("b", "a", commit_required=True),
        sh("b", "a", critical=True),
        sh("b", "a", on_success=SuccessActions(target="a")),
        sh("b", "a", rules=(Rule(then="goto", text="goto", target="a"),)),
        sh("b", "a", rules=(Rule(then="retry", text="run", repair=Repair(calls=("a",))),)),
        sh("b", "a", rules=(Rule(then="fail", text="stop", halts=True),)),
        sh("b", "a", arcs=(Arc("end"),)),
        Step(name="b", action=Shell("true"), needs=(Need(("a", "c")),)),
    ):
        assert [name for name, _ in orders_of(flow(sh("a"), sh("c"), second))] == ["a", "c"], second
    for first in (
        sh("a", action=Noop()),
        sh("a", capture=(Capture("x"),)),
        sh("a", outputs=("x",)),
        sh("a", commit_required=True),
        sh("a", checks=(Check(name="fail_if", code="x", must=False),)),
    ):
        assert [name for name, _ in orders_of(flow(first, sh("b", "a")))] == ["a"], first
    assert [name for name, _ in orders_of(flow(sh("a"), sh("b", "a"), env={"X": "${inputs.x}"}))] == ["a"]


def started(world: World, *jobs: int) -> list[Order]:
    """Let these jobs start and end well; the orders of the last event."""
    orders: list[Order] = []
    for job in jobs:
        world.feed(AttemptStarted(world.clock, job, 1))
        orders = world.feed(AttemptEnded(world.clock, job, 1, OK))
    return orders


def test_an_early_attempt_runs_without_another_order() -> None:
    """When its need ends well it is reserved like any other; nobody is told to start it twice."""
    world = Early(flow(sh("a"), sh("b", "a"))).start()
    assert [order.job for order in world.orders if isinstance(order, StartAttempt)] == [1, 2]
    assert world.state.jobs[2].status_shown.name == "blocked"
    assert started(world, 1) == []
    assert world.state.jobs[2].status_shown.name == "pending"
    assert [type(order).__name__ for order in started(world, 2)] == ["StartAttempt"]
    assert [note.because for note in world.notes if note.type == "step_started" and note.step == "b"] == [
        next(note.seq for note in world.notes if note.type == "step_completed" and note.step == "a")
    ]


def test_a_withdrawn_early_attempt_waits_for_its_need_again() -> None:
    """The need failed and is tried again; the other job's first attempt is still its first."""
    fails_once = lambda step, attempt: failed() if (step, attempt) == ("a", 1) else OK  # noqa: E731
    world = Early(flow(sh("a", rules=(RETRY,)), sh("b", "a"), sh("c", "b")), fails_once).run()
    assert world.executed == ["a", "a", "b", "c", "end"]
    assert {job.attempt for job in world.state.jobs.values() if job.id > 1} == {1}


def test_a_need_that_fails_for_good_cancels_early_jobs_at_any_depth() -> None:
    """They are canceled in the same reaction, with the cause; that they were withdrawn changes nothing after that."""
    world = Early(flow(sh("a"), sh("b", "a"), sh("c", "b")), lambda *_: failed()).start()
    world.feed(AttemptStarted(1.0, 1, 1))
    world.feed(AttemptEnded(1.0, 1, 1, failed()))
    assert world.statuses() == {"a": "failed", "b": "canceled", "c": "canceled", "end": "pending"}
    assert [world.state.jobs[number].cause.step for number in (2, 3)] == ["a", "a"]  # type: ignore[union-attr]
    assert world.feed(AttemptWithdrawn(1.0, 2, 1)) == []
    assert world.statuses()["b"] == "canceled"


def test_a_cancel_takes_early_attempts_back() -> None:
    """An early attempt is killed like any other, and the cancel is why it never started, whichever end comes first."""
    ends = (AttemptWithdrawn(2.0, 2, 1), AttemptEnded(2.0, 1, 1, failed(143, "canceled"), canceled=True))
    for first, second in (ends, ends[::-1]):
        world = Early(flow(sh("a"), sh("b", "a"))).start()
        world.feed(AttemptStarted(1.0, 1, 1))
        orders = world.feed(CancelRequested(2.0))
        assert [order.job for order in orders if isinstance(order, KillAttempt)] == [1, 2]
        world.feed(first)
        world.feed(second)
        assert world.statuses() == {"a": "terminated", "b": "canceled", "end": "pending"}
        assert world.state.jobs[2].cause is None


def test_after_a_resume_needs_are_asked_about_before_what_waits_for_them() -> None:
    """A chain whose steps stand in the file in another order is found in the order of its reservation."""
    world = Early(flow(sh("c", "b"), sh("b", "a"), sh("a"))).start()
    orders = world.feed(RunResumed(5.0, world.capacity))
    assert [world.name(order.job) for order in orders] == ["a", "b", "c"]  # type: ignore[union-attr]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workflow, dict[str, str], dict[str, int], int, int]:
    """A graph of plain commands, a fate and retries for each, a number of slots and of early attempts."""
    fate: dict[str, str] = {}
    retries: dict[str, int] = {}
    steps: list[Step] = []
    for number in range(draw(st.integers(1, 15))):
        name = f"s{number}"
        fate[name] = draw(st.sampled_from(("ok", "ok", "ok", "ok", "fail", "flaky", "tolerated")))
        retries[name] = draw(st.integers(0, 2))
        rules = [Rule(then="retry", text="retry", limit=retries[name])] if retries[name] else []
        rules += [Rule(then="tolerate", text="tolerate")] if fate[name] == "tolerated" else []
        needs = draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)) if number else []
        plain = Shell(draw(st.sampled_from(("true", "true", "true", "echo ${x}"))))
        steps.append(sh(name, *(f"s{need}" for need in needs), action=plain, rules=tuple(rules)))
    return flow(*steps), fate, retries, draw(st.integers(1, 3)), draw(st.integers(1, 6))


@settings(max_examples=300, deadline=None)
@given(cases())
def test_early_attempts_change_nothing_but_when_it_is_decided(
    case: tuple[Workflow, dict[str, str], dict[str, int], int, int],
) -> None:
    """Statuses, verdict and executions are those of the reference interpreter, and no step runs before its needs."""
    workflow, fate, retries, parallel, early = case

    def outcome(step: str, attempt: int) -> Outcome:
        word = fate.get(step, "ok")
        return OK if word == "ok" or (word == "flaky" and attempt > 1) else failed()

    world = Early(workflow, outcome, parallel=parallel, early=early).run()
    statuses, verdict, executions = expected(workflow, fate, retries)
    assert world.statuses() == {**statuses, "end": "completed"}
    assert world.ended == verdict
    assert sorted(world.executed[:-1]) == executions
    last = {name: place for place, name in enumerate(world.executed)}
    for step in workflow.steps:
        if step.name in world.executed:
            assert all(last[need.any_of[0]] < world.executed.index(step.name) for need in step.needs)
    assert world.replayed() == world.state
