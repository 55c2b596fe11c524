"""What is wrong with a Torc file is said with its place, and a hint where there is one."""

from __future__ import annotations

import pytest

from tests.dialects.torc.runs import findings

HEAD = "name: n\n"
JOB = "jobs: [{name: a, command: x}]\n"


def handler(rule: str) -> str:
    """A workflow with a handler of one rule."""
    return (
        f"{HEAD}failure_handlers: [{{name: h, rules: [{rule}]}}]\njobs: [{{name: a, command: x, failure_handler: h}}]\n"
    )


def resources(keys: str) -> str:
    """A workflow with these requirements."""
    return f"{HEAD}{JOB}resource_requirements: [{{name: r, {keys}}}]\n"


ERRORS = [
    (JOB, "the workflow has no `name`", 1, 1),
    ("name: n\n", "the workflow has no `jobs`", 1, 1),
    (HEAD + JOB + "job: 1\n", "the file has no key `job`", 3, 1),
    (HEAD + "jobs: [{name: a, command: x, comand: x}]\n", "a job has no key `comand`", 2, 30),
    (HEAD + "jobs: [{name: a, command: x, slurm_scheduler: s}]\n", "a job has no key `slurm_scheduler`", 2, 30),
    (HEAD + "jobs: [{name: end, command: x}]\n", "the job name `end` is the name of what runs last", 2, 15),
    (HEAD + "jobs: [{name: 'a|b', command: x}]\n", "the job name `a|b` holds `|`", 2, 15),
    (HEAD + "jobs: [{name: a, command: ' '}]\n", "the command is empty", 2, 27),
    (HEAD + "jobs: [{name: a, command: x}, {name: a, command: y}]\n",
     "the job `a` is here twice; the first is at 2:15", 2, 38),
    (HEAD + "jobs: [{name: a, command: x, depends_on: [b]}]\n", "there is no job `b`", 2, 43),
    (HEAD + "jobs: [{name: a, command: x, depends_on: [a]}]\n", "the job `a` waits for itself", 2, 43),
    (HEAD + "jobs: [{name: a, command: x, depends_on_regexes: ['^b']}]\n", "the pattern `^b` matches no job", 2, 51),
    (HEAD + "jobs: [{name: a, command: x, depends_on_regexes: ['(a']}]\n", "`(a` is no regular expression", 2, 51),
    (HEAD + "jobs: [{name: a, command: x, depends_on_regexes: ['(a+)+b']}]\n", "the pattern `(a+)+b` matches", 2, 51),
    (HEAD + "jobs: [{name: a, command: x, input_files: [f]}]\n", "there is no file `f`", 2, 44),
    (HEAD + "jobs: [{name: a, command: 'x ${files.input.f}'}]\n", "there is no file `f`", 2, 27),
    (HEAD + "jobs: [{name: a, command: 'x ${user_data.input.d}'}]\n", "there is no user data `d`", 2, 27),
    (HEAD + "user_data: [{name: d}]\njobs: [{name: a, command: 'x ${user_data.input.d}'}]\n",
     "the user data `d` has no `data` to put into the command", 3, 27),
    (HEAD + "jobs: [{name: a, command: 'x ${env.HOME}'}]\n", "`${env.HOME}` is no variable of Torc", 2, 27),
    (HEAD + "jobs: [{name: a, command: x, failure_handler: h}]\n", "there is no failure handler `h`", 2, 47),
    (HEAD + "jobs: [{name: a, command: x, resource_requirements: r}]\n", "there is no requirement `r`", 2, 53),
    (HEAD + "jobs: [{name: a, command: x, scheduler: s}]\n", "there is no scheduler `s`", 2, 41),
    (HEAD + "jobs: [{name: a, command: x, parameters: {i: '5:1'}}]\n", "`5:1` is an empty range", 2, 46),
    (HEAD + "jobs: [{name: a, command: x, parameters: {i: '1:2:0'}}]\n", "`1:2:0` has a step of zero", 2, 46),
    (HEAD + "jobs: [{name: a, command: x, parameters: {i: '1:x'}}]\n", "`1:x` is no range", 2, 46),
    (HEAD + "jobs: [{name: a, command: x, parameters: {i: '[]'}}]\n", "`[]` is an empty list", 2, 46),
    (HEAD + "jobs: [{name: a, command: x, parameters: {i: '[1,,2]'}}]\n",
     "`[1,,2]` has a comma with nothing beside", 2, 46),
    (HEAD + "jobs: [{name: a, command: x, parameters: {i: '1:999999999'}}]\n",
     "`1:999999999` has more than 200000", 2, 46),
    (HEAD + "jobs: [{name: a, command: x, parameters: {i: [1, 2]}}]\n", "expected values as text", 2, 46),
    (HEAD + "jobs: [{name: 'a{i}', command: x, parameters: {i: '1:999', j: '1:999'}}]\n",
     "these parameters have 998001", 2, 8),
    (HEAD + "jobs: [{name: a, command: '{i:0999d}', parameters: {i: '1'}}]\n", "`{i:0999d}` is wider than 200", 2, 27),
    (HEAD + "jobs: [{name: a, command: x, parameters: {i: '1:2', j: '1:3'}, parameter_mode: zip}]\n",
     "zip needs lists of one length: `i` has 2, `j` has 3", 2, 64),
    (HEAD + "jobs: [{name: a, command: x, parameter_mode: zap}]\n", "expected one of product, zip", 2, 46),
    (HEAD + "jobs: [{name: a, command: x, parameter_mode: zip}]\n", "`parameter_mode` has no meaning", 2, 30),
    (HEAD + "jobs: [{name: a, command: x, use_parameters: [i]}]\n", "there is no shared parameter `i`", 2, 47),
    (HEAD + "jobs: [{name: a, command: 'x {i}', parameters: {i: '1:2'}}]\n",
     "two expansions are called `a` and differ in", 2, 15),
    (HEAD + JOB + "files: [{name: f, path: a}, {name: f, path: b}]\n", "the file `f` is here twice", 3, 36),
    (HEAD + JOB + "files: [{name: f, path: 'a{i}', parameters: {i: '1:2'}}]\n", "two expansions are called `f`", 3, 16),
    (HEAD + JOB + "files: [{name: f, path: ''}]\n", "the path is empty", 3, 25),
    (HEAD + JOB + "user_data: [{data: 1}]\n", "user data needs `name`", 3, 13),
    (HEAD + JOB + "user_data: [{name: d, data: .inf}]\n", "JSON can't hold the number inf", 3, 29),
    (resources("num_cpus: 1"), "resource requirements needs `memory`", 3, 25),
    (resources("num_cpus: 0, memory: 1g"), "`0` is out of bounds", 3, 45),
    (resources("num_cpus: 1, memory: lots"), "`lots` is not a size", 3, 56),
    (resources("num_cpus: 1, memory: 1g, runtime: 30m"), "expected an ISO 8601 duration, not `30m`", 3, 69),
    (resources("num_cpus: 1, memory: 1g, runtime: PT0S"), "`PT0S` is no time at all", 3, 69),
    (resources("num_cpus: 1, memory: 1g, runtime: P9Y"), "`P9Y` is longer than 366 days", 3, 69),
    (resources("num_cpus: 1, memory: 1g").replace("name: r", "name: default"),
     "`default` is the name of what jobs have", 3, 32),
    (handler("{exit_codes: [1.5]}"), "expected an exit code: a whole number of 32 bits, not `1.5`", 2, 52),
    (handler("{exit_codes: [2147483648]}"), "expected an exit code: a whole number of 32 bits", 2, 52),
    (handler("{exit_codes: [1], max_retries: 1.5}"), "expected a whole number", 2, 69),
    (handler("{exit_codes: [1], recovery_script: ''}"), "`recovery_script` is empty", 2, 73),
    (handler("{exit_codes: [1], recovery_script: '${error.message}'}"),
     "`${error.message}` is no variable of Torc", 2, 73),
    (handler("{exit_codes: [1], on_fail: x}"), "a rule has no key `on_fail`", 2, 56),
    (HEAD + JOB + "slurm_schedulers: [{name: s}]\n", "the scheduler `s` has no `account`", 3, 20),
    (HEAD + JOB + "slurm_schedulers: [{name: s, account: a, walltime: soon}]\n", "expected a time such as", 3, 52),
    (HEAD + JOB + "slurm_defaults: {mem: 1g}\n", "`mem` can't be a default of schedulers", 3, 23),
    (HEAD + JOB + "actions: [{trigger_type: on_start, action_type: run_commands, commands: [x]}]\n",
     "expected one of on_workflow_start", 3, 26),
    (HEAD + JOB + "actions: [{trigger_type: on_workflow_start, action_type: run_commands}]\n",
     "`run_commands` needs `commands`", 3, 11),
    (HEAD + JOB + "actions: [{trigger_type: on_workflow_start, action_type: schedule_nodes}]\n",
     "`schedule_nodes` needs `scheduler`", 3, 11),
    (HEAD + JOB + "actions: [{trigger_type: on_jobs_ready, action_type: run_commands, commands: [x]}]\n",
     "`on_jobs_ready` needs to know", 3, 11),
    (HEAD + JOB + "actions: [{trigger_type: on_jobs_ready, jobs: [b], action_type: run_commands, commands: [x]}]\n",
     "there is no job `b`", 3, 48),
    (HEAD + JOB + "actions: [{trigger_type: on_workflow_start, action_type: run_commands, commands: [x],"
     " scheduler: s}]\n", "`scheduler` has no meaning with `run_commands`", 3, 87),
    (HEAD + "jobs: [{name: a, command: x, depends_on: b}, {name: b, command: x, depends_on: c},"
     " {name: c, command: x, depends_on: a}]\n",
     "these jobs wait for each other: `a` for `b` for `c` for `a`", 2, 15),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "line", "column"), ERRORS)
