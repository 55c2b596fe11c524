"""Playbooks for tests: a short way to write one, to run it with the real program, and to read its events."""

from __future__ import annotations

import signal
import textwrap
from pathlib import Path
from typing import Any

import msgspec

from resile.dialects.compile import Compiled, compile_text
from resile.model.workflow import Step, Workflow
from tests.cli.program import Program

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: flow}\n"


def written(text: str) -> str:
    """A playbook with the lines that each of them begins with."""
    return HEAD + textwrap.dedent(text).strip("\n") + "\n"


def compiled(text: str, folder: str = ".") -> Compiled:
    """What comes of a playbook."""
    return compile_text(written(text), file="flow.yaml", folder=folder)


def workflow(text: str) -> Workflow:
    """The workflow of a playbook without an error."""
    result = compiled(text)
    assert result.workflow is not None, result.diagnostics
    return result.workflow


def step(text: str, name: str = "start") -> Step:
    """One step of a playbook."""
    found = workflow(text)
    return next(step for step in (*found.steps, found.end) if step.name == name)


def errors(text: str) -> list[tuple[str, int, int]]:
    """What is wrong with a playbook, and where; the lines of its head are not counted."""
    lines = HEAD.count("\n")
    found = [finding for finding in compiled(text).diagnostics if finding.severity == "error"]
    return [(finding.message, finding.line - lines, finding.column) for finding in found]


def killed_and_resumed(program: Program) -> dict[str, Any]:
    """Kill the engine of `flow.yaml` while a step has opened the gate `reached` and waits at `go`; what came of it."""
    reached, go = program.gate("reached"), program.gate("go")
    with program.start("run", "flow.yaml") as started:
        reached.wait()
        started.send(signal.SIGKILL)
        started.process.wait(10)
        go.open()
        document: dict[str, Any] = program.json("resume", "1")
    return document


class Run:
    """A run of a playbook: its document, and its events under NoETL's names."""

    def __init__(self, folder: Path, text: str, *words: str, code: int = 0, **env: str) -> None:
        self.program = Program(folder)
        self.program.env |= env
        self.program.write(written(text))
        self.document = self.program.json("run", "flow.yaml", *words, code=code)
        self.id = str(self.document["run"])
        told = self.program.call("events", "ls", self.id, "--names", "noetl", "--json", code=0).stdout
        self.events: list[dict[str, Any]] = [msgspec.json.decode(line) for line in told.splitlines()]

    def lines(self, *steps: str) -> list[str]:
        """The events as `type step STATUS`, of all steps or of these."""
        chosen = [event for event in self.events if not steps or event["step"] in steps]
        return [" ".join(filter(None, (event["type"], event["step"], event["status"]))) for event in chosen]

    def told(self, kind: str, step: str | None = None) -> dict[str, Any]:
        """What the first event of a type, of this step, says besides."""
        return next(event["data"] for event in self.events if event["type"] == kind and event["step"] == step)

    def value(self, step: str) -> Any:
        """What a step gave."""
        return self.document["outputs"].get(step)

    def message(self) -> str:
        """Why the run failed first."""
        return str((self.document["first_failure"] or {}).get("message", ""))

    def statuses(self) -> dict[str, str]:
        """How the steps of the run ended."""
        return {job["step"]: job["status"] for job in self.document["jobs"] if job["scope"] == "root"}


def ok(name: str) -> list[str]:
    """The events of a step that went well."""
    return [
        f"step_started {name} STARTED",
        f"action_started {name} RUNNING",
        f"action_completed {name} COMPLETED",
        f"step.exit {name} COMPLETED",
        f"step_completed {name} COMPLETED",
    ]


def failed(name: str) -> list[str]:
    """The events of a step that did not."""
    return [
        f"step_started {name} STARTED",
        f"action_started {name} RUNNING",
        f"action_failed {name} FAILED",
        f"step.exit {name} FAILED",
        f"step_failed {name} FAILED",
    ]


PROLOGUE = ["playbook_started STARTED", "workflow_initialized COMPLETED"]
COMPLETED = ["workflow_completed COMPLETED", "playbook_completed COMPLETED"]
FAILED = ["workflow_failed FAILED", "playbook_failed FAILED"]
