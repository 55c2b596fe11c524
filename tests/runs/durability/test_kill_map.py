"""kill -9 during a fan-out and the redrive of its dead letters: nothing is lost, nothing recorded happens twice."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from tests.runs.durability.harness import ROUNDS_MAX, Runs, times

ITEMS = 400
FAILING = 150
KILLS = times("RESILE_KILLS", 20)
FLOW = """resile: 1
name: fan
max_parallel: 3
steps:
  - name: work
    map:
      input: items.jsonl
      error_policy: {continue_on_failure: true}
      steps:
        - shell: test -e fixed || test ${item.n} -ge 150 || exit 3
        - shell: echo item-${item.n} >> $EFFECTS
  - name: after
    shell: echo after >> $EFFECTS
"""


OUTER, INNER = 25, 8
NESTED = """resile: 1
name: nested
max_parallel: 3
steps:
  - name: outer
    map:
      input: items.jsonl
      error_policy: {continue_on_failure: true}
      steps:
        - {shell: 'echo out-${item.n}', capture: whose}
        - name: inner
          map:
            input: [0, 1, 2, 3, 4, 5, 6, 7]
            error_policy: {continue_on_failure: true}
            steps:
              - shell: test -e fixed || test ${item} -ge 3 || exit 3
              - shell: echo ${whose}-${item} >> $EFFECTS
"""


def _killed(
    runs: Runs, chance: random.Random, first: list[str], again: list[str], kills: int, seconds: float = 1.0
) -> tuple[int, int]:
    """Drive a command to its end through so many kills, each within some time: how often it was, and its exit code."""
    done = 0
    process = runs.start(*first)
    while True:
        killed = done < kills and runs.kill_at_random(process, chance, seconds)
        if not killed:
            return done, _ended(process)
        process.wait()
        begun = runs.number() > 0
        done += begun
        process = runs.start(*(again if begun else first))


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a command that nobody kills."""
    code = process.wait()
    assert code in (0, 1), process.stderr.read().decode() if process.stderr else ""
    return code


@pytest.mark.slow
def test_no_item_is_lost_or_doubled_by_kill_9_in_a_map_and_in_its_redrive(tmp_path: Path) -> None:
    """Some items fail; after the cause is gone a redrive empties the dead letters; every effect exactly once."""
    chance = random.Random(4)
    kills = redrive_kills = 0
    for number in range(ROUNDS_MAX):
        folder = tmp_path / str(number)
        folder.mkdir()
        first, second = _one_round(Runs(folder), chance)
        kills += first
        redrive_kills += second
        if min(kills, redrive_kills) >= KILLS:
            break
    assert min(kills, redrive_kills) >= KILLS


def _one_round(runs: Runs, chance: random.Random) -> tuple[int, int]:
    """One run and one redrive, both killed again and again; how often each was."""
    (runs.folder / "flow.yaml").write_text(FLOW)
    (runs.folder / "items.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(ITEMS)))
    kills, code = _killed(runs, chance, ["run", "flow.yaml"], ["resume", "1"], KILLS)
    assert code == 0
    assert runs.counted() == {**{f"item-{n}": 1 for n in range(FAILING, ITEMS)}, "after": 1}
    numbers = runs.call("status", "1")[1]["maps"]["work"]
    assert (numbers["total_items"], numbers["successful"], numbers["failed"]) == (ITEMS, ITEMS - FAILING, FAILING)
    letters = runs.call("dlq", "list", "1")[1]["dead_letters"]
    assert [letter["item_id"] for letter in letters] == [f"work[{n}]" for n in range(FAILING)]
    (runs.folder / "fixed").touch()
    redrive_kills, code = _killed(runs, chance, ["dlq", "retry", "1"], ["dlq", "retry", "1"], KILLS)
    assert code == 0
    assert runs.call("dlq", "list", "1")[1] == {"version": 1, "dead_letters": []}
    assert runs.counted() == {**{f"item-{n}": 1 for n in range(ITEMS)}, "after": 1}
    numbers = runs.call("status", "1")[1]["maps"]["work"]
    assert (numbers["successful"], numbers["failed"], numbers["held"]) == (ITEMS, 0, 0)
    return kills, redrive_kills


@pytest.mark.slow
def test_letters_of_a_map_inside_of_another_survive_kill_9_too(tmp_path: Path) -> None:
    """Each belongs to another fan-out, whose surroundings are restored for it: every effect exactly once."""
    chance = random.Random(5)
    kills = 0
    for number in range(ROUNDS_MAX):
        folder = tmp_path / str(number)
        folder.mkdir()
        runs = Runs(folder)
        (folder / "flow.yaml").write_text(NESTED)
        (folder / "items.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(OUTER)))
        assert _killed(runs, chance, ["run", "flow.yaml"], ["resume", "1"], 3)[1] == 0
        letters = runs.call("dlq", "list", "1")[1]["dead_letters"]
        expected = [f"outer[{outer}]/inner[{inner}]" for outer in range(OUTER) for inner in range(3)]
        assert [letter["item_id"] for letter in letters] == expected
        (folder / "fixed").touch()
        # Few letters are soon done, so the moments lie closer together.
        killed, code = _killed(runs, chance, ["dlq", "retry", "1"], ["dlq", "retry", "1"], KILLS, 0.3)
        assert code == 0
        assert runs.call("dlq", "list", "1")[1] == {"version": 1, "dead_letters": []}
        assert runs.counted() == {f"out-{outer}-{inner}": 1 for outer in range(OUTER) for inner in range(INNER)}
        kills += killed
        if kills >= KILLS:
            break
    assert kills >= KILLS


FAILING_NESTED = (
    re.sub(r" *error_policy: .*\n", "", NESTED)
    + "        - {name: tail, shell: 'echo tail-${whose} >> $EFFECTS'}\n"
    + "  - {name: reduce, needs: [outer], shell: 'echo reduce >> $EFFECTS'}\n"
)


@pytest.mark.slow
def test_a_rerun_of_what_failed_survives_kill_9(tmp_path: Path) -> None:
    """Maps inside items of a failed map: what had succeeded is kept, and every effect happens exactly once."""
    chance = random.Random(6)
    kills = 0
    for number in range(ROUNDS_MAX):
        folder = tmp_path / str(number)
        folder.mkdir()
        runs = Runs(folder)
        (folder / "flow.yaml").write_text(FAILING_NESTED)
        (folder / "items.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(OUTER)))
        assert runs.call("run", "flow.yaml")[0] == 1
        (folder / "fixed").touch()
        process = runs.start("rerun", "1", "--failed-only")
        while kills < KILLS and runs.kill_at_random(process, chance, 0.5):
            process.wait()
            kills += 1
            epoch = runs.call("status", "1")[1]["epoch"]
            process = runs.start(*(["resume", "1"] if epoch == 2 else ["rerun", "1", "--failed-only"]))
        assert _ended(process) == 0
        assert runs.call("dlq", "list", "1")[1] == {"version": 1, "dead_letters": []}
        leaves = {f"out-{outer}-{inner}": 1 for outer in range(OUTER) for inner in range(INNER)}
        assert runs.counted() == {**leaves, **{f"tail-out-{outer}": 1 for outer in range(OUTER)}, "reduce": 1}
        maps = runs.call("status", "1")[1]["maps"]
        done = {name: (maps[name]["total_items"], maps[name]["successful"]) for name in ("outer", "outer/inner")}
        assert done == {"outer": (OUTER, OUTER), "outer/inner": (OUTER * INNER, OUTER * INNER)}
        if kills >= KILLS:
            break
    assert kills >= KILLS
