"""kill -9 at random moments, resume, and the result is what it would have been."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.runs.durability.harness import ROUNDS_MAX, Runs, kill_at_random, times

STEPS = 200
KILLS = times("RESILE_KILLS", 100)
LAUNCHER_KILLS = times("RESILE_KILLS", 20)
FLOW = "resile: 1\nname: many\nmax_parallel: 4\nsteps:\n" + "".join(
    f"  s{n}:\n    shell: sleep 0.0{n % 4} && echo s{n} >> $EFFECTS && echo out-{n}\n"
    + (f"    needs: [s{n // 3}]\n" if n else "")
    for n in range(STEPS)
)
NAMES = {f"s{n}" for n in range(STEPS)}
OUTPUT = sorted(f"out-{n}" for n in range(STEPS))


def _true_so_far(runs: Runs, document: dict[str, Any]) -> None:
    """`status` never lies: what it calls completed has had its effect, and nobody drives the run."""
    done = {job["step"] for job in document["jobs"] if job["status"] == "completed"} & NAMES
    assert done <= set(runs.counted())
    assert document["status"] in ("interrupted", "completed")
    assert document["steps"]["completed"] == len(done)


def _final(document: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on how often a run was killed."""
    jobs = [{key: job[key] for key in ("id", "step", "status", "exit_code", "cause")} for job in document["jobs"]]
    return {"status": document["status"], "steps": document["steps"], "jobs": jobs}


@pytest.mark.slow
def test_an_engine_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    """Every step's effect happens exactly once: finished ones are kept, running ones are adopted."""
    chance = random.Random(20)
    undisturbed = Runs(tmp_path / "quiet" if (tmp_path / "quiet").mkdir() is None else tmp_path)
    (undisturbed.folder / "flow.yaml").write_text(FLOW)
    expected = _final(undisturbed.call("run", "flow.yaml")[1])
    kills = 0
    for round_number in range(ROUNDS_MAX):
        folder = tmp_path / str(round_number)
        folder.mkdir()
        runs = Runs(folder)
        (folder / "flow.yaml").write_text(FLOW)
        process = runs.start("run", "flow.yaml")
        while runs.kill_at_random(process, chance, 0.8):
            process.wait()
            number = runs.number()
            kills += number > 0
            if number:
                _true_so_far(runs, runs.call("status", str(number))[1])
                process = runs.start("resume", str(number))
            else:
                process = runs.start("run", "flow.yaml")
        assert process.wait() == 0, process.stderr.read().decode() if process.stderr else ""
        code, document = runs.call("status", str(runs.number()))
        assert code == 0
        assert _final(document) == expected
        assert runs.counted() == dict.fromkeys(NAMES, 1)
        assert set(runs.attempts().values()) == {1}
        assert runs.noted("attempt_lost") == {}
        assert runs.output() == undisturbed.output()
        if kills >= KILLS:
            break
    assert kills >= KILLS


@pytest.mark.slow
def test_a_launcher_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    """What had finished is not repeated; what was in flight is lost, tried again, and happens at least once."""
    chance = random.Random(21)
    kills = 0
    for round_number in range(ROUNDS_MAX):
        folder = tmp_path / str(round_number)
        folder.mkdir()
        runs = Runs(folder)
        (folder / "flow.yaml").write_text(FLOW)
        process = runs.start("run", "flow.yaml")
        for _ in range(4):
            try:
                process.wait(timeout=chance.uniform(0.1, 0.4))
                break
            except subprocess.TimeoutExpired:
                launcher = runs.launcher(process.pid)
                if launcher and kill_at_random(process, launcher, chance, 0.01):
                    kills += 1
        assert process.wait() == 0, process.stderr.read().decode() if process.stderr else ""
        _, document = runs.call("status", str(runs.number()))
        assert document["status"] == "completed"
        counted = runs.counted()
        once = {job["step"] for job in document["jobs"] if job["attempts"] == 1} & NAMES
        assert set(counted) == NAMES
        assert {name: counted[name] for name in once} == dict.fromkeys(once, 1)
        assert set(runs.attempts().values()) == {1}
        lost = runs.noted("attempt_lost")
        assert {name for name in NAMES if counted[name] - 1 > lost[name]} == set()
        assert sorted(line for line in runs.output().splitlines() if not line.startswith("==> ")) == OUTPUT
        if kills >= LAUNCHER_KILLS:
            break
    assert kills >= LAUNCHER_KILLS
