"""Workflows whose steps leave a trace: which ran, in which order, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.cli.program import Program

STEP = """#!/bin/sh
# ./step NAME [TIMES [CODE]]: writes its name to the trace and fails its first so many executions.
echo "$1" >> trace
test "$(grep -cx -e "$1" trace)" -gt "${2:-0}" || { echo "$1 is broken" >&2; exit "${3:-1}"; }
"""
AGENT = """#!/bin/sh
# An agent that answers every prompt by writing it to the trace.
echo "agent: $*" >> trace
"""


class Ran(Struct):
    """What came of a run: executions in order, its document, its events as (step, type)."""

    order: list[str]
    document: dict[str, Any]
    events: list[dict[str, Any]]

    @property
    def status(self) -> dict[str, str]:
        """The status of each step of the workflow."""
        return {job["step"]: _word(job) for job in self.document["jobs"] if job["scope"] == "root"}

    @property
    def failed(self) -> str:
        """The message of the last step that stayed failed."""
        messages = [event["data"]["message"] for event in self.of("step_failed") if "message" in event["data"]]
        return str(messages[-1]) if messages else ""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of one type."""
        return [event for event in self.events if event["type"] == kind]

    def told(self, step: str) -> list[str]:
        """The types of one step's events, in order."""
        return [event["type"] for event in self.events if event["step"] == step]

    def routes(self) -> list[tuple[str, str, str | None]]:
        """The routes as (step, action, target)."""
        return [(route["step"], route["action"], route["target"]) for route in self.document["routes"]]


def _word(job: dict[str, Any]) -> str:
    """A job's status in one word or two."""
    if job["recovered"]:
        return "recovered"
    return "tolerated" if job["tolerated"] else str(job["status"])


class Flows:
    """Runs workflows in one folder, each with a trace of its own."""

    def __init__(self, folder: Path) -> None:
        self.program = Program(folder)
        self.folder = folder
        for name, text in (("step", STEP), ("agent", AGENT)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def run(self, text: str, code: int = 0, *words: str) -> Ran:
        """Run a workflow one step at a time; it must exit with this code."""
        trace = self.folder / "trace"
        trace.unlink(missing_ok=True)
        self.program.write(text if text.startswith("resile:") else f"resile: 1\n{text}")
        return self.drive("run", "flow.yaml", "--max-parallel", "1", *words, code=code)

    def drive(self, *words: str, code: int = 0) -> Ran:
        """Call a command that drives a run; it must exit with this code."""
        document = msgspec.json.decode(self.program.call_warm(*words, "--json", code=code).stdout)
        listed = self.program.call_warm("events", "list", str(document["run"]), "--json", code=0)
        lines = listed.stdout.splitlines()
        trace = self.folder / "trace"
        order = trace.read_text().split("\n")[:-1] if trace.exists() else []
        return Ran(order, document, [msgspec.json.decode(line) for line in lines])

    def refused(self, text: str) -> list[str]:
        """The findings of a file that must not run."""
        self.program.write(f"resile: 1\n{text}")
        document = self.program.json("run", "flow.yaml", code=2)
        return [finding["message"] for finding in document["diagnostics"] if finding["severity"] == "error"]
