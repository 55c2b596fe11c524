"""`rehearse`: one step's ladder against a supposed failure; repairs are real, the step is not run."""

from __future__ import annotations

import signal

import msgspec
import pytest

from tests.cli.program import Program

FLOW = """\
resile: 1
name: ladder
inputs: {who: nobody}
failure_handlers:
  solver:
    rules:
      - exit_codes: [10]
        recovery_script: ./refine.sh
        max_retries: 2
steps:
  setup: {shell: touch setup-ran}
  solve: {shell: touch solve-ran, needs: [setup], failure_handler: solver}
  test:
    shell: touch test-ran
    needs: [solve]
    retry: {max: 2, backoff: {type: fixed, initial: 2m}}
    on_failure:
      run: [lint-fix]
      goto: setup
  lint-fix: {shell: 'echo fixing for ${inputs.who}; touch lint-ran'}
  handled: {shell: touch handled-ran, needs: [test], on_failure: 'echo handled ${error.message}; echo oops >&2'}
  broken: {shell: "true", on_failure: {shell: exit 9, fail_workflow: false}}
  strict: {shell: "true", on_failure: {shell: "true", fail_workflow: true}}
  parks: {shell: "true", park: true}
  bare: {shell: "true"}
  end: {shell: touch end-ran}
"""


@pytest.fixture
def flow(program: Program) -> Program:
    """The program with a file of many kinds of rules."""
    program.write(FLOW)
    script = program.folder / "refine.sh"
    script.write_text('#!/bin/sh\necho "refined $TORC_RETURN_CODE of $RESILE_JOB_NAME"\n')
    script.chmod(0o755)
    return program


def left_behind(program: Program) -> set[str]:
    """The files that steps made."""
    return {path.name for path in program.folder.iterdir()} - {"flow.yaml", "refine.sh"}


def ran(document: dict[str, object]) -> list[tuple[object, ...]]:
    """Exit code and output of each repair."""
    repairs = document["repairs"]
    assert isinstance(repairs, list)
    return [(repair["exit_code"], repair["stdout"], repair["stderr"]) for repair in repairs]


@pytest.mark.parametrize(
    ("step", "failure", "verdict", "code"),
    [
        ("solve", "exit:10", "retry", 0),
        ("solve", "exit:11", "fail", 1),
        ("test", "timeout", "retry", 0),
        ("handled", "signal:KILL", "recovered", 0),
        ("broken", "exit:1", "tolerate", 0),
        ("strict", "oom", "fail", 1),
        ("parks", "spawn", "park", 4),
        ("bare", "check", "fail", 1),
        ("bare", "lost", "retry", 0),
    ],
)
def test_verdicts(flow: Program, step: str, failure: str, verdict: str, code: int) -> None:
    """Each verdict with its exit code; neither the step nor what comes before it is run, and nothing is stored."""
    document = flow.json("rehearse", "flow.yaml", step, "--fail", failure, code=code)
    assert list(document) == [
        "version",
        "step",
        "failure",
        "verdict",
        "delay_seconds",
        "exit_code",
        "routes",
        "repairs",
        "events",
    ]
    assert (document["step"], document["verdict"], document["exit_code"]) == (step, verdict, code)
    assert left_behind(flow) <= {"lint-ran"}


def test_a_recovery_script_is_run(flow: Program) -> None:
    """The script runs with the environment of a real recovery."""
    document = flow.json("rehearse", "flow.yaml", "solve", "--fail", "exit:10")
    assert ran(document) == [(0, "refined 10 of solve\n", "")]
    assert [event["type"] for event in document["events"]] == [
        "step_started",
        "attempt_started",
        "attempt_failed",
        "retry_scheduled",
        "repair_started",
        "step_started",
        "attempt_started",
        "attempt_succeeded",
        "step.exit",
        "step_completed",
        "repair_finished",
    ]


def test_a_called_step_is_run_and_a_wait_is_only_told(flow: Program) -> None:
    """Remediation steps run for real with the inputs given; the backoff before the retry is not waited for."""
    document = flow.json("rehearse", "flow.yaml", "test", "--fail", "exit:1", "--input", "who=you")
    assert ran(document) == [(0, "fixing for you\n", "")]
    assert document["delay_seconds"] == 120.0
    assert left_behind(flow) == {"lint-ran"}


def test_a_handler_sees_the_supposed_message(flow: Program) -> None:
    """The message is what the step is supposed to have printed, and rules and handlers see it."""
    document = flow.json("rehearse", "flow.yaml", "handled", "--fail", "exit:3", "--message", "no $(touch pwned) space")
    assert document["failure"] == {
        "kind": "exit",
        "message": "exit code 3: no $(touch pwned) space",
        "exit_code": 3,
        "stderr": "no $(touch pwned) space",
        "signature": document["failure"]["signature"],
    }
    assert ran(document) == [(0, "handled exit code 3: no $(touch pwned) space\n", "oops\n")]
    assert left_behind(flow) == set()


