"""`run`, `check`, `rerun`, `reset`: exit codes, documents, and what stands on which stream."""

from __future__ import annotations

import re
import subprocess

import msgspec
import pytest

from resile.api.run import EventListener
from resile.commands.client import Client
from resile.commands.start.call import ResourceLimits
from resile.errors import ResileError
from tests.cli.program import DEADLINE_SECONDS, Program, rule_text
from tests.cli.terminal import Terminal

GOOD = (
    'resile: 1\nname: good\nsteps:\n  one: {shell: echo hello, capture: said}\n  two: {shell: "true", needs: [one]}\n'
)
BAD = """\
resile: 1
name: bad
steps:
  first: {shell: "true"}
  broken:
    shell: echo oh no >&2; test -e mended
    needs: [first]
    retry: {max: 1}
  behind: {shell: echo behind, needs: [broken]}
"""
WIDE = "resile: 1\nsteps:\n  a:\n    shell: echo ran\n    resources: {cpus: 2}\n"
JOB_KEYS = [
    "id", "step", "scope", "status", "recovered", "tolerated", "output_lost", "attempts", "exit_code", "seconds",
    "cause", "waits_for", "cached",
]  # fmt: skip


def facts(document: dict[str, object]) -> list[tuple[object, ...]]:
    """Step, status, attempts, exit code of each job of a document."""
    jobs = document["jobs"]
    assert isinstance(jobs, list)
    return [(job["step"], job["status"], job["attempts"], job["exit_code"]) for job in jobs]


def test_a_completed_run_as_json(program: Program) -> None:
    """A run that completes exits 0, prints exactly its document on stdout and its id on stderr."""
    done = program.call("run", program.write(GOOD), "--json", code=0)
    assert done.stderr == "run 1\n"
    assert done.stdout.count("\n") == 1
    document = msgspec.json.decode(done.stdout)
    assert {key: document[key] for key in ("run", "workflow", "dialect", "status", "exit_code")} == {
        "run": 1,
        "workflow": "good",
        "dialect": "native",
        "status": "completed",
        "exit_code": 0,
    }
    assert document["steps"] == {
        "total": 2,
        "completed": 2,
        "recovered": 0,
        "tolerated": 0,
        "failed": 0,
        "canceled": 0,
        "skipped": 0,
        "parked": 0,
    }
    assert [list(job) for job in document["jobs"]] == [JOB_KEYS] * len(document["jobs"])
    assert facts(document)[:2] == [("one", "completed", 1, 0), ("two", "completed", 1, 0)]
    assert (document["routes"], document["first_failure"], document["maps"]) == ([], None, {})
    assert document["outputs"] == {"said": "hello"}
    assert program.json("status", "1") == document


def test_a_failed_run_as_json(program: Program) -> None:
    """A run that fails exits 1 and says in its document the rules, the first failure and its victims."""
    document = program.json("run", program.write(BAD), code=1)
    assert (document["status"], document["exit_code"]) == ("failed", 1)
    assert facts(document)[:3] == [
        ("first", "completed", 1, 0),
        ("broken", "failed", 2, 1),
        ("behind", "canceled", 0, None),
    ]
    assert document["jobs"][2]["cause"] == {"step": "broken", "job": 2, "status": "failed"}
    assert [(route["step"], route["attempt"], route["action"]) for route in document["routes"]] == [
        ("broken", 1, "retry"),
        ("broken", 2, "fail"),
    ]
    assert rule_text(document["routes"][0]["rule"]).startswith("flow.yaml:8:")
    first = document["first_failure"]
    assert (first["step"], first["attempt"], first["kind"], first["exit_code"]) == ("broken", 1, "exit", 1)


