"""Torc files run: handlers that really mend something, outcomes, parked failures, files, data and actions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.program import rule_text
from tests.dialects.torc.runs import Runs


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """A folder to run workflows in."""
    return Runs(tmp_path)


def handled(command: str, *rules: str, more: str = "") -> str:
    """A workflow of one job with a handler of these rules."""
    listed = "".join(f"\n      - {rule}" for rule in rules)
    handlers = f"failure_handlers:\n  - name: h\n    rules:{listed}\n"
    return f"name: t\n{more}{handlers}jobs:\n  - {{name: a, command: '{command}', failure_handler: h}}\n"


def test_a_recovery_script_mends_what_the_job_needs(runs: Runs) -> None:
    """The script runs with bash between the two attempts, and the job is recovered."""
    script = "recovery_script: '[[ -f mesh ]] || echo fine > mesh; echo script >> trace'"
    ran = runs.run(handled("echo a >> trace; grep -q fine mesh || exit 10", f"{{exit_codes: [10], {script}}}"))
    assert ran.order == ["a", "script", "a"]
    assert ran.status == {"a": "recovered", "end": "completed"}
    assert ran.told("a") == [
        "step_started", "attempt_started", "attempt_failed", "retry_scheduled", "repair_started", "repair_finished",
        "attempt_started", "attempt_succeeded", "step.exit", "step_recovered",
    ]  # fmt: skip
    assert ran.of("retry_scheduled")[0]["data"]["outcome"] == "Retried"
    assert rule_text(ran.document["routes"][0]["rule"]) == "flow.yaml:5:9 failure_handler h: exit codes 10"


@pytest.mark.parametrize(
    ("fails", "rules", "attempts", "outcome"),
    [
        (1, ("{exit_codes: [7], max_retries: 3}",), 2, ""),
        (2, ("{exit_codes: [7], max_retries: 3}",), 3, ""),
        (9, ("{exit_codes: [7], max_retries: 3}",), 3, "MaxRetriesExceeded"),
        (9, ("{exit_codes: [7]}",), 3, "MaxRetriesExceeded"),
        (9, ("{exit_codes: [7], max_retries: 2}",), 2, "MaxRetriesExceeded"),
        (9, ("{exit_codes: [7], max_retries: 1}",), 1, "MaxRetriesExceeded"),
        (9, ("{exit_codes: [7], max_retries: 0}",), 1, "MaxRetriesExceeded"),
        (9, ("{exit_codes: [8]}",), 1, "NoMatchingRule"),
        (9, ("{match_all_exit_codes: true, max_retries: 4}",), 4, "MaxRetriesExceeded"),
        (9, ("{match_all_exit_codes: true, max_retries: 5}", "{exit_codes: [7], max_retries: 2}"), 2,
         "MaxRetriesExceeded"),
        (9, ("{exit_codes: [8]}", "{match_all_exit_codes: true, max_retries: 2}"), 2, "MaxRetriesExceeded"),
        (9, ("{exit_codes: [7], max_retries: 2}", "{exit_codes: [7], max_retries: 9}"), 2, "MaxRetriesExceeded"),
    ],
)  # fmt: skip
def test_outcomes(runs: Runs, fails: int, rules: tuple[str, ...], attempts: int, outcome: str) -> None:
    """One rule is chosen, listed codes first; its number is attempts in all, and then the failure stands."""
    ran = runs.run(handled(f"./step a {fails} 7", *rules), 1 if outcome else 0)
    assert ran.order == ["a"] * attempts
    assert ran.document["jobs"][0]["attempts"] == attempts
    assert [event["data"]["outcome"] for event in ran.of("step_failed")] == ([outcome] if outcome else [])


def test_no_handler(runs: Runs) -> None:
    """A job without a handler has one attempt, and its failure stands."""
    ran = runs.run("name: t\njobs: [{name: a, command: ./step a 9 3}]\n", 1)
    assert ran.order == ["a"]
    assert ran.of("step_failed")[0]["data"]["outcome"] == "NoHandler"


def test_attempts_are_counted_for_the_job(runs: Runs) -> None:
    """A second rule has no attempts of its own: those of the first count."""
    rules = ("{exit_codes: [10], max_retries: 3}", "{exit_codes: [11], max_retries: 2}")
    ran = runs.run(handled("echo a >> trace; exit $((9 + $(wc -l < trace)))", *rules), 1)
    assert ran.order == ["a", "a"]
    assert ran.of("step_failed")[0]["data"]["outcome"] == "MaxRetriesExceeded"


def test_a_script_that_fails_changes_nothing(runs: Runs) -> None:
    """The job runs again whatever becomes of its recovery script."""
    ran = runs.run(handled("./step a 1 10", "{exit_codes: [10], recovery_script: 'echo s >> trace; exit 5'}"))
    assert ran.order == ["a", "s", "a"]
    assert ran.of("repair_finished")[0]["data"]["ok"] is False
    assert ran.status["a"] == "recovered"


def test_the_environment_of_a_recovery_script(runs: Runs) -> None:
    """The seven variables of the design tell of the attempt that failed, under both names."""
    names = ("WORKFLOW_ID", "RUN_ID", "JOB_ID", "JOB_NAME", "API_URL", "OUTPUT_DIR", "ATTEMPT_ID", "RETURN_CODE")
    script = " ".join(f"${{TORC_{name}}}/$RESILE_{name}" for name in names)
    ran = runs.run(handled("./step a 1 10", f"{{exit_codes: [10], recovery_script: 'echo {script} > told'}}"))
    told = [pair.split("/", 1) for pair in (runs.folder / "told").read_text().split()]
    output = str(runs.folder / "output")
    run = str(ran.document["run"])
    by_name = dict(zip(names, told, strict=True))
    assert by_name.pop("OUTPUT_DIR") == f"{output}/{output}".split("/", 1)
    assert by_name == {
        "WORKFLOW_ID": [run, run], "RUN_ID": ["1", "1"], "JOB_ID": ["1", "1"], "JOB_NAME": ["a", "a"],
        "API_URL": ["", ""], "ATTEMPT_ID": ["1", "1"], "RETURN_CODE": ["10", "10"],
    }  # fmt: skip


def test_the_environment_of_a_job(runs: Runs) -> None:
    """Commands, and what they call, find Torc's variables."""
    runs.run("name: t\njobs: [{name: a b, command: 'printenv TORC_JOB_NAME TORC_JOB_ID TORC_ATTEMPT_ID > told'}]\n")
    assert (runs.folder / "told").read_text() == "a b\n1\n1\n"


