"""Every rung: handlers, remediation, goto, parking and judging, success actions, budgets, escalation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resile.core.actions import KillAttempt, SetTimer, StartAttempt
from resile.core.events import AttemptEnded, AttemptStarted, Judged, RouteAnswered, RunResumed, TimerFired
from resile.model.failure import Outcome
from resile.model.rules import Escalation, Match, Transition
from resile.model.workflow import Need, Noop, Repair, Resources, Rule, Step, SuccessActions
from tests.core.scheduling.test_dependencies import step
from tests.core.world import OK, World, failed, flow


def commands(*names: str, **keys: object) -> Repair:
    """A repair of commands that run one after the other."""
    steps = [
        Step(name=name, action=Noop(), needs=((Need((names[n - 1],), True),) if n else ()))
        for n, name in enumerate(names)
    ]
    return Repair(steps=tuple(steps), **keys)  # type: ignore[arg-type]


def failing(**times: int) -> Callable[[str, int], Outcome]:
    """Each of these steps fails its first so many executions; -1 is always."""
    left = dict(times)

    def outcome(name: str, _attempt: int) -> Outcome:
        if left.get(name, 0) == 0:
            return OK
        left[name] -= 1
        return failed(7)

    return outcome


HANDLER = Rule(then="recovered", text="on_failure", repair=commands("h1", "h2"))
TOLERATE = Rule(then="tolerate", text="handler tolerates")
FIX = Step(name="fix", action=Noop(), called_only=True)
REMEDY = Rule(then="retry", text="run", cost=1, repair=Repair(calls=("fix",), on_failure="fail"))
GOTO = Rule(then="goto", text="goto s", target="s", limit=100, cost=1)


def test_a_handler_that_passes_recovers_the_step() -> None:
    """Its commands run in order, the original is not run again, dependents go on."""
    world = World(flow(step("a", rules=(HANDLER, TOLERATE)), step("b", "a")), failing(a=-1)).run()
    assert (world.executed, world.ended) == (["a", "h1", "h2", "b", "end"], "completed")
    assert world.types("a") == [
        "step_started",
        "attempt_started",
        "attempt_failed",
        "repair_started",
        "repair_finished",
        "step.exit",
        "step_recovered",
    ]
    assert world.state.jobs[1].recovered


def test_a_handler_that_fails_leaves_the_failure_to_the_rules_below() -> None:
    """The step is failed; the last rule tolerates it."""
    world = World(flow(step("a", rules=(HANDLER, TOLERATE)), step("b", "a")), failing(a=-1, h1=-1)).run()
    assert (world.executed, world.ended) == (["a", "h1", "b", "end"], "completed")
    assert world.statuses()["a"] == "failed"
    assert not world.state.jobs[1].recovered


def test_a_handler_with_re_runs_goes_a_h_a_h_a() -> None:
    """The last thing that runs is never a useless repair."""
    rule = Rule(then="retry", text="max_attempts 3", limit=2, repair=commands("h"))
    world = World(flow(step("a", rules=(rule,))), failing(a=-1)).run()
    assert (world.executed, world.ended) == (["a", "h", "a", "h", "a", "end"], "failed")


def test_a_re_run_that_passes_after_a_repair_is_recovered() -> None:
    """A plain retry is not, a repaired one is."""
    rule = Rule(then="retry", text="max_attempts 3", limit=2, repair=commands("h"))
    world = World(flow(step("a", rules=(rule,))), failing(a=1)).run()
    assert (world.executed, world.types("a")[-1]) == (["a", "h", "a", "end"], "step_recovered")


def test_a_recovery_script_that_fails_does_not_matter() -> None:
    """The retry was reserved before it; it happens all the same."""
    rule = Rule(then="retry", text="rule", limit=3, repair=commands("script", on_failure="ignore"))
    world = World(flow(step("a", rules=(rule,))), failing(a=1, script=-1)).run()
    assert (world.executed, world.ended) == (["a", "script", "a", "end"], "completed")


def test_specific_codes_are_answered_by_their_own_rule() -> None:
    """Each rule has its own budget; a code that no rule lists ends the walk."""
    rules = (
        Rule(then="retry", text="r10", limit=1, match=Match(codes=(10,)), repair=commands("s10")),
        Rule(then="retry", text="r11", limit=1, match=Match(codes=(11,)), repair=commands("s11")),
    )
    codes = iter([10, 11, 10])
    world = World(flow(step("a", rules=rules)), lambda name, _: failed(next(codes)) if name == "a" else OK).run()
    assert (world.executed, world.ended) == (["a", "s10", "a", "s11", "a", "end"], "failed")


def test_the_attempt_number_is_raised_when_the_retry_is_reserved() -> None:
    """While the repair runs the job is recovering, under its next number, and nobody can start it."""
    rule = Rule(then="retry", text="rule", repair=commands("h"))
    world = World(flow(step("a", rules=(rule,))), failing(a=1)).start()
    world.perform()
    job = world.state.jobs[1]
    assert (job.status.name, job.attempt, job.error and job.error.attempt) == ("recovering", 2, 1)
    assert [world.name(order.job) for order in world.orders if isinstance(order, StartAttempt)] == ["h"]


def test_fallback_takes_the_handlers_output() -> None:
    """The step completed, and its output is that of the handler's last command."""
    rule = Rule(then="fallback", text="fallback", repair=commands("h1", "h2"))
    world = World(flow(step("a", rules=(rule,)), step("b", "a")), failing(a=-1)).run()
    assert world.ended == "completed"
    assert world.name(world.state.jobs[1].output_job) == "h2"