def test_a_failed_run_for_people(program: Program) -> None:
    """Without a terminal the course of a run is told in lines on stderr and its summary stands on stdout."""
    done = program.call("run", program.write(BAD), code=1)
    told = [line[9:] if line[2:3] == ":" else line for line in done.stderr.splitlines()]
    assert told[0] == "run 1: bad, 3 steps"
    assert told[1] == "first started"
    assert "broken started" in told
    assert any(re.fullmatch(r"broken attempt 2 follows: flow\.yaml:8:\d+ .*", line) for line in told)
    assert told[-2:] == ["broken failed after 2 attempts", "behind canceled because broken failed"]
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"run 1 bad failed after 0\.\d s", lines[0])
    assert lines[1] == "3 steps: 1 completed, 1 failed, 1 canceled"
    assert lines[3] == "What was done"
    assert re.fullmatch(r"  \d\d:\d\d:\d\d  retry  broken  attempt 1  flow\.yaml:8:\d+ .*", lines[4])
    assert re.fullmatch(r"  \d\d:\d\d:\d\d  fail   broken  attempt 2  no rule left", lines[5])
    assert lines[7:9] == ["Failed", "  broken: exit code 1, 2 attempts"]
    assert "oh no" in lines[9]
    assert lines[10:14] == ["    stderr", "    | oh no", "    canceled because of it: behind", ""]
    assert lines[14:] == [
        "Next",
        "  resile explain 1              # which rules answered, and why",
        "  resile logs 1 broken          # what it printed",
        "  resile rerun 1 --failed-only  # run again what did not complete",
    ]
    assert max(len(line) for line in lines) <= 80


def test_the_hints_name_the_database(program: Program) -> None:
    """Commands to copy carry the --db that the run was given."""
    done = program.call("run", program.write(BAD), "--db", "my runs.db", code=1)
    assert "  resile logs 1 broken --db 'my runs.db' " in done.stdout


def test_rerun_failed_only(program: Program) -> None:
    """`rerun --failed-only` keeps what completed and runs the rest in the same run."""
    program.call("run", program.write(BAD), code=1)
    (program.folder / "mended").touch()
    document = program.json("rerun", "1", "--failed-only")
    assert (document["run"], document["status"]) == (1, "completed")
    assert facts(document)[:3] == [
        ("first", "completed", 1, 0),
        ("broken", "completed", 1, 0),
        ("behind", "completed", 1, 0),
    ]
    starts = [event["step"] for event in events(program, "--type", "attempt_started")]
    assert [step for step in starts if step != "end"] == ["first", "broken", "broken", "broken", "behind"]


def events(program: Program, *words: str) -> list[dict[str, object]]:
    """The events of run 1."""
    lines = program.call("events", "list", "1", "--json", *words, code=0).stdout.splitlines()
    return [msgspec.json.decode(line) for line in lines]


def test_rerun_as_new(program: Program) -> None:
    """`rerun --as-new` makes a new run and leaves the old one as it was."""
    program.call("run", program.write(BAD), code=1)
    (program.folder / "mended").touch()
    document = program.json("rerun", "1", "--as-new")
    assert (document["run"], document["status"]) == (2, "completed")
    assert program.json("status", "1")["status"] == "failed"
    assert [run["run"] for run in program.json("status")["runs"]] == [2, 1]


def test_a_refused_takeover_gives_the_run_back(program: Program) -> None:
    """`rerun` with too little for a step is refused, and the same process can take the run again at once."""
    program.write(WIDE)
    program.call("run", "flow.yaml", "--cpus", "2", code=0)
    with Client.at(program.env["RESILE_DB"]) as client:
        with pytest.raises(ResileError, match="it asks for CPUs: 2, there are 1"):
            client.rerun(1, ResourceLimits(cpus=1), EventListener(None))
        assert client.rerun(1, ResourceLimits(cpus=2), EventListener(None)).status == "completed"


def test_a_rerun_as_new_needs_room_for_every_step(program: Program) -> None:
    """`rerun --as-new` with too little for a step is refused, and makes no run."""
    program.write(WIDE)
    program.call("run", "flow.yaml", "--cpus", "2", code=0)
    assert program.json("rerun", "1", "--as-new", "--cpus", "1", code=2)["error"]["code"] == "does-not-fit"
    assert [run["run"] for run in program.json("status")["runs"]] == [1]


