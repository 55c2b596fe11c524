"""Torc files on a real Slurm: their schedulers are allocations, and their actions schedule them, each exactly once."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parsl.cluster_runs import Place, wait_for
from tests.parsl.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slow

STARTS = "trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler_type: slurm"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A Slurm for all tests of this module."""
    found = SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=3)
    yield found
    found.stop()


@pytest.fixture
def place(tmp_path: Path, slurm: SlurmCluster) -> Iterator[Place]:
    """A place from which that Slurm is seen."""
    found = Place(tmp_path, slurm.env)
    # The output of runs, where no file for `--executor` says otherwise.
    found.shared = tmp_path / "out"
    yield found
    wait_for("no allocation is left", lambda: not slurm.jobs("PENDING", "RUNNING"), 60)
    wait_for("no process of a block is left", lambda: not found.processes(), 60)


def run(place: Place, text: str, *words: str, code: int = 0) -> list[dict[str, Any]]:
    """Run a Torc file; its events."""
    done = place.call("run", str(place.write(text)), "--output", str(place.shared), *words)
    assert done.returncode == code, (done.stdout, done.stderr)
    return place.events()


def scheduled(events: list[dict[str, Any]]) -> list[tuple[str, str, list[int]]]:
    """Trigger, scheduler and blocks of each request."""
    data = [event["data"] for event in events if event["type"] == "nodes_scheduled"]
    return [(one["trigger"], one["scheduler"], one["blocks"]) for one in data]


def trace(place: Place) -> list[str]:
    """What the jobs have written."""
    return (place.folder / "trace").read_text().splitlines()


def allocations(slurm: SlurmCluster, place: Place) -> dict[str, list[dict[str, str]]]:
    """All allocations that Slurm has of this place's runs, by name, in the order of their submission."""
    found: dict[str, list[dict[str, str]]] = {}
    for line in slurm.call("scontrol", "--oneliner", "show", "job").splitlines():
        fields = dict(re.findall(r"(\w+(?:[:/]\w+)?)=(\S*)", line))
        if fields.get("StdErr", "").startswith(str(place.shared)):
            found.setdefault(fields["JobName"], []).append(fields)
    return found


def test_schedulers_and_pinned_jobs(place: Place, slurm: SlurmCluster) -> None:
    """Nodes come at the start and for ready jobs; jobs run where their scheduler says; options reach Slurm."""
    events = run(
        place,
        f"""
name: t
slurm_defaults: {{nice: 7, exclude: n3}}
slurm_schedulers:
  - {{name: first, account: a, mem: 900, walltime: "00:10:00"}}
  - {{name: second, account: a, mem: 800, walltime: "00:20:00", partition: debug, extra: "--mail-type=NONE --nice=9"}}
jobs:
  - {{name: setup, command: "echo setup $SLURM_JOB_NAME >> trace"}}
  - {{name: "work_{{i}}", command: "echo work $SLURM_JOB_NAME >> trace", depends_on: setup, scheduler: second,
     parameters: {{i: "1:4"}}}}
  - {{name: last, command: "echo last $SLURM_JOB_NAME >> trace", scheduler: first, depends_on_regexes: work_.*}}
actions:
  - {{{STARTS}, scheduler: first}}
  - {{trigger_type: on_jobs_ready, action_type: schedule_nodes, scheduler: second, scheduler_type: slurm,
     job_name_regexes: work_.*, num_allocations: 2}}
""",
    )
    assert scheduled(events) == [("on_workflow_start", "first", [1]), ("on_jobs_ready", "second", [2, 3])]
    lines = trace(place)
    assert (lines[0], lines[-1]) == ("setup resile-1-1", "last resile-1-1")
    assert {line.split()[1] for line in lines[1:-1]} <= {"resile-1-2", "resile-1-3"}
    assert len(lines) == 6
    found = allocations(slurm, place)
    assert {name: len(jobs) for name, jobs in found.items()} == {"resile-1-1": 1, "resile-1-2": 1, "resile-1-3": 1}
    keys = ("MinMemoryNode", "TimeLimit", "Nice", "ExcNodeList")
    assert {name: [jobs[0].get(key) for key in keys] for name, jobs in found.items()} == {
        "resile-1-1": ["900M", "00:10:00", "7", "n3"],
        "resile-1-2": ["800M", "00:20:00", "9", "n3"],
        "resile-1-3": ["800M", "00:20:00", "9", "n3"],
    }


