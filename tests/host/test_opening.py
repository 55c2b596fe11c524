"""How a host begins to drive a run: what its requests are answered before an engine is there, and what it may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from resile.core.events import Capacity, EpochStarted, Event, Redriven, RetryRequested, RunResumed, RunStarted
from resile.core.state import State, new_state
from resile.engine.clock import Clock
from resile.engine.host.opening import Opening, capacity_of, open_run
from resile.engine.neighbours.requests import Result
from resile.engine.session import caller
from resile.errors import ResileError
from resile.model.workflow import Shell, Step
from resile.store.contract import Request, RunRow, Store
from resile.store.memory import MemoryStore
from tests.core.world import World, failed, flow
from tests.engine.simulated import HandClock

FLOW = flow(Step(name="a", action=Shell("true")))
MACHINE = Capacity(parallel=8, cpus=16.0, memory_bytes=1 << 30, gpus=2)
GIVEN = Capacity(parallel=3, cpus=2.0, memory_bytes=500, gpus=1)
STARTED = RunStarted(5.0, GIVEN)


def row_of(status: str = "running") -> RunRow:
    """The row of run 7."""
    first = msgspec.to_builtins(STARTED)
    return RunRow(
        id=7, workflow="t", dialect="native", definition="d", status=status, created_at=5.0, summary={"first": first}
    )


def begun() -> State:
    """A run whose step is on its way."""
    return World(FLOW).start().state


def ended() -> State:
    """A run whose step failed."""
    return World(FLOW, lambda _step, _attempt: failed()).run().state


def ask(kind: str, number: int = 1, **body: Any) -> Request:
    """A request to the run."""
    return Request(number, 7, 6.0, kind, {"by": "ann", **body})


def redrive(_store: Store, _row: RunRow, state: State, body: Mapping[str, Any], clock: Clock) -> tuple[Any, Result]:
    """A redrive that begins at once, with a resume from a machine that reserved early; or is refused."""
    if body.get("refuse"):
        raise ResileError("no-letters", "there are none", hint="look")
    events: list[Event] = [Redriven(clock.now(), "m", 1, "label", 1)] if state.phase == "ended" else []
    return [*events, RunResumed(clock.now(), Capacity(4, early=9))], {"ok": True, "items": 1}


def opened(state: State, *requests: Request, row: RunRow | None = None, redrives: bool = True) -> Opening:
    """How the run is opened with these requests."""
    chosen = row or row_of(state.phase)
    return open_run(MemoryStore(), chosen, state, list(requests), MACHINE, HandClock(), redrive if redrives else None)


def kinds(opening: Opening) -> list[type[Event]]:
    """The types of its first events."""
    return [type(event) for event in opening.events]


def test_a_run_that_never_began_starts() -> None:
    """It starts with what the call that made it was given, and leaves requests to the engine."""
    opening = opened(new_state(FLOW), ask("cancel"))
    (event,) = opening.events
    assert isinstance(event, RunStarted)
    assert (event.capacity, opening.capacity, opening.parallel) == (GIVEN, GIVEN, 3)
    assert ([one.id for one in opening.left], opening.results) == ([1], {})


def test_a_run_that_is_on_its_way_is_resumed() -> None:
    """Without a request the host resumes it itself; the first caller who asks for that is named, and may set limits."""
    (event,) = opened(begun()).events
    assert isinstance(event, RunResumed)
    assert (event.by, event.engine) == ("", caller())
    several = (ask("cancel", 1, by="bob"), ask("resume", 2, limits={"parallel": 5}), ask("resume", 3, by="eve"))
    opening = opened(begun(), *several)
    (event,) = opening.events
    assert isinstance(event, RunResumed)
    assert (event.by, event.capacity.parallel, event.capacity.gpus) == ("ann", 5, 2)
    assert (opening.parallel, [one.id for one in opening.left]) == (5, [1])
    assert opening.results == {2: {"ok": True}, 3: {"ok": True}}
    (event,) = opened(begun(), Request(1, 7, 6.0, "resume", {})).events
    assert isinstance(event, RunResumed)
    assert event.by == ""


def test_a_run_that_has_ended_stays_so() -> None:
    """Without a request there is nothing to drive; a cancel and a resume are refused."""
    opening = opened(ended())
    assert (opening.events, opening.results, opening.left) == ([], {}, [])
    opening = opened(ended(), ask("cancel", 1), ask("resume", 2), row=row_of("failed"))
    assert (opening.events, opening.left) == ([], [])
    error = {"code": "run-ended", "message": "run 7 has ended (failed)", "hint": "`resile rerun 7` runs it again"}
    assert opening.results == {1: {"error": error}, 2: {"error": error}}


def test_a_rerun_begins_the_next_epoch() -> None:
    """The first of two wins, with its limits, its inputs and its caller; the engine refuses the other."""
    first = ask("rerun", 1, failed_only=True, inputs={"x": 1}, limits={"parallel": 6})
    opening = opened(ended(), first, ask("rerun", 2))
    began, resumed = opening.events
    assert began == EpochStarted(began.at, True, "ann", {"x": 1})
    assert isinstance(resumed, RunResumed)
    assert (resumed.capacity.parallel, opening.parallel) == (6, 6)
    assert (opening.results, [one.id for one in opening.left]) == ({1: {"ok": True, "epoch": 2}}, [2])


def test_a_parked_run_may_be_rerun_and_a_running_one_not() -> None:
    """A rerun of a run that is being driven is left to the engine, which refuses it."""
    opening = opened(begun(), ask("rerun"), row=row_of("parked"))
    assert kinds(opening) == [EpochStarted, RunResumed]
    (began, _) = opening.events
    assert began == EpochStarted(began.at, False, "ann", None)
    opening = opened(begun(), ask("rerun"))
    assert (kinds(opening), [one.id for one in opening.left]) == ([RunResumed], [1])


def test_a_retry_of_a_run_that_has_ended_begins_it_again() -> None:
    """The first of two wins; one of a job that is not there changes nothing."""
    opening = opened(ended(), ask("retry", 1, job=1), ask("retry", 2, job=1))
    event, resumed = opening.events
    assert event == RetryRequested(event.at, 1, "ann", "", True)
    assert isinstance(resumed, RunResumed)
    assert opening.results == {1: {"ok": True, "job": 1, "step": "a", "attempt": 2}}
    assert [one.id for one in opening.left] == [2]
    opening = opened(ended(), ask("retry", job=9))
    assert (opening.events, opening.left) == ([], [])
    assert opening.results[1]["error"]["code"] == "job-not-found"


def test_a_redrive_begins_without_reserving_early() -> None:
    """Of two the first wins; its own resume counts, no other follows, and in a host nothing is reserved early."""
    opening = opened(ended(), ask("redrive", 1), ask("redrive", 2))
    redriven, resumed = opening.events
    assert redriven == Redriven(redriven.at, "m", 1, "label", 1)
    assert isinstance(resumed, RunResumed)
    assert (resumed.capacity.parallel, resumed.capacity.early) == (4, 0)
    assert (opening.results, [one.id for one in opening.left]) == ({1: {"ok": True, "items": 1}}, [2])
    going_on = begun()
    going_on.phase = "redriving"
    assert kinds(opened(going_on, ask("redrive"))) == [RunResumed]


def test_a_redrive_that_cannot_begin_is_refused() -> None:
    """The caller hears why; a host that can't redrive says that the run has ended, or leaves it to the engine."""
    opening = opened(ended(), ask("redrive", refuse=True))
    refused = {"error": {"code": "no-letters", "message": "there are none", "hint": "look"}}
    assert (opening.events, opening.results) == ([], {1: refused})
    opening = opened(ended(), ask("redrive"), redrives=False)
    assert opening.results[1]["error"]["code"] == "run-ended"
    opening = opened(begun(), ask("redrive"))
    assert (kinds(opening), [one.id for one in opening.left]) == ([RunResumed], [1])


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (GIVEN, GIVEN),
        (Capacity(parallel=4, cpus=1.0, memory_bytes=9, gpus=0, early=2), msgspec.structs.replace(MACHINE, parallel=4)),
        (None, GIVEN),
    ],
)
def test_a_run_may_use_what_its_last_engine_had(known: Capacity | None, expected: Capacity) -> None:
    """One that measured its own machine tells only the number of attempts; before the first the call says it."""
    state = new_state(FLOW)
    state.capacity = known
    assert capacity_of(row_of(), state, MACHINE) == expected


def test_after_a_reset_the_file_says_what_a_run_may_use() -> None:
    """A file that says nothing leaves it to the machine."""
    row = msgspec.structs.replace(row_of(), summary={})
    assert capacity_of(row, new_state(FLOW), MACHINE) == MACHINE
    narrow = new_state(flow(Step(name="a", action=Shell("true")), max_parallel=2))
    assert capacity_of(row, narrow, MACHINE) == msgspec.structs.replace(MACHINE, parallel=2)