def test_a_handler_that_runs_out_of_time_is_killed_and_has_failed() -> None:
    """The time is for the whole handler; the walk goes on below."""
    rule = Rule(then="recovered", text="h", repair=commands("h1", "h2", timeout_seconds=5.0))
    world = World(flow(step("a", rules=(rule, TOLERATE))), failing(a=-1)).start()
    world.perform()
    timer, start = world.orders
    assert isinstance(timer, SetTimer)
    assert (timer.repair, timer.due) == (True, 6.0)
    world.feed(AttemptStarted(2.0, start.job, start.attempt))  # type: ignore[union-attr]
    world.orders.clear()
    (kill,) = world.feed(TimerFired(6.0, 1, timer.attempt, repair=True))
    assert isinstance(kill, KillAttempt)
    world.orders.clear()
    world.feed(AttemptEnded(7.0, kill.job, kill.attempt, failed(143), canceled=True))
    assert world.statuses()["a"] == "failed"
    assert world.state.jobs[1].tolerated


def test_a_handler_that_runs_out_of_time_never_starts_what_it_reserved() -> None:
    """A command that is reserved but has not started when the time is up is taken back, like one that runs."""
    rule = Rule(then="recovered", text="h", repair=commands("h1", timeout_seconds=5.0))
    world = World(flow(step("a", rules=(rule, TOLERATE))), failing(a=-1)).start()
    world.perform()
    timer, start = world.orders
    assert isinstance(start, StartAttempt)
    assert world.state.jobs[start.job].status.name == "pending"
    world.orders.clear()
    (kill,) = world.feed(TimerFired(6.0, 1, timer.attempt, repair=True))  # type: ignore[union-attr]
    assert isinstance(kill, KillAttempt)
    assert (kill.job, kill.attempt) == (start.job, start.attempt)
    world.orders.clear()
    world.feed(AttemptEnded(7.0, kill.job, kill.attempt, failed(143), canceled=True))
    assert (world.statuses()["a"], world.state.jobs[1].tolerated) == ("failed", True)


