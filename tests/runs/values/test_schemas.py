"""The schema of a step's value: an output that does not meet it fails the step."""

from __future__ import annotations

import pytest

from tests.cli.program import Program
from tests.runs.values.conftest import failure_of

FLOW = """\
resile: 1
name: flow
steps:
  make:
    shell: echo '%s'
    ir: {transform: {schema: {type: object, required: [ok]}}}%s
"""
FALLBACK = """
    on_failure:
      strategy: fallback
      shell: echo '%s'"""


@pytest.mark.parametrize("capture", ["", "\n    capture: v"])
def test_an_output_that_fails_its_schema_fails_the_step(program: Program, capture: str) -> None:
    """The step needs no `capture` for that, and an output that meets the schema completes it."""
    program.write(FLOW % ('{"x":1}', capture))
    assert failure_of(program) == "schema: the value has no `ok`"
    program.write(FLOW % ('{"ok":1}', capture))
    assert program.json("run", "flow.yaml")["status"] == "completed"


def test_the_output_of_a_fallback_fails_the_schema_too(program: Program) -> None:
    """A fallback stands for its step, so its output must meet the step's schema."""
    flow = (FLOW % ("", FALLBACK)).replace("echo ''", "exit 3")
    program.write(flow % '{"x":1}')
    document = program.json("run", "flow.yaml", code=1)
    assert (document["jobs"][0]["status"], document["jobs"][0]["recovered"]) == ("failed", False)
    assert "schema: the value has no `ok`" in program.call("events", "ls", "1", code=0).stdout
    program.write(flow % '{"ok":1}')
    assert program.json("run", "flow.yaml")["jobs"][0]["recovered"]


def test_the_end_of_a_workflow_may_have_a_schema(program: Program) -> None:
    """An `end` without `capture` is judged as any step is."""
    flow = "resile: 1\nname: flow\nsteps:\n  a: {shell: 'true'}\n"
    flow += "  end: {shell: echo 5, ir: {transform: {schema: {type: %s}}}}\n"
    program.write(flow % "object")
    assert failure_of(program) == "schema: the value is 5, not object"
    program.write(flow % "integer")
    assert program.json("run", "flow.yaml")["status"] == "completed"