def test_the_other_triggers(place: Place) -> None:
    """Jobs that complete, a worker that starts, and the end of the workflow; persistent ones again and again."""
    events = run(
        place,
        f"""
name: t
compute_node_wait_for_new_jobs_seconds: 1
slurm_schedulers: [{{name: s, account: a, mem: 900}}, {{name: other, account: a, mem: 900}}]
jobs:
  - {{name: a, command: "true"}}
  - {{name: b, command: "true", depends_on: a, scheduler: other}}
actions:
  - {{{STARTS}, scheduler: s}}
  - {{trigger_type: on_jobs_complete, action_type: schedule_nodes, scheduler: other, scheduler_type: slurm, jobs: a}}
  - {{trigger_type: on_worker_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}}
  - {{trigger_type: on_workflow_complete, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}}
  - {{trigger_type: on_worker_complete, action_type: schedule_nodes, scheduler: other, scheduler_type: slurm}}
""",
    )
    found = scheduled(events)
    assert found[:2] == [("on_workflow_start", "s", [1]), ("on_worker_start", "s", [2])]
    assert [one[:2] for one in found].count(("on_jobs_complete", "other")) == 1
    assert [one[:2] for one in found].count(("on_worker_start", "s")) == 1
    assert found[-1][:2] == ("on_workflow_complete", "s")
    submitted = [event["data"]["block"] for event in events if event["type"] == "allocation_submitted"]
    assert sorted(submitted) == [number for one in found for number in one[2]]


def test_each_job_that_is_ready_again_gets_one_new_allocation(place: Place, slurm: SlurmCluster) -> None:
    """The allocation goes while its job runs, the job is ready again, and one is scheduled for it: each time one."""
    command = "echo $SLURM_JOB_NAME >> trace; test $(wc -l < trace) -gt 2 || { scancel $SLURM_JOB_ID; sleep 1000; }"
    events = run(
        place,
        f"""
name: t
compute_node_wait_for_new_jobs_seconds: 10
slurm_schedulers: [{{name: s, account: a, mem: 900}}]
jobs: [{{name: a, command: "{command}", scheduler: s}}]
actions: [{{trigger_type: auto_schedule_on_ready_jobs, action_type: schedule_nodes, scheduler: s}}]
""",
    )
    assert scheduled(events) == [("auto_schedule_on_ready_jobs", "s", [number]) for number in (1, 2, 3)]
    assert trace(place) == ["resile-1-1", "resile-1-2", "resile-1-3"]
    ended = [event["data"] for event in events if event["type"] == "allocation_ended"]
    assert [(one["block"], one["workers"], "CANCELLED" in one["reason"]) for one in ended] == [
        (1, 1, True),
        (2, 1, True),
    ]
    assert [len(jobs) for jobs in allocations(slurm, place).values()] == [1, 1, 1]


def test_workers_on_each_node(place: Place) -> None:
    """Each of two nodes has a worker with two jobs at once: all four must be there for one of them to end."""
    command = "echo $SLURMD_NODENAME >> trace; until test $(wc -l < trace) -ge 4; do sleep 0.1; done"
    run(
        place,
        f"""
name: t
slurm_schedulers: [{{name: s, account: a, mem: 900, nodes: 2}}]
jobs: [{{name: "a_{{i}}", command: "{command}", parameters: {{i: "1:4"}}}}]
actions: [{{{STARTS}, scheduler: s, start_one_worker_per_node: true, max_parallel_jobs: 2}}]
""",
    )
    lines = trace(place)
    assert len(lines) == 4
    assert sorted(lines.count(node) for node in set(lines)) == [2, 2]


def test_one_job_at_once_on_several_nodes(place: Place) -> None:
    """A job of two nodes runs once and has both for `srun`; `max_parallel_jobs` keeps others from running beside it."""
    begins, ends = "test ! -e busy || echo both >> trace; touch busy", "rm busy"
    run(
        place,
        f"""
name: t
resource_requirements: [{{name: two, num_cpus: 1, memory: 100m, num_nodes: 2, runtime: PT5M}}]
slurm_schedulers: [{{name: s, account: a, mem: 900, nodes: 2}}]
jobs:
  - name: "wide_{{i}}"
    command: "{begins}; srun --overlap -N2 -n2 sh -c 'echo $SLURMD_NODENAME >> trace'; sleep 1; {ends}"
    resource_requirements: two
    scheduler: s
    parameters: {{i: "1:2"}}
actions: [{{{STARTS}, scheduler: s, max_parallel_jobs: 1}}]
""",
    )
    lines = trace(place)
    assert "both" not in lines
    assert sorted(lines.count(node) for node in set(lines)) == [2, 2]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_kill_between_trigger_and_submission(place: Place, slurm: SlurmCluster, moment: str) -> None:
    """The request is recorded, the engine dies before or after Slurm gets it: there is one allocation in the end."""
    commands = place.folder / "commands"
    commands.mkdir()
    real = shutil.which("sbatch", path=slurm.env["PATH"])
    # It waits until the engine is gone.
    waits = f"touch {place.folder}/asked; until test -e {place.folder}/gone; do sleep 0.1; done; exit 1"
    script = waits if moment == "before" else f'{real} "$@"; {waits}'
    (commands / "sbatch").write_text(f"#!/bin/sh\n{script}\n")
    (commands / "sbatch").chmod(0o755)
    usual = place.env["PATH"]
    place.env["PATH"] = f"{commands}:{usual}"
    text = f"""
name: t
slurm_schedulers: [{{name: s, account: a, mem: 900}}]
jobs: [{{name: a, command: "echo $SLURM_JOB_NAME >> trace"}}]
actions: [{{{STARTS}, scheduler: s}}]
"""
    engine = place.popen("run", str(place.write(text)), "--output", str(place.shared))
    wait_for("Slurm was asked", lambda: (place.folder / "asked").exists())
    engine.send_signal(signal.SIGKILL)
    engine.communicate()
    (place.folder / "gone").touch()
    place.env["PATH"] = usual
    before = allocations(slurm, place).get("resile-1-1", [])
    assert len(before) == (moment == "after")
    done = place.call("resume", "1")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert scheduled(place.events()) == [("on_workflow_start", "s", [1])]
    assert trace(place) == ["resile-1-1"]
    found = allocations(slurm, place)
    assert list(found) == ["resile-1-1"]
    # The one of the dead engine was canceled before its successor was submitted.
    assert len(found["resile-1-1"]) == len(before) + 1
    assert all(one["JobState"] == "CANCELLED" for one in found["resile-1-1"][:-1])


