"""kill -9 of an engine that calls functions, in worker processes and in threads: finished calls are not made again."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.runs.durability.harness import Runs

CALLS = 200
KILLS_MAX = 12
FLOW = """
import os
from resile import Workflow, step

@step
def put(number):
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(f"n{number}\\n")
    return number

@step
def total(numbers):
    return sum(numbers)

with Workflow("kill", max_parallel=2, workers=WORKERS) as flow:
    total([put(number) for number in range(CALLS)])
"""
GATED = """
import os
from resile import Workflow, step

@step
def put(word):
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(word + "\\n")
    return word

@step
def wait(word, gate):
    with open(os.environ["EFFECTS"], "a") as file:
        file.write("wait\\n")
    with open(gate) as file:
        return word + file.read()

with Workflow("t", workers=WORKERS) as flow:
    wait(put("first"), GATE)
"""


def broken_off(runs: Runs, chance: random.Random, seconds_max: float) -> tuple[int, dict[str, Any]]:
    """Start, kill and resume a run until it ends; how often it was killed, and its document."""
    kills = 0
    process = runs.start("run", "flow.py", "--json")
    while kills < KILLS_MAX and runs.kill_at_random(process, chance, seconds_max):
        kills += 1
        process.wait()
        number = runs.number()
        process = runs.start("resume", str(number)) if number else runs.start("run", "flow.py", "--json")
    process.communicate()
    _, document = runs.call("resume", str(runs.number()))
    return kills, document


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["processes", "threads"])
@pytest.mark.parametrize("seed", range(6))
def test_finished_calls_are_made_once(tmp_path: Path, seed: int, workers: str) -> None:
    """However often the engine is killed, each call is recorded once, and made again only where it was cut off."""
    # Worker processes finish what they began, so there no effect happens twice; a thread ends with its engine, and the
    # log says which calls were lost by that.
    (tmp_path / "flow.py").write_text(FLOW.replace("WORKERS", repr(workers)).replace("CALLS", str(CALLS)))
    runs = Runs(tmp_path)
    kills, document = broken_off(runs, random.Random(seed), 0.8)
    assert document["status"] == "completed", (kills, document)
    names = ["put", *(f"put-{number}" for number in range(2, CALLS + 1))]
    assert runs.noted("attempt_succeeded") == dict.fromkeys([*names, "total", "end"], 1)
    lost = runs.noted("attempt_lost")
    effects = runs.counted()
    assert effects.keys() == {f"n{number}" for number in range(CALLS)}
    again = {name: effects[f"n{number}"] - 1 for number, name in enumerate(names) if effects[f"n{number}"] > 1}
    assert all(lost[name] >= count for name, count in again.items()), (kills, again, lost)
    if workers == "processes":
        assert not again, kills
    import resile

    assert resile.resume(runs.number(), db=runs.env["RESILE_DB"]).result("total") == sum(range(CALLS))


@pytest.mark.parametrize("workers", ["processes", "threads"])
def test_the_call_that_is_cut_off(tmp_path: Path, workers: str) -> None:
    """A worker process outlives its engine with its call; a thread's call is lost and made again; neither its need."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "flow.py").write_text(GATED.replace("WORKERS", repr(workers)).replace("GATE", repr(str(gate))))
    runs = Runs(tmp_path)
    process = runs.start("run", "flow.py", "--json")
    # Opening a pipe for writing waits until the function reads from it.
    writing = os.open(gate, os.O_WRONLY)
    process.kill()
    process.communicate()
    if workers == "threads":
        os.close(writing)
    resumed = runs.start("resume", "1")
    if workers == "threads":
        writing = os.open(gate, os.O_WRONLY)
    os.write(writing, b" opened")
    os.close(writing)
    resumed.communicate()
    assert resumed.returncode == 0
    times = 2 if workers == "threads" else 1
    assert runs.counted() == {"first": 1, "wait": times}
    assert runs.noted("attempt_lost") == ({"wait": 1} if workers == "threads" else {})
    import resile

    assert resile.resume(1, db=runs.env["RESILE_DB"]).result("wait") == "first opened"
