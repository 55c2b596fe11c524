"""The wall clock is set back or forward by an hour while a run goes on: nothing but the shown date may notice."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.cli.program import Program

HOUR = 3600.0
# The wall clock of every command is off by what a file says at that moment.
SET_CLOCK = """
import os, sys, time
wall = time.time
time.time = lambda: wall() + float(open(os.environ["JUMP"]).read())
from resile.cli.main import main
sys.exit(main())
"""
FLOW = """
resile: 1
name: clocks
steps:
  gate: {shell: echo here > here && read line < go}
  flaky:
    needs: [gate]
    shell: echo try >> tries && test $(wc -l < tries) -ge 3
    retry: {max: 3, backoff: {type: fixed, initial: 300ms}}
  hang: {needs: [gate], shell: sleep 100, timeout: 500ms, on_failure: true}
"""


class Clocks(Program):
    """The program with a wall clock that the test sets."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.argv = [sys.executable, "-c", SET_CLOCK]
        self.env["JUMP"] = str(folder / "jump")
        self.set(0.0)
        self.write(FLOW)
        self.here, self.go = self.gate("here"), self.gate("go")

    def set(self, seconds: float) -> None:
        """Set the wall clock forward, or back, from now on."""
        written = self.folder / "jump.new"
        written.write_text(str(seconds))
        written.rename(self.folder / "jump")

    def log(self) -> list[dict[str, Any]]:
        """The events of run 1."""
        db = apsw.Connection(self.env["RESILE_DB"])
        try:
            return [json.loads(event) for (event,) in db.execute("SELECT event FROM log ORDER BY place")]
        finally:
            db.close()


@pytest.fixture
def clocks(tmp_path: Path) -> Clocks:
    """A folder with the workflow and a clock that is right."""
    return Clocks(tmp_path)


def check_times(clocks: Clocks, document: dict[str, Any]) -> None:
    """Times never go back, and all that was measured is as short as it was."""
    times = [event["at"] for event in clocks.log() if not event["type"].startswith("attempt_")]
    assert times == sorted(times)
    assert times[-1] - times[0] < 60.0
    spans = {job["step"]: job["seconds"] for job in document["jobs"]}
    assert {name for name, seconds in spans.items() if not 0.0 <= seconds < 60.0} == set()
    assert spans["flaky"] >= 0.6
    assert spans["hang"] >= 0.5
    assert 0.0 < document["duration_seconds"] < 60.0


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_clock_that_is_set_changes_no_backoff_and_no_timeout(clocks: Clocks, jump: float) -> None:
    """Retries come after their backoff and the timeout after its time, and every duration is what it was."""
    with clocks.start("run", "flow.yaml") as run:
        clocks.here.wait()
        clocks.set(jump)
        clocks.go.open()
        assert run.end() == 0, run.text
    document = clocks.json("status", "1")
    assert {job["step"]: (job["status"], job["attempts"]) for job in document["jobs"]} == {
        "gate": ("completed", 1),
        "flaky": ("completed", 3),
        "hang": ("failed", 1),
        "end": ("completed", 1),
    }
    check_times(clocks, document)
    assert f"{HOUR:.0f}" not in run.text["out"] + run.text["err"]


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_clock_that_is_set_loses_no_cancel(clocks: Clocks, jump: float) -> None:
    """The engine still holds its run for other commands, takes their request within moments, and says when it did."""
    with clocks.start("run", "flow.yaml") as run:
        clocks.here.wait()
        clocks.set(jump)
        assert clocks.json("status", "1")["status"] == "running"
        assert clocks.json("resume", "1", code=2)["error"]["code"] == "lease-held"
        assert clocks.json("cancel", "1")["requested"] is True
        assert run.end() == 3, run.text
    events = clocks.log()
    asked = next(event for event in events if event["type"] == "cancel_requested")
    assert 0.0 <= asked["at"] - events[0]["at"] < 60.0


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_killed_run_goes_on_with_its_clock(clocks: Clocks, jump: float) -> None:
    """After kill -9 and a jump the next engine adopts the step, with the time that the first one gave it."""
    with clocks.start("run", "flow.yaml") as run:
        clocks.here.wait()
        run.send(signal.SIGKILL)
        run.process.wait()
    clocks.set(jump)
    assert 0.0 <= clocks.json("status", "1")["duration_seconds"] < 60.0
    with clocks.start("resume", "1") as resumed:
        resumed.until("err", "resumed")
        clocks.go.open()
        assert resumed.end() == 0, resumed.text
    check_times(clocks, clocks.json("status", "1"))
    machines = [event["machine"] for event in clocks.log() if event["type"] in ("run_started", "run_resumed")]
    assert len(machines) == 2
    assert machines[0] == machines[1]
    assert machines[0]["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert os.path.getsize(clocks.folder / "tries") == 3 * len("try\n")
