"""What users of Torc found: actions, exit codes, numbers in the environment, log files, parked jobs and counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dialects.torc.runs import Runs, findings, steps_of
from tests.dialects.torc.test_run import handled

ONE_JOB = "name: t\njobs: [{name: a, command: ./step a}]\n"


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """A folder to run workflows in."""
    return Runs(tmp_path)


def action(trigger: str, *commands: str) -> str:
    """The section with one action."""
    return f"actions:\n  - trigger_type: {trigger}\n    action_type: run_commands\n    commands: {list(commands)}\n"


@pytest.mark.parametrize("trigger", ["on_workflow_start", "on_workflow_complete"])
def test_the_commands_of_an_action_stop_at_the_first_that_fails(runs: Runs, trigger: str) -> None:
    """What follows a failed command does not run, so that `rm` never follows a failed `tar`."""
    runs.run(ONE_JOB + action(trigger, "echo one >> kept", "exit 3", "echo two >> kept"))
    assert (runs.folder / "output" / "kept").read_text() == "one\n"


@pytest.mark.parametrize("trigger", ["on_workflow_complete", "on_worker_complete"])
def test_a_failed_action_at_the_end_never_fails_the_run(runs: Runs, trigger: str) -> None:
    """The run is completed, exit 0, and its document and summary show the failed action."""
    ran = runs.run(ONE_JOB + action(trigger, "echo broken >&2; exit 3"))
    assert ran.document["status"] == "completed"
    assert ran.status == {"a": "completed", "end": "tolerated"}
    assert [event["type"] for event in ran.events][-2:] == ["workflow_completed", "playbook_completed"]
    shown = runs.program.call("status", str(ran.document["run"]), code=0).stdout
    assert "tolerated" in shown


def test_actions_run_in_the_output_directory(runs: Runs) -> None:
    """An action's folder is the run's output directory, which is made where it is missing."""
    runs.run(ONE_JOB + action("on_workflow_start", "pwd > where; rmdir ../out/none; true"), 0, "--output", "out")
    assert (runs.folder / "out" / "where").read_text() == f"{runs.folder}/out\n"


@pytest.mark.parametrize("codes", ["[-1]", "[-9]", "[137]", "[2147483647, -2147483648, -9]"])
def test_negative_exit_codes_are_the_end_by_a_signal(runs: Runs, codes: str) -> None:
    """Torc's numbers for a signal, -1 and -N, match it, and so does 128+N."""
    ran = runs.run(handled("echo a >> trace; test -e once || { touch once; kill -9 $$; }", f"{{exit_codes: {codes}}}"))
    assert ran.order == ["a", "a"]


@pytest.mark.parametrize("codes", ["[-15]", "[9]"])
def test_negative_exit_codes_name_one_signal(runs: Runs, codes: str) -> None:
    """A rule for another signal, or for the plain exit code, does not answer."""
    ran = runs.run(handled("echo a >> trace; kill -9 $$", f"{{exit_codes: {codes}}}"), 1)
    assert ran.order == ["a"]
    assert ran.of("step_failed")[0]["data"]["outcome"] == "NoMatchingRule"


def test_a_code_of_a_signal_is_kept_from_the_rule_for_all(runs: Runs) -> None:
    """A signal that a rule lists belongs to that rule, also when it is spent."""
    rules = ("{exit_codes: [-1], max_retries: 1}", "{match_all_exit_codes: true, max_retries: 3}")
    ran = runs.run(handled("echo a >> trace; kill -9 $$", *rules), 1)
    assert ran.order == ["a"]


def test_a_handler_without_rules(runs: Runs) -> None:
    """`rules: []` is a handler none of whose rules matches."""
    ran = runs.run(handled("./step a 9 7").replace("rules:", "rules: []"), 1)
    assert ran.order == ["a"]
    assert ran.of("step_failed")[0]["data"]["outcome"] == "NoMatchingRule"


def test_a_granularity_in_rusts_spelling() -> None:
    """`TimeSeries` is accepted as `time_series` is, without findings: samples are taken."""
    text = ONE_JOB + "resource_monitor: {granularity: GRANULARITY}\n"
    both = [findings(text.replace("GRANULARITY", word)) for word in ("TimeSeries", "time_series")]
    assert [found.code for found in both[0]] == [found.code for found in both[1]] == []


