"""kill -9 of the engine at random moments: calls that had finished are not made again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.durability.harness import Runs, kill_at_random

CALLS = 200
FLOW = f"""
import os
from resile import Workflow, step

@step
def put(number):
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(f"n{{number}}\\n")
    return number

@step
def total(numbers):
    return sum(numbers)

with Workflow("kill", max_parallel=2) as flow:
    total([put(number) for number in range({CALLS})])
"""


def broken_off(runs: Runs, chance: random.Random, seconds_max: float, kills_max: int) -> tuple[int, dict[str, object]]:
    """Start, kill and resume a run until it ends; how often it was killed, and its document."""
    kills = 0
    process = runs.start("run", "flow.py", "--json")
    while kills < kills_max and kill_at_random(process, process.pid, chance, seconds_max):
        kills += 1
        process.wait()
        number = runs.number()
        process = runs.start("resume", str(number)) if number else runs.start("run", "flow.py", "--json")
    process.communicate()
    _, document = runs.call("resume", str(runs.number()))
    return kills, document


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_finished_calls_are_made_exactly_once(tmp_path: Path, seed: int) -> None:
    """However often the engine is killed, each of 200 functions has its effect exactly once and the sum is right."""
    (tmp_path / "flow.py").write_text(FLOW)
    runs = Runs(tmp_path)
    kills, document = broken_off(runs, random.Random(seed), 0.8, 12)
    assert document["status"] == "completed", (kills, document)
    assert runs.counted() == {f"n{number}": 1 for number in range(CALLS)}, kills
    import resile

    resumed = resile.resume(runs.number(), db=runs.env["RESILE_DB"])
    assert resumed.result("total") == sum(range(CALLS))


def test_a_call_that_outlives_its_engine_is_adopted(tmp_path: Path) -> None:
    """A worker finishes the call that it makes when its engine is killed, and a resume takes what it gave."""
    import os

    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "flow.py").write_text(
        "from resile import Workflow, step\n"
        "@step\n"
        "def wait(began, gate):\n"
        "    open(began, 'a').write('x')\n"
        "    return open(gate).read()\n"
        "with Workflow('t') as flow:\n"
        f"    wait({str(tmp_path / 'began')!r}, {str(gate)!r})\n"
    )
    runs = Runs(tmp_path)
    process = runs.start("run", "flow.py", "--json")
    # Opening a pipe for writing waits until the function reads from it.
    writing = os.open(gate, os.O_WRONLY)
    process.kill()
    process.communicate()
    resumed = runs.start("resume", "1")
    os.write(writing, b"opened")
    os.close(writing)
    resumed.communicate()
    assert resumed.returncode == 0
    assert (tmp_path / "began").read_text() == "x"
    import resile

    assert resile.resume(1, db=runs.env["RESILE_DB"]).result("wait") == "opened"
