"""kill -9 of the engine, of a block and of a worker at random moments: nothing is lost, nothing is recorded twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.parsl.cluster_runs import Place, place, wait_for

__all__ = ["place"]
JOBS = int(os.environ.get("RESILE_TEST_JOBS", "500"))
ROUNDS = 6


def flow_in(folder: Path) -> str:
    """A map whose items write to a file when they start and when they are done."""
    (folder / "items.json").write_text(str(list(range(JOBS))))
    return f"""
resile: 1
steps:
  work:
    map:
      input: items.json
      max_parallel: 8
      agent_template:
        - id: one
          shell: 'echo ${{item}} >> {folder}/started; sleep 0.05; echo ${{item}} >> {folder}/done'
"""


def count(path: Path) -> int:
    """How many lines a file has."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_one(place: Place, random_: random.Random, engine: subprocess.Popen[str], what: str) -> str:
    """SIGKILL the engine, a block (agent, manager or the shell around it) or a worker; say what it was."""
    if what == "engine":
        engine.kill()
        return what
    found = [line for line in place.processes() if ("node.pyz" in line) == (what == "agent")]
    words = {"agent": "-S -E", "manager": "process_worker_pool.py", "worker": "worker"}[what]
    candidates = [int(line.split()[0]) for line in found if words in line]
    if not candidates:
        return ""
    try:
        os.kill(random_.choice(candidates), signal.SIGKILL)
    except ProcessLookupError:
        return ""
    return what


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_recorded_twice(place: Place) -> None:
    """All items finish; each has one recorded success; only those in flight at a kill started again."""
    random_ = random.Random(7)
    engine = place.start(flow_in(place.folder))
    kills: list[str] = []
    for _ in range(ROUNDS):
        for what in random_.sample(["worker", "agent", "manager", "engine"], 2):
            target = min(JOBS - 1, count(place.folder / "done") + random_.randint(5, JOBS // 12))
            wait_for(
                "more items are done, or the engine is gone",
                lambda target=target, engine=engine: (
                    count(place.folder / "done") >= target or engine.poll() is not None
                ),
            )
            kills.append(kill_one(place, random_, engine, what))
            if what == "engine":
                engine.communicate()
                engine = place.popen("resume", "1")
    out, err = engine.communicate(timeout=480)
    assert engine.returncode == 0, (kills, out, err)
    # A kill may miss; that of a worker, which many have, or of a whole block hits at least once.
    assert {"worker", "agent", "manager"} & set(kills), kills
    assert "engine" in kills, kills
    done = Counter((place.folder / "done").read_text().split())
    assert set(done) == {str(item) for item in range(JOBS)}
    events = place.events()
    ends = Counter(event["job"] for event in events if event["type"] == "step_completed" and event["step"] == "one")
    assert len(ends) == JOBS
    assert set(ends.values()) == {1}
    again = sum(Counter((place.folder / "started").read_text().split()).values()) - JOBS
    # Two blocks of two workers each: no kill hits more attempts than that.
    assert again <= 4 * len(list(filter(None, kills)))
    wait_for("no process of a block is left", lambda: not place.processes(), 60)