def test_a_negative_number_of_retries() -> None:
    """`max_retries: -1` is one attempt, and no finding speaks of the default."""
    found = findings(handled("x", "{exit_codes: [1], max_retries: -1}"))
    assert [finding.message for finding in found] == [
        "`max_retries: -1` is one attempt in all, as Torc counts: this rule never retries"
    ]
    assert steps_of(handled("x", "{exit_codes: [1], max_retries: -1}"))["a"].rules[0].limit == 0


def test_the_code_of_a_missing_output_file(runs: Runs) -> None:
    """`TORC_RETURN_CODE` is 1 after exit 0 without the output file: the code that the rule matched."""
    text = """
name: t
files: [{name: f, path: made.txt}]
failure_handlers: [{name: h, rules: [{exit_codes: [1], recovery_script: "echo $TORC_RETURN_CODE > made.txt"}]}]
jobs: [{name: a, command: echo a >> trace, output_files: [f], failure_handler: h}]
"""
    runs.run(text)
    assert (runs.folder / "made.txt").read_text() == "1\n"


def test_both_log_files_of_an_attempt(runs: Runs) -> None:
    """An attempt that wrote to one stream has both files, the other of them empty."""
    ran = runs.run(handled("echo out; ./step a 1 10", "{exit_codes: [10]}"))
    start = f"job_wf{ran.document['run']}_j1_r1_"
    folder = runs.folder / "output" / "job_stdio"
    sizes = {path.name.removeprefix(start): path.stat().st_size for path in folder.glob(f"{start}*")}
    assert sizes == {"a1.o": 4, "a1.e": 12, "a2.o": 4, "a2.e": 0}


@pytest.mark.parametrize(("handler", "outcome"), [("", "NoHandler"), ("failure_handler: h, ", "NoMatchingRule")])
def test_a_parked_step_says_why(runs: Runs, handler: str, outcome: str) -> None:
    """`step_parked` has Torc's outcome: the job has no handler, or its handler has no rule for this failure."""
    text = (
        "name: t\nuse_pending_failed: true\nfailure_handlers: [{name: h, rules: [{exit_codes: [8]}]}]\n"
        f"jobs: [{{name: a, {handler}command: ./step a 9 7}}, {{name: b, failure_handler: h, command: 'true'}}]\n"
    )
    ran = runs.run(text, 4)
    assert [event["data"]["outcome"] for event in ran.of("step_parked")] == [outcome]


def test_no_step_of_ours_is_counted(runs: Runs) -> None:
    """A job that runs whatever became of another, and an action after jobs, need no step beside them."""
    text = """
name: t
jobs:
  - {name: a, command: ./step a 9}
  - {name: c, command: ./step c, depends_on: [a], cancel_on_blocking_job_failure: false}
"""
    over = action("on_jobs_complete", "echo over >> ../trace") + "    jobs: [a]\n"
    ran = runs.run(text, 1)
    assert ran.order == ["a", "c"]
    assert ran.status == {"a": "failed", "c": "completed", "end": "completed"}
    assert ran.document["steps"]["total"] == 2
    ran = runs.run(text + over, 1)
    assert sorted(ran.order) == ["a", "c", "over"]
    assert ran.status == {"a": "failed", "c": "completed", "on_jobs_complete": "completed", "end": "completed"}


NODES = """
name: t
slurm_schedulers: [{{name: s, account: a, nodes: {nodes}}}]
resource_requirements: [{{name: r, num_cpus: 1, memory: 1m, runtime: PT1M, num_nodes: {of_job}}}]
jobs: [{{name: a, command: x, scheduler: s, resource_requirements: r}}]
actions: [{{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm{more}}}]
"""


