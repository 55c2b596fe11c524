"""How much room a job takes: no more when it is over than while it waited."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from resile.core.events import AttemptEnded, Capacity, RunStarted
from resile.core.react import react
from resile.core.state import ROOT, State, encode, new_state
from resile.model.failure import Outcome, Usage
from resile.model.workflow import Need, Noop, Shell, Step, Workflow

STEPS = 6_000
FIRST = 1_000
BYTES_MAX = 8.0
"""One number that stays for each job would be 24."""


def workflow(*, chain: bool) -> Workflow:
    """Many steps, each by itself or each after the one before."""
    needs = [(Need((f"s{number - 1}",)),) if chain and number else () for number in range(STEPS)]
    steps = tuple(Step(name=f"s{number}", action=Shell("true"), needs=needs[number]) for number in range(STEPS))
    end = Step(name="end", action=Noop())
    return Workflow(name="w", dialect="native", file="", folder="", steps=steps, end=end)


def finish(state: State, first: int, last: int) -> None:
    """The attempts of these jobs succeed, one after the other."""
    for number in range(first, last):
        usage = Usage(0.25, 0.125, 1 << 20)
        at, pid = 1_700_000_000.5 + number, 100_000 + number
        react(state, AttemptEnded(at, number + 1, 1, Outcome(0, None, usage), pid=pid))
        state.touched.clear()


@pytest.mark.parametrize("chain", [False, True])
def test_a_finished_job_takes_no_more_room(chain: bool) -> None:
    """Memory does not grow with the jobs that are over, nor does a snapshot by more than a few bytes for each."""
    state = new_state(workflow(chain=chain))
    react(state, RunStarted(1.5, Capacity(2, 64)))
    state.touched.clear()
    tracemalloc.start()
    try:
        finish(state, 0, FIRST)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        finish(state, FIRST, STEPS - 1)
        gc.collect()
        growth = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert growth / (STEPS - 1 - FIRST) < BYTES_MAX
    assert state.phase == "running"
    times = state.times(state.jobs[7])
    assert times == (1_700_000_000.5 + 6 - 0.25, 1_700_000_000.5 + 6)
    assert len(encode(state)) < 100 * STEPS


def test_values_are_added_to_those_there_are() -> None:
    """A result does not copy all others: a run of many steps with results would take for ever."""
    state = new_state(workflow(chain=False))
    react(state, RunStarted(1.5, Capacity(2, 64)))
    values = state.scopes[ROOT].values
    react(state, AttemptEnded(2.5, 1, 1, Outcome(0, values={"s0": 7})))
    assert state.scopes[ROOT].values is values
    assert values == {"s0": 7}
