"""Blocks that come on order: where they are used, what they ask of Slurm, and how many jobs fit on a node."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

import resile
from resile.commands.start.notices import cluster_lines
from resile.commands.start.on_cluster import cluster_capacity, place_on_cluster, shapes_of
from resile.errors import ResileError
from resile.executors.contract import Share
from resile.executors.parsl.node.slots import fit_word, slots_on_node
from resile.executors.parsl.on_order.pool import EarlierAllocations
from resile.executors.parsl.on_order.shapes import settings_of, with_scheduler
from resile.executors.parsl.pools import NO_SHAPE, Kind, Shape, shape_of
from resile.executors.parsl.providers import provider_maker
from resile.model.cluster import Cluster, Scheduler
from resile.model.executor import ExecutorSettings
from resile.model.workflow import Workflow
from tests.dialects.torc.runs import compiled
from tests.parsl.cluster_runs import Place

WITHOUT_SLURM = "the file schedules nodes, and no Slurm is here: the jobs run here"
SMALL = """
name: n
slurm_schedulers: [{name: s, account: x}]
actions: [{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}]
"""
FILE = """
name: n
compute_node_wait_for_new_jobs_seconds: 7
resource_requirements:
- {name: small, num_cpus: 2, memory: 1g, runtime: PT1M}
- {name: large, num_cpus: 3, memory: 512m, num_gpus: 1, runtime: PT1M}
slurm_schedulers: [{name: s, account: x, gres: gpu:2}, {name: q, account: y, mem: 3G, nodes: 2}]
jobs:
- {name: a, command: x, resource_requirements: small}
- {name: b, command: x, resource_requirements: large, scheduler: s}
actions:
- {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s}
- {trigger_type: on_jobs_ready, action_type: schedule_nodes, scheduler: s, jobs: a}
- {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: q, max_parallel_jobs: 2,
   start_one_worker_per_node: true}
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for commands that are found before all others, with those of a Slurm that has nothing to say."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    for name in ("sbatch", "squeue"):
        write(folder, name, "exit 1")
    return folder


def write(folder: Path, name: str, script: str) -> None:
    """Write a command."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def flow() -> Workflow:
    """A workflow that schedules nodes."""
    return compiled(FILE)


def test_where_slurm_is_up_the_file_runs_on_it(flow: Workflow, commands: Path) -> None:
    """Slurm's controller answers: the run has its settings from the file, and says so."""
    write(commands, "scontrol", "echo 'Slurmctld(primary) at host is UP'")
    placed = place_on_cluster(flow, None, "/shared")
    workers = ExecutorSettings("/shared", "slurm", idle_seconds=7.0, grace_seconds=60.0, on_order=True)
    assert placed.executor == workers
    assert cluster_lines(placed) == [
        "the jobs run on Slurm, in allocations that the file schedules; `--executor local` runs them here"
    ]
    # All may wait for their nodes: those of one scheduler never keep others from starting.
    assert cluster_capacity(placed, None).parallel == 3
    # A later engine of the run decides nothing again.
    assert place_on_cluster(placed, None) == placed
    assert place_on_cluster(placed, "local").executor is None


