"""Parked failures: `run` exits 4, `failures` shows them, `judge` decides, one judge wins."""

from __future__ import annotations

import os
import pwd
import re

import msgspec
import pytest

from resile.core.events import RunStarted
from resile.engine.resources import measure
from resile.engine.session import Session, create, take
from resile.model import codec
from resile.model.workflow import Noop, Repair, Rule, Shell, Step, Workflow
from resile.store.open import open_store
from tests.cli.program import Program, rule_text

PARKS = """\
resile: 1
name: parks
steps:
  solve:
    shell: echo try >> effects; echo some output; echo no luck >&2; test -e mended
    retry: {max: 1}
    park: true
  report: {shell: 'echo report ${steps.solve.output} >> effects', needs: [solve]}
  end: {shell: 'echo end ${execution.status} >> effects'}
"""
TAILS = ["    stdout", "    | some output", "    stderr", "    | no luck"]
TWO = """\
resile: 1
name: two
steps:
  one: {shell: exit 1, park: true}
  two: {shell: exit 2, park: true}
"""


def effects(program: Program) -> list[str]:
    """What the steps left behind."""
    return (program.folder / "effects").read_text().splitlines()


def parked(program: Program, text: str = PARKS) -> None:
    """A run that waits for judgement."""
    program.call("run", program.write(text), code=4)


def judgements(program: Program) -> list[tuple[object, ...]]:
    """Step, verdict and reason of each judgement in the log of run 1."""
    lines = program.call("events", "list", "1", "--type", "step_judged", "--json", code=0).stdout.splitlines()
    events = [msgspec.json.decode(line) for line in lines]
    return [(event["step"], event["data"]["verdict"], event["data"]["reason"]) for event in events]


def test_a_parked_run(program: Program) -> None:
    """When nothing can go on but by judgement the run ends with exit 4; dependents are blocked, `end` has not run."""
    document = program.json("run", program.write(PARKS), code=4)
    assert (document["status"], document["exit_code"], document["steps"]["parked"]) == ("parked", 4, 1)
    assert [(job["step"], job["status"]) for job in document["jobs"]] == [
        ("solve", "pending_failed"),
        ("report", "blocked"),
        ("end", "blocked"),
    ]
    assert [route["action"] for route in document["routes"]] == ["retry", "park"]
    assert effects(program) == ["try", "try"]
    assert program.json("status", "1")["status"] == "parked"


def test_a_parked_run_for_people(program: Program) -> None:
    """The summary shows the routes, what is parked, and the two commands that help, within 80 columns."""
    lines = program.call("run", program.write(PARKS), code=4).stdout.splitlines()
    assert re.fullmatch(r"run 1 parks parked after 0\.\d s", lines[0])
    assert lines[1] == "2 steps: 1 parked, 1 waiting"
    assert re.fullmatch(r"  \S+  retry  solve  attempt 1  flow\.yaml:6:\d+ .*", lines[4])
    assert re.fullmatch(r"  \S+  park   solve  attempt 2  flow\.yaml:7:\d+ .*", lines[5])
    assert lines[7:] == [
        "Parked",
        "  solve: exit code 1, 2 attempts",
        "    exit code 1: no luck",
        *TAILS,
        "",
        "Next",
        "  resile parked 1                      # what waits for judgement (exit code 4)",
        "  resile judge 1 solve retry --resume  # or skip, or fail",
    ]
    assert max(map(len, lines)) <= 80


def test_failures_as_json(program: Program) -> None:
    """Each parked failure comes with its kind, its tails, its rule and every attempt."""
    parked(program)
    document = program.json("parked", "1")
    assert list(document) == ["version", "run", "workflow", "status", "failures"]
    (failure,) = document["failures"]
    assert {key: failure[key] for key in ("job", "step", "scope", "attempts", "kind", "exit_code", "signal")} == {
        "job": 1,
        "step": "solve",
        "scope": "root",
        "attempts": 2,
        "kind": "exit",
        "exit_code": 1,
        "signal": None,
    }
    assert (failure["stdout"], failure["stderr"]) == ("some output\n", "no luck\n")
    assert failure["message"] == "exit code 1: no luck"
    assert rule_text(failure["rule"]).startswith("flow.yaml:7:")
    assert [(tried["attempt"], tried["exit_code"], tried["kind"]) for tried in failure["history"]] == [
        (1, 1, "exit"),
        (2, 1, "exit"),
    ]


