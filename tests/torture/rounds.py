"""One round: one or two runs in one place, disturbed at random, driven to their ends, and judged."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path

from tests.torture.cases import SECONDS_MAX, Case
from tests.torture.disturbances import choose
from tests.torture.judge import faults_of
from tests.torture.places import Disk, Place, can_mount
from tests.torture.workflows import Workflow, function_workflow, random_workflow

ENDED = (0, 1, 3)
RESUMES_MAX = 10


def play(seed: str, folder: Path) -> tuple[list[str], list[str]]:
    """Play the round of a seed in an empty folder: what happened, and what was wrong."""
    chance = random.Random(seed)
    on_disk = chance.random() < 0.5
    place: Place = Disk(folder) if on_disk and can_mount() else Place(folder)
    happened: list[str] = []
    cases: list[Case] = []
    faults = ["the round broke off"]
    try:
        for name in ("first", "second")[: chance.randint(1, 2)]:
            Case(place, name, _workflow(chance), chance, cases)
        for _ in range(chance.randint(2, 8)):
            _disturb(chance.choice(cases), chance, happened)
        faults = [f"{case.name}: {fault}" for case in cases for fault in _end(case)]
    finally:
        for case in cases:
            case.signal_all(signal.SIGKILL)
        if faults:
            shutil.copytree(place.folder, folder / "kept")
        place.close()
    return happened, faults


def _workflow(chance: random.Random) -> Workflow:
    """Mostly a random graph of commands, sometimes calls of Python functions."""
    return function_workflow(chance) if chance.random() < 0.15 else random_workflow(chance)


def _disturb(case: Case, chance: random.Random, happened: list[str]) -> None:
    """Let time pass, then let something happen to one run, or to all that share its machine."""
    if case.wait(chance.uniform(0.0, 0.8)) and case.process.returncode in ENDED:
        return
    disturbance = choose(case)
    happened.append(f"{case.name}: {disturbance.__name__}")
    disturbance(case)


def _end(case: Case) -> list[str]:
    """Drive a run to its end without disturbing it any more, and judge it."""
    for _ in range(RESUMES_MAX):
        if not case.wait(SECONDS_MAX):
            return ["the run hangs"]
        if case.process.returncode in ENDED:
            return faults_of(case)
        case.go_on()
    return [f"the run does not end: exit code {case.process.returncode}"]