def test_nested_handlers_have_scopes_of_their_own() -> None:
    """A command of a handler is repaired by its own handler; it passes, and so does the outer one."""
    inner = Step(name="h", action=Noop(), rules=(Rule(then="retry", text="inner", repair=commands("hh")),))
    rule = Rule(then="recovered", text="outer", repair=Repair(steps=(inner,)))
    world = World(flow(step("a", rules=(rule,))), failing(a=-1, h=1)).run()
    assert (world.executed, world.ended) == (["a", "h", "hh", "h", "end"], "completed")
    assert [scope.name for scope in world.state.scopes.values()] == [
        "root",
        "a.on_failure",
        "a.on_failure/h.on_failure",
    ]


def test_remediation_steps_run_in_order_and_the_step_once_more() -> None:
    """B6, B10, B12: `run` without `retry` gives one re-attempt."""
    two = Rule(then="retry", text="run", cost=1, repair=Repair(calls=("f1", "f2"), on_failure="fail"))
    others = [Step(name=name, action=Noop(), called_only=True) for name in ("f1", "f2")]
    world = World(flow(step("a", rules=(two,)), step("b", "a"), *others), failing(a=1)).run()
    assert (world.executed, world.ended) == (["a", "f1", "f2", "a", "b", "end"], "completed")
    world = World(flow(step("a", rules=(two,)), step("b", "a"), *others), failing(a=-1)).run()
    assert (world.executed, world.ended) == (["a", "f1", "f2", "a", "end"], "failed")


def test_a_remediation_that_fails_stops_the_climb() -> None:
    """B9: goto is not taken, and the message names the step."""
    world = World(flow(step("s"), step("a", "s", rules=(REMEDY, GOTO)), FIX), failing(a=-1, fix=-1)).run()
    assert (world.executed, world.ended) == (["s", "a", "fix", "end"], "failed")
    note = next(note for note in world.notes if note.type == "step_failed" and note.step == "a")
    assert note.data["message"] == "remediation step 'fix' failed"


def test_two_steps_may_call_the_same_remedy() -> None:
    """Each call is an execution of its own."""
    world = World(
        flow(step("a", rules=(REMEDY,)), step("b", rules=(REMEDY,)), FIX), failing(a=1, b=1), parallel=2
    ).run()
    assert sorted(world.executed) == ["a", "a", "b", "b", "end", "fix", "fix"]
    assert world.ended == "completed"


def test_goto_re_runs_the_target_and_what_had_begun() -> None:
    """B13: the failed step runs again, a finished sibling below the target too, an unrelated step once."""
    world = World(
        flow(step("s"), step("a", "s", rules=(GOTO,)), step("b", "a"), step("side", "s"), step("indep")), failing(a=1)
    ).run()
    assert world.ended == "completed"
    counted = {name: world.executed.count(name) for name in ("s", "a", "b", "side", "indep")}
    assert counted == {"s": 2, "a": 2, "b": 1, "side": 1, "indep": 1}


def test_goto_two_levels_up_and_to_the_middle() -> None:
    """B14."""
    chain = (step("s"), step("m", "s"))
    world = World(flow(*chain, step("a", "m", rules=(GOTO,)), step("z", "a")), failing(a=1)).run()
    assert world.executed == ["s", "m", "a", "s", "m", "a", "z", "end"]
    middle = Rule(then="goto", text="goto m", target="m", limit=100, cost=1)
    world = World(flow(*chain, step("a", "m", rules=(middle,)), step("z", "a")), failing(a=1)).run()
    assert world.executed == ["s", "m", "a", "m", "a", "z", "end"]


def test_a_goto_never_drops_unrelated_pending_work() -> None:
    """B34."""
    chain = [step("x1")] + [step(f"x{n}", f"x{n - 1}") for n in (2, 3, 4)]
    world = World(flow(step("s"), step("a", "s", rules=(GOTO,)), *chain), failing(a=1)).run()
    assert {"x1", "x2", "x3", "x4"} <= set(world.executed)
    assert (world.executed.count("s"), world.executed.count("a"), world.ended) == (2, 2, "completed")