def test_log_files(runs: Runs) -> None:
    """Each attempt has both files of its own where there is output, named as the design says."""
    ran = runs.run(handled("echo out; ./step a 1 10", "{exit_codes: [10]}"))
    run = ran.document["run"]
    folder = runs.folder / "output" / "job_stdio"
    names = sorted(path.name for path in folder.iterdir() if path.name.startswith(f"job_wf{run}_j1_"))
    assert names == [f"job_wf{run}_j1_r1_{ending}" for ending in ("a1.e", "a1.o", "a2.e", "a2.o")]
    assert (folder / f"job_wf{run}_j1_r1_a1.e").read_text() == "a is broken\n"


@pytest.mark.parametrize("handler", ["", "failure_handler: h, "])
def test_what_no_rule_is_for_is_parked(runs: Runs, handler: str) -> None:
    """With `use_pending_failed` the run waits, exit 4, and dependents stay blocked."""
    text = (
        "name: t\nuse_pending_failed: true\nfailure_handlers: [{name: h, rules: [{exit_codes: [8]}]}]\n"
        f"jobs:\n  - {{name: a, {handler}command: ./step a 9 7}}\n  - {{name: b, command: ./step b, depends_on: [a]}}\n"
    )
    ran = runs.run(text, 4)
    assert ran.order == ["a"]
    assert ran.status == {"a": "pending_failed", "b": "blocked", "end": "blocked"}


def test_a_spent_rule_is_not_parked(runs: Runs) -> None:
    """`use_pending_failed` is for failures without a rule; one whose rule is spent has failed."""
    ran = runs.run(handled("./step a 9 7", "{exit_codes: [7], max_retries: 2}", more="use_pending_failed: true\n"), 1)
    assert ran.order == ["a", "a"]
    assert ran.status["a"] == "failed"