def test_kill_of_an_engine_whose_allocations_work(place: Place, slurm: SlurmCluster) -> None:
    """A busy allocation goes on and is not doubled; it comes again when it has ended, and takes what is left."""
    command = "echo $SLURM_JOB_ID >> trace; until test -e go; do sleep 0.1; done"
    text = f"""
name: t
slurm_schedulers: [{{name: s, account: a, mem: 900}}]
jobs: [{{name: "a_{{i}}", command: "{command}", parameters: {{i: "1:2"}}}}]
actions: [{{{STARTS}, scheduler: s, max_parallel_jobs: 1}}]
"""
    engine = place.popen("run", str(place.write(text)), "--output", str(place.shared))
    wait_for("a job runs", lambda: (place.folder / "trace").exists() and trace(place))
    engine.send_signal(signal.SIGKILL)
    engine.communicate()
    resumed = place.popen("resume", "1")
    wait_for("the attempt is adopted", lambda: any(one["type"] == "attempt_adopted" for one in place.events()))
    assert len(slurm.jobs("PENDING", "RUNNING")) == 1
    shown = json.loads(place.call("slurm", "status", "1", "--json").stdout)
    assert [(one["name"], one["id"]) for one in shown["allocations"]] == [("resile-1-1", trace(place)[0])]
    (place.folder / "go").touch()
    out, err = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, (out, err)
    assert len(set(trace(place))) == 2
    assert scheduled(place.events()) == [("on_workflow_start", "s", [1])]


def test_executor_local_runs_here(place: Place, slurm: SlurmCluster) -> None:
    """Slurm is there, and the caller does not want it."""
    text = f"""
name: t
slurm_schedulers: [{{name: s, account: a}}]
jobs: [{{name: a, command: "echo here$SLURM_JOB_NAME >> trace", scheduler: s}}]
actions: [{{{STARTS}, scheduler: s}}]
"""
    events = run(place, text, "--executor", "local")
    assert (scheduled(events), trace(place), allocations(slurm, place)) == ([], ["here"], {})


def test_several_nodes_in_a_native_file(place: Place) -> None:
    """A step that uses two nodes has a block of its own with both, beside the blocks of other steps."""
    place.describe(provider="slurm", blocks_max=1, idle="10s", walltime="00:05:00", partition="debug")
    wide = "srun --overlap -N2 -n2 sh -c 'echo $SLURMD_NODENAME >> trace'"
    run(
        place,
        "resile: 1\nsteps:\n"
        f'  wide: {{shell: "{wide}", resources: {{nodes: 2}}}}\n'
        '  plain: {shell: "test $SLURM_JOB_NUM_NODES = 1"}\n',
        "--executor",
        str(place.toml),
    )
    assert len(set(trace(place))) == 2


def test_schedulers_without_actions(place: Place, slurm: SlurmCluster) -> None:
    """With a file for `--executor` blocks follow the work, and jobs that want a scheduler have its options."""
    place.describe(provider="slurm", blocks_max=2, idle="10s", walltime="00:05:00")
    events = run(
        place,
        """
name: t
slurm_schedulers: [{name: s, account: a, mem: 900, walltime: "00:20:00"}]
jobs: [{name: a, command: "echo $SLURM_JOB_NAME >> trace", scheduler: s}]
""",
        "--executor",
        str(place.toml),
    )
    assert scheduled(events) == []
    (job,) = allocations(slurm, place)[trace(place)[0]]
    assert (job["MinMemoryNode"], job["TimeLimit"]) == ("900M", "00:20:00")