def test_errors(text: str, message: str, line: int, column: int) -> None:
    """One error, with its words and its place."""
    errors = [found for found in findings(text) if found.severity == "error"]
    told = [(found.message[: len(message)], found.line, found.column) for found in errors]
    assert told == [(message, line, column)]


WARNINGS = [
    (handler("{exit_codes: [1], max_retries: 1}"), "`max_retries: 1` is one attempt in all", "for one retry write"),
    (handler("{exit_codes: [1, 0]}"), "no failure has the exit code 0", "codes are 1 to 255"),
    (handler("{exit_codes: [1, -65]}"), "no failure has the exit code -65", "codes are 1 to 255"),
    (handler(""), "the failure handler `h` has no rules: it answers no failure", ""),
    (handler("{max_retries: 3}"), "this rule answers no failure", "list `exit_codes`"),
    (handler("{exit_codes: [1]}, {exit_codes: [1]}"), "this rule answers no failure", "a rule above answers"),
    (HEAD + JOB + "failure_handlers: [{name: h, rules: [{exit_codes: 1}]}]\n",
     "no job has the failure handler `h`", ""),
    (HEAD + JOB + "parameters: {i: '1:2'}\n", "nothing uses the parameter `i`", "jobs and files take it"),
    (HEAD + JOB + "files: [{name: f, path: '~/f'}]\n", "the path `~/f` is taken as it stands", ""),
    (HEAD + "files: [{name: f, path: nowhere}]\njobs: [{name: a, command: x, input_files: f}]\n",
     "no job writes the file `f`, and `nowhere` is not there", "paths are seen from"),
    (HEAD + "jobs: [{name: a, command: x, invocation_script: '#!/bin/bash\\nset -e'}]\n",
     "`invocation_script` ends in a comment", "`\\n` is a backslash and an n here"),
    (HEAD + JOB + "actions: [{trigger_type: on_workflow_start, jobs: a, action_type: run_commands, commands: x}]\n",
     "`jobs` changes nothing: `on_workflow_start` is not about single jobs", "take `jobs` out"),
    (HEAD + JOB + "resource_monitor: {granularty: summary}\n",
     "`granularty` of `resource_monitor` changes nothing", "did you mean `granularity`?"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "hint"), WARNINGS)
