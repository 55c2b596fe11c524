"""The Observer by itself: what an executor's report becomes for the core and the store."""

from __future__ import annotations

from errno import ENOSPC
from pathlib import Path

import pytest

from resile.core.events import AttemptAdopted, AttemptEnded, AttemptStarted, AttemptWithdrawn
from resile.executors.contract import Adopted, Ended, Lost, Started, Withdrawn
from resile.model.builtin_actions import Transform
from resile.model.failure import LogRange, Outcome, Usage
from resile.model.workflow import Agent, Capture, Shell, Step, Validate
from resile.store.contract import AttemptRow
from tests.core.world import flow
from tests.engine.parts import NO_LOG, Parts, parts_of
from tests.engine.simulated import START

RUN = Shell("true")
USAGE = Usage(2.0, 0.5, 4096)


def test_a_start_becomes_an_event_and_a_row_that_runs(tmp_path: Path) -> None:
    """The row knows the process and where its output begins; it has no end."""
    log = LogRange("s", 5, 0, 6, 0)
    event, row = parts_of(tmp_path, RUN).observe(Started(1, 1, START, 71, log))
    assert event == AttemptStarted(START, 1, 1, 71)
    assert row == AttemptRow(1, 1, 1, START, log=log, pid=71)


def test_an_end_finishes_the_row_of_its_start(tmp_path: Path) -> None:
    """The finished row has the start that was reported, whatever the end says of it."""
    parts = parts_of(tmp_path, RUN)
    log = parts.output.write("s", b"out")
    parts.observe(Started(1, 1, START, 71, LogRange("s")))
    event, row = parts.observe(Ended(1, 1, START + 0.5, START + 2.0, 0, 0.5, 4096, log))
    outcome = Outcome(0, None, Usage(1.5, 0.5, 4096), log)
    assert event == AttemptEnded(START + 2.0, 1, 1, outcome)
    assert row == AttemptRow(1, 1, 1, START, START + 2.0, 0, outcome.usage, log, None, 71)


def test_an_end_without_a_start_stands_for_both(tmp_path: Path) -> None:
    """Its row begins when the report says that the attempt did, with the process of the report."""
    event, row = parts_of(tmp_path, RUN).observe(Ended(1, 1, START, START + 2.0, 0, 0.5, 4096, NO_LOG, pid=71))
    assert event == AttemptEnded(START + 2.0, 1, 1, Outcome(0, None, USAGE, NO_LOG), pid=71)
    assert row == AttemptRow(1, 1, 1, START, START + 2.0, 0, USAGE, NO_LOG, None, 71)


def test_an_attempt_is_adopted_when_the_engine_finds_it(tmp_path: Path) -> None:
    """The event has the time of the engine's clock; the start long ago is in its row, which no engine may have seen."""
    parts = parts_of(tmp_path, RUN)
    log = parts.output.write("s", b"out")
    event, row = parts.observe(Adopted(1, 1, START - 500.0, 71, LogRange("s")))
    assert event == AttemptAdopted(START, 1, 1, 71, START - 500.0)
    assert row == AttemptRow(1, 1, 1, START - 500.0, log=LogRange("s"), pid=71)
    _, row = parts.observe(Ended(1, 1, START - 500.0, START + 2.0, 0, 0.5, 4096, log))
    assert row == AttemptRow(1, 1, 1, START - 500.0, START + 2.0, 0, Usage(502.0, 0.5, 4096), log, None, 71)


def test_an_attempt_that_never_starts_leaves_no_row(tmp_path: Path) -> None:
    """It is withdrawn."""
    assert parts_of(tmp_path, RUN).observe(Withdrawn(1, 1, START)) == (AttemptWithdrawn(START, 1, 1), None)


def test_an_attempt_whose_end_is_unknown_is_lost(tmp_path: Path) -> None:
    """Its failure has the executor's reason."""
    event, row = parts_of(tmp_path, RUN).observe(Lost(1, 1, START, "the launcher died while it ran"))
    assert isinstance(event, AttemptEnded)
    failure = event.outcome.failure
    assert failure is not None
    assert row is not None
    assert (failure.kind, failure.message, row.failure) == ("lost", "the launcher died while it ran", failure)


def test_an_attempt_that_an_interrupt_killed_is_withdrawn(tmp_path: Path) -> None:
    """It did not fail: a resume starts it again; without an interrupt a kill is its outcome."""
    killed = Ended(1, 1, START, START + 2.0, 15, 0.0, 0, NO_LOG, "killed")
    event, row = parts_of(tmp_path, RUN).observe(killed, interrupted=True)
    assert (event, row) == (AttemptWithdrawn(START + 2.0, 1, 1, started=True), None)
    event, row = parts_of(tmp_path, RUN).observe(killed)
    assert isinstance(event, AttemptEnded)
    assert (event.canceled, event.outcome.failure is not None) == (True, True)
    assert row is not None