def test_reset_status_then_resume(program: Program) -> None:
    """`reset` runs nothing; `resume` then runs what was reset and nothing else."""
    program.call("run", program.write(BAD), code=1)
    answer = program.json("reset", "1", "--failed-only")
    assert answer["run"] == 1
    (program.folder / "mended").touch()
    document = program.json("resume", "1")
    assert document["status"] == "completed"
    assert [event["step"] for event in events(program, "--type", "attempt_started")].count("first") == 1


def test_resume_of_an_ended_run(program: Program) -> None:
    """`resume` of a run that has ended changes nothing and gives that run's exit code."""
    program.call("run", program.write(BAD), code=1)
    before = events(program)
    assert program.json("resume", "1", code=1)["status"] == "failed"
    assert events(program) == before


def test_a_wrong_file_runs_nothing(program: Program) -> None:
    """A file with errors exits 2 with each finding, its place, the line, a caret and a hint; nothing is written."""
    program.write(
        'resile: 1\nname: wrong\nsteps:\n  one: {shell: "true"}\n  two:\n    shell: echo 2\n    nedes: [one]\n'
    )
    done = program.call("run", "flow.yaml", code=2)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith("flow.yaml:7:5: error: ")
    assert lines[1:3] == ["  7 |     nedes: [one]", "    |     ^"]
    assert lines[3].startswith("  hint: ")
    assert "needs" in lines[3]
    assert lines[4:] == ["resile: error: 1 error; nothing was run"]
    document = program.json("run", "flow.yaml", code=2)
    found = document["diagnostics"][0]
    assert list(found) == ["severity", "code", "message", "file", "line", "column", "hint"]
    assert (found["severity"], found["file"], found["line"], found["column"]) == ("error", "flow.yaml", 7, 5)
    assert document["error"]["where"] == "flow.yaml:7:5"
    assert [path.name for path in program.folder.iterdir()] == ["flow.yaml"]


def test_findings_without_a_line_to_show(program: Program) -> None:
    """Of an empty or a binary file there is nothing to point at, so only the place and the hint are told."""
    program.write("")
    (program.folder / "binary.yaml").write_bytes(b"\x7fELF\0\x1b[31m")
    for name in ("flow.yaml", "binary.yaml"):
        lines = program.call("run", name, code=2).stderr.splitlines()
        assert lines[0].startswith(f"{name}:1:")
        assert [line[:7] for line in lines[1:]] == ["  hint:", "resile:"]


def test_a_missing_file(program: Program) -> None:
    """A file that is not there is exit 2, and nothing is written."""
    assert "nowhere.yaml" in program.call("run", "nowhere.yaml", code=2).stderr
    assert list(program.folder.iterdir()) == []
    program.write(GOOD, "release.yaml")
    assert "hint: did you mean `release.yaml`?" in program.call("run", "releas.yaml", code=2).stderr
    assert "hint" not in program.call("run", "nosuch.yaml", code=2).stderr


def test_a_missing_run(program: Program) -> None:
    """A run that is not there is exit 2 for every command that names one."""
    program.call("run", program.write(GOOD), code=0)
    for words in (
        ("status",),
        ("logs",),
        ("events", "list"),
        ("events", "follow"),
        ("resume",),
        ("cancel",),
        ("rerun",),
    ):
        document = program.json(*words, "99", code=2)
        assert document["error"]["message"] == "there is no run 99", words


def test_inputs(program: Program) -> None:
    """Inputs are given by value or by file; an undeclared one is refused before anything runs."""
    text = (
        "resile: 1\nname: in\ninputs: {a: x, b: y}\nsteps:\n"
        "  say: {shell: 'echo ${inputs.a} ${inputs.b}', capture: said}\n"
    )
    (program.folder / "b.txt").write_text("from a file")
    done = program.json("run", program.write(text), "--input", "a=$(id) 'q'", "--input-file", "b=b.txt")
    assert done["outputs"] == {"said": "$(id) 'q' from a file"}
    assert program.json("run", "flow.yaml", "--input", "c=1", code=2)["error"]["code"] == "input-unknown"