def test_warnings(text: str, message: str, hint: str) -> None:
    """What is probably not meant is said, with what to do about it."""
    warnings = [found for found in findings(text) if found.severity == "warning"]
    assert [(found.message[: len(message)], found.hint[: len(hint)]) for found in warnings] == [(message, hint)]


NOTICES = [
    (resources("num_cpus: 1, memory: 1g"), "no `runtime`: an hour is what Torc assumes"),
    (HEAD + JOB + "resource_monitor: {enabled: true}\n", "`resource_monitor` changes nothing"),
    (HEAD + JOB + "compute_node_wait_for_new_jobs_seconds: 5\n", "`compute_node_wait_for_new_jobs_seconds` is for"),
    (HEAD + JOB + "slurm_defaults: {qos: high}\n", "`slurm_defaults` is for Slurm"),
    (HEAD + JOB + "actions: [{trigger_type: on_worker_start, action_type: run_commands, commands: x, "
     "persistent: true}]\n",
     "commands run once, not for every worker"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), NOTICES)
def test_notices(text: str, message: str) -> None:
    """What has no effect on one machine, or is enforced here, is said."""
    notices = [found for found in findings(text) if found.severity == "notice" and found.code != "steps"]
    assert [found.message[: len(message)] for found in notices] == [message]


def test_more_steps_than_jobs() -> None:
    """Actions are steps, and a notice says how many there are beside the jobs."""
    (found,) = findings(
        f"{HEAD}{JOB}actions: [{{trigger_type: on_worker_start, action_type: run_commands, commands: x}}]\n"
    )
    expected = "the workflow has 1 job and 1 more step, for its actions"
    assert (found.severity, found.code, found.message) == ("notice", "steps", expected)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ('job "b" { dependson "a"; command "x" }', "a job has no key `dependson`"),
        ('jobs "b"', "expected a list, not `b`"),
        ('resource "r"', "the file has no key `resource`"),
        ('action { trigger_type "on_workflow_start"; action_type "run_commands"; command "x"; when 1 }',
         "an action has no key `when`"),
    ],
)  # fmt: skip
def test_unknown_kdl_nodes(node: str, message: str) -> None:
    """A node that is not known is an error, never dropped."""
    errors = [found for found in findings(f'name "n"\n{node}\n', "flow.kdl") if found.severity == "error"]
    assert [(found.message, found.line) for found in errors] == [(message, 2)]


def test_the_old_name_of_depends_on() -> None:
    """`depends_on_job` is taken as meant, with a notice."""
    text = 'name "n"\njob "a" { command "x" }\njob "b" { command "x"; depends_on_job "a" }\n'
    (found,) = findings(text, "flow.kdl")
    assert (found.severity, found.code, found.line, found.column) == ("notice", "alias", 3, 24)