def test_a_goto_loop_ends_with_the_budget() -> None:
    """B20: eleven passes with the default budget, then the scope fails with the exact message."""
    world = World(flow(step("s"), step("a", "s", rules=(GOTO,)), step("b", "a")), failing(a=-1)).run()
    assert (world.executed.count("s"), world.executed.count("a"), world.ended) == (11, 11, "failed")
    note = next(note for note in world.notes if note.type == "loop_budget_exceeded")
    assert note.data["message"] == "Routing loop budget exceeded (max_loops=10) during on_failure goto"
    assert world.statuses()["b"] == "canceled"


def test_two_siblings_going_back_to_one_step_count_twice() -> None:
    """B35: a running dependent finishes, its result is dropped, and it runs again after the target."""
    world = World(
        flow(step("s"), step("a", "s", rules=(GOTO,)), step("b", "s", rules=(GOTO,)), step("c", "a", "b")),
        failing(a=1, b=1),
        parallel=2,
    ).run()
    assert world.ended == "completed"
    assert world.executed.count("c") == 1
    assert world.state.scopes[1].loops in (1, 2)


def test_a_running_dependent_of_a_goto_target_is_dropped_and_runs_again() -> None:
    """Its late success does not count."""
    world = World(flow(step("s"), step("a", "s", rules=(GOTO,)), step("b", "s")), parallel=2).start()
    world.perform()
    world.orders.clear()
    world.feed(AttemptStarted(2.0, 3, 1))
    world.feed(AttemptStarted(2.0, 2, 1))
    world.feed(AttemptEnded(3.0, 2, 1, failed()))
    world.feed(AttemptEnded(3.5, 3, 1, OK))
    assert world.statuses()["b"] == "blocked"
    while world.orders:
        world.perform()
    assert (world.ended, world.executed) == ("completed", ["s", "s", "a", "b", "end"])


def test_retries_come_before_goto_and_are_not_refilled() -> None:
    """B23: a a a, then goto, and from then on no more retries."""
    rules = (Rule(then="retry", text="retry 2", limit=2), GOTO)
    world = World(flow(step("s"), step("a", "s", rules=rules), loops_max=2), failing(a=-1)).run()
    assert world.executed == ["s", "a", "a", "a", "s", "a", "s", "a", "end"]


def test_code_may_choose_the_remedies() -> None:
    """B11: static ones first, then the code's, each once; a list that is empty leaves the failure to the next rule."""
    rule = Rule(then="retry", text="run_js", cost=1, repair=Repair(calls=("f1", "f2"), calls_js="x", on_failure="fail"))
    others = [Step(name=name, action=Noop(), called_only=True) for name in ("f1", "f2", "f3")]
    answer = RouteAnswered(0, 0, "calls", calls=("f2", "f3", "f3"))
    world = World(flow(step("a", rules=(rule,)), *others), failing(a=1), route=lambda *_: answer).run()
    assert world.executed == ["a", "f1", "f2", "f3", "a", "end"]
    empty = Rule(then="retry", text="run_js", cost=1, repair=Repair(calls_js="x", on_failure="fail"))
    world = World(
        flow(step("a", rules=(empty, TOLERATE))), failing(a=-1), route=lambda *_: RouteAnswered(0, 0, "calls", calls=())
    ).run()
    assert (world.executed, world.ended) == (["a", "end"], "completed")


