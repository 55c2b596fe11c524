"""Random graphs whose steps carry random ladders, with random outcomes: every run ends, within its budgets."""

from __future__ import annotations

import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from resile.core.events import Judged, RouteAnswered
from resile.model.failure import Outcome
from resile.model.rules import Backoff, Match
from resile.model.status import Status
from resile.model.workflow import Arc, Condition, Need, Noop, Repair, Rule, Step, SuccessActions, Workflow
from tests.core.world import OK, World, failed, flow

LOOPS = 4


@st.composite
def rules(draw: st.DrawFn, ancestors: list[str], remedies: list[str], depth: int) -> tuple[Rule, ...]:
    """A ladder that may use everything a rule can do."""
    found: list[Rule] = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["retry", "wait", "calls", "code", "handler", "goto", "park", "tolerate"]))
        limit = draw(st.integers(1, 2))
        match = Match(codes=(1,)) if draw(st.booleans()) else Match()
        on_failure = draw(st.sampled_from(["ignore", "next", "fail"]))
        if kind == "retry":
            found.append(Rule(then="retry", text=kind, limit=limit, match=match))
        elif kind == "wait":
            found.append(Rule(then="retry", text=kind, limit=limit, wait=Backoff("linear", 1.0, 1.0)))
        elif kind == "calls" and remedies:
            names = tuple(draw(st.lists(st.sampled_from(remedies), min_size=1, max_size=2, unique=True)))
            found.append(
                Rule(then="retry", text=kind, limit=limit, cost=1, repair=Repair(calls=names, on_failure="fail"))
            )
        elif kind == "code" and remedies:
            repair = Repair(calls_js="x", on_failure="fail")
            found.append(Rule(then="retry", text=kind, limit=limit, cost=1, repair=repair))
        elif kind == "handler" and depth < 2:
            steps = tuple(
                Step(name=f"h{n}", action=Noop(), rules=draw(rules([], [], depth + 1)))
                for n in range(draw(st.integers(1, 2)))
            )
            then = draw(st.sampled_from(["retry", "recovered", "fallback", "tolerate", "fail"]))
            repair = Repair(steps=steps, on_failure=on_failure)
            found.append(Rule(then=then, text=kind, limit=limit, repair=repair))
        elif kind == "goto" and ancestors:
            target = draw(st.sampled_from(ancestors))
            found.append(Rule(then="goto", text=kind, limit=50, cost=1, target=target))
        elif kind in ("park", "tolerate"):
            found.append(Rule(then=kind, text=kind))  # type: ignore[arg-type]
    return tuple(found)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Up to ten steps and two remedies."""
    remedies = ["r0", "r1"]
    steps: list[Step] = []
    above: dict[str, list[str]] = {}
    for number in range(draw(st.integers(1, 10))):
        name = f"s{number}"
        needed = draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []
        above[name] = sorted({f"s{n}" for n in needed} | {up for n in needed for up in above[f"s{n}"]})
        success = None
        if draw(st.integers(0, 5)) == 0:
            target = draw(st.sampled_from(above[name])) if above[name] and draw(st.booleans()) else ""
            success = SuccessActions(calls=("r0",), target=target, cost=1)
        arcs = (Arc(f"s{draw(st.integers(0, number))}", Condition("x")),) if draw(st.integers(0, 6)) == 0 else ()
        steps.append(
            Step(
                name=name,
                action=Noop(),
                needs=tuple(Need((f"s{n}",)) for n in needed),
                rules=draw(rules(above[name], remedies, 0)),
                on_success=success,
                arcs=arcs,
                when=Condition("x") if draw(st.integers(0, 5)) == 0 else None,
            )
        )
    called = [Step(name=name, action=Noop(), called_only=True, rules=draw(rules([], remedies, 1))) for name in remedies]
    return flow(*steps, *called, loops_max=LOOPS)


def chance(seed: int, *words: object) -> int:
    """A number from 0 to 99 that depends on nothing but these words."""
    return zlib.crc32(repr((seed, *words)).encode()) % 100


def played(workflow: Workflow, seed: int, parallel: int) -> World:
    """A run of random outcomes, whose parked failures are judged until none is left."""
    executed: list[str] = []

    def outcome(name: str, attempt: int) -> Outcome:
        executed.append(name)
        return failed(1 + chance(seed, "code", name, attempt) % 2) if chance(seed, name, len(executed)) < 45 else OK

    def route(name: str, _about: str) -> RouteAnswered:
        return RouteAnswered(0, 0, "calls", calls=("r1",) if chance(seed, "route", name, len(executed)) < 50 else ())

    world = World(workflow, outcome, lambda name: chance(seed, "when", name, len(executed)) < 70, parallel, route).run()
    judged = 0
    while world.ended == "parked":
        parked = next(job for job in world.state.jobs.values() if job.status is Status.pending_failed)
        verdict = ("fail", "skip", "retry")[chance(seed, "judge", judged) % 3 if judged < 20 else 0]
        judged += 1
        world.ended = None
        world.feed(Judged(world.clock, parked.id, verdict))  # type: ignore[arg-type]
        while world.orders:
            world.perform()
        assert world.ended is not None
    return world


@settings(max_examples=400, deadline=None)
@given(workflows(), st.integers(0, 10_000), st.integers(1, 4))
def test_every_run_ends_within_its_budgets(workflow: Workflow, seed: int, parallel: int) -> None:
    """Whatever fails; what is parked is judged until nothing is, and `end` ran once and last."""
    world = played(workflow, seed, parallel)
    assert world.ended in ("completed", "failed")
    assert [note.type for note in world.notes][-2:] == [f"workflow_{world.ended}", f"playbook_{world.ended}"]
    assert all(scope.loops <= LOOPS for scope in world.state.scopes.values())
    assert world.executed.count("end") == 1
    assert world.executed[-1] == "end"
    assert world.replayed() == world.state
