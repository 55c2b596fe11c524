"""Whatever a run does, each of its failures is explained, and listening to a log changes nothing in it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from resile.core.recovery.matching import matches
from resile.core.rule_trace import enable_tracing
from resile.explain.explanation import explain_events
from resile.explain.replay_log import replay
from resile.explain.report import ATTEMPTS_MAX, AttemptReport, Explanation, Names, StepReport, add_name, all_reports
from resile.explain.timeline import Timeline
from resile.explain.wording import mismatch_of
from resile.model.failure import Failure
from resile.model.rules import Match
from resile.model.workflow import Workflow
from tests.core.recovery.test_random_ladders import played, workflows
from tests.core.world import World


def moments(explanation: Explanation) -> dict[int, tuple[StepReport, AttemptReport]]:
    """Every reported attempt, by the number of its event."""
    return {attempt.seq: (report, attempt) for report in all_reports(explanation.steps) for attempt in report.attempts}


@settings(max_examples=200, deadline=None)
@given(workflows(), st.integers(0, 10_000), st.integers(1, 4))
def test_every_failure_is_explained(workflow: Workflow, seed: int, parallel: int) -> None:
    """Each failed attempt has its result, each retry the rule of its event, and each failed step is there."""
    world = played(workflow, seed, parallel)
    assert world.ended in ("completed", "failed")
    explanation = explain_events(workflow, world.log, 1, world.ended)  # type: ignore[arg-type]
    assert explanation is not None
    found = moments(explanation)
    broken = [note for note in world.notes if note.type == "attempt_failed"]
    assert explanation.failures >= len(broken)
    for note in broken:
        report, moment = found[note.seq]
        assert (report.job, moment.attempt, moment.message) == (note.job, note.attempt, note.data["message"])
        assert moment.result
        assert moment.then
    answered = [
        (note.job, note.data["rule"], note.data["next_attempt"])
        for note in world.notes
        if note.type == "retry_scheduled"
    ]
    for job, rule, attempt in answered:
        answers = [
            str(given.rule)
            for report, moment in found.values()
            for given in moment.rules
            if report.job == job and given.next_attempt == attempt
        ]
        assert rule in answers
    stays = {note.job for note in world.notes if note.type == "step_failed"}
    assert stays <= {report.job for report, _ in found.values()}


@settings(max_examples=50, deadline=None)
@given(workflows(), st.integers(0, 10_000))
def test_listening_changes_nothing(workflow: Workflow, seed: int) -> None:
    """A log that is listened to folds to the state that its run had."""
    world = played(workflow, seed, 2)
    timeline = Timeline(workflow, None)
    for event in world.log:
        replay(timeline, event)
    assert timeline.state == world.state
    assert timeline.open == {}


FAILURES = st.builds(
    Failure,
    st.sampled_from(["exit", "signal", "timeout", "oom", "lost"]),
    st.sampled_from(["", "no disk", "no net"]),
    st.none() | st.integers(0, 3),
    st.none() | st.integers(1, 3),
    types=st.sampled_from([(), ("builtins.KeyError", "builtins.Exception")]),
)
MATCHES = st.builds(
    Match,
    codes=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    codes_excluded=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    kinds=st.lists(st.sampled_from(["exit", "signal", "oom"]), max_size=2).map(tuple),
    signals=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    pattern=st.sampled_from(["", "disk", "^no"]),
    types=st.sampled_from([(), ("KeyError",), ("ValueError", "OSError")]),
)


@given(MATCHES, FAILURES)
def test_a_reason_is_given_exactly_where_a_rule_does_not_match(match: Match, failure: Failure) -> None:
    """The words agree with what the core decides."""
    assert bool(mismatch_of(match, failure)) == (not matches(match, failure))


def test_reasons_in_words() -> None:
    """Each matcher says what it had and what it wanted."""
    exited = Failure("exit", "exit code 4: no disk", 4)
    killed = Failure("signal", "killed by SIGTERM", 143, 15, types=("app.Gone", "builtins.Exception"))
    text = [
        mismatch_of(Match(kinds=("oom", "timeout")), exited),
        mismatch_of(Match(codes=(1, 2, 3)), exited),
        mismatch_of(Match(codes=(1,)), Failure("spawn", "no such file")),
        mismatch_of(Match(codes_excluded=(4,)), exited),
        mismatch_of(Match(signals=(9,)), exited),
        mismatch_of(Match(signals=(9,)), killed),
        mismatch_of(Match(pattern="space"), exited),
        mismatch_of(Match(types=("KeyError",)), exited),
        mismatch_of(Match(types=("KeyError", "OSError")), killed),
        mismatch_of(Match(types=("Gone",)), killed),
    ]
    assert text == [
        "its kind is exit, not oom or timeout",
        "exit code 4, not 1, 2 or 3",
        "no exit code, not 1",
        "exit code 4, which is left to other rules",
        "no signal, not 9",
        "signal 15, not 9",
        "nothing that it printed matches",
        "no exception, not KeyError",
        "app.Gone, not KeyError or OSError",
        "",
    ]


def test_what_comes_in_thousands_is_counted() -> None:
    """Of very many moments the first and the last are kept, of very many names the first."""
    report = StepReport(1, "a", "root", "flow.yaml:1:1")
    names: Names | None = None
    for number in range(1, 1001):
        report.add(AttemptReport(number, "failed", number))
        names = add_name(names, f"s{number}")
    assert (len(report.attempts), report.omitted) == (ATTEMPTS_MAX, 900)
    assert [report.attempts[place].attempt for place in (0, 49, 50, -1)] == [1, 50, 951, 1000]
    assert names is not None
    assert (names.count, names.first[-1]) == (1000, "s20")


def test_only_who_listens_is_told() -> None:
    """A driver's state keeps no rule traces."""
    world = World(played_once()).start()
    assert "rule_traces" not in world.state.__dict__
    assert enable_tracing(world.state) == []


def played_once() -> Workflow:
    """The smallest workflow."""
    from tests.core.world import flow

    return flow()
