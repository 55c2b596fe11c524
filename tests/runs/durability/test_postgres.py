"""Runs in PostgreSQL: engines that are killed, and a server that stops and starts in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from resile.store.open import open_store
from tests.cluster import Cluster, private_cluster
from tests.runs.durability.harness import RESILE, Runs

WAIT_SECONDS_MAX = 60.0
STEPS = 24
FLOW = "resile: 1\nname: many\nmax_parallel: 3\nsteps:\n" + "".join(
    f"  s{n}:\n    shell: sleep 0.1 && echo s{n} >> $EFFECTS && echo out-{n}\n"
    + (f"    needs: [s{n // 2}]\n" if n else "")
    for n in range(STEPS)
)
LONG = "resile: 1\nname: long\nsteps:\n  s:\n    shell: echo s >> $EFFECTS && exec sleep 600\n"
ONCE = {f"s{n}": 1 for n in range(STEPS)}


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """A PostgreSQL that tests may stop and start."""
    with private_cluster() as made:
        yield made


@pytest.fixture
def runs(server: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Runs:
    """A folder with a workflow, whose runs are kept in a schema of their own."""
    made = Runs(tmp_path)
    made.env |= {"RESILE_DB": server.url(f"t{abs(hash(request.node.name))}"), "XDG_STATE_HOME": str(tmp_path / "state")}
    made.env.pop("RESILE_OUTPUT_DIR", None)
    (tmp_path / "flow.yaml").write_text(FLOW)
    return made


def wait_for_effects(runs: Runs, number: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until this many steps have had their effect."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(runs.counted()) < number and process.poll() is None:
        assert time.monotonic() < deadline, "the run does not go on"
        os.sched_yield()


def test_a_killed_engine_is_resumed(runs: Runs) -> None:
    """After kill -9 `status` tells the truth, `resume` adopts what runs, and each effect happens once."""
    process = runs.start("run", "flow.yaml")
    wait_for_effects(runs, 3, process)
    process.kill()
    process.communicate()
    assert runs.call("status", "1")[1]["status"] == "interrupted"
    code, document = runs.call("resume", "1")
    assert (code, document["status"], document["steps"]["completed"]) == (0, "completed", STEPS)
    assert runs.counted() == ONCE
    code, found = runs.call("db", "check")
    assert (code, found["is_whole"]) == (0, True)
    logs = subprocess.run([*RESILE, "logs", "1", "s7"], env=runs.env, cwd=runs.folder, capture_output=True, text=True)
    assert (logs.returncode, "out-7" in logs.stdout) == (0, True)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_run_goes_on_when_the_server_comes_back(runs: Runs, server: Cluster, mode: str) -> None:
    """PostgreSQL stops and starts again while a run is going: no step is lost, and none runs twice."""
    process = runs.start("run", "flow.yaml")
    for effects in (3, 10):
        wait_for_effects(runs, effects, process)
        server.stop(mode)
        server.start()
    said = process.communicate()[1].decode()
    assert process.returncode == 0, said
    assert runs.counted() == ONCE
    assert runs.call("status", "1")[1]["status"] == "completed"
    assert runs.call("db", "check")[0] == 0


def test_a_request_wakes_the_engine(runs: Runs) -> None:
    """`cancel` from another process ends the run of a living engine."""
    (runs.folder / "long.yaml").write_text(LONG)
    process = runs.start("run", "long.yaml")
    wait_for_effects(runs, 1, process)
    assert runs.call("cancel", "1")[1]["requested"] is True
    process.communicate()
    assert runs.call("status", "1")[1]["status"] == "canceled"


def test_a_password_is_never_printed(tmp_path: Path) -> None:
    """A server that is not there is named without the password of its address, in text and in JSON."""
    for words in (["status"], ["status", "--json"], ["run", "flow.yaml"], ["db", "check", "--json"]):
        (tmp_path / "flow.yaml").write_text(FLOW)
        done = subprocess.run(
            [sys.executable, "-m", "resile", *words, "--db", f"postgresql://ann:hush@/db?host={tmp_path}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2, done
        assert "postgresql://ann@/db" in done.stdout + done.stderr
        assert "hush" not in done.stdout + done.stderr


def test_runs_are_there_for_every_opening(runs: Runs) -> None:
    """What the command line wrote, a program reads by the same address."""
    assert runs.call("run", "flow.yaml")[0] == 0
    store = open_store(runs.env["RESILE_DB"], readonly=True)
    row = store.run(1)
    assert row is not None
    assert (row.workflow, row.status) == ("many", "completed")
    assert row.output == f"{runs.env['XDG_STATE_HOME']}/resile/output/{store.identity()}"
    store.close()
