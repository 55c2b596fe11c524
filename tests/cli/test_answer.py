"""`ask`: a question parks its step without the key `park`, and `resile answer` answers it."""

from __future__ import annotations

import pytest

from tests.cli.program import Program

FLOW = """\
resile: 1
name: flow
steps:
  colour: {ask: "Which colour, ${inputs.name}?"MORE}
  use: {shell: "echo ${steps.colour.output} >used", needs: [colour]}
  broken: {shell: exit 3, park: true}
inputs: {name: Ada}
"""


@pytest.fixture
def program(tmp_path: object) -> Program:
    """The program in an empty folder."""
    return Program(tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("more", ["", ", retry: 2", ", on_failure: 'touch handled'"])
def test_a_question_waits_and_an_answer_goes_on(program: Program, more: str) -> None:
    """The run exits with 4 and shows the command; the answer is the step's output, whatever it looks like."""
    program.write(FLOW.replace("MORE", more))
    ran = program.call("run", "flow.yaml", code=4).stdout
    assert "  resile answer 1 colour TEXT --resume  # answer its question\n" in ran
    assert "resile judge" not in ran
    shown = program.call("parked", "1", code=0).stdout
    assert "waits for an answer: Which colour, Ada?" in shown
    assert "resile answer 1 colour TEXT" in shown
    assert not (program.folder / "handled").exists()
    done = program.call("answer", "1", "colour", "[1] $(touch evil)", "--resume")
    assert (done.returncode, done.stderr.splitlines()[0]) == (4, "run 1: colour (job 1) is answered")
    assert (program.folder / "used").read_text() == "[1] $(touch evil)\n"


def test_only_an_open_question_takes_an_answer(program: Program) -> None:
    """`resile answer` refuses a step that is parked for judgement, and a question that was answered already."""
    program.write(FLOW.replace("MORE", ""))
    program.call("run", "flow.yaml", code=4)
    assert "'broken' asks nothing" in program.call("answer", "1", "broken", "x", code=2).stderr
    program.call("answer", "1", "colour", "red", code=0)
    assert "is skipped, not parked" in program.call("answer", "1", "colour", "blue", code=2).stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: {a: {shell: x}, end: {ask: why?}}", "`end` is the way out and can't wait for an answer"),
        ("steps: {a: {shell: x, on_failure: [{ask: why?}]}}", "a handler ends by itself, and can't wait for an answer"),
    ],
)
def test_end_and_handlers_ask_nothing(program: Program, text: str, message: str) -> None:
    """`end` and handlers never wait, so a question in them is refused."""
    program.write(f"resile: 1\nname: t\n{text}\n")
    assert message in program.call("check", "flow.yaml", code=2).stdout