def test_code_may_choose_where_to_go() -> None:
    """B19, B27, B28: a valid answer overrides the static target; anything else falls back to it and is recorded."""
    rule = Rule(then="goto", text="goto_js", target="s", target_js="x", limit=100, cost=1)
    graph = (step("s"), step("m", "s"), step("a", "m", rules=(rule,)))
    good = RouteAnswered(0, 0, "target", target="m")
    assert World(flow(*graph), failing(a=1), route=lambda *_: good).run().executed == ["s", "m", "a", "m", "a", "end"]
    threw = RouteAnswered(0, 0, "target", problems=("it threw",))
    beside = RouteAnswered(0, 0, "target", target="b")
    for bad, problem in ((threw, "it threw"), (beside, "goto_js: 'b' is no ancestor of this step")):
        world = World(flow(*graph, step("b")), failing(a=1), route=lambda *_, bad=bad: bad).run()
        assert [name for name in world.executed if name != "b"] == ["s", "m", "a", "s", "m", "a", "end"]
        assert [note.data["problem"] for note in world.notes if note.type == "expression_rejected"] == [problem]


def test_a_transition_may_stop_the_climb_short_of_goto() -> None:
    """B40: an explicit stop leaves the failure to the rules below."""
    rule = Rule(then="goto", text="t", target="s", transitions=(Transition("x", None),), limit=100, cost=1)
    world = World(
        flow(step("s"), step("a", "s", rules=(rule,))),
        failing(a=-1),
        route=lambda *_: RouteAnswered(0, 0, "target", stop=True),
    ).run()
    assert (world.executed, world.ended) == (["s", "a", "end"], "failed")


def test_what_follows_a_success_runs_before_the_step_is_done() -> None:
    """Its own steps, then named ones; a failure there fails the step without walking its rules."""
    actions = SuccessActions(steps=commands("n1").steps, calls=("fix",))
    graph = (step("a", on_success=actions, rules=(TOLERATE,)), step("b", "a"), FIX)
    world = World(flow(*graph)).run()
    assert (world.executed, world.ended) == (["a", "n1", "fix", "b", "end"], "completed")
    world = World(flow(*graph), failing(n1=-1)).run()
    assert (world.executed, world.ended) == (["a", "n1", "end"], "failed")
    assert world.statuses()["b"] == "canceled"


def test_a_goto_after_success_runs_into_the_budget() -> None:
    """B24: the asking step fails, what needs it never runs."""
    actions = SuccessActions(target="a", cost=1)
    world = World(flow(step("a"), step("b", "a", on_success=actions), step("c", "b"), loops_max=4)).run()
    assert (world.executed.count("a"), world.executed.count("b"), world.ended) == (5, 5, "failed")
    assert world.statuses()["c"] == "canceled"
    note = next(note for note in world.notes if note.type == "loop_budget_exceeded")
    assert note.data["message"] == "Routing loop budget exceeded (max_loops=4) during on_success goto"


def test_on_success_runs_first_and_then_goes() -> None:
    """B25: run, then the code says where to go, twice."""
    answers = iter(["a", "a", ""])
    actions = SuccessActions(calls=("n",), target_js="x", cost=1)
    world = World(
        flow(step("a"), step("b", "a", on_success=actions), Step(name="n", action=Noop(), called_only=True)),
        route=lambda *_: RouteAnswered(0, 0, "target", target=next(answers)),
    ).run()
    assert world.executed == ["a", "b", "n"] * 3 + ["end"]


PARK = Rule(then="park", text="park")


def test_a_parked_failure_may_be_judged() -> None:
    """Retry runs it again, skip lets dependents run, fail cancels them; each is noted with who and why."""
    for verdict, executed, ended in (
        ("retry", ["a", "a", "b", "end"], "completed"),
        ("skip", ["a", "b", "end"], "completed"),
        ("fail", ["a", "end"], "failed"),
    ):
        world = World(flow(step("a", rules=(PARK,)), step("b", "a")), failing(a=1)).run()
        assert world.ended == "parked"
        world.feed(Judged(9.0, 1, verdict, "me", "because"))  # type: ignore[arg-type]
        while world.orders:
            world.perform()
        assert (world.executed, world.ended) == (executed, ended)
        note = next(note for note in world.notes if note.type == "step_judged")
        assert (note.data["verdict"], note.data["by"], note.data["reason"]) == (verdict, "me", "because")


