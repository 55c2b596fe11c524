"""kill -9 between a retry's reservation, its repair and its re-attempt: nothing is lost, nothing happens twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.runs.durability.harness import ROUNDS_MAX, Runs, times

STEPS = 30
KILLS = times("RESILE_KILLS", 30)
# Each step fails twice and is repaired before each re-run; what it does is written down with its attempt's number.
FLOW = "resile: 1\nname: repaired\nmax_parallel: 3\nsteps:\n" + "".join(
    f"""  s{n}:
    shell: sleep 0.0{n % 3}; echo s{n}-a$RESILE_ATTEMPT_ID >> $EFFECTS; test $RESILE_ATTEMPT_ID -ge 3
    on_failure:
      commands:
        - shell: sleep 0.0{n % 2}; echo s{n}-h$RESILE_ATTEMPT_ID >> $EFFECTS
        - shell: echo s{n}-i$RESILE_ATTEMPT_ID >> $EFFECTS
      max_attempts: 3
"""
    for n in range(STEPS)
)


@pytest.mark.slow
def test_repairs_and_re_attempts_survive_kill_9_at_any_point(tmp_path: Path) -> None:
    """For every step exactly a1 h1 i1 a2 h2 i2 a3, in this order, however often the engine was killed."""
    chance = random.Random(68)
    kills = 0
    for round_number in range(ROUNDS_MAX):
        folder = tmp_path / str(round_number)
        folder.mkdir()
        runs = Runs(folder)
        (folder / "flow.yaml").write_text(FLOW)
        process = runs.start("run", "flow.yaml")
        while runs.kill_at_random(process, chance, 0.7):
            process.wait()
            number = runs.number()
            kills += number > 0
            process = runs.start("resume", str(number)) if number else runs.start("run", "flow.yaml")
        assert process.wait() == 0, process.stderr.read().decode() if process.stderr else ""
        done = runs.effects.read_text().split()
        for n in range(STEPS):
            mine = [word.partition("-")[2] for word in done if word.startswith(f"s{n}-")]
            assert mine == ["a1", "h1", "i1", "a2", "h2", "i2", "a3"]
        _, document = runs.call("status", str(runs.number()))
        assert document["steps"]["recovered"] == STEPS
        if kills >= KILLS:
            break
    assert kills >= KILLS
