"""Nothing is parsed and ignored: each key of a Torc file changes the workflow, or is a label and says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from resile.dialects.torc.compile import TABLES
from tests.dialects.torc.runs import compiled, findings
from tests.dialects.torc.test_formats import without_places

CLUSTER = "slurm_schedulers: [{name: s, account: x}, {name: q, account: y}]\n"
PLACES = {
    "the file": "name: n\nKEYS\n",
    "a job": (
        "name: n\nparameters: {u: '[1,2]'}\nfiles: [{name: f, path: f}, {name: g, path: g}]\n"
        "user_data: [{name: d, data: 1}, {name: e, data: 1}]\n"
        "resource_requirements: [{name: r, num_cpus: 1, memory: 1g, runtime: PT1H}]\n"
        "failure_handlers: [{name: h, rules: [{exit_codes: 1}]}]\n" + CLUSTER +
        "jobs:\n  - {name: b, command: x, output_files: f, output_user_data: d}\n"
        "  - {name: c, command: x, input_files: g, input_user_data: e}\n  - {KEYS}\n"
    ),
    "a file": (
        "name: n\nparameters: {u: '[1,2]'}\njobs: [{name: j, command: x, output_file_regexes: .}]\nfiles: [{KEYS}]\n"
    ),
    "user data": "name: n\njobs: [{name: j, command: 'x ${user_data.input.d}'}]\nuser_data: [{KEYS}]\n",
    "resource requirements": (
        "name: n\njobs: [{name: j, command: x, resource_requirements: r}]\nresource_requirements: [{KEYS}]\n"
    ),
    "a failure handler": "name: n\njobs: [{name: j, command: x, failure_handler: h}]\nfailure_handlers: [{KEYS}]\n",
    "a rule": (
        "name: n\njobs: [{name: j, command: x, failure_handler: h}]\n"
        "failure_handlers: [{name: h, rules: [{exit_codes: [9]}, {KEYS}]}]\n"
    ),
    "a Slurm scheduler": "name: n\njobs: []\nslurm_schedulers: [{KEYS}]\n",
    "an action": "name: n\njobs: [{name: j, command: x}, {name: k, command: x}]\n" + CLUSTER + "actions: [{KEYS}]\n",
    "`resource_monitor`": "name: n\njobs: []\nresource_monitor: {KEYS}\n",
}  # fmt: skip
JOB = "name: a, command: x"
RUNS = "trigger_type: on_jobs_ready, action_type: run_commands, commands: x"
ASKS = "trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s"
# (table, key): the keys without it, or with another value, and with it.
CHANGES: dict[tuple[str, str], tuple[str, str]] = {
    ("the file", "name"): ("jobs: []", "jobs: []"),
    ("the file", "parameters"): (
        "jobs: []", "parameters: {p: '1:2'}\njobs: [{name: 'j{p}', command: x, use_parameters: p}]"),
    ("the file", "jobs"): ("jobs: []", "jobs: [{name: j, command: x}]"),
    ("the file", "files"): ("jobs: []", "jobs: [{name: j, command: x, output_files: f}]\nfiles: [{name: f, path: p}]"),
    ("the file", "user_data"): (
        "jobs: []", "jobs: [{name: j, command: '${user_data.input.d}'}]\nuser_data: [{name: d, data: 1}]"),
    ("the file", "resource_requirements"): (
        "jobs: [{name: j, command: x}]",
        "resource_requirements: [{name: r, num_cpus: 1, memory: 1g}]\n"
        "jobs: [{name: j, command: x, resource_requirements: r}]"),
    ("the file", "failure_handlers"): ("jobs: []", "jobs: []\nfailure_handlers: [{name: h, rules: [{exit_codes: 1}]}]"),
    ("the file", "slurm_schedulers"): ("jobs: []", "jobs: []\n" + CLUSTER),
    ("the file", "slurm_defaults"): ("jobs: []\n" + CLUSTER, "jobs: []\nslurm_defaults: {mail-type: END}\n" + CLUSTER),
    ("the file", "actions"): (
        "jobs: []",
        "jobs: []\nactions: [{trigger_type: on_workflow_complete, action_type: run_commands, commands: x}]"),
    ("the file", "use_pending_failed"): (
        "jobs: [{name: j, command: x}]", "jobs: [{name: j, command: x}]\nuse_pending_failed: true"),
    ("the file", "jobs_sort_method"): tuple(
        "resource_requirements: [{name: r, num_cpus: 1, memory: 1g}]\njobs_sort_method: " + method +
        "\njobs: [{name: i, command: x}, {name: j, command: x, resource_requirements: r}]"
        for method in ("none", "gpus_runtime_memory")),
    **{("the file", f"compute_node_{key}"): ("jobs: []", f"jobs: []\ncompute_node_{key}: {value}") for key, value in (
        ("expiration_buffer_seconds", 1), ("wait_for_new_jobs_seconds", 1))},
    ("a job", "name"): (JOB, "name: z, command: x"),
    ("a job", "command"): (JOB, "name: a, command: y"),
    **{("a job", key): (JOB, f"{JOB}, {key}: {value}") for key, value in (
        ("invocation_script", "nice"), ("supports_termination", "true"), ("resource_requirements", "r"),
        ("failure_handler", "h"), ("depends_on", "b"), ("depends_on_regexes", "^b"), ("input_files", "f"),
        ("input_file_regexes", "^f"), ("output_files", "g"), ("output_file_regexes", "^g"), ("input_user_data", "d"),
        ("input_user_data_regexes", "^d"), ("output_user_data", "e"), ("output_user_data_regexes", "^e"),
        ("scheduler", "s"))},
    ("a job", "cancel_on_blocking_job_failure"): (
        f"{JOB}, depends_on: b", f"{JOB}, depends_on: b, cancel_on_blocking_job_failure: false"),
    ("a job", "parameters"): ("name: 'a{p}', command: x", "name: 'a{p}', command: x, parameters: {p: '[1,2]'}"),
    ("a job", "use_parameters"): ("name: 'a{u}', command: x", "name: 'a{u}', command: x, use_parameters: [u]"),
    ("a job", "parameter_mode"): (
        "name: 'a{p}{q}', command: x, parameters: {p: '1:2', q: '1:2'}",
        "name: 'a{p}{q}', command: x, parameters: {p: '1:2', q: '1:2'}, parameter_mode: zip"),
    ("a file", "name"): ("name: f, path: p", "name: f, path: p"),
    ("a file", "path"): ("name: f, path: p", "name: f, path: q"),
    ("a file", "parameters"): ("name: 'f{p}', path: '{p}'", "name: 'f{p}', path: '{p}', parameters: {p: '1:2'}"),
    ("a file", "use_parameters"): ("name: 'f{u}', path: '{u}'", "name: 'f{u}', path: '{u}', use_parameters: u"),
    ("a file", "parameter_mode"): (
        "name: 'f{p}{q}', path: '{p}{q}', parameters: {p: '1:2', q: '1:2'}",
        "name: 'f{p}{q}', path: '{p}{q}', parameters: {p: '1:2', q: '1:2'}, parameter_mode: zip"),
    ("user data", "name"): ("name: d, data: 1", "name: d, data: 1"),
    ("user data", "data"): ("name: d, data: 1", "name: d, data: {a: [1, x]}"),
    ("resource requirements", "name"): ("name: r, num_cpus: 1, memory: 1g", "name: r, num_cpus: 1, memory: 1g"),
    ("resource requirements", "num_cpus"): ("name: r, num_cpus: 1, memory: 1g", "name: r, num_cpus: 2, memory: 1g"),
    ("resource requirements", "memory"): ("name: r, num_cpus: 1, memory: 1g", "name: r, num_cpus: 1, memory: 2g"),
    **{("resource requirements", key): (
        "name: r, num_cpus: 1, memory: 1g", f"name: r, num_cpus: 1, memory: 1g, {key}: {value}")
       for key, value in (("num_gpus", 1), ("num_nodes", 2), ("runtime", "PT2H"))},
    ("a failure handler", "name"): ("name: h, rules: [{exit_codes: 1}]", "name: h, rules: [{exit_codes: 1}]"),
    ("a failure handler", "rules"): ("name: h, rules: [{exit_codes: 1}]", "name: h, rules: [{exit_codes: 2}]"),
    ("a rule", "exit_codes"): ("exit_codes: 1", "exit_codes: [1, 2]"),
    ("a rule", "match_all_exit_codes"): ("exit_codes: 1", "exit_codes: 1, match_all_exit_codes: true"),
    ("a rule", "recovery_script"): ("exit_codes: 1", "exit_codes: 1, recovery_script: fix"),
    ("a rule", "max_retries"): ("exit_codes: 1", "exit_codes: 1, max_retries: 4"),
    ("a Slurm scheduler", "name"): ("name: a, account: x", "name: b, account: x"),
    ("a Slurm scheduler", "account"): ("name: a, account: x", "name: a, account: y"),
    **{("a Slurm scheduler", key): ("name: a, account: x", f"name: a, account: x, {key}: {value}") for key, value in (
        ("nodes", 2), ("num_nodes", 2), ("walltime", "'02:00:00'"), ("partition", "p"), ("mem", "8G"),
        ("gres", "'gpu:1'"), ("qos", "high"), ("tmp", "1G"), ("ntasks_per_node", 4), ("extra", "--x"))},
    ("an action", "trigger_type"): (f"{RUNS}, jobs: j", f"{RUNS.replace('ready', 'complete')}, jobs: j"),
    ("an action", "action_type"): (
        ASKS, "trigger_type: on_workflow_start, action_type: run_commands, commands: x"),
    ("an action", "jobs"): (f"{RUNS}, jobs: j", f"{RUNS}, jobs: [j, k]"),
    ("an action", "job_name_regexes"): (f"{RUNS}, jobs: j", f"{RUNS}, jobs: j, job_name_regexes: [k]"),
    ("an action", "commands"): (f"{RUNS}, jobs: j", f"{RUNS.replace(': x', ': y')}, jobs: j"),
    ("an action", "scheduler"): (ASKS, ASKS.replace("scheduler: s", "scheduler: q")),
    **{("an action", key): (ASKS, f"{ASKS}, {key}: {value}") for key, value in (
        ("num_allocations", 2), ("start_one_worker_per_node", "true"), ("max_parallel_jobs", 3),
        ("persistent", "true"))},
    ("the file", "resource_monitor"): ("jobs: []", "jobs: []\nresource_monitor: {granularity: time_series}"),
    ("`resource_monitor`", "enabled"): ("granularity: time_series", "granularity: time_series, enabled: false"),
    ("`resource_monitor`", "granularity"): ("granularity: summary", "granularity: TimeSeries"),
    ("`resource_monitor`", "sample_interval_seconds"): (
        "granularity: time_series", "granularity: time_series, sample_interval_seconds: 2"),
}  # fmt: skip
LABELS = {
    ("the file", "compute_node_ignore_workflow_completion"): "jobs: []\ncompute_node_ignore_workflow_completion: true",
    (
        "the file",
        "compute_node_wait_for_healthy_database_minutes",
    ): "jobs: []\ncompute_node_wait_for_healthy_database_minutes: 1",
    ("the file", "user"): "jobs: []\nuser: u",
    ("the file", "description"): "jobs: []\ndescription: d",
    ("the file", "project"): "jobs: []\nproject: p",
    ("the file", "metadata"): "jobs: []\nmetadata: {a: 1}",
    ("user data", "is_ephemeral"): "name: d, data: 1, is_ephemeral: true",
    ("an action", "scheduler_type"): f"{ASKS}, scheduler_type: slurm",
    ("`resource_monitor`", "generate_plots"): "generate_plots: true",
    ("`resource_monitor`", "metrics"): "metrics: [cpu]",
}
# Names only show by what refers to them; the test below takes them away.
NAMES = {
    ("the file", "name"),
    ("a file", "name"),
    ("user data", "name"),
    ("resource requirements", "name"),
    ("a failure handler", "name"),
}


def shape(keys: str, place: str) -> Any:
    """The workflow with these keys as data, without the places of things in the file."""
    workflow = compiled(PLACES[place].replace("KEYS", keys))
    return without_places(msgspec.json.decode(msgspec.json.encode(workflow)))


def test_every_key_has_a_case() -> None:
    """The tables and the cases here name the same keys."""
    keys = {(table.name, key) for table in TABLES for key in table.keys}
    assert keys == CHANGES.keys() | LABELS.keys()


@pytest.mark.parametrize("where", CHANGES.keys() - NAMES)
def test_a_key_changes_the_workflow(where: tuple[str, str]) -> None:
    """With the key, or with another value, another workflow comes out."""
    before, after = CHANGES[where]
    assert shape(before, where[0]) != shape(after, where[0])


@pytest.mark.parametrize("where", LABELS)
def test_a_label_is_checked_and_documented(where: tuple[str, str]) -> None:
    """A label changes nothing, is documented as one, and is still refused where its value is nonsense."""
    table = next(table for table in TABLES if table.name == where[0])
    doc = table.keys[where[1]].doc
    assert "abel" in doc or where[1] == "scheduler_type"
    keys = LABELS[where]
    shape(keys, where[0])
    nonsense = PLACES[where[0]].replace("KEYS", keys.rpartition(f"{where[1]}:")[0] + f"{where[1]}: {{a: [.nan]}}")
    assert [found.severity for found in findings(nonsense) if found.code in ("type", "value", "unknown-key")][:1] == [
        "error"
    ]


@pytest.mark.parametrize("where", NAMES)
def test_a_name_is_needed(where: tuple[str, str]) -> None:
    """Without its name nothing can refer to an entry: it is refused."""
    keys = CHANGES[where][1]
    text = PLACES[where[0]].replace("KEYS", keys.partition(", ")[2] if where[0] != "the file" else keys)
    text = text.replace("name: n\n", "") if where[0] == "the file" else text
    assert any("name" in found.message for found in findings(text) if found.severity == "error")
