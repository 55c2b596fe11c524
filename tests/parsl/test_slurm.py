"""A real Slurm of several nodes: how allocations end is how attempts end, and no job is lost or recorded twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from resile.executors.parsl.providers import OWN_MIB
from tests.parsl.cluster_runs import Place, wait_for
from tests.parsl.slurm_cluster import SlurmCluster
from tests.recovery.test_watch import PIPELINE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A Slurm for all tests of this module."""
    found = SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=3)
    yield found
    found.stop()


@pytest.fixture
def place(tmp_path: Path, slurm: SlurmCluster) -> Iterator[Place]:
    """A place whose blocks are allocations of that Slurm."""
    found = Place(tmp_path, slurm.env)
    found.describe(provider="slurm", partition="debug", blocks_max=2, idle="10s", walltime="00:10:00")
    yield found
    wait_for("no allocation is left", lambda: not slurm.jobs("PENDING", "RUNNING"), 60)
    # Slurm may still be completing one.
    wait_for("no process of a block is left", lambda: not found.processes(), 60)


def attempts_of(place: Place, step: str, kind: str) -> list[dict[str, object]]:
    """The data of the events of one kind about a step."""
    return [one["data"] for one in place.events() if one["type"] == kind and one["step"] == step]


def running(place: Place, slurm: SlurmCluster, marker: str) -> tuple[str, str]:
    """Wait until a step has made its marker; the id and node of the allocation that it wrote there."""
    path = place.folder / marker
    text = wait_for(
        f"{marker} is written", lambda: path.exists() and path.read_text().endswith("\n") and path.read_text()
    )
    job, node = str(text).split()
    assert any(job == one for one, _, _ in slurm.jobs("RUNNING"))
    return job, node


def once(folder: Path, marker: str) -> str:
    """A command that waits for ever the first time, and succeeds the second time."""
    place = f"{folder}/{marker}"
    return f"test -e {place} && exit 0; echo $SLURM_JOB_ID $SLURMD_NODENAME > {place}; sleep 1000"


def test_success_and_exit_codes(place: Place, slurm: SlurmCluster) -> None:
    """Steps run in an allocation with the names of the run; rules for exit codes hold as they do locally."""
    done = place.run(
        "resile: 1\nsteps:\n"
        "  good: {shell: 'echo in $SLURM_JOB_NAME'}\n"
        "  again: {shell: 'test -e again && exit 0; touch again; exit 7', retry: {max: 2, backoff: 100ms}}\n"
        "  bad: {shell: 'exit 5', needs: [good, again]}\n"
    )
    assert done.returncode == 1, done.stderr
    assert "exit code 5" in done.stdout
    assert [one["exit_code"] for one in attempts_of(place, "again", "attempt_failed")] == [7]
    assert len(attempts_of(place, "again", "attempt_succeeded")) == 1
    # The first two steps are ready together: up to two allocations come up, and either may take this one.
    (ran_in,) = re.findall(r"^in (resile-1-[12])$", place.call("logs", "1", "good").stdout, re.MULTILINE)
    assert ran_in in {name for _, name, _ in slurm.jobs()}


def test_time_limit_of_a_step(place: Place) -> None:
    """A step's own time limit ends it inside the allocation, which goes on."""
    done = place.run("resile: 1\nsteps:\n  slow: {shell: 'sleep 1000', timeout: 1s}\n")
    assert done.returncode == 1
    (failed,) = attempts_of(place, "slow", "attempt_failed")
    assert failed["kind"] == "timeout"


def test_time_limit_of_an_allocation(place: Place) -> None:
    """The end of an allocation is the kind timeout, and the message names it."""
    place.describe(provider="slurm", partition="debug", idle="10s", walltime="00:01:00")
    done = place.run("resile: 1\nsteps:\n  slow: {shell: 'sleep 1000'}\n")
    assert done.returncode == 1, done.stderr
    (failed,) = attempts_of(place, "slow", "attempt_failed")
    assert failed["kind"] == "timeout"
    assert "the allocation's time is over" in str(failed["message"])


def test_a_step_that_saves_its_work_before_the_allocation_ends(place: Place) -> None:
    """It gets SIGTERM before the end, ends with exit 0, and goes on in a new allocation at no cost."""
    place.describe(provider="slurm", partition="debug", idle="10s", walltime="00:03:00", grace="120s")
    save = "test -e saved && exit 0; trap 'touch saved; exit 0' TERM; while :; do sleep 0.1; done"
    done = place.run(f'resile: 1\nsteps:\n  slow:\n    shell: "{save}"\n')
    assert done.returncode == 0, done.stderr
    (lost,) = attempts_of(place, "slow", "attempt_lost")
    assert "terminated" in str(lost["reason"])
    assert len(attempts_of(place, "slow", "step_completed")) == 1


def test_memory_of_a_step_is_enforced(place: Place) -> None:
    """A step that uses more memory than it asked for ends with the kind oom, inside its allocation."""
    eat = 'python3 -c "x = bytearray(400 << 20); import time; time.sleep(60)"'
    done = place.run(f"resile: 1\nsteps:\n  eat: {{shell: '{eat}', resources: {{memory: 100m}}}}\n")
    assert done.returncode == 1, done.stderr
    (failed,) = attempts_of(place, "eat", "attempt_failed")
    assert failed["kind"] == "oom"