def test_failures_for_people(program: Program) -> None:
    """Message, rule, the last ten lines of each stream, the attempts, and the commands that judge."""
    shell = "seq 1 12; printf '\\033[2Jx' >&2; exit 1"
    parked(program, f"resile: 1\nname: long\nsteps:\n  talk:\n    shell: {shell}\n    park: true\n")
    lines = program.call("parked", "1", code=0).stdout.splitlines()
    assert lines[:3] == ["run 1 long: 1 parked failure", "", "talk, job 1: exit after 1 attempt"]
    assert lines[4].startswith("  parked by flow.yaml:6:")
    assert lines[5:16] == ["  stdout, last 10 lines", *(f"  | {number}" for number in range(3, 13))]
    assert lines[16:18] == ["  stderr", "  | \\x1b[2Jx"]
    assert re.fullmatch(r"  attempt 1  exit code 1: .*  \d\d:\d\d:\d\d  \d\.\d s  \d+.* [KM]iB", lines[18])
    assert lines[20:] == [
        "  resile judge 1 talk retry                   # run it again",
        "  resile judge 1 talk retry-with --memory 8g  # with more memory, or --runtime",
        "  resile judge 1 talk skip                    # go on without it",
        "  resile judge 1 talk fail                    # let it fail",
    ]
    assert max(map(len, lines)) <= 80


def test_nothing_is_parked(program: Program) -> None:
    """A run without parked failures says so and exits 0."""
    program.call("run", program.write('resile: 1\nname: fine\nsteps:\n  a: {shell: "true"}\n'), code=0)
    assert program.call("parked", "1", code=0).stdout == "run 1 fine completed; nothing is parked\n"
    assert program.json("parked", "1")["failures"] == []


def test_judged_retry_then_resumed(program: Program) -> None:
    """`judge` only records; `resume` then runs the step again, and what waited for it."""
    parked(program)
    (program.folder / "mended").touch()
    answer = program.json("judge", "1", "solve", "retry", "--reason", "it is mended")
    assert {key: answer[key] for key in ("run", "job", "step", "driven", "verdict", "reason")} == {
        "run": 1,
        "job": 1,
        "step": "solve",
        "driven": False,
        "verdict": "retry",
        "reason": "it is mended",
    }
    assert re.fullmatch(rf".+@{re.escape(os.uname().nodename)}:[0-9]+", answer["by"])
    assert effects(program) == ["try", "try"]
    assert program.json("status", "1")["status"] == "interrupted"
    document = program.json("resume", "1")
    assert (document["status"], document["jobs"][0]["attempts"]) == ("completed", 3)
    assert document["routes"][-1] | {"at": None} == {
        "at": None,
        "scope": "root",
        "step": "solve",
        "attempt": 2,
        "trigger": "judge",
        "action": "retry",
        "target": None,
        "rule": {"file": None, "line": None, "column": None, "text": "it is mended"},
    }
    assert effects(program) == ["try", "try", "try", "report some output", "end completed"]
    assert judgements(program) == [("solve", "retry", "it is mended")]


def test_judged_retry_in_vain_parks_again(program: Program) -> None:
    """A judged retry takes nothing from the park rule: a step that fails again is parked again, exit 4."""
    parked(program)
    program.call("judge", "1", "1", "retry", "--resume", code=4)
    assert effects(program) == ["try", "try", "try"]
    assert program.json("parked", "1")["failures"][0]["attempts"] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), ""),
        (("--output", "by hand"), "by hand"),
        (("--output", '{"x": 1}'), '{"x":1}'),
        (("--output", "7"), "7"),
        (("--output", "[" * 5000), "[" * 5000),
    ],
    ids=["none", "text", "json", "number", "too deep for json"],
)
def test_judged_skip(program: Program, words: tuple[str, ...], said: str) -> None:
    """Dependents run as after success and see the output that was given, as JSON or text, else none."""
    parked(program)
    document = program.json("judge", "1", "solve", "skip", *words, "--resume")
    assert [(job["step"], job["status"]) for job in document["jobs"]][:2] == [
        ("solve", "skipped"),
        ("report", "completed"),
    ]
    assert effects(program) == ["try", "try", f"report {said}", "end completed"]