def test_a_parked_job_goes_on_when_somebody_judges(runs: Runs) -> None:
    """After the verdict to try again the job and its dependents run."""
    text = "name: t\nuse_pending_failed: true\njobs:\n  - {name: a, command: ./step a 1 7}\n"
    ran = runs.run(text + "  - {name: b, command: ./step b, depends_on: [a]}\n", 4)
    runs.program.call("judge", str(ran.document["run"]), "a", "retry", "--resume", code=0)
    assert (runs.folder / "trace").read_text().split() == ["a", "a", "b"]


def test_files_order_jobs_and_must_be_there(runs: Runs) -> None:
    """A job waits for who writes what it reads; paths with blanks are one word."""
    text = """
name: t
files: [{name: one, path: "first one.txt"}, {name: two, path: two.txt}]
jobs:
  - {name: last, command: "echo last >> trace; cp ${files.input.one} ${files.output.two}"}
  - {name: first, command: "echo first >> trace; echo x > ${files.output.one}"}
"""
    ran = runs.run(text)
    assert ran.order == ["first", "last"]
    assert (runs.folder / "two.txt").read_text() == "x\n"


def test_a_missing_output_file_is_a_failure_with_code_1(runs: Runs) -> None:
    """A job that leaves a file out has failed; a rule for the code 1 answers, as in Torc."""
    text = """
name: t
files: [{name: f, path: made.txt}]
failure_handlers: [{name: h, rules: [{exit_codes: [1], recovery_script: "touch made.txt"}]}]
jobs: [{name: a, command: echo a >> trace, output_files: [f], failure_handler: h}]
"""
    ran = runs.run(text)
    assert ran.order == ["a", "a"]
    assert ran.of("attempt_failed")[0]["data"]["kind"] == "contract"


def test_user_data_is_data(runs: Runs) -> None:
    """JSON comes whole, and nothing in it is run."""
    text = """
name: t
user_data: [{name: d, data: {a: "$(touch bad) ' \\" `x`", b: [1, null, true]}}, {name: later}]
jobs:
  - {name: use, command: "echo use >> trace; printf %s ${user_data.input.d} '${user_data.input.later}' > told"}
  - {name: make, command: "echo make >> trace; echo '{\\"x\\": \\"it is\\"}'", output_user_data: [later]}
"""
    ran = runs.run(text)
    assert ran.order == ["make", "use"]
    expected = '{"a":"$(touch bad) \' \\" `x`","b":[1,null,true]}{"x": "it is"}'
    assert (runs.folder / "told").read_text() == expected
    assert not (runs.folder / "bad").exists()


def test_the_invocation_script_runs(runs: Runs) -> None:
    """A script of lines runs before the command, one without a line break is its beginning."""
    text = """
name: t
jobs:
  - name: lines
    invocation_script: |
      #!/bin/bash
      set -e
      export GREETING=hello
    command: echo $GREETING >> trace
  - name: prefix
    invocation_script: env GREETING=hi
    command: bash -c 'echo $GREETING >> trace'
    depends_on: [lines]
"""
    assert runs.run(text).order == ["hello", "hi"]


def test_what_belongs_to_bash_stays(runs: Runs) -> None:
    """Variables of bash mean the same as without us, also where they look like ours."""
    text = """
name: t
jobs:
  - name: a
    command: |
      execution=one; inputs=two; arr=(three); raw=four
      echo ${execution}-${inputs}-${arr[0]:-none}-${arr[1]:-none}-${raw:1}-'${item.x}' >> trace
"""
    assert runs.run(text).order == ["one-two-three-none-our-${item.x}"]


def test_actions(runs: Runs) -> None:
    """Commands run at their triggers: before everything, before and after jobs, and at the end."""
    triggers = (
        "on_worker_complete", "on_workflow_complete", "on_jobs_complete, jobs: [a]", "on_jobs_ready, jobs: [b]",
        "on_worker_start", "on_workflow_start",
    )  # fmt: skip
    actions = "".join(
        f"  - {{action_type: run_commands, commands: 'echo {words.split(',')[0]}>> ../trace', trigger_type: {words}}}\n"
        for words in triggers
    )
    jobs = "jobs:\n  - {name: b, command: ./step b, depends_on: [a]}\n  - {name: a, command: ./step a}\n"
    ran = runs.run(f"name: t\n{jobs}actions:\n{actions}")
    assert ran.order == [
        "on_workflow_start", "on_worker_start", "a", "on_jobs_complete", "on_jobs_ready", "b",
        "on_workflow_complete", "on_worker_complete",
    ]  # fmt: skip