def test_check_looks_at_every_file(program: Program) -> None:
    """`check` prints its document whatever is wrong, exits 2 where one file is, and runs nothing."""
    program.write(GOOD, "good.yaml")
    program.write("resile: 1\nname: x\nsteps:\n  a: {shell: echo, needs: [nobody]}\n", "bad.yaml")
    document = program.json("check", "bad.yaml", "good.yaml", "missing.yaml", code=2)
    files = document["files"]
    assert [(file["file"], file["ok"]) for file in files] == [
        ("bad.yaml", False),
        ("good.yaml", True),
        ("missing.yaml", False),
    ]
    assert list(files[0]) == ["file", "dialect", "why", "ok", "steps", "jobs", "diagnostics"]
    assert (files[1]["dialect"], files[1]["steps"], files[1]["diagnostics"]) == ("native", 2, [])
    assert files[0]["diagnostics"][0]["line"] == 4
    assert program.call("check", "good.yaml", code=0).stdout.startswith("good.yaml: ok, 2 steps, native (")
    text = program.call("check", "bad.yaml", "good.yaml", code=2).stdout
    assert "bad.yaml:4:" in text
    assert sorted(path.name for path in program.folder.iterdir()) == ["bad.yaml", "good.yaml"]


def test_every_event_with_debug(program: Program) -> None:
    """`--debug` tells every event on stderr, in the order of the log, spelled with underscores as in `events list`."""
    done = program.call("run", program.write(GOOD), "--debug", code=0)
    told = [line.split()[2] for line in done.stderr.splitlines()[1:]]
    assert told == [str(event["type"]).replace(".", "_") for event in events(program)]


def test_a_full_disk_leaves_the_run_resumable(program: Program) -> None:
    """Where the database can't grow any more the run breaks off with exit 130, and `resume` goes on."""
    steps = "".join(f'  s{number}: {{shell: "true"}}\n' for number in range(500))
    program.write(f"resile: 1\nname: full\nsteps:\n{steps}")
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 600; exec "$@"', "bash", *program.argv, "run", "flow.yaml"],
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 130, done
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == "  run 1 is interrupted; `resile resume 1` goes on"
    before = program.json("status", "1")
    assert before["status"] == "interrupted"
    assert before["steps"]["completed"] < 500
    assert program.json("resume", "1")["steps"]["completed"] == 500