def test_judged_skip_fills_what_the_step_captures(program: Program) -> None:
    """A captured name has the judged value, not what the failed attempt printed."""
    text = PARKS.replace("    park: true\n", "    park: true\n    capture: found\n").replace(
        "steps.solve.output", "found"
    )
    parked(program, text)
    program.call("judge", "1", "solve", "skip", "--output", "judged", "--resume", code=0)
    assert effects(program)[2] == "report judged"


def test_judged_skip_is_the_output_whatever_the_step_captures(program: Program) -> None:
    """Two names, both with the judged value, and the output is that value too."""
    text = PARKS.replace("    park: true\n", "    park: true\n    capture: {found: text, all: lines}\n").replace(
        "report ${steps.solve.output}", "${steps.solve.output} ${found} ${all}"
    )
    parked(program, text)
    program.call("judge", "1", "solve", "skip", "--output", "7", "--resume", code=0)
    assert effects(program)[2] == "7 7 7"


def test_judged_skip_of_a_child_workflow_is_its_output(program: Program) -> None:
    """What the child had captured before it failed does not stand in for it."""
    program.write("resile: 1\nsteps:\n- {shell: echo 1, capture: one}\n- {shell: exit 1}\n", "child.yaml")
    parked(
        program,
        """resile: 1
steps:
- {id: c, workflow: child.yaml, park: true}
- {shell: 'echo ${steps.c.output} > effects'}
""",
    )
    program.call("judge", "1", "c", "skip", "--output", "given", "--resume", code=0)
    assert effects(program) == ["given"]


def test_a_job_in_an_item_is_named_as_it_is_printed(program: Program) -> None:
    """`m[1]/b`, as `status` and the summary have it."""
    text = """resile: 1
steps:
- id: m
  map:
    input: [0, 1]
    steps: [{id: b, shell: exit 1, park: true}]
"""
    shown = program.call("run", program.write(text), code=4).stdout
    assert "m[1]/b" in shown
    answer = program.json("judge", "1", "m[1]/b", "skip")
    item = next(one for one in program.json("status", "1")["jobs"] if one["scope"] == "m[1]")
    assert (answer["job"], answer["step"], item["status"]) == (item["id"], "b", "skipped")
    assert program.json("judge", "1", "m[7]/b", "skip", code=2)["error"]["code"] == "no-such-job"


def test_judged_fail(program: Program) -> None:
    """The failure stands: dependents are canceled, `end` runs, exit 1, and the reason is its message."""
    parked(program)
    done = program.call("judge", "1", "solve", "fail", "--reason", "hopeless", "--resume", code=1)
    assert "run 1: solve (job 1) is judged fail\n" in done.stderr
    assert effects(program) == ["try", "try", "end failed"]
    document = program.json("status", "1")
    assert [(job["status"], job["cause"]) for job in document["jobs"]][1] == (
        "canceled",
        {"step": "solve", "job": 1, "status": "failed"},
    )
    failed = program.call("events", "list", "1", "--type", "step_failed", "--json", code=0).stdout
    assert msgspec.json.decode(failed)["data"]["message"] == "hopeless"


def test_retry_with_more_time(program: Program) -> None:
    """`retry-with --runtime` replaces the time that a step had, whether by `timeout` or by `resources`."""
    program.gate("gate")
    for number, key in enumerate(("timeout: 50ms", "resources: {runtime: 50ms}"), 1):
        program.write(f"resile: 1\nname: slow\nsteps:\n  wait: {{shell: read line < gate, {key}, park: true}}\n")
        program.call("run", "flow.yaml", code=4)
        answer = program.json("judge", str(number), "wait", "retry-with", "--runtime", "150ms")
        assert (answer["verdict"], answer["runtime_seconds"], answer["memory_bytes"]) == ("retry", 0.15, 0)
        program.call("resume", str(number), code=4)
        messages = [tried["message"] for tried in program.json("parked", str(number))["failures"][0]["history"]]
        assert messages == ["timed out after 0.05s", "timed out after 0.15s"]


