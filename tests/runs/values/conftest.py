"""Fixtures of the tests about values."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program in a folder `work` that has siblings."""
    (tmp_path / "work").mkdir()
    return Program(tmp_path / "work")


def failure_of(program: Program, *words: str, code: int = 1) -> str:
    """The message of the first step that fails in a run of `flow.yaml`."""
    run = program.json("run", "flow.yaml", *words, code=code)["run"]
    told = program.call("events", "ls", str(run), "--json", code=0).stdout
    events = [msgspec.json.decode(line) for line in told.splitlines()]
    return next(str(event["data"]["message"]) for event in events if event["type"] == "step_failed")