def test_closed_streams_stay_out_of_the_files(program: Program) -> None:
    """With stdin, stdout or stderr closed a run goes well, and nothing that was meant for them lands elsewhere."""
    program.write(GOOD)
    command = " ".join(f"'{word}'" for word in [*program.argv, "run", "flow.yaml"])
    for number, closed in enumerate(("<&-", ">&-", "2>&-", "<&- >&- 2>&-"), 1):
        done = subprocess.run(
            ["bash", "-c", f"{command} {closed}"],
            cwd=program.folder,
            env=program.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        assert done.returncode == 0, closed
        assert done.stdout.startswith(f"run {number} good completed") == (">&-" not in closed.replace("2>&-", ""))
        assert (done.stderr == "") == ("2>&-" in closed), closed
    assert [run["status"] for run in program.json("status")["runs"]] == ["completed"] * 4


def test_a_full_stdout_does_not_change_the_exit_code(program: Program) -> None:
    """A summary that can't be written is mentioned, and the exit code is still the run's."""
    command = " ".join(f"'{word}'" for word in [*program.argv, "run", program.write(BAD)])
    done = subprocess.run(
        ["bash", "-c", f"{command} > /dev/full"],
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "resile: the summary could not be written: No space left on device"


def test_color_only_where_it_is_wanted(program: Program) -> None:
    """Colors appear with --color always, and in no file or pipe otherwise."""
    program.call("run", program.write(GOOD), code=0)
    assert "\x1b[" in program.call("status", "1", "--color", "always", code=0).stdout
    assert "\x1b[" not in program.call("status", "1", code=0).stdout


def test_a_large_run_tells_only_trouble(program: Program) -> None:
    """A run of more than 200 steps says nothing of steps that go well."""
    steps = "".join(f'  s{number}: {{shell: "true"}}\n' for number in range(250))
    program.write(f"resile: 1\nname: large\nsteps:\n{steps}  odd: {{shell: exit 3}}\n")
    done = program.call("run", "flow.yaml", code=1)
    told = [line for line in done.stderr.splitlines() if " of 251 done" not in line]
    assert told[0] == "run 1: large, 251 steps"
    assert [line.split()[1] for line in told[1:]] == ["odd", "odd"]
    shown = program.call("status", "1", code=0).stdout
    assert "odd" in shown
    assert "s17" not in shown
    assert "and 250 more steps: 250 completed; --json lists all" in shown


ROUTES = """\
resile: 1
name: routes
steps:
  setup: {shell: echo setup >> effects}
  test:
    shell: echo test >> effects; exit 1
    needs: [setup]
    retry: {max: 2, backoff: {type: exponential, initial: 10ms, multiplier: 3}}
    on_failure: {goto: setup}
"""


def effects(program: Program) -> list[str]:
    """What the steps left behind."""
    return (program.folder / "effects").read_text().splitlines()


def test_options_of_failure_routing(program: Program) -> None:
    """Retries and jumps are capped or turned off by the caller, and the budget's message names the cap."""
    program.write(ROUTES)
    program.call("run", "flow.yaml", "--max-loops", "1", "--retry-max", "1", code=1)
    assert effects(program) == ["setup", "test", "test", "setup", "test"]
    failed = events(program, "--type", "step_failed")[0]["data"]
    assert isinstance(failed, dict)
    assert failed["message"] == "Routing loop budget exceeded (max_loops=1) during on_failure goto"
    (program.folder / "effects").unlink()
    document = program.json("run", "flow.yaml", "--no-failure-routing", code=1)
    assert (effects(program), [route["action"] for route in document["routes"]]) == (["setup", "test"], ["fail"])


def test_debug_tells_waits_jumps_and_budgets(program: Program) -> None:
    """`--debug` prints the data of each decision: the delay before a retry, the target of a jump, a spent budget."""
    program.write(ROUTES)
    told = program.call("run", "flow.yaml", "--debug", "--max-loops", "1", code=1).stderr
    assert re.findall(r'retry_scheduled test .*"delay_seconds":([0-9.]+)', told) == ["0.01", "0.03"]
    assert re.search(r'route_taken test .*"action":"goto","target":"setup"', told)
    assert re.search(r"loop_budget_exceeded test .*max_loops=1", told)


def test_routes_at_80_columns(program: Program) -> None:
    """Repairs, calls, jumps and budgets each have their line, and long names do not break the table."""
    name = "a-step-with-a-name-that-is-far-too-long-for-a-table-of-eighty-columns"
    (program.folder / "deep" / "down").mkdir(parents=True)
    program.write(
        f"resile: 1\nname: long\nsteps:\n  {name}: {{shell: 'true'}}\n"
        f"  test: {{shell: exit 1, needs: [{name}], on_failure: {{run: [fix], goto: {name}}}}}\n"
        "  fix: {shell: 'true'}\n  handled: {shell: exit 1, on_failure: 'true'}\n"
        "  unhandled: {shell: exit 1, on_failure: exit 2, fail_workflow: false}\n",
        "deep/down/flow.yaml",
    )
    program.call("run", "deep/down/flow.yaml", "--max-loops", "2", code=1)
    with Terminal(program, "resume", "1") as terminal:
        assert terminal.end() == 1
    lines = terminal.text.splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line.split()[1] for line in lines[lines.index("What was done") + 1 : lines.index("Failed") - 1]]
    assert sorted(shown) == ["budget", "goto", "recovered", "repair", "retry", "run", "tolerate"]
    assert all("deep" not in line for line in lines)


def test_wrong_inputs_are_all_told(program: Program) -> None:
    """Numbers that are none, or not finite, undeclared and missing inputs: each is a finding, and nothing runs."""
    program.write(
        "resile: 1\nname: in\n"
        "inputs: {n: {type: number, default: 1}, m: {type: number, default: 2}, r: {required: true}}\n"
        "steps: {say: {shell: 'echo ${inputs.n} ${inputs.m}', capture: said}}\n"
    )
    document = program.json("run", "flow.yaml", "--input", "n=1e400", "--input", "m=nan", "--input", "q=1", code=2)
    assert [(found["code"], found["message"]) for found in document["diagnostics"]] == [
        ("input-unknown", "in has no input 'q'"),
        ("input-malformed", "input 'n': '1e400' is not a number"),
        ("input-malformed", "input 'm': 'nan' is not a number"),
        ("input-missing", "input 'r' is required"),
    ]
    assert document["error"]["message"] == "in has no input 'q' (and 3 more)"
    one = program.json("run", "flow.yaml", "--input", "n=inf", "--input", "r=1", code=2)
    assert (one["error"]["message"], one["diagnostics"]) == ("input 'n': 'inf' is not a number", [])
    assert [path.name for path in program.folder.iterdir()] == ["flow.yaml"]
    done = program.json("run", "flow.yaml", "--input", "n=12", "--input", "m=1e3", "--input", "r=1")
    assert done["outputs"] == {"said": "12 1000.0"}


def test_what_a_rerun_keeps(program: Program) -> None:
    """A rerun says its epoch and how many steps it keeps, a rerun of all that it keeps none."""
    program.call("run", program.write(BAD), code=1)
    lines = program.call("rerun", "1", "--failed-only", code=1).stderr.splitlines()
    assert (lines[0], lines[1][9:]) == ("run 1: bad, 3 steps", "epoch 2: 1 of 3 steps kept")
    lines = program.call("rerun", "1", code=1).stderr.splitlines()
    assert (lines[0], lines[1][9:]) == ("run 1: bad, 3 steps", "epoch 3: 0 of 3 steps kept")
    lines = program.call("rerun", "1", "--as-new", code=1).stderr.splitlines()
    assert lines[0] == "run 2: bad, 3 steps"
    assert "kept" not in lines[1]


def test_an_ended_or_parked_run_taken_up_again_says_why(program: Program) -> None:
    """`resume` prints the last word of failed and parked steps as `status` does."""
    program.call("run", program.write(BAD), code=1)
    program.write("resile: 1\nname: held\nsteps: {held: {shell: echo no room >&2; exit 5, park: true}}\n", "held.yaml")
    program.call("run", "held.yaml", code=4)
    for run, code, heading in (("1", 1, "Failed"), ("2", 4, "Parked")):
        told = program.call("resume", run, code=code).stdout.splitlines()
        shown = program.call("status", run, code=0).stdout.splitlines()
        at = told.index(heading)
        assert told[at + 2].startswith("    exit code ")
        assert told[at : at + 3] == shown[shown.index(heading) :][:3]


def test_the_logs_of_a_step_that_never_started_are_not_offered(program: Program) -> None:
    """What has printed nothing because nothing ran is no advice."""
    program.write("resile: 1\nname: none\nsteps: {a: {shell: 'echo $((${inputs.n}))'}}\ninputs: {n: x}\n")
    told = program.call("run", "flow.yaml", code=1).stdout.splitlines()
    assert told[told.index("Next") + 1 :] == [
        "  resile explain 1              # which rules answered, and why",
        "  resile rerun 1 --failed-only  # run again what did not complete",
    ]


def test_rules_read_alike_everywhere(program: Program) -> None:
    """Plain lines, the summary and the parked failure name a rule by its file, JSON with the folders too."""
    (program.folder / "deep").mkdir()
    program.write("resile: 1\nname: x\nsteps: {a: {shell: exit 1, retry: 1, park: true}}\n", "deep/flow.yaml")
    done = program.call("run", "deep/flow.yaml", code=4)
    assert "a attempt 2 follows: flow.yaml:3:28 retry 1" in done.stderr
    assert done.stdout.count(" flow.yaml:3:28 retry 1") == 1
    assert "parked by flow.yaml:3:38 park\n" in program.call("parked", "1", code=0).stdout
    assert rule_text(program.json("status", "1")["routes"][0]["rule"]) == "deep/flow.yaml:3:28 retry 1"