def test_scancel_of_an_allocation(place: Place, slurm: SlurmCluster) -> None:
    """A canceled allocation costs its attempt nothing: it runs again in a new one."""
    engine = place.start(f"resile: 1\nsteps:\n  one: {{shell: '{once(place.folder, 'marker')}'}}\n")
    job, _ = running(place, slurm, "marker")
    slurm.call("scancel", job)
    out, err = engine.communicate(timeout=480)
    assert engine.returncode == 0, (out, err)
    (lost,) = attempts_of(place, "one", "attempt_lost")
    assert "preempted" in str(lost["reason"])
    assert f"attempt 1: interrupted: {lost['reason']}" in " ".join(place.call("explain", "1").stdout.split())
    assert f"allocation {job}" in str(lost["reason"])
    assert len(attempts_of(place, "one", "step_completed")) == 1


def test_a_node_that_goes_down(place: Place, slurm: SlurmCluster) -> None:
    """NODE_FAIL is the kind lost, the node is named, and the attempt runs again elsewhere."""
    engine = place.start(f"resile: 1\nsteps:\n  one: {{shell: '{once(place.folder, 'marker')}'}}\n")
    _, node = running(place, slurm, "marker")
    slurm.call("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    out, err = engine.communicate(timeout=480)
    wait_for("the node is back by itself", lambda: node in slurm.call("sinfo", "-h", "-N", "-t", "idle", "-o", "%N"))
    assert engine.returncode == 0, (out, err)
    (lost,) = attempts_of(place, "one", "attempt_lost")
    assert lost["kind"] == "lost"
    assert "NODE_FAIL" in str(lost["message"])
    assert node in str(lost["message"])


def test_a_retry_that_needs_a_new_allocation(place: Place) -> None:
    """While a retry waits its allocation ends, because it is idle; the retry gets another one."""
    place.describe(provider="slurm", partition="debug", idle="1s", walltime="00:10:00")
    done = place.run(
        "resile: 1\nsteps:\n"
        "  one: {shell: 'echo $SLURM_JOB_ID >> ids; test $(wc -l < ids) = 2', retry: {max: 1, backoff: 25s}}\n"
    )
    assert done.returncode == 0, done.stderr
    first, second = (place.folder / "ids").read_text().split()
    assert first != second


def test_a_partition_that_gives_nothing(place: Place) -> None:
    """After the limit the jobs fail with the kind spawn, and the message has Slurm's reason."""
    place.describe(provider="slurm", partition="closed", queue_limit="5s")
    done = place.run("resile: 1\nsteps:\n  one: {shell: 'true'}\n")
    assert done.returncode == 1, done.stderr
    (failed,) = attempts_of(place, "one", "attempt_failed")
    assert failed["kind"] == "spawn"
    assert "PartitionDown" in str(failed["message"])


def test_status_and_cancel(place: Place, slurm: SlurmCluster) -> None:
    """`slurm status` shows the allocations of a run; `slurm cancel` ends them; those of a killed engine too."""
    engine = place.start(f"resile: 1\nsteps:\n  one: {{shell: '{once(place.folder, 'marker')}'}}\n")
    job, node = running(place, slurm, "marker")
    shown = json.loads(place.call("slurm", "status", "1", "--json").stdout)
    (allocation,) = shown["allocations"]
    assert allocation | {"seconds_left": 0} == {
        "id": job, "name": "resile-1-1", "run": 1, "state": "RUNNING", "node": node, "jobs_done": 0, "seconds_left": 0,
        "reason": "",
    }  # fmt: skip
    assert 0 < allocation["seconds_left"] <= 600
    engine.kill()
    engine.communicate()
    assert place.call("slurm", "cancel", "1").returncode == 0
    wait_for("the allocation is gone", lambda: not slurm.jobs("RUNNING", "PENDING"), 60)
    done = place.call("resume", "1")
    assert done.returncode == 0, done.stderr


def test_a_step_that_needs_three_times_its_memory_ends_well(place: Place, slurm: SlurmCluster) -> None:
    """`watch --recover` helps it through without a person: the plan says why, and new allocations have more memory."""
    failed = place.run(PIPELINE)
    assert failed.returncode == 1, failed.stderr
    done = place.call("watch", "1", "--recover", "--interval", "1s")
    assert done.returncode == 0, (done.stdout, done.stderr)
    plan = re.search(
        r"  solve, job 2: oom: out of memory: it used (?P<used>\S+ MiB), `resources.memory` is 60 MiB\n"
        r"    memory 60 MiB -> (?P<granted>\d+) MiB; runs again: solve, report\n",
        done.stdout,
    )
    assert plan is not None, done.stdout
    assert int(plan["granted"]) >= 90
    assert re.search(r"^run 1 completed after \d rounds? of recovery$", done.stdout, re.MULTILINE)
    assert (place.folder / "report").read_text() == "done\n"
    completed = [one["step"] for one in place.events() if one["type"] == "step_completed" and one["step"] != "end"]
    assert completed == ["prepare", "solve", "report"]
    # Slurm was asked for the memory of the step and for that of the block itself.
    asked = slurm.call("scontrol", "show", "job", "--oneliner")
    shapes = {int(found) for found in re.findall(r"JobName=resile-1-\d+ .*?MinMemoryNode=(\d+)M", asked)}
    assert {60 + OWN_MIB, int(plan["granted"]) + OWN_MIB} <= shapes