def test_an_attempt_whose_output_found_no_room_is_withdrawn(tmp_path: Path) -> None:
    """A full disk is no failure of a step that could not start for it."""
    full = Ended(1, 1, START, START + 2.0, 0, 0.0, 0, NO_LOG, "", ENOSPC, "output")
    assert parts_of(tmp_path, RUN).observe(full) == (AttemptWithdrawn(START + 2.0, 1, 1), None)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("text", "1"),
        ("json", 1),
        ("lines", [" 1 "]),
        ("number", 1),
        ("bool", True),
        ("stderr", "why"),
        ("combined", "1\nwhy"),
        ("exit_code", 0),
        ("success", True),
        ("duration", 2.0),
        ("value", 1),
    ],
)
def test_an_output_is_captured_in_each_form(tmp_path: Path, form: str, value: object) -> None:
    """stdout, stderr, the exit code and the time become the value that the step asks for."""
    parts = parts_of(tmp_path, RUN, capture=(Capture("name", form),))  # type: ignore[arg-type]
    outcome = parts.end(b" 1 \n", b"why\n")
    assert (outcome.failure, outcome.values) == (None, {"name": value})


def test_an_output_without_its_form_fails_the_attempt(tmp_path: Path) -> None:
    """The exit code was 0, the promise was not kept."""
    failure = parts_of(tmp_path, RUN, capture=(Capture("name", "number"),)).failure(b"many\n")
    assert (failure.kind, failure.exit_code) == ("contract", 0)
    assert (failure.message, failure.signature) == ("capture 'name': 'many' is not a number", "contract: capture")


def test_a_failed_attempt_still_gives_what_any_output_has(tmp_path: Path) -> None:
    """Texts are captured for handlers; a form that could fail a second time is not."""
    captures = (Capture("text"), Capture("code", "exit_code"), Capture("number", "number"))
    outcome = parts_of(tmp_path, RUN, capture=captures).end(b"half\n", b"no good\n", 3 << 8)
    assert outcome.values == {"text": "half", "code": 3}
    failure = outcome.failure
    assert failure is not None
    assert (failure.kind, failure.exit_code, failure.message) == ("exit", 3, "exit code 3: no good")
    assert (failure.stdout, failure.stderr) == ("half\n", "no good\n")


def test_a_timeout_names_the_limit(tmp_path: Path) -> None:
    """Whatever it exited with, the time that it had is the message."""
    failure = parts_of(tmp_path, RUN, timeout_seconds=1.5).failure(status=15, reason="timeout")
    assert (failure.kind, failure.signal, failure.message) == ("timeout", 15, "timed out after 1.5s")


def test_a_directory_that_can_not_be_entered_is_named(tmp_path: Path) -> None:
    """The message has the directory of the step."""
    failure = parts_of(tmp_path, RUN, working_dir="gone").failure(spawn_error=2, spawn_stage="cwd")
    expected = f"can't enter the working directory {tmp_path}/gone: No such file or directory"
    assert (failure.kind, failure.message) == ("spawn", expected)


def test_a_missing_output_file_fails_the_attempt(tmp_path: Path) -> None:
    """Of two declared files one is there; the message names the other."""
    (tmp_path / "one").write_text("")
    failure = parts_of(tmp_path, RUN, outputs=("one", "two")).failure()
    assert (failure.kind, failure.message) == ("contract", "declared output file 'two' is missing")
    (tmp_path / "two").write_text("")
    assert parts_of(tmp_path, RUN, outputs=("one", "two")).end().failure is None


def test_a_failed_validation_is_a_check(tmp_path: Path) -> None:
    """An exit code of a check is of its own kind; a signal is not."""
    assert parts_of(tmp_path, Validate("true")).failure(status=1 << 8).kind == "check"
    assert parts_of(tmp_path, Validate("true")).failure(status=9).kind == "signal"


def test_an_agent_that_spends_too_much_has_failed(tmp_path: Path) -> None:
    """Its own report is compared with the step's limits."""
    agent = Agent("do it", cost_max=1.0, tokens_max=100)
    cheap = b'{"total_cost_usd": 1.0, "usage": {"input_tokens": 60, "output_tokens": 40}}'
    assert parts_of(tmp_path, agent).end(cheap).failure is None
    dear = parts_of(tmp_path, agent).failure(b'{"total_cost_usd": 1.5}')
    assert (dear.kind, dear.message) == ("contract", "the agent reports a cost of 1.5, its limit is 1")
    many = parts_of(tmp_path, agent).failure(b'{"usage": {"input_tokens": 60, "output_tokens": 41}}')
    assert many.message == "the agent reports 101 tokens, its limit is 100"