def test_the_event_of_a_judgement_says_what_was_granted() -> None:
    """Memory and time that a judge grants are in the log, and nothing where the judge grants none."""
    world = World(flow(step("a", rules=(PARK,))), failing(a=2)).run()
    world.feed(Judged(9.0, 1, "retry", "me", memory_bytes=5, runtime_seconds=7.5))
    while world.orders:
        world.perform()
    world.feed(Judged(19.0, 1, "retry", "me"))
    granted = [
        {name: note.data[name] for name in ("memory_bytes", "runtime_seconds") if name in note.data}
        for note in world.notes
        if note.type == "step_judged"
    ]
    assert granted == [{"memory_bytes": 5, "runtime_seconds": 7.5}, {}]


def test_a_judgement_spends_no_rule_and_frees_none() -> None:
    """A judge can be asked again, and the retries that were spent before stay so; each of them began at once."""
    world = World(flow(step("a", rules=(Rule(then="retry", text="retry", limit=1), PARK))), failing(a=-1)).run()
    assert (world.executed, world.ended) == (["a", "a"], "parked")
    world.ended = None
    world.feed(Judged(9.0, 1, "retry", "me", "because"))
    while world.orders:
        world.perform()
    assert (world.executed, world.ended) == (["a", "a", "a"], "parked")
    assert [note.data["delay_seconds"] for note in world.notes if note.type == "retry_scheduled"] == [0.0]


@pytest.mark.parametrize(("reason", "message"), [("because", "because"), ("", "judged a failure")])
def test_a_failure_that_is_judged_one_says_why(reason: str, message: str) -> None:
    """The judge's reason is the message of the step, where there is one."""
    world = World(flow(step("a", rules=(PARK,))), failing(a=1)).run()
    world.feed(Judged(9.0, 1, "fail", "me", reason))
    assert [note.data["message"] for note in world.notes if note.type == "step_failed"] == [message]


def test_resources_escalate_up_to_their_ceiling() -> None:
    """Memory grows by half after each oom, monotone, and the rule is spent at the ceiling."""
    rule = Rule(
        then="retry", text="escalate", limit=5, match=Match(kinds=("oom", "timeout")), change=Escalation(1.5, 250)
    )
    world = World(
        flow(step("a", resources=Resources(memory_bytes=100), rules=(rule,))),
        lambda name, _: failed(137, "oom") if name == "a" else OK,
    ).start()
    asked = []
    while world.orders:
        asked.append(world.state.jobs[1].memory_bytes)
        world.perform()
    assert sorted(set(asked)) == [0, 150, 225, 250]
    assert world.executed.count("a") == 4


def test_a_crash_in_a_repair_resumes_the_repair_and_not_the_job() -> None:
    """The resumed engine looks for the handler's command only."""
    rule = Rule(then="retry", text="rule", repair=commands("h"))
    world = World(flow(step("a", rules=(rule,))), failing(a=1)).start()
    world.perform()
    world.orders.clear()
    world.feed(RunResumed(9.0, world.capacity))
    assert [(type(order).__name__, world.name(order.job)) for order in world.orders] == [("FindAttempt", "h")]  # type: ignore[union-attr]


def test_steps_that_call_for_each_other_do_not_wait_for_ever() -> None:
    """The second call is refused, so the remedy fails and with it the climb."""

    def calling(name: str) -> Rule:
        return Rule(then="retry", text="run", cost=1, repair=Repair(calls=(name,), on_failure="fail"))

    fix = Step(name="fix", action=Noop(), called_only=True, rules=(calling("a"),))
    world = World(flow(step("a", rules=(calling("fix"),)), fix), failing(a=-1, fix=-1)).run()
    assert (world.executed, world.ended) == (["a", "fix", "end"], "failed")
    note = next(note for note in world.notes if note.type == "step_failed" and note.step == "fix")
    assert note.data["message"] == "remediation step 'a' waits for the step that calls it"