def test_retry_with_more_memory_than_there_is(program: Program) -> None:
    """A step that could never fit is refused; what fits is granted, also to a step that asked for none."""
    parked(program)
    refused = program.json("judge", "1", "solve", "retry-with", "--memory", "900t", code=2)
    assert refused["error"]["code"] == "does-not-fit"
    (program.folder / "mended").touch()
    assert program.json("judge", "1", "solve", "retry-with", "--memory", "1m")["memory_bytes"] == 1024**2
    assert program.json("resume", "1")["status"] == "completed"


def test_one_of_two_is_judged(program: Program) -> None:
    """With another failure still parked the run stays parked, and the hints name it."""
    parked(program, TWO)
    done = program.call("judge", "1", "one", "skip", code=0)
    assert done.stdout == "run 1: one (job 1) is judged skip; `resile resume 1` goes on\n"
    assert program.json("status", "1")["status"] == "parked"
    assert "  resile judge 1 two retry --resume  # or skip, or fail\n" in program.call("status", "1", code=0).stdout
    assert program.call("judge", "1", "two", "skip", "--resume", code=0).stdout.startswith("run 1 two completed")


def test_judged_while_another_branch_runs(program: Program) -> None:
    """Where an engine drives the run it takes the judgement and goes on at once."""
    gate, up, again = program.gate("gate"), program.gate("up"), program.gate("again")
    program.write(
        "resile: 1\nname: both\nsteps:\n"
        "  solve: {shell: test -e mended && echo again > again, park: true}\n"
        "  hold: {shell: echo up > up; read line < gate}\n"
    )
    with program.start("run", "flow.yaml", "--max-parallel", "2") as run:
        up.wait()
        run.until("err", "solve parked: ")
        assert program.json("status", "1")["status"] == "running"
        assert "  resile parked 1 " in program.call("status", "1", code=0).stdout
        (program.folder / "mended").touch()
        done = program.call("judge", "1", "solve", "retry", "--resume", code=0)
        assert done.stdout == "run 1: solve (job 1) is judged retry; its engine goes on\n"
        again.wait()
        gate.open()
        assert run.end() == 0
        assert " judged retry by " in run.text["err"]
    assert judgements(program) == [("solve", "retry", "")]


def test_judging_what_is_not_parked(program: Program) -> None:
    """A job that is not parked, or not there, and a run that has ended are exit 2."""
    parked(program)
    assert program.json("judge", "1", "report", "retry", code=2)["error"] == {
        "code": "not-parked",
        "message": "job 2 (report) is blocked, not parked",
        "where": "",
        "hint": "`resile parked 1` lists what is parked",
    }
    assert program.json("judge", "1", "slove", "retry", code=2)["error"]["message"] == "run 1 has no job 'slove'"
    assert program.json("judge", "1", "99", "retry", code=2)["error"]["message"] == "run 1 has no job '99'"
    assert program.json("judge", "9", "solve", "retry", code=2)["error"]["message"] == "there is no run 9"
    assert program.json("judge", "1", "solve", "fail", "--resume", code=1)["status"] == "failed"
    assert program.json("judge", "1", "solve", "retry", code=2)["error"]["code"] == "not-parked"
    assert judgements(program) == [("solve", "fail", "")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("retry-with",), "retry-with needs --memory or --runtime"),
        (("retry", "--memory", "1g"), "--memory goes with retry-with, not with retry"),
        (("fail", "--output", "x"), "--output goes with skip, not with fail"),
        (("retry-with", "--runtime", "soon"), "--runtime 'soon' is not a duration"),
        (("retry-with", "--memory", "0"), "--memory '0' is zero"),
        (("maybe",), "VERDICT is one of retry, retry-with, skip, fail, not 'maybe'"),
    ],
)
def test_wrong_judgements(program: Program, words: tuple[str, ...], message: str) -> None:
    """What makes no sense is refused before the run is looked at."""
    assert program.json("judge", "1", "solve", *words, code=2)["error"]["message"] == message
    assert list(program.folder.iterdir()) == []


