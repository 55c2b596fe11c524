"""Random graphs with random outcomes against the reference interpreter; replay and order of `end`."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from resile.model.failure import Outcome
from resile.model.workflow import Condition, Need, Noop, Resources, Rule, Step, Workflow
from tests.core.reference import expected
from tests.core.world import OK, World, failed, flow

FATES = ("ok", "ok", "ok", "fail", "flaky", "tolerated", "false")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workflow, dict[str, str], dict[str, int], int]:
    """A graph of up to 30 steps, a fate and a number of retries for each, and a number of slots."""
    count = draw(st.integers(1, 30))
    fate: dict[str, str] = {}
    retries: dict[str, int] = {}
    steps: list[Step] = []
    for number in range(count):
        name = f"s{number}"
        fate[name] = draw(st.sampled_from(FATES))
        retries[name] = draw(st.integers(0, 2))
        needs: list[Need] = []
        for _ in range(draw(st.integers(0, 3)) if number else 0):
            members = draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=3, unique=True))
            needs.append(Need(tuple(f"s{member}" for member in members), draw(st.booleans()), draw(st.booleans())))
        rules = [Rule(then="retry", text="retry", limit=retries[name])] if retries[name] else []
        rules += [Rule(then="tolerate", text="tolerate")] if fate[name] == "tolerated" else []
        steps.append(
            Step(
                name=name,
                action=Noop(),
                needs=tuple(needs),
                rules=tuple(rules),
                when=Condition("x") if fate[name] == "false" or draw(st.booleans()) else None,
                resources=draw(st.sampled_from([None, None, Resources(cpus=2), Resources(gpus=1, memory_bytes=600)])),
            )
        )
    return flow(*steps), fate, retries, draw(st.integers(1, 5))


def _world(case: tuple[Workflow, dict[str, str], dict[str, int], int]) -> World:
    """The world in which this case plays."""
    workflow, fate, _, parallel = case

    def outcome(step: str, attempt: int) -> Outcome:
        word = fate.get(step, "ok")
        return OK if word == "ok" or (word == "flaky" and attempt > 1) else failed()

    return World(workflow, outcome, lambda step: fate.get(step) != "false", parallel)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_a_run_comes_to_what_the_reference_says(case: tuple[Workflow, dict[str, str], dict[str, int], int]) -> None:
    """Statuses, verdict and executions equal the reference interpreter's."""
    world = _world(case).run()
    statuses, verdict, executions = expected(*case[:3])
    assert world.statuses() == {**statuses, "end": "completed"}
    assert world.ended == verdict
    assert sorted(world.executed[:-1]) == executions


@settings(max_examples=200, deadline=None)
@given(cases())
def test_end_runs_exactly_once_and_last(case: tuple[Workflow, dict[str, str], dict[str, int], int]) -> None:
    """Every run ends, `end` runs once, and only the closing pair follows it."""
    world = _world(case).run()
    assert [name for name in world.executed if name == "end"] == ["end"]
    assert world.executed[-1] == "end"
    last = world.types()[-7:]
    pair = [f"workflow_{world.ended}", f"playbook_{world.ended}"]
    assert last == ["step_started", "attempt_started", "attempt_succeeded", "step.exit", "step_completed", *pair]
    numbers = [note.seq for note in world.notes]
    assert numbers == sorted(set(numbers))


@settings(max_examples=100, deadline=None)
@given(cases())
def test_the_same_log_folds_to_the_same_state(case: tuple[Workflow, dict[str, str], dict[str, int], int]) -> None:
    """Replaying a log, through a snapshot taken in the middle, gives the very same state."""
    world = _world(case).run()
    assert world.replayed() == world.state