def test_a_dropped_result_whose_need_has_failed_meanwhile_cancels_what_comes_after_it() -> None:
    """A dependent was busy when the goto came, and its need fails before it is done: it and its own are canceled."""
    calls = SuccessActions(calls=("fix",))
    graph = (step("s"), step("a", "s", rules=(GOTO,)), step("b", "s", on_success=calls), step("c", "b"), FIX)
    world = World(flow(*graph, loops_max=1), parallel=2).start()
    world.perform()
    world.orders.clear()
    world.feed(AttemptStarted(2.0, 2, 1))
    world.feed(AttemptStarted(2.0, 3, 1))
    (fix,) = (order for order in world.feed(AttemptEnded(2.5, 3, 1, OK)) if isinstance(order, StartAttempt))
    world.feed(AttemptEnded(3.0, 2, 1, failed()))
    world.feed(AttemptStarted(3.1, fix.job, fix.attempt))
    world.feed(AttemptStarted(3.1, 1, 2))
    world.feed(AttemptEnded(3.2, 1, 2, failed()))
    world.orders.clear()
    world.feed(AttemptEnded(3.3, fix.job, fix.attempt, OK))
    assert world.statuses() == {
        "s": "failed",
        "a": "canceled",
        "b": "canceled",
        "c": "canceled",
        "fix": "completed",
        "end": "pending",
    }
    assert world.state.jobs[4].cause is not None
    assert world.state.jobs[4].cause.step == "s"


def routes(world: World) -> list[tuple[str, str, str | None]]:
    """What the summary says was decided about failures: step, action, target."""
    return [(route.step, route.action, route.target) for route in world.state.routes]


def test_the_summary_has_each_decision_once() -> None:
    """A retry counts when it is decided, and a repair that decides the outcome when it is over."""
    retry = Rule(then="retry", text="retry", limit=2)
    world = World(flow(step("a", rules=(retry, TOLERATE))), failing(a=-1)).run()
    assert routes(world) == [("a", "retry", None), ("a", "retry", None), ("a", "tolerate", None)]
    world = World(flow(step("a", rules=(HANDLER, TOLERATE))), failing(a=-1)).run()
    assert routes(world) == [("a", "recovered", None)]
    graph = (step("s"), step("a", "s", rules=(GOTO,)))
    world = World(flow(*graph), failing(a=1)).run()
    assert routes(world) == [("a", "goto", "s")]
    assert [note.data["target"] for note in world.notes if note.type == "route_taken"] == ["s"]


def test_a_budget_that_is_spent_names_what_it_refused() -> None:
    """A remedy is a `run`, a retry without one a `retry`; the rule counts as fired no more than it was."""
    for rule, word in ((REMEDY, "run"), (Rule(then="retry", text="again", cost=1, limit=100), "retry")):
        world = World(flow(step("a", rules=(rule,)), FIX, loops_max=0), failing(a=-1)).run()
        (note,) = [note for note in world.notes if note.type == "loop_budget_exceeded"]
        assert note.data["message"] == f"Routing loop budget exceeded (max_loops=0) during on_failure {word}"
        assert not world.state.jobs[1].fired
        assert world.executed[0] == "a"
        assert "fix" not in world.executed


def test_a_settled_job_keeps_no_numbers_of_its_queue() -> None:
    """Snapshots stay small: a completed job of the run itself has zeros, a failed one says what came before it."""
    world = World(flow(step("a"), step("b", "a"), step("c")), failing(c=-1)).run()
    done, failing_one = world.state.jobs[1], world.state.jobs[3]
    assert (done.queue_number, done.because, done.last_event_seq) == (0, 0, 0)
    assert failing_one.queue_number > 0
    assert failing_one.last_event_seq > 0
