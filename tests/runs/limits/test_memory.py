"""`resources.memory`: a step that uses more fails as `oom`, in native files and in Python, unless the file says no."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.cli.program import Program

FLOW = """\
resile: 1
name: flow
steps:
  eat:
    shell: python3 -c 'import time; x = bytearray(150 << 20); time.sleep(SECONDS)'
    resources: {memory: 100mMORE}
"""
FUNCTION = """\
import time
from resile import Resources, Workflow, step

@step(resources=Resources(memory="120m"MORE))
def eat():
    x = bytearray(250 << 20)
    time.sleep(SECONDS)

with Workflow("flow") as flow:
    eat()
"""
TORC = """\
name: t
resource_requirements:
  - {name: small, num_cpus: 1, memory: 100m, runtime: PT1M}
jobs:
  - name: eat
    command: python3 -c 'import time; x = bytearray(150 << 20); time.sleep(0.7)'
    resource_requirements: small
"""


def attempts_of(program: Program, run: int) -> list[dict[str, Any]]:
    """The failures of the attempts of a run, in order."""
    told = program.call("events", "ls", str(run), "--json", code=0).stdout
    events = [msgspec.json.decode(line) for line in told.splitlines()]
    return [event["data"] for event in events if event["type"] == "attempt_failed"]


@pytest.mark.parametrize(("file", "text", "limit"), [("flow.yaml", FLOW, "100 MiB"), ("flow.py", FUNCTION, "120 MiB")])
def test_a_step_that_uses_more_fails_as_oom(program: Program, file: str, text: str, limit: str) -> None:
    """The run ends with exit 1 long before the step would, and the message has the peak and the limit."""
    program.write(text.replace("MORE", "").replace("SECONDS", "60"), file)
    run = program.json("run", file, code=1)["run"]
    (failed,) = attempts_of(program, run)
    assert (failed["kind"], failed["exit_code"]) == ("oom", 137)
    assert failed["message"].startswith("out of memory: it used ")
    assert failed["message"].endswith(f"`resources.memory` is {limit}")


@pytest.mark.parametrize(
    ("file", "text", "more"), [("flow.yaml", FLOW, ", enforce: false"), ("flow.py", FUNCTION, ", enforce=False")]
)
def test_a_file_can_switch_it_off(program: Program, file: str, text: str, more: str) -> None:
    """With `enforce: false` the memory is only reserved."""
    program.write(text.replace("MORE", more).replace("SECONDS", "0.7"), file)
    assert program.json("run", file)["status"] == "completed"


def test_files_of_torc_only_reserve(program: Program) -> None:
    """A Torc job may use more than it asks for, and so may what `migrate` makes of it."""
    program.write(TORC, "t.yaml")
    assert program.json("run", "t.yaml")["status"] == "completed"
    program.write(program.call("migrate", "t.yaml", code=0).stdout, "native.yaml")
    assert program.json("run", "native.yaml")["status"] == "completed"


def test_escalation_answers_it(program: Program) -> None:
    """The second attempt may use more, and passes."""
    escalate = ", escalate: {factor: 3}"
    program.write(FLOW.replace("MORE", escalate).replace("SECONDS", "0.7"))
    run = program.json("run", "flow.yaml", code=0)["run"]
    assert [failed["kind"] for failed in attempts_of(program, run)] == ["oom"]
