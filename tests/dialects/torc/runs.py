"""Torc files compiled, and run by the real program in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import msgspec

from resile.dialects.compile import compile_text
from resile.errors import Diagnostic
from resile.model.codec import decode, encode
from resile.model.workflow import Shell, Step, Workflow
from tests.cli.program import Program
from tests.runs.ladder.flows import Ran

STEP = """#!/bin/bash
# ./step NAME [TIMES [CODE]]: writes its name to the trace and fails its first so many executions.
echo "$1" >> trace
test "$(grep -cx -e "$1" trace)" -gt "${2:-0}" || { echo "$1 is broken" >&2; exit "${3:-1}"; }
"""


def compiled(text: str, file: str = "flow.yaml") -> Workflow:
    """The workflow in a text that has no error."""
    result = compile_text(text, file=file, dialect="torc")
    assert [finding.render() for finding in result.diagnostics if finding.severity == "error"] == []
    assert result.workflow is not None
    assert decode(encode(result.workflow)) == result.workflow
    return result.workflow


def findings(text: str, file: str = "flow.yaml") -> list[Diagnostic]:
    """Everything that compiling a text says."""
    return list(compile_text(text, file=file, dialect="torc").diagnostics)


def told(text: str, file: str = "flow.yaml") -> list[tuple[str, str, int, int]]:
    """The same, short: severity, code and place."""
    return [(found.severity, found.code, found.line, found.column) for found in findings(text, file)]


def steps_of(text: str, file: str = "flow.yaml") -> dict[str, Step]:
    """The steps of a workflow by name."""
    return {step.name: step for step in compiled(text, file).steps}


def command(step: Step) -> str:
    """What a step runs, without the environment that every job of Torc has."""
    assert isinstance(step.action, Shell)
    assert step.action.program == "bash"
    return step.action.command.partition("; ")[2]


def needs(step: Step) -> list[str]:
    """What a step waits for."""
    return [need.any_of[0] for need in step.needs]


class Runs:
    """Runs workflows in one folder, one job at a time, each with a trace of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = Program(folder)
        (folder / "step").write_text(STEP)
        (folder / "step").chmod(0o755)

    def run(self, text: str, code: int = 0, *words: str, file: str = "flow.yaml") -> Ran:
        """Run a workflow; it must exit with this code."""
        trace = self.folder / "trace"
        trace.unlink(missing_ok=True)
        self.program.write(text, file)
        document = self.program.json("run", file, "--max-parallel", "1", *words, code=code)
        assert document["dialect"] == "torc"
        lines = self.program.call("events", "ls", str(document["run"]), "--json", code=0).stdout.splitlines()
        order = trace.read_text().split("\n")[:-1] if trace.exists() else []
        return Ran(order, document, [msgspec.json.decode(line) for line in lines])