def test_actions_of_jobs_that_fail(runs: Runs) -> None:
    """Jobs that are over fire `on_jobs_complete`, also canceled ones; those that never get ready fire nothing."""
    text = """
name: t
jobs: [{name: a, command: ./step a 9}, {name: b, command: ./step b, depends_on: [a]}]
actions:
  - {trigger_type: on_jobs_complete, action_type: run_commands, job_name_regexes: [a, b],
     commands: [echo over >> ../trace]}
  - {trigger_type: on_jobs_ready, action_type: run_commands, jobs: [b], commands: [echo ready >> ../trace]}
  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: [echo end >> ../trace]}
"""
    ran = runs.run(text, 1)
    assert ran.order == ["a", "over", "end"]
    assert ran.status == {
        "a": "failed", "b": "canceled", "on_jobs_complete": "completed",
        "on_jobs_ready": "canceled", "end": "completed",
    }  # fmt: skip


def test_an_action_that_fails_is_tolerated(runs: Runs) -> None:
    """The commands of an action run up to the first that fails, and the jobs go on."""
    text = """
name: t
jobs: [{name: a, command: ./step a}]
actions:
  - trigger_type: on_workflow_start
    action_type: run_commands
    commands: ["echo one >> ../trace", "if broken", "echo two >> ../trace"]
"""
    ran = runs.run(text)
    assert ran.order == ["one", "a"]
    assert ran.status == {"a": "completed", "on_workflow_start": "tolerated", "end": "completed"}


def test_the_largest_jobs_start_first(runs: Runs) -> None:
    """`jobs_sort_method` says which of the ready jobs start first."""
    resources = "".join(
        f"  - {{name: {name}, num_cpus: 1, memory: {memory}, runtime: {runtime}}}\n"
        for name, memory, runtime in (("long", "1m", "PT2M"), ("wide", "2m", "PT1M"), ("both", "2m", "PT2M"))
    )
    jobs = "".join(
        f"  - {{name: {n}, command: ./step {n}, resource_requirements: {n}}}\n" for n in ("wide", "long", "both")
    )
    text = f"name: t\nresource_requirements:\n{resources}jobs:\n{jobs}jobs_sort_method: "
    assert runs.run(text + "gpus_runtime_memory").order == ["both", "long", "wide"]
    assert runs.run(text + "gpus_memory_runtime").order == ["both", "wide", "long"]
    assert runs.run(text + "none").order == ["wide", "long", "both"]


def test_a_sweep_in_kdl(runs: Runs) -> None:
    """Parameters, a fan-in by parameters and both formats in one text, in KDL."""
    text = """
name "sweep"
job "work_{i:02d}" {
    command "echo {i}-{i:03d}-{x:.2f} >> trace"
    parameters { i "1:2"; x "[0.5]" }
}
job "all" {
    command "echo all >> trace"
    depends_on_job "work_{i:02d}"
    parameters { i "1:2" }
}
"""
    assert runs.run(text, file="flow.kdl").order == ["1-001-0.50", "2-002-0.50", "all"]


def test_check_says_what_is_kept_for_a_cluster(runs: Runs) -> None:
    """Schedulers and requests for machines are no errors, and `check` says that they wait for a cluster."""
    text = """
name: t
slurm_schedulers: [{name: s, account: a}]
jobs: [{name: a, command: x, scheduler: s}]
actions: [{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}]
"""
    runs.program.write(text)
    (file,) = runs.program.json("check", "flow.yaml")["files"]
    assert (file["dialect"], file["ok"], file["steps"]) == ("torc", True, 1)
    assert [re.sub(" is for Slurm.*", "", found["message"]) for found in file["diagnostics"]] == [
        "`slurm_schedulers`",
        "`schedule_nodes`",
    ]
