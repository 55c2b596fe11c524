"""Random edits of random graphs: exactly the steps run again that a naive recomputation names."""

from __future__ import annotations

import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.runs.changed.place import Place, taken_over

GRAPHS, BLOCKS, STEPS_MAX, FILES = 200, 10, 40, 6
Steps = dict[str, dict[str, Any]]


def _graph(chance: random.Random) -> Steps:
    """A graph whose steps read source files and files of steps before them, and write files."""
    steps: Steps = {}
    for number in range(chance.randint(1, STEPS_MAX)):
        needs = sorted(chance.sample(sorted(steps), min(len(steps), chance.choice((0, 1, 1, 2, 3)))))
        step: dict[str, Any] = {"needs": needs} if needs else {}
        reads = [f"in{chance.randrange(FILES)}.txt" for _ in range(chance.choice((0, 0, 1, 2)))]
        reads += [steps[name]["outputs"][0] for name in needs if "outputs" in steps[name] and chance.random() < 0.5]
        if reads:
            step["reads"] = sorted(set(reads))
        if chance.random() < 0.5:
            step["outputs"] = [f"out{number}.txt"]
        writes = f" > out{number}.txt" if "outputs" in step else ""
        step["shell"] = f"cat {' '.join(step.get('reads', ['/dev/null']))}{writes}; echo {number}"
        if chance.random() < 0.2:
            step["env"] = {"MODE": "a"}
        steps[f"s{number}"] = step
    return steps


def _edit(chance: random.Random, steps: Steps) -> None:
    """Change the file, or the files beside it, in one way; some of the ways change nothing that counts."""
    name = chance.choice(sorted(steps))
    step = steps[name]
    match chance.choice(("command", "env", "source", "same", "delete", "add", "remove", "need", "unneed", "limits")):
        case "command":
            step["shell"] += "; echo edited"
        case "env":
            step["env"] = {**step.get("env", {}), "MODE": chance.choice("ab")}
        case "source":
            Path(f"in{chance.randrange(FILES)}.txt").write_text(f"other {chance.random()}")
        case "same":
            file = Path(f"in{chance.randrange(FILES)}.txt")
            file.write_text(file.read_text())
        case "delete":
            for path in step.get("outputs", ()):
                Path(path).unlink(missing_ok=True)
        case "add":
            steps[f"new{len(steps)}"] = {"shell": "echo new", "needs": [name]}
        case "remove" if len(steps) > 1:
            del steps[name]
            for other in steps.values():
                other["needs"] = [need for need in other.get("needs", ()) if need != name]
        case "need":
            before = [other for other in list(steps)[: list(steps).index(name)] if other not in step.get("needs", ())]
            if before:
                step["needs"] = [*step.get("needs", ()), chance.choice(before)]
        case "unneed" if step.get("needs"):
            step["needs"] = step["needs"][1:]
        case "limits":
            step |= {"timeout": "1h", "retry": 1, "resources": {"cpus": 1}}


def _contents() -> dict[str, str]:
    """The contents of all files of a graph."""
    return {path.name: path.read_text() for path in Path().glob("*.txt")}


def _naive(before: Steps, after: Steps, was: dict[str, str], now: dict[str, str], undone: set[str]) -> set[str]:
    """The steps that must run again: looked at one by one until nothing changes any more."""
    again: set[str] = set()
    for name, step in after.items():
        old = before.get(name)
        if old is None or name in undone:
            again.add(name)
            continue
        is_plain = not step.get("reads") and not step.get("outputs")
        why = (
            step["shell"] != old["shell"],
            step.get("env") != old.get("env"),
            any(was.get(path) != now.get(path) for path in step.get("reads", ())),
            any(path not in now for path in step.get("outputs", ())),
            is_plain and set(step.get("needs", ())) != set(old.get("needs", ())),
        )
        if any(why):
            again.add(name)
    while more := {name for name, step in after.items() if again & set(step.get("needs", ()))} - again:
        again |= more
    return again


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_exactly_what_a_naive_recomputation_names(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph is run, edited, and run again: with `--cached`, or after a failure with `rerun --changed`."""
    wrong: list[tuple[int, object]] = []
    for seed in range(block * GRAPHS // BLOCKS, (block + 1) * GRAPHS // BLOCKS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        monkeypatch.chdir(folder)
        chance, place = random.Random(seed), Place()
        for number in range(FILES):
            Path(f"in{number}.txt").write_text(f"source {number}")
        steps = _graph(chance)
        fails = chance.choice(sorted(steps)) if seed % 2 else ""
        before = deepcopy(steps)
        if fails:
            before[fails]["shell"] += "; exit 1"
            if chance.random() < 0.5:
                steps = deepcopy(before)
        place.write({"steps": before})
        first = place.run()
        undone = {job.step for job in first.jobs if job.status != "completed"}
        assert undone == set() or fails
        was = _contents()
        for _ in range(chance.randint(1, 3)):
            _edit(chance, steps)
        place.write({"steps": steps})
        expected = sorted(_naive(before, steps, was, _contents(), undone))
        if fails:
            found = sorted(place.changes(first.run))
            again = place.rerun(first.run)
            started = [] if again is None else place.started(first.run, 2)
            # A step below one that fails once more does not start.
            exact = (
                set(started) <= set(expected) if again is not None and again.status == "failed" else started == expected
            )
        else:
            found = sorted(place.cached_changes())
            again = place.run(cached=True)
            exact = place.started(again.run) == expected
            exact = exact and sorted(taken_over(again)) == sorted(set(steps) - set(expected))
            exact = exact and again.status == "completed" and place.cached_changes() == {}
        if found != expected or not exact:
            wrong.append((seed, (expected, found)))
    assert wrong == []
