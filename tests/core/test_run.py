"""The run as a whole: retry, timers, tolerance, parking, loss, cancel, resume, epochs, `end` and the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from resile.core.actions import FindAttempt, SetTimer, StartAttempt, StopEngine
from resile.core.causal_history import causal_history
from resile.core.events import (
    AttemptAdopted,
    AttemptEnded,
    AttemptStarted,
    AttemptWithdrawn,
    CancelRequested,
    EpochStarted,
    Machine,
    RunResumed,
    RunStarted,
    TimerFired,
)
from resile.core.scheduling.finish import execution
from resile.core.state import decode, encode
from resile.model.failure import Outcome, Usage
from resile.model.rules import Backoff, Match
from resile.model.workflow import Noop, Rule, Shell, Step
from tests.core.scheduling.test_dependencies import step
from tests.core.world import OK, World, failed, flow

TWICE = Rule(then="retry", text="retry 2", limit=2)


def test_the_canonical_events_of_a_retried_step_are_in_order() -> None:
    """One step that fails once and passes writes exactly these events."""
    world = World(flow(step("a", rules=(TWICE,))), lambda name, n: failed() if name == "a" and n == 1 else OK).run()
    assert world.types("a") == [
        "step_started",
        "attempt_started",
        "attempt_failed",
        "retry_scheduled",
        "attempt_started",
        "attempt_succeeded",
        "step.exit",
        "step_completed",
    ]
    assert world.types()[:2] == ["playbook_started", "workflow_initialized"]
    assert world.types()[-2:] == ["workflow_completed", "playbook_completed"]


def test_the_start_of_each_attempt_names_its_process() -> None:
    """With the pid where there is a process, of the first attempt as of the next; and without where there is none."""
    world = World(flow(step("a", rules=(TWICE,)), step("b", "a"))).start()
    while not world.ended:
        if isinstance(order := world.orders[0], StartAttempt):
            pid = 70 + order.attempt if world.name(order.job) == "a" else 0
            world.feed(AttemptStarted(world.clock, order.job, order.attempt, pid))
            outcome = failed() if pid == 71 else OK
            world.feed(AttemptEnded(world.clock, order.job, order.attempt, outcome))
            world.orders.remove(order)
        else:
            world.perform()
    pids = [note.data for note in world.notes if note.type == "attempt_started" and note.step in ("a", "b")]
    assert pids == [{"pid": 71}, {"pid": 72}, {}]


def test_every_event_names_the_one_that_caused_it() -> None:
    """The event before it, in a run that does one thing after the other; a step names the end of the step it needs."""
    tolerate = Rule(then="tolerate", text="on_failure: true")
    graph = (step("a", rules=(TWICE,)), step("b", "a"), step("c", "a", rules=(tolerate,)))
    world = World(flow(*graph), lambda name, n: failed() if name == "c" or (name == "a" and n == 1) else OK).run()
    assert [note.seq for note in world.notes] == list(range(1, len(world.notes) + 1))
    others = [note for note in world.notes if note.because != note.seq - 1]
    assert [(note.type, note.step) for note in others] == [("step_started", "c")]
    assert world.notes[others[0].because - 1].type == "step_completed"
    assert world.notes[others[0].because - 1].step == "a"


def test_the_end_of_a_run_says_how_long_it_took_and_what_failed() -> None:
    """One second for each step and for `end`, whatever the clock said when the run began."""
    world = World(flow(step("a"), step("b")), lambda name, _: failed() if name == "b" else OK)
    world.clock = 1_000.0
    world.run()
    (ended,) = (note for note in world.notes if note.type == "playbook_failed")
    assert ended.data == {
        "evaluated_by_end_step": True,
        "total_steps": 2,
        "failed_steps_count": 1,
        "failed_steps": ["b"],
        "duration_ms": 3_000,
    }


def test_the_end_of_an_attempt_says_what_it_used() -> None:
    """In microseconds, as it was measured."""
    used = Outcome(0, usage=Usage(1.23456789, 0.12345678, 4_096))
    world = World(flow(step("a")), lambda *_: used).run()
    (ended,) = (note for note in world.notes if note.type == "attempt_succeeded" and note.step == "a")
    assert ended.data == {
        "exit_code": 0,
        "wall_seconds": 1.234568,
        "cpu_seconds": 0.123457,
        "rss_bytes_max": 4_096,
    }


def test_retries_are_counted_and_then_the_failure_stands() -> None:
    """Limit 2 means three executions in all; the route of each verdict is kept."""
    world = World(flow(step("a", rules=(TWICE,))), lambda name, _: failed() if name == "a" else OK).run()
    assert (world.executed, world.ended) == (["a", "a", "a", "end"], "failed")
    assert [(route.action, route.attempt) for route in world.state.routes] == [("retry", 1), ("retry", 2), ("fail", 3)]


def test_a_wait_sets_a_timer_and_holds_no_slot() -> None:
    """While a step waits for its backoff another one runs."""
    rule = Rule(then="retry", text="r", wait=Backoff("fixed", 5.0))
    world = World(flow(step("a", rules=(rule,)), step("b")), lambda _, n: failed() if n == 1 else OK).start()
    world.perform()
    assert world.statuses()["a"] == "recovering"
    timer, start = world.orders
    assert isinstance(timer, SetTimer)
    assert timer.due == 6.0
    assert world.name(start.job) == "b"  # type: ignore[union-attr]
    world.feed(TimerFired(6.0, 1, timer.attempt))
    assert world.statuses()["a"] in ("ready", "pending")


def test_failed_step_notes_its_way_to_end() -> None:
    """`step_failed` says that it was routed to `end` and which step failed; the closing pair carries the counts."""
    world = World(flow(step("a"), step("b", "a")), lambda name, _: failed(3) if name == "a" else OK).run()
    note = next(note for note in world.notes if note.type == "step_failed")
    assert (note.data["routed_to_end"], note.data["original_failed_step"]) == (True, "a")
    meta = world.notes[-1].data
    assert {key: meta[key] for key in meta if key != "duration_ms"} == {
        "evaluated_by_end_step": True,
        "total_steps": 2,
        "failed_steps_count": 1,
        "failed_steps": ["a"],
    }


def test_a_tolerated_failure_lets_dependents_run() -> None:
    """The step is failed and tolerated, the run completes."""
    tolerate = Rule(then="tolerate", text="on_failure: true")
    world = World(
        flow(step("a", rules=(tolerate,)), step("b", "a")), lambda name, _: failed() if name == "a" else OK
    ).run()
    assert (world.executed, world.ended) == (["a", "b", "end"], "completed")
    assert execution(world.state)["tolerated_steps"] == ["a"]


def test_a_rule_answers_only_what_it_matches() -> None:
    """Codes, kinds and signals must all hold."""
    rule = Rule(then="retry", text="r", limit=5, match=Match(codes=(10,), kinds=("exit",)))
    codes = iter([10, 10, 11])
    world = World(flow(step("a", rules=(rule,))), lambda name, _: failed(next(codes)) if name == "a" else OK).run()
    assert world.executed == ["a", "a", "a", "end"]


def test_a_parked_failure_blocks_dependents_and_rests_the_engine() -> None:
    """Nothing else can happen: the engine stops, the run has not ended, `end` has not run."""
    park = Rule(then="park", text="park")
    world = World(
        flow(step("a", rules=(park,)), step("b", "a"), step("c")), lambda name, _: OK if name == "c" else failed()
    )
    world.run()
    assert (world.ended, world.executed) == ("parked", ["a", "c"])
    assert world.statuses() == {"a": "pending_failed", "b": "blocked", "c": "completed", "end": "blocked"}


def test_lost_attempts_are_retried_three_times_and_then_parked() -> None:
    """Every step has this rule first, whatever its own rules say."""
    world = World(flow(step("a")), lambda name, _: failed(0, "lost") if name == "a" else OK).run()
    assert (world.executed, world.ended) == (["a"] * 4, "parked")


def test_rerun_on_loss_never_parks_at_the_first() -> None:
    """`on_loss: park` gives no second try."""
    world = World(flow(step("a", on_loss="park")), lambda name, _: failed(0, "lost") if name == "a" else OK).run()
    assert (world.executed, world.ended) == (["a"], "parked")


def test_cancel_stops_everything_but_end() -> None:
    """Not yet started is canceled, killed while running is terminated, and `end` still runs."""
    world = World(flow(step("a"), step("b", "a"), step("c"))).start()
    world.feed(AttemptStarted(1.0, 1, 1))
    world.orders.pop(0)
    world.feed(CancelRequested(2.0, "me", "why not"))
    while world.orders:
        world.perform()
    assert world.statuses() == {"a": "terminated", "b": "canceled", "c": "canceled", "end": "completed"}
    assert (world.ended, world.executed) == ("canceled", ["end"])
    assert world.types()[-2:] == ["workflow_canceled", "playbook_canceled"]


def test_an_attempt_that_never_started_costs_nothing() -> None:
    """A withdrawn reservation is ready again under the same attempt number, and for the same reason."""
    world = World(flow(step("a"))).start()
    reason = world.state.jobs[1].because
    assert reason
    world.orders.clear()
    world.feed(AttemptWithdrawn(1.0, 1, 1))
    order = world.orders[0]
    assert (order.job, order.attempt) == (1, 1)  # type: ignore[union-attr]
    assert world.state.jobs[1].because == reason


def test_an_interrupted_attempt_gets_a_new_number_but_spends_no_rule() -> None:
    """We killed it ourselves, so no rule is asked."""
    world = World(flow(step("a"))).start()
    world.feed(AttemptStarted(1.0, 1, 1))
    world.orders.clear()
    world.feed(AttemptWithdrawn(2.0, 1, 1, started=True))
    assert world.orders[0].attempt == 2  # type: ignore[union-attr]
    assert world.state.jobs[1].fired is None


def test_a_resumed_engine_asks_for_everything_that_is_owed() -> None:
    """Running and reserved attempts are looked for, waits are set again; an adopted one just goes on."""
    rule = Rule(then="retry", text="r", wait=Backoff("fixed", 50.0))
    world = World(flow(step("a", rules=(rule,)), step("b"), step("c")), lambda *_: failed(), parallel=2).start()
    world.perform()
    world.feed(AttemptStarted(1.5, 2, 1))
    world.orders.clear()
    world.feed(RunResumed(9.0, world.capacity))
    kinds = [(type(order), order.job) for order in world.orders]  # type: ignore[union-attr]
    assert kinds == [(SetTimer, 1), (FindAttempt, 2), (FindAttempt, 3)]
    world.feed(AttemptAdopted(9.1, 2, 1, 77))
    assert world.types("b")[-1] == "attempt_adopted"
    assert world.types("b").count("attempt_started") == 1


def test_an_adopted_attempt_whose_start_nobody_saw_began_when_it_did() -> None:
    """It started while no engine was there: its step began then, and was adopted later."""
    world = World(flow(step("a"))).start()
    world.orders.clear()
    world.feed(RunResumed(9.0, world.capacity))
    world.feed(AttemptAdopted(9.1, 1, 1, 77, 5.0))
    assert [(note.type, note.at) for note in world.notes if note.step == "a"] == [
        ("step_started", 5.0),
        ("attempt_started", 5.0),
        ("attempt_adopted", 9.1),
    ]
    assert world.state.times(world.state.jobs[1]) == (5.0, None)
    assert world.replayed() == world.state


def test_resuming_an_ended_run_only_stops_again() -> None:
    """Nothing follows the closing pair."""
    world = World(flow(step("a"))).run()
    before = len(world.notes)
    orders = world.feed(RunResumed(99.0, world.capacity))
    assert next(order.status for order in orders if isinstance(order, StopEngine)) == "completed"
    assert len(world.notes) == before


def test_a_rerun_of_failed_steps_keeps_what_completed() -> None:
    """The next epoch starts attempts and budgets anew and runs only what had not completed."""
    broken = True
    world = World(
        flow(step("a"), step("b", "a", rules=(TWICE,)), step("c", "b")),
        lambda name, _: failed() if name == "b" and broken else OK,
    ).run()
    broken = False
    world.executed.clear()
    world.ended = None
    world.feed(EpochStarted(50.0, failed_only=True))
    world.feed(RunResumed(51.0, world.capacity))
    while world.orders:
        world.perform()
    assert (world.executed, world.ended, world.state.epoch) == (["b", "c", "end"], "completed", 2)
    assert world.state.jobs[2].attempt == 1


def test_end_that_fails_fails_the_run() -> None:
    """It never hangs; the failed `end` is among the failed steps but not among the counted ones."""
    world = World(flow(step("a")), lambda name, _: failed() if name == "end" else OK).run()
    assert world.ended == "failed"
    assert (world.notes[-1].data["failed_steps"], world.notes[-1].data["total_steps"]) == (["end"], 1)


def test_an_explicit_end_may_override_the_verdict() -> None:
    """`workflow_status` in its output decides, for better or worse."""
    end = Step(name="end", action=Shell("x"))
    passed = Outcome(exit_code=0, values={"workflow_status": "completed"})
    world = World(flow(step("a"), end=end), lambda name, _: passed if name == "end" else failed()).run()
    assert world.ended == "completed"
    worse = Outcome(exit_code=0, values={"workflow_status": "failed"})
    world = World(flow(step("a"), end=end), lambda name, _: worse if name == "end" else OK).run()
    assert world.ended == "failed"


def test_remediation_only_steps_do_not_run_by_themselves() -> None:
    """A step that is only called for is in no count."""
    world = World(flow(step("a"), Step(name="fix", action=Noop(), called_only=True))).run()
    assert (world.executed, world.notes[-1].data["total_steps"]) == (["a", "end"], 1)


def test_a_story_tells_causes_first() -> None:
    """The story of a canceled step begins with the failure that caused it."""
    world = World(flow(step("a"), step("b", "a"), step("z")), lambda name, _: failed() if name == "a" else OK).run()
    told = [(note.type, note.step) for note in causal_history(world.notes, (2,))]
    assert told[0] == ("playbook_started", "")
    assert told[-2:] == [("step_failed", "a"), ("step_canceled", "b")]
    assert all(name != "z" for _, name in told)


def test_a_snapshot_holds_text_that_is_not_utf8_and_large_numbers() -> None:
    """A captured value may carry any bytes; the state survives its snapshot all the same."""
    for odd in ("a\udcffb", 1 << 70):
        outcome = Outcome(exit_code=0, values={"v": odd})
        world = World(flow(step("a"), step("b", "a")), lambda *_, outcome=outcome: outcome).run()
        assert decode(encode(world.state), world.state.workflow) == world.state


def test_an_end_that_is_lost_again_and_again_is_parked() -> None:
    """The engine rests and the run can be judged; it does not wait for ever."""
    world = World(flow(step("a")), lambda name, _: failed(0, "lost") if name == "end" else OK).run()
    assert (world.ended, world.executed, world.statuses()["end"]) == ("parked", ["a", *["end"] * 4], "pending_failed")


def test_the_state_keeps_the_machine_of_its_last_engine() -> None:
    """A resume that names no machine changes nothing, another boot replaces it, and a snapshot has it."""
    world = World(flow(step("a"), step("b", "a")))
    first, second = Machine("first", 10.0), Machine("second", 20.0)
    world.feed(RunResumed(2.0, world.capacity, machine=first))
    world.feed(RunResumed(3.0, world.capacity))
    assert world.state.machine == first
    world.feed(RunResumed(4.0, world.capacity, machine=second))
    assert world.state.machine == second
    assert decode(encode(world.state), world.state.workflow).machine == second


@pytest.mark.parametrize("value", [1, 1 << 80, -(1 << 70), "caf\u00e9", "\udce9", {"deep": ["\udcff", 1 << 64]}])
def test_a_snapshot_keeps_every_value(value: Any) -> None:
    """Also integers of more than 64 bits, and bytes that were no text."""
    workflow = flow(step("a"))
    world = World(workflow)
    world.feed(RunStarted(0.0, world.capacity, {"given": value}))
    assert decode(encode(world.state), workflow).inputs == {"given": value}