def test_the_program_of_an_agent_that_is_missing_gets_a_hint(tmp_path: Path) -> None:
    """What to do about it stands behind the reason."""
    failure = parts_of(tmp_path, Agent("do it", ("nope",))).failure(spawn_error=2, spawn_stage="exec")
    assert failure.message == (
        "can't start the command: No such file or directory "
        "(is the agent 'nope' installed? Name another with `agent: {command: …}`)"
    )


@pytest.mark.parametrize("text", [b'{"workflow_status": "failed"}\n', b'first\n{"workflow_status": "failed"}\n'])
def test_end_may_decide_the_verdict(tmp_path: Path, text: bytes) -> None:
    """A JSON object as its output, or on its last line, has the verdict."""
    parts = Parts(flow(Step(name="a", action=RUN), end=Step(name="end", action=RUN)), tmp_path)
    log = parts.output.write("s", text)
    event, _ = parts.observe(Ended(2, 1, START, START, 0, 0.0, 0, log))
    assert isinstance(event, AttemptEnded)
    assert event.outcome.values == {"workflow_status": "failed"}


@pytest.mark.parametrize("capture", [(), (Capture("said", "value"),)], ids=["nameless", "captured"])
def test_end_may_decide_the_verdict_after_a_transform(tmp_path: Path, capture: tuple[Capture, ...]) -> None:
    """The value that the transform makes has the verdict, whether or not a name captures the value."""
    end = Step(name="end", action=RUN, transform=Transform(parse="last"), capture=capture)
    parts = Parts(flow(Step(name="a", action=RUN), end=end), tmp_path)
    log = parts.output.write("s", b'first\n{"workflow_status": "failed"}\n')
    event, _ = parts.observe(Ended(2, 1, START, START, 0, 0.0, 0, log))
    assert isinstance(event, AttemptEnded)
    captured = {one.name: {"workflow_status": "failed"} for one in capture}
    assert event.outcome.values == {**captured, "workflow_status": "failed"}


def test_a_verdict_that_is_none_fails_end(tmp_path: Path) -> None:
    """Only completed and failed are verdicts."""
    parts = Parts(flow(Step(name="a", action=RUN), end=Step(name="end", action=RUN)), tmp_path)
    log = parts.output.write("s", b'{"workflow_status": "fine"}')
    event, _ = parts.observe(Ended(2, 1, START, START, 0, 0.0, 0, log))
    assert isinstance(event, AttemptEnded)
    assert event.outcome.failure is not None
    assert event.outcome.failure.message == "workflow_status is 'fine', not completed or failed"


def test_declared_files_are_looked_for_where_the_step_ran(tmp_path: Path) -> None:
    """One that is missing fails the step, and so does a name that can't be rendered."""
    (tmp_path / "there").write_text("")
    assert parts_of(tmp_path, RUN, outputs=("there",)).end().failure is None
    failure = parts_of(tmp_path, RUN, outputs=("there", "gone")).failure()
    expected = ("contract", "declared output file 'gone' is missing", "contract: output file missing")
    assert (failure.kind, failure.message, failure.signature) == expected
    failure = parts_of(tmp_path, RUN, outputs=("${inputs.gone}",)).failure()
    assert (failure.kind, failure.signature) == ("contract", "contract: value refused")


@pytest.mark.parametrize("name", ["gone", "${inputs.gone}"])
def test_a_step_without_its_file_keeps_what_it_printed(tmp_path: Path, name: str) -> None:
    """Handlers see the captured values, whether the file is missing or its name can't be rendered."""
    outcome = parts_of(tmp_path, RUN, capture=(Capture("said"),), outputs=(name,)).end(b"words")
    assert outcome.failure is not None
    assert outcome.values == {"said": "words"}


def test_no_secret_leaves_an_attempt(tmp_path: Path) -> None:
    """Captured values, messages, tails and rows have stars in its place."""
    parts = parts_of(tmp_path, RUN, ("hunter2",), capture=(Capture("said"),))
    assert parts.end(b"hunter2 it is\n").values == {"said": "*** it is"}
    failure = parts.failure(b"on hunter2\n", b"bad hunter2\n", 1 << 8)
    assert (failure.message, failure.stdout, failure.stderr) == ("exit code 1: bad ***", "on ***\n", "bad ***\n")


def test_a_report_of_a_job_that_is_forgotten_is_taken_as_it_is(tmp_path: Path) -> None:
    """Its step can add nothing; the event and the row say how it ended."""
    event, row = parts_of(tmp_path, RUN).observe(Ended(99, 1, START, START + 2.0, 0, 0.5, 4096, NO_LOG))
    assert event == AttemptEnded(START + 2.0, 99, 1, Outcome(0, None, USAGE, NO_LOG))
    assert row is not None
    assert row.job == 99