@pytest.mark.parametrize(
    ("nodes", "of_job", "more", "refused"),
    [(2, 1, "", True), (2, 2, "", False), (1, 1, "", False), (2, 1, ", start_one_worker_per_node: true", False)],
)
def test_machines_that_no_job_uses(nodes: int, of_job: int, more: str, refused: bool) -> None:
    """A scheduler of two nodes whose jobs use one is refused as Torc does, unless each node has a worker."""
    found = findings(NODES.format(nodes=nodes, of_job=of_job, more=more))
    errors = [(finding.code, finding.line) for finding in found if finding.severity == "error"]
    assert errors == ([("nodes", 6)] if refused else [])


def test_user_data_that_nothing_provides() -> None:
    """Data that a job reads, that has no `data` and that no job writes, is a warning at the job that reads it."""
    found = findings("name: t\nuser_data: [{name: d}]\njobs: [{name: a, command: x, input_user_data: [d]}]\n")
    assert [(finding.severity, finding.code, finding.line) for finding in found] == [("warning", "missing-data", 3)]


def test_missing_inputs_are_refused_before_anything_runs(runs: Runs) -> None:
    """Exit 2 where an input file or data is missing, and `--force` goes on."""
    text = "name: t\nfiles: [{name: f, path: none.txt}]\njobs: [{name: a, command: ./step a, input_files: [f]}]\n"
    runs.program.write(text)
    said = runs.program.call("run", "flow.yaml", code=2).stderr
    assert "`none.txt` is not there" in said
    assert "--force" in said
    assert not (runs.folder / "trace").exists()
    assert runs.run(text, 0, "--force").order == ["a"]


USER_DATA = """
name: t
user_data: [{name: given, data: {n: 1, s: "it's ${HOME}"}}, {name: made}]
jobs:
  - name: use
    command: |
      torc -f json user-data get ${user_data.input.made} | grep -o '"x": [0-9]*' >> trace
      torc -f json user-data get ${user_data.input.given} | grep -o "it's .*}" >> trace
      torc user-data list $TORC_WORKFLOW_ID | wc -l >> trace
      torc -f json jobs get $TORC_JOB_ID | grep -E '"(name|status|id)"' >> trace
  - name: make
    command: torc user-data update ${user_data.output.made} --data '{"x":42}'
"""


def test_commands_call_torc(runs: Runs) -> None:
    """`torc` is on the PATH of jobs: user data of one job reaches another, and a job finds itself in the store."""
    assert runs.run(USER_DATA).order == [
        '"x": 42', "it's ${HOME}", "2", '  "id": 1,', '  "name": "use",', '  "status": "running",',
    ]  # fmt: skip


def test_torc_finds_the_database_that_an_option_names(runs: Runs) -> None:
    """`jobs get` asks the database of the run, whatever the environment says."""
    runs.program.write("name: t\njobs: [{name: a, command: 'torc jobs get $TORC_JOB_ID > got'}]\n")
    runs.program.env.pop("RESILE_DB", None)
    runs.program.call("run", "flow.yaml", "--db", "other.db", code=0)
    assert 'name: "a"' in (runs.folder / "got").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [("user-data get 9", "no user data with the ID 9"), ("user-data update 1 --data x", "is no JSON"),
     ("jobs get 99", "no job with the ID 99"), ("user-data delete 1", "there is no command")],
)  # fmt: skip
def test_torc_refuses(runs: Runs, words: str, said: str) -> None:
    """What `torc` can't do fails the job, with a message that says what it knows."""
    ran = runs.run(f"name: t\nuser_data: [{{name: d}}]\njobs: [{{name: a, command: 'torc {words}'}}]\n", 1)
    assert said in runs.program.call("logs", str(ran.document["run"]), "a", "--stderr", code=0).stdout


def test_recovery_scripts_and_actions_call_torc(runs: Runs) -> None:
    """`torc` works in a recovery script and in an action, too."""
    text = (
        "name: t\nuser_data: [{name: d, data: 1}]\n"
        "failure_handlers: [{name: h, rules: [{exit_codes: 1, recovery_script: torc user-data update 1 --data 2}]}]\n"
        "jobs: [{name: a, command: ./step a 1, failure_handler: h}]\n"
    )
    runs.run(text + action("on_workflow_complete", "torc user-data get 1 | grep data > got"))
    assert (runs.folder / "output" / "got").read_text() == "data: 2\n"