def test_judging_without_a_database(program: Program) -> None:
    """No command that needs a run makes a database for it."""
    for words in (("judge", "1", "a", "retry"), ("resume", "1"), ("rerun", "1"), ("cancel", "1"), ("parked", "1")):
        assert program.json(*words, code=2)["error"]["message"].startswith("there is no database"), words
    assert list(program.folder.iterdir()) == []


@pytest.mark.parametrize("driven", [False, True])
def test_two_judges_race(program: Program, driven: bool) -> None:
    """Whoever is first in the log wins; the other is told so, and only one judgement is there."""
    hold = "  hold: {shell: echo up > up; read line < gate}\n" if driven else ""
    program.write(f"resile: 1\nname: race\nsteps:\n  solve: {{shell: exit 1, park: true}}\n{hold}")
    gate, up = program.gate("gate"), program.gate("up")
    with program.start("run", "flow.yaml", "--max-parallel", "2") as run:
        if driven:
            up.wait()
            run.until("err", "solve parked: ")
        else:
            assert run.end() == 4
        judges = [program.start("judge", "1", "solve", verdict, "--json") for verdict in ("skip", "fail")]
        codes = []
        for judge in judges:
            with judge:
                codes.append(judge.end())
        assert sorted(codes) == [0, 2]
        winner, loser = judges[codes.index(0)], judges[codes.index(2)]
        answer = msgspec.json.decode(winner.text["out"])
        assert answer["driven"] == driven
        error = msgspec.json.decode(loser.text["out"])["error"]
        assert error["code"] in ("judged-already", "not-parked")
        assert judgements(program) == [("solve", answer["verdict"], "")]
        if driven:
            gate.open()
            assert run.end() == (0 if answer["verdict"] == "skip" else 1)
        else:
            # What the loser asked for must not be remembered against the next engine either.
            program.call("resume", "1", code=0 if answer["verdict"] == "skip" else 1)
    assert judgements(program) == [("solve", answer["verdict"], "")]


def test_an_ambiguous_name(program: Program) -> None:
    """Of several parked jobs of one name the id says which is meant, or the step before it."""
    park = Rule(then="park", text="park")
    repair = Repair(steps=(Step(name="fix", action=Shell(command="exit 1"), rules=(park,)),))
    rule = Rule(then="recovered", text="handler", repair=repair)
    steps = tuple(Step(name=name, action=Shell(command="exit 1"), rules=(rule,)) for name in ("a", "b"))
    end = Step(name="end", action=Noop())
    workflow = Workflow(name="alike", dialect="native", file="", folder="", steps=steps, end=end)
    store = open_store(program.env["RESILE_DB"])
    folder = str(program.folder)
    started = RunStarted(0.0, measure(1, None, None, None))
    row, state = create(store, workflow, codec.encode(workflow), started, output=folder, directory=folder)
    lease = take(store, row.id)
    session = Session(store, row, state, env=os.environ, listener=lambda _state, _notes: None)
    assert session.drive(lease, [started], parallel=1, launcher=None, ready=lambda _engine: None) == "parked"
    store.release_lease(lease)
    store.close()
    ids = [failure["job"] for failure in program.json("parked", "1")["failures"]]
    error = program.json("judge", "1", "fix", "skip", code=2)["error"]
    assert (error["code"], error["message"]) == (
        "ambiguous-job",
        f"'fix' is the name of several parked jobs: {ids[0]}, {ids[1]}",
    )
    shown = program.call("parked", "1", code=0).stdout
    assert f"a.on_failure/fix, job {ids[0]}: exit after 1 attempt\n" in shown
    assert f"  resile judge 1 {ids[0]} retry " in shown
    assert program.json("judge", "1", str(ids[0]), "skip")["step"] == "fix"
    assert program.json("judge", "1", "b.on_failure/fix", "skip", "--resume")["steps"]["recovered"] == 2


def test_a_judge_without_variables_has_a_name(program: Program) -> None:
    """The log names the user of the system where the environment names none."""
    program.env |= {"USER": "", "LOGNAME": ""}
    parked(program)
    program.call("judge", "1", "solve", "skip", "--output", "done")
    (line,) = program.call("events", "list", "1", "--type", "step_judged", "--json", code=0).stdout.splitlines()
    assert msgspec.json.decode(line)["data"]["by"].partition("@")[0] == pwd.getpwuid(os.getuid()).pw_name
