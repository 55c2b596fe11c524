"""Calls of functions for which the system has no process or thread, with the real limit of a user who is not root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.executors.local.driver import DROP

ROOT = Path(__file__).parents[2]
# Starts calls while there is no process and no thread, does what the word says, and prints the reports.
STARVED = """
import json, os, resource, select, sys, time
from pathlib import Path
from tests.api.test_executor import launch, opened

folder, workers, word = sys.argv[1:]
hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
executor = opened(Path(folder), slots=2)
poll = select.poll()
poll.register(executor.fileno(), select.POLLIN)
found = []

def hear(seconds, count=99):
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        poll.poll(100)
        for report in executor.reports():
            if type(report).__name__ != "Started":
                errno = getattr(report, "spawn_error", 0)
                found.append([type(report).__name__, report.job, getattr(report, "value", b"").decode(), errno])

resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
executor.start([launch(1, "give", workers, 7), launch(2, "give", workers, 8)])
hear(1.0)
while_limited = len(found)
if word == "kill":
    executor.kill(1, 1)
    hear(30.0, 1)
if word == "wait":
    hear(90.0, 2)
resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
if word == "wait":
    executor.start([launch(3, "give", workers, 9)])
hear(30.0, 3 if word == "wait" else 2)
executor.acknowledge()
executor.close()
print(json.dumps([while_limited, found, os.listdir(folder + "/functions")]))
"""


def starved(folder: Path, workers: str, word: str) -> Any:
    """The reports of two calls that find no process or thread: how many came meanwhile, all of them, files left."""
    done = subprocess.run(
        [*DROP, sys.executable, "-c", STARVED, str(folder), workers, word],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        cwd=folder,
        capture_output=True,
        timeout=150,
        check=False,
    )
    assert not done.returncode, done.stderr.decode()
    return json.loads(done.stdout)


def test_calls_wait_for_a_worker(tmp_path: Path, workers: Any) -> None:
    """Calls that find no process or thread are made once there is one."""
    before, reports, files = starved(tmp_path, workers, "go")
    assert before == 0
    assert sorted(reports) == [["Returned", 1, "7", 0], ["Returned", 2, "8", 0]]
    assert files == []


def test_a_call_that_waits_for_a_worker_can_be_withdrawn(tmp_path: Path, workers: Any) -> None:
    """A kill takes a waiting call back at once; the other one is made."""
    before, reports, files = starved(tmp_path, workers, "kill")
    assert before == 0
    assert reports == [["Withdrawn", 1, "", 0], ["Returned", 2, "8", 0]]
    assert files == []


@pytest.mark.slow
def test_calls_fail_after_a_minute_without_a_worker(tmp_path: Path, workers: Any) -> None:
    """After a minute without any process or thread calls fail with kind `spawn`, and later ones are made again."""
    before, reports, files = starved(tmp_path, workers, "wait")
    assert before == 0
    assert sorted(reports[:2]) == [["Ended", 1, "", 11], ["Ended", 2, "", 11]]
    assert reports[2:] == [["Returned", 3, "9", 0]]
    assert files == []
