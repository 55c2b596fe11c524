"""The cluster settings of a Torc file: schedulers, requests for nodes, and what can't be one."""

from __future__ import annotations

import pytest

from resile.model.cluster import Allocation, Cluster, Scheduler, Workers
from tests.dialects.torc.runs import compiled, findings, needs, steps_of

SCHEDULERS = "slurm_schedulers: [{name: s, account: x}, {name: q, account: y}]\n"
JOBS = "jobs: [{name: a, command: x}, {name: b, command: x, depends_on: a}]\n"
NODES = "action_type: schedule_nodes, scheduler: s"


def cluster_of(text: str) -> Cluster:
    """The cluster settings in a text."""
    found = compiled(f"name: n\n{text}").cluster
    assert found is not None
    return found


def allocations_of(text: str) -> tuple[Allocation, ...]:
    """The requests for nodes in a text."""
    return cluster_of(text).allocations


def errors_of(text: str) -> list[str]:
    """The errors in a text."""
    return [found.message for found in findings(f"name: n\n{text}") if found.severity == "error"]


def test_schedulers_with_defaults() -> None:
    """Options of all schedulers come first, those of one win; `true` is an option without a value, `false` none."""
    found = cluster_of(
        "slurm_defaults: {qos: low, mail_type: END, exclusive: true, spread-job: false, nice: 3}\n"
        "slurm_schedulers: [{name: s, account: x, qos: high, mem: 2G, nodes: 2, walltime: '00:30:00', extra: --x=1}]\n"
        "compute_node_wait_for_new_jobs_seconds: 7\ncompute_node_expiration_buffer_seconds: 8\n" + JOBS
    )
    options = {"qos": "high", "mail-type": "END", "exclusive": "", "nice": "3", "account": "x", "mem": "2G"}
    assert found.schedulers == {"s": Scheduler(1800.0, 2, options, "--x=1")}
    assert found.workers == Workers(8, 7)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("slurm_defaults: {comment: x}\n", "`comment` is an option that Resile itself needs"),
        ("slurm_defaults: {'a b': x}\n", "`a b` is no option of `sbatch` in one line"),
        ('slurm_defaults: {nice: "1\\n2"}\n', "`nice` is no option of `sbatch` in one line"),
        ('slurm_schedulers: [{name: z, account: "a\\nb"}]\n', "`account` must be one line of printable characters"),
    ],
)
def test_options_that_no_script_can_have(given: str, message: str) -> None:
    """They would change the script of an allocation, or hide the allocation from Resile."""
    assert errors_of(given + JOBS) == [message]


def test_every_key_of_a_request() -> None:
    """A request has its scheduler, its trigger, and how many allocations and workers."""
    keys = "num_allocations: 3, start_one_worker_per_node: true, max_parallel_jobs: 4, persistent: true"
    assert allocations_of(
        SCHEDULERS + JOBS + f"actions: [{{trigger_type: on_jobs_complete, {NODES}, jobs: [a, b], {keys}}}]\n"
    ) == (Allocation("s", "on_jobs_complete", ("a", "b"), 3, True, 4, True),)


def test_auto_schedule() -> None:
    """The trigger of the design document takes all jobs, or those that it names; it runs no commands."""
    action = f"trigger_type: auto_schedule_on_ready_jobs, {NODES}"
    assert allocations_of(SCHEDULERS + JOBS + f"actions: [{{{action}}}, {{{action}, jobs: b}}]\n") == (
        Allocation("s", "auto_schedule_on_ready_jobs"),
        Allocation("s", "auto_schedule_on_ready_jobs", ("b",)),
    )
    commands = "trigger_type: auto_schedule_on_ready_jobs, action_type: run_commands, commands: x"
    assert errors_of(JOBS + f"actions: [{{{commands}}}]\n") == [
        "`auto_schedule_on_ready_jobs` has no meaning with `run_commands`"
    ]


def test_commands_that_ready_jobs_wait_for_need_nodes_first() -> None:
    """Jobs wait for the commands of actions, which need nodes: the request for the jobs is made before them."""
    text = (
        SCHEDULERS + JOBS + "actions:\n"
        "- {trigger_type: on_workflow_start, action_type: run_commands, commands: x}\n"
        "- {trigger_type: on_jobs_ready, action_type: run_commands, commands: x, jobs: [a]}\n"
        "- {trigger_type: on_jobs_ready, action_type: run_commands, commands: x, jobs: [b]}\n"
        f"- {{trigger_type: on_jobs_ready, {NODES}, jobs: [a]}}\n"
        f"- {{trigger_type: on_jobs_ready, {NODES}, jobs: [b]}}\n"
        f"- {{trigger_type: on_jobs_complete, {NODES}, jobs: [b]}}\n"
        f"- {{trigger_type: auto_schedule_on_ready_jobs, {NODES}, jobs: [b]}}\n"
    )
    steps = steps_of("name: n\n" + text)
    assert needs(steps["a"]) == ["on_jobs_ready"]
    assert needs(steps["on_jobs_ready"]) == ["on_workflow_start"]
    assert needs(steps["b"]) == ["a", "on_jobs_ready-2"]
    assert [one.steps for one in allocations_of(text)] == [
        ("on_workflow_start",), ("on_jobs_ready-2",), ("b",), ("b", "on_jobs_ready-2"),
    ]  # fmt: skip


def test_a_chain_without_an_end_is_said() -> None:
    """Each worker that starts schedules nodes with another worker: a warning."""
    text = SCHEDULERS + JOBS + f"actions: [{{trigger_type: on_worker_start, {NODES}, persistent: true}}]\n"
    (found,) = (one for one in findings("name: n\n" + text) if one.severity == "warning")
    assert found.message == "each worker that starts schedules nodes, whose workers schedule more, until the run ends"