def test_a_rehearsal_for_people(flow: Program) -> None:
    """The course is told on stderr; routes, repairs with their output, and the verdict stand on stdout."""
    done = flow.call("rehearse", "flow.yaml", "handled", "--fail", "exit:3", code=0)
    told = [line[9:] if line[2:3] == ":" else line for line in done.stderr.splitlines()]
    assert told[:3] == [
        "handled of flow.yaml, supposed to fail: exit code 3",
        "handled started",
        "handled attempt 1 failed: exit code 3",
    ]
    assert told[3].startswith("handled repair started: flow.yaml:")
    assert told[-2:] == ["handled repair done", "handled recovered"]
    lines = done.stdout.splitlines()
    assert lines[0] == "What would be done"
    assert "  recovered  handled  attempt 1  flow.yaml:" in lines[1]
    assert lines[3] == "Repairs"
    assert " completed in " in lines[4]
    assert lines[5:] == [
        "    stdout",
        "    | handled exit code 3",
        "    stderr",
        "    | oops",
        "",
        "recovered: its repair stands for success, and what needs the step runs",
    ]
    assert max(map(len, lines)) <= 80


def test_the_other_verdicts_for_people(flow: Program) -> None:
    """The last line says what would become of the step."""
    said = {
        ("test", "exit:1"): "retry: the step would be run again in 2 min 00 s",
        ("bare", "exit:1"): "fail: the failure stands, and what needs the step is canceled",
        ("parks", "exit:1"): "park: the failure would wait for judgement (exit code 4)",
        ("bare", "lost"): "retry: the step would be run again at once",
    }
    for (step, failure), line in said.items():
        assert flow.call("rehearse", "flow.yaml", step, "--fail", failure).stdout.splitlines()[-1] == line


def test_goto(program: Program) -> None:
    """A jump is told with its target, and what lies between is only supposed to run."""
    program.write(
        "resile: 1\nname: back\nsteps:\n  first: {shell: touch first-ran}\n"
        "  last: {shell: 'true', needs: [first], on_failure: {goto: first}}\n"
    )
    done = program.call("rehearse", "flow.yaml", "last", "--fail", "exit:1", code=0)
    assert done.stdout.splitlines()[-1] == "goto: the run would go on from first"
    assert [path.name for path in program.folder.iterdir()] == ["flow.yaml"]


def test_interrupted(program: Program) -> None:
    """A second signal ends the repair that runs, exit 130."""
    program.gate("gate")
    up = program.gate("up")
    program.write("resile: 1\nname: held\nsteps:\n  a: {shell: 'true', on_failure: echo up > up; read line < gate}\n")
    with program.start("rehearse", "flow.yaml", "a", "--fail", "exit:1") as trying:
        up.wait()
        trying.send(signal.SIGINT)
        trying.until("err", "stopping: ")
        trying.send(signal.SIGTERM)
        assert trying.end() == 130
        assert trying.text["out"].splitlines()[-1] == "interrupted: nothing was decided"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("bare",), "`resile rehearse` needs --fail", "resile rehearse flow.yaml bare --fail exit:1"),
        (("bar", "--fail", "oom"), "ladder has no step 'bar'", "did you mean 'bare'?"),
        (("bare", "--fail", "exit"), "--fail 'exit' is not a failure", None),
        (("bare", "--fail", "exit:0"), "--fail 'exit:0' is not a failure", None),
        (("bare", "--fail", "exit:256"), "--fail 'exit:256' is not a failure", None),
        (("bare", "--fail", "signal:NOPE"), "--fail 'signal:NOPE' is not a failure", None),
        (("bare", "--fail", "oom:1"), "--fail 'oom:1' is not a failure", None),
        (("bare", "--fail", "canceled"), "--fail 'canceled' is not a failure", None),
        (("bare", "--fail", "oom", "--input", "x=1"), "ladder has no input 'x'", "its inputs: who"),
    ],
)
def test_wrong_rehearsals(flow: Program, words: tuple[str, ...], message: str, hint: str | None) -> None:
    """A failure, a step or an input that is not there is exit 2, and nothing is run."""
    error = msgspec.json.decode(flow.call("rehearse", "flow.yaml", *words, "--json", code=2).stdout)["error"]
    assert error["message"] == message
    assert hint in (None, error["hint"])
    assert left_behind(flow) == set()
