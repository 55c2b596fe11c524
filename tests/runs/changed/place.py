"""A folder with a workflow file and a database, in which tests run what changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from resile.api.run import EventListener
from resile.commands.client import Client
from resile.commands.documents.runs import RunDocument
from resile.commands.logs import LogFilter
from resile.commands.start.call import Given, ResourceLimits, RunCall

LIMITS = ResourceLimits(max_parallel=2)


class Quiet(EventListener):
    """Does without the warnings of `check`."""

    def warn(self, text: str) -> None:
        """Drop it."""


class Place:
    """The current folder."""

    def __init__(self, file: str = "flow.yaml") -> None:
        self.file = file

    def write(self, flow: dict[str, Any] | str) -> None:
        """Write the workflow file."""
        Path(self.file).write_text(flow if isinstance(flow, str) else json.dumps({"resile": 1, "name": "flow", **flow}))

    def call(self, *inputs: str, cached: bool = False) -> RunCall:
        """The call of `run`."""
        return RunCall(self.file, Given(inputs), LIMITS, output="output", cached=cached)

    def run(self, *inputs: str, cached: bool = False) -> RunDocument:
        """Run the file."""
        with Client.at("state.db") as client:
            return client.run(self.call(*inputs, cached=cached), Quiet(None)).document

    def cached_changes(self, *inputs: str) -> dict[str, str]:
        """The reason of each step that `run --cached` would run."""
        with Client.at("state.db") as client:
            return {one.step: one.reason for one in client.cached_changes(self.call(*inputs, cached=True)).steps}

    def changes(self, run: int, *inputs: str) -> dict[str, str]:
        """The reason of each step that `rerun --changed` would run."""
        with Client.at("state.db") as client:
            return {one.step: one.reason for one in client.changes(run, Given(inputs)).steps}

    def rerun(self, run: int, *inputs: str) -> RunDocument | None:
        """Run what changed; None where nothing did."""
        with Client.at("state.db") as client:
            finished = client.rerun_changed(run, LIMITS, Quiet(None), inputs=Given(inputs))
            return None if finished is None else finished.document

    def started(self, run: int, epoch: int = 1) -> list[str]:
        """The steps that an epoch of a run started, sorted, without `end`."""
        found: list[str] = []
        with Client.at("state.db") as client:
            for event in client.events(run):
                if event.type == "run_resumed" and "epoch" in event.data:
                    found = []
                    assert event.data["epoch"] <= epoch
                elif event.type == "step_started" and event.scope == "root":
                    found.append(event.step or "")
        return sorted(set(found) - {"end"})

    def output(self, run: int, step: str) -> str:
        """What a step of a run printed, as `logs` shows it."""
        with Client.at("state.db") as client:
            parts = list(client.logs(run, LogFilter(step=step)))
        return b"".join(part.data for part in parts if part.stream in ("out", "stdout")).decode()


def taken_over(document: RunDocument) -> list[str]:
    """The steps that a run took over from another."""
    for job in document.jobs:
        assert not job.cached or (job.status == "completed" and job.attempts == 0)
    return [job.step for job in document.jobs if job.cached]