def test_without_a_cluster_it_runs_here(flow: Workflow, commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without a configured cluster, as on a machine with Debian's packages, or none at all: as ever."""
    write(commands, "scontrol", "echo 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1")
    assert place_on_cluster(flow, None, "/shared") is flow
    (commands / "scontrol").unlink()
    monkeypatch.setenv("PATH", str(commands))
    assert place_on_cluster(flow, None, "/shared") is flow
    assert cluster_lines(flow) == [WITHOUT_SLURM]
    assert cluster_lines(flow, is_local=True) == []


def test_a_run_without_slurm_says_so(tmp_path: Path) -> None:
    """A file that schedules nodes warns once when its jobs run here, unless the caller chose that."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bash").symlink_to("/bin/bash")
    place = Place(tmp_path, {"PATH": str(tmp_path / "bin")})
    path = str(place.write(f"{SMALL}jobs: [{{name: a, command: /bin/true}}]\n"))
    done = place.call("run", path)
    assert (done.returncode, done.stderr.count(WITHOUT_SLURM)) == (0, 1), done.stderr
    chosen = place.call("run", path, "--executor", "local")
    assert (chosen.returncode, chosen.stderr.count(WITHOUT_SLURM)) == (0, 0), chosen.stderr


def test_python_looks_for_slurm(commands: Path, tmp_path: Path) -> None:
    """`run` in Python starts no job of a file that schedules nodes while Slurm is down, unless it is to run here."""
    write(commands, "scontrol", "echo 'Slurmctld(primary) at host is DOWN'; exit 1")
    path = tmp_path / "flow.yaml"
    path.write_text(f"{SMALL}jobs: [{{name: a, command: echo ran >> {tmp_path}/trace}}]\n")
    with pytest.raises(ResileError, match="Slurm, which is down"):
        resile.run(path, db=str(tmp_path / "resile.db"))
    assert not (tmp_path / "trace").exists()
    assert resile.run(path, db=str(tmp_path / "resile.db"), executor="local").status == "completed"
    assert (tmp_path / "trace").read_text() == "ran\n"


def test_only_a_caller_on_the_machine_looks_for_slurm(flow: Workflow, commands: Path) -> None:
    """A server, or `--executor local`, or a file that schedules no nodes, has no use for it."""
    write(commands, "scontrol", "echo 'Slurmctld(primary) at host is UP'")
    assert place_on_cluster(flow, None) is flow
    assert place_on_cluster(flow, "local", "/shared") is flow
    plain = compiled("name: n\nslurm_schedulers: [{name: s, account: x}]\njobs: [{name: a, command: x}]\n")
    assert place_on_cluster(plain, None, "/shared") is plain


def test_a_slurm_that_is_down_is_an_error(flow: Workflow, commands: Path) -> None:
    """The jobs are not started on a login node because its controller does not answer."""
    write(commands, "scontrol", "echo 'Slurmctld(primary) at host is DOWN'; exit 1")
    with pytest.raises(ResileError, match="Slurm, which is down") as raised:
        place_on_cluster(flow, None, "/shared")
    assert raised.value.code == "slurm-failed"
    assert "--executor local" in raised.value.hint


def ordered(flow: Workflow, directory: Path) -> dict[Shape, list[str]]:
    """The shapes of a workflow whose blocks come on order."""
    toml = directory / "cluster.toml"
    toml.write_text(f'[executor]\nkind = "parsl"\ndirectory = "{directory}"\n')
    placed = place_on_cluster(flow, str(toml))
    assert placed.executor is not None
    assert placed.executor.on_order
    return shapes_of(placed)


def test_shapes_of_requests(flow: Workflow, tmp_path: Path) -> None:
    """All jobs that may run in an allocation fit into it; requests of one kind share a pool."""
    first, second = ordered(flow, tmp_path).items()
    assert first[1] == ["s", "s"]
    assert first[0] == Shape(
        3, 2**30, 1, 3600.0, Kind("s", ("--account=x", "--gres=gpu:2"), per_node=False, on_order=True)
    )
    kind = Kind("q", ("--account=y", "--mem=3G"), 2, per_node=True, parallel=2, on_order=True)
    assert second == (Shape(2, 2**30, 0, 3600.0, kind), ["q"])


def test_too_many_kinds_of_nodes_are_refused(tmp_path: Path) -> None:
    """At most eight pools, as for steps."""
    many = "".join(f"- {{name: s{number}, account: a}}\n" for number in range(9))
    asks = "".join(
        f"- {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s{number}}}\n"
        for number in range(9)
    )
    flow = compiled(f"name: n\nslurm_schedulers:\n{many}actions:\n{asks}jobs: [{{name: a, command: x}}]\n")
    with pytest.raises(ResileError, match=r"9 different shapes of nodes.*scheduler 's8'"):
        ordered(flow, tmp_path)


def directives(shape: Shape, **keys: str) -> list[str]:
    """The directives for Slurm of a block, in their order."""
    pytest.importorskip("parsl")
    settings = ExecutorSettings("/shared", "slurm", workers_per_node=2, **keys)
    made = provider_maker(settings, 7, "wf7_r1", count(1))(shape)
    return [line.removeprefix("#SBATCH ") for line in made.scheduler_options.splitlines() if line]


def test_directives() -> None:
    """What a scheduler says comes after what the executor says, so that it counts; the label counts in any case."""
    last = ["--comment=wf7_r1", "--no-requeue"]
    assert directives(Shape(2, 2**30, 1), partition="p") == [
        "--partition=p", "--cpus-per-task=4", "--mem=2448M", "--gpus-per-node=2", *last,
    ]  # fmt: skip
    own = Kind("s", ("--account='a b'", "--exclusive", "--comment=mine --gres=gpu:1"), on_order=True, parallel=3)
    assert directives(Shape(2, 2**30, 1, 60.0, own), partition="p") == [
        "--partition=p", "--cpus-per-task=6", "--account='a b'", "--exclusive", "--comment=mine --gres=gpu:1", *last,
    ]  # fmt: skip
    assert directives(Shape(2, 2**30, 0, 60.0, Kind("s", on_order=True))) == ["--cpus-per-task=2", *last]
    assert directives(Shape(2, 0, 0, 60.0, Kind("s", ("--ntasks-per-node=8",)))) == ["--ntasks-per-node=8", *last]


@pytest.mark.parametrize(("seconds", "walltime"), [(20.0, "00:01:00"), (60.0, "00:01:00"), (113.0, "00:02:00")])
def test_an_allocation_lasts_whole_minutes(seconds: float, walltime: str) -> None:
    """Parsl asks Slurm for minutes without the seconds, and 0 minutes are no limit there: so Resile rounds them up."""
    pytest.importorskip("parsl")
    for settings, shape in (
        (ExecutorSettings("/shared", "slurm", walltime_seconds=seconds), NO_SHAPE),
        (ExecutorSettings("/shared", "slurm"), Shape(walltime_seconds=seconds)),
    ):
        assert provider_maker(settings, 7, "wf7_r1", count(1))(shape).walltime == walltime


def test_blocks_that_follow_the_work() -> None:
    """A job that wants a scheduler has its options, nodes and time; without one, and on this machine, it has none."""
    cluster = Cluster({"s": Scheduler(60.0, 2, {"mem": "1G"}, "#SBATCH --a=1\n--b")}, wanted={"a": "s"}, nodes={"a": 2})
    slurm = ExecutorSettings("/shared", "slurm")
    wide = with_scheduler(Shape(walltime_seconds=90.0), slurm, cluster, "a")
    assert wide == Shape(0, 0, 0, 90.0, Kind("s", ("--mem=1G", "--a=1", "--b"), 2, per_node=False, parallel=1))
    assert with_scheduler(NO_SHAPE, slurm, cluster, "b") is NO_SHAPE
    assert with_scheduler(NO_SHAPE, ExecutorSettings("/shared"), cluster, "a") is NO_SHAPE
    assert settings_of(slurm, with_scheduler(NO_SHAPE, slurm, cluster, "a")).grace_seconds == 15.0


def test_steps_of_several_nodes(tmp_path: Path) -> None:
    """They have a block of their own, alone; this machine, and other batch systems, have none."""
    shape = shape_of(ExecutorSettings("/shared", "slurm"), Share(2, nodes=3), 0.0)
    assert shape == Shape(2, kind=Kind("", nodes=3, per_node=False, parallel=1))
    assert str(shape) == "3 nodes, 2 CPUs"
    settings = settings_of(ExecutorSettings("/shared", "slurm", workers_per_node=4, nodes_per_block=2), shape)
    assert (settings.workers_per_node, settings.nodes_per_block, settings.grace_seconds) == (1, 1, 60.0)
    place = Place(tmp_path)
    place.describe(provider="local")
    text = "resile: 1\nsteps:\n  a: {shell: x, resources: {nodes: 2}}\n"
    done = place.run(text)
    assert (done.returncode, 'only `provider = "slurm"` has them' in done.stderr) == (2, True)
    done = place.call("run", str(place.write(text)))
    assert (done.returncode, "nodes: 2, and this machine is one" in done.stderr) == (2, True)


def test_slots_on_a_node() -> None:
    """As many as fit by CPUs, memory and GPUs of the allocation, at least one, at most the limit."""
    here = {"SLURM_CPUS_ON_NODE": "16", "SLURM_MEM_PER_NODE": "8000", "SLURM_GPUS_ON_NODE": "4"}
    assert slots_on_node("3", here) == 3
    for cpus, mebibytes, gpus, most, expected in (
        (2, 0, 0, 0, 8), (2, 2000, 0, 0, 4), (2, 0, 2, 0, 2), (0, 0, 0, 0, 16), (1, 1, 0, 5, 5), (99, 0, 0, 0, 1),
    ):  # fmt: skip
        assert slots_on_node(fit_word(cpus, mebibytes << 20, gpus, most), here) == expected
    per_cpu = {"SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_CPU": "500"}
    assert slots_on_node(fit_word(1, 1000 << 20, 0, 0), per_cpu) == 2
    assert slots_on_node(fit_word(0, 0, 0, 0), {}) == len(os.sched_getaffinity(0))


def test_allocations_of_earlier_engines(commands: Path) -> None:
    """The newest one counts: while it goes on its block does not come again, nor if its time was over."""
    jobs = [("11", 1, "CANCELLED"), ("12", 1, "RUNNING"), ("13", 2, "TIMEOUT"), ("14", 3, "COMPLETED")]
    lines = [f"JobId={job} JobName=resile-7-{block} JobState={state} Comment=l" for job, block, state in jobs]
    lines.append("JobId=15 JobName=resile-7-4 JobState=TIMEOUT Comment=other")
    write(commands, "scontrol", "".join(f"echo {line}\n" for line in lines))
    former = EarlierAllocations(7, "l")
    former.look(-9.0)
    assert [former.goes_on(number) for number in range(1, 5)] == [True, False, False, False]
    assert [former.take_end(number) for number in (2, 3, 4)] == [
        "Slurm's allocation 13 (resile-7-2): TIMEOUT", "", "",
    ]  # fmt: skip
    write(commands, "scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    former.look(1.0)
    assert former.goes_on(1)
    write(commands, "scontrol", f"echo {lines[1].replace('RUNNING', 'COMPLETED')}")
    former.look(9.0)
    assert (former.goes_on(1), former.take_end(1)) == (False, "")


def test_a_job_for_which_nothing_is_scheduled_fails(tmp_path: Path) -> None:
    """It does not wait for ever: after the limit its failure says why."""
    place = Place(tmp_path)
    place.describe(provider="local", queue_limit="1s")
    done = place.run(
        """
name: n
slurm_schedulers: [{name: s, account: x}, {name: q, account: y}]
jobs: [{name: a, command: "true", scheduler: q}]
actions: [{trigger_type: on_jobs_complete, action_type: schedule_nodes, scheduler: s, jobs: a}]
"""
    )
    assert done.returncode == 1, done.stderr
    (failed,) = (event["data"] for event in place.events() if event["type"] == "attempt_failed")
    assert failed["kind"] == "spawn"
    assert "no worker came up within 1 s: no action schedules nodes of 'q' now" in failed["message"]
