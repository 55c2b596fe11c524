"""`run --from`, `--only`, `--skip`, `--dry-run`: which steps run, what is refused, and the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import Program

FLOW = """\
resile: 1
name: release
inputs: {target: staging}
steps:
  build: {shell: "echo build >> ran; echo 1.2", capture: version}
  lint: {shell: "echo lint >> ran"}
  test: {shell: "echo test >> ran", needs: [build, lint]}
  tag: {shell: "echo ${version} >> ran", needs: [test]}
  deploy: {shell: "echo deploy ${inputs.target} >> ran", needs: [test]}
  end: {shell: "echo end ${execution.status} >> ran"}
"""
NOETL = """\
apiVersion: noetl.io/v1
kind: Playbook
name: pages
workload: {city: Bern}
workflow:
  - {step: start, next: [{step: fetch}]}
  - {step: fetch, tool: {kind: shell, cmds: "echo fetch >> ran; echo {{ workload.city }}"}, next: [{step: save}]}
  - {step: save, tool: {kind: shell, cmds: "echo {{ fetch }} >> ran"}, next: [{step: report}]}
  - {step: report, tool: {kind: shell, cmds: "echo report {{ workload.city }} >> ran"}}
"""
VISOR = """\
version: "1.0"
steps:
  list: {type: command, exec: "echo list >> ran; echo a"}
  show: {type: command, exec: "echo {{ outputs.list }} >> ran", depends_on: [list]}
  done: {type: command, exec: "echo done >> ran", depends_on: [list]}
"""
TORC = """\
name: two
jobs:
  - {name: first, command: "echo first >> ran"}
  - {name: second, command: "echo second >> ran", depends_on: [first]}
"""
PRODIGY = """\
name: three
commands:
  - {shell: "echo one >> ran", capture_output: said}
  - {shell: "echo two >> ran"}
  - {shell: "echo ${said} >> ran"}
"""


def ran(folder: Path) -> list[str]:
    """What steps wrote, sorted: steps of one group start at the same time."""
    path = folder / "ran"
    return sorted(path.read_text().splitlines()) if path.exists() else []


def statuses(document: dict[str, list[dict[str, object]]]) -> dict[object, object]:
    """The status of each job."""
    return {job["step"]: job["status"] for job in document["jobs"]}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--from", "deploy"], ["deploy staging", "end completed"]),
        (["--only", "lint"], ["end completed", "lint"]),
        (["--only", "lint", "deploy"], ["deploy staging", "end completed", "lint"]),
        (["--only", "lint", "--only", "deploy"], ["deploy staging", "end completed", "lint"]),
        (["--skip", "build", "tag"], ["deploy staging", "end completed", "lint", "test"]),
        (["--from", "test", "--skip", "tag"], ["deploy staging", "end completed", "test"]),
        (["--from", "lint", "tag", "--skip", "tag"], []),
    ],
)
def test_only_the_chosen_steps_run(program: Program, words: list[str], expected: list[str]) -> None:
    """Steps that are left out run nothing and count as done, and `end` runs in every case."""
    done = program.call("run", program.write(FLOW), *words)
    assert ran(program.folder) == expected
    assert done.returncode == (0 if expected else 2)


def test_the_file_may_come_after_the_steps(program: Program) -> None:
    """The last word after --only is the file, if the call has no other."""
    program.write(FLOW)
    document = program.json("run", "--only", "lint", "deploy", "flow.yaml")
    assert statuses(document) == {
        "build": "skipped",
        "lint": "completed",
        "test": "skipped",
        "tag": "skipped",
        "deploy": "completed",
        "end": "completed",
    }
    assert document["steps"]["skipped"] == 3
    events = program.call("events", "list", "1", "--type", "step_skipped", "--json").stdout
    assert events.count('"reason":"left out of this run"') == 3


def test_what_was_left_out_stays_so(program: Program) -> None:
    """A rerun and a new run of the same definition leave out the same steps."""
    program.call("run", program.write(FLOW), "--only", "lint", code=0)
    program.call("rerun", "1", code=0)
    program.call("rerun", "1", "--as-new", code=0)
    assert ran(program.folder) == ["end completed"] * 3 + ["lint"] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "tag"], "flow.yaml:8:3: 'tag' uses the output of 'build', which is left out"),
        (["--skip", "build"], "flow.yaml:8:3: 'tag' uses the output of 'build', which is left out"),
        (["--only", "tags"], "--only: release has no step 'tags'"),
        (["--only", "lint,deploy"], "--only: release has no step 'lint,deploy'"),
        (["--skip", "end"], "--skip end: `end` runs in every case"),
        (["--from", "test", "--only", "tag"], "--from and --only can't be combined"),
        (["--only", "lint", "--skip", "lint"], "'lint' is in --only and in --skip"),
        (["--skip", "build", "lint", "test", "tag", "deploy"], "no step is left to run"),
    ],
)
def test_a_choice_that_cannot_run_is_refused(program: Program, words: list[str], message: str) -> None:
    """A step that needs the output of one that is left out is refused before anything runs, and so are wrong names."""
    done = program.call("run", program.write(FLOW), *words, code=2)
    assert message in done.stderr
    assert "hint:" in done.stderr
    assert ran(program.folder) == []
    assert not (program.folder / "resile.db").exists()


@pytest.mark.parametrize(
    ("text", "skip", "user"),
    [
        (NOETL, "fetch", "save"),
        (VISOR, "list", "show"),
        (PRODIGY, "step-1", "step-3"),
        (
            'resile: 1\nsteps:\n  a: {shell: echo 1}\n  b: {shell: "true", needs: [a], when: "outputs.a == 1"}\n',
            "a",
            "b",
        ),
        ('resile: 1\nsteps:\n  a: {shell: echo 1}\n  b: {shell: "echo ${steps.a.exit_code}", needs: [a]}\n', "a", "b"),
        (
            "resile: 1\nsteps:\n  a: {shell: 'echo [1]'}\n"
            "  b: {map: {input: '${steps.a.output}', steps: [{shell: echo x}]}, needs: [a]}\n",
            "a",
            "b",
        ),
        (
            "resile: 1\nsteps:\n  a: {shell: echo 1}\n"
            "  b: {shell: 'false', needs: [a], on_failure: 'echo ${steps.a.output}'}\n",
            "a",
            "b",
        ),
    ],
)
def test_outputs_are_found_in_every_language(program: Program, text: str, skip: str, user: str) -> None:
    """Texts, code, templates, handlers and items that use the output of a step that is left out are found."""
    done = program.call("run", program.write(text), "--skip", skip, code=2)
    assert f"{user!r} uses the output of {skip!r}, which is left out" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        'resile: 1\nsteps:\n  a: {shell: echo 1}\n  b: {shell: "echo ${steps.a.output:-none} >> ran", needs: [a]}\n',
        "resile: 1\nsteps:\n  a: {shell: echo 1}\n"
        "  b: {shell: echo none >> ran, when: '${steps.a.status}', needs: [a]}\n",
    ],
)
def test_a_default_and_a_status_need_no_output(program: Program, text: str) -> None:
    """A reference with a default, and the status of a step, do without the output of a step that is left out."""
    program.call("run", program.write(text), "--skip", "a", code=0)
    assert ran(program.folder) == ["none"]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        (NOETL, ["--from", "report"], ["report Bern"]),
        (NOETL, ["--skip", "save"], ["fetch", "report Bern"]),
        (VISOR, ["--only", "done"], ["done"]),
        (TORC, ["--from", "second"], ["second"]),
        (PRODIGY, ["--only", "step-2"], ["two"]),
    ],
)
def test_every_front_end_has_the_choice(program: Program, text: str, words: list[str], expected: list[str]) -> None:
    """Steps can be left out of files of every system, along needs and along arcs."""
    program.call("run", program.write(text), *words, code=0)
    assert ran(program.folder) == expected


def test_conditions_on_arcs_of_a_step_that_is_left_out(program: Program) -> None:
    """A step whose arcs have conditions can't be left out between steps that run, but a run can begin behind it."""
    program.write(
        "resile: 1\nsteps:\n  - {name: a, shell: 'true', next: [b]}\n"
        "  - {name: b, shell: echo 1, next: [{step: c, when: 'outputs.b == 1'}]}\n"
        "  - {name: c, shell: echo c >> ran}\n"
    )
    done = program.call("run", "flow.yaml", "--skip", "b", code=2)
    assert "'b' can't be left out: its own result decides whether 'c' runs" in done.stderr
    program.call("run", "flow.yaml", "--from", "c", code=0)
    assert ran(program.folder) == ["c"]


def test_the_plan_of_a_run(program: Program) -> None:
    """--dry-run shows groups in order with known values put in, leaves others as written, and writes nothing."""
    plan = program.json("run", program.write(FLOW), "--dry-run", "--input", "target=a b", "--skip", "lint")
    assert [[step["step"] for step in group] for group in plan["groups"]] == [["build"], ["test"], ["tag", "deploy"]]
    assert [step["runs"] for step in plan["groups"][2]] == ["echo ${version} >> ran", "echo deploy 'a b' >> ran"]
    assert (plan["left_out"], plan["inputs"], plan["steps"]) == (["lint"], {"target": "a b"}, 4)
    assert plan["end"]["runs"] == "echo end ${execution.status} >> ran"
    assert sorted(path.name for path in program.folder.iterdir()) == ["flow.yaml"]


def test_the_plan_as_text(program: Program) -> None:
    """The plan names each step, what it runs and what it waits for, group by group."""
    words = ("--dry-run", "--skip", "test", "tag", "--max-parallel", "3")
    assert program.call("run", program.write(FLOW), *words, code=0).stdout == (
        "release: 3 steps in 2 groups, at most 3 at a time; nothing runs\n"
        "  input target = staging\n"
        "  left out: test, tag\n"
        "\n1. (in parallel)\n"
        "  build  shell\n      echo build >> ran; echo 1.2\n"
        "  lint  shell\n      echo lint >> ran\n"
        "\n2.\n"
        "  deploy  shell  (after test)\n      echo deploy 'staging' >> ran\n"
        "\nat the end\n  end  shell\n      echo end ${execution.status} >> ran\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NOETL, [["start"], ["fetch"], ["save"], ["report"]]),
        (VISOR, [["list"], ["show", "done"]]),
        (TORC, [["first"], ["second"]]),
        (PRODIGY, [["step-1"], ["step-2"], ["step-3"]]),
    ],
)
def test_the_plan_of_every_front_end(program: Program, text: str, expected: list[list[str]]) -> None:
    """Files of every system have a plan."""
    plan = program.json("run", program.write(text), "--dry-run")
    assert [[step["step"] for step in group] for group in plan["groups"]] == expected
    if text is NOETL:
        assert plan["groups"][3][0]["runs"] == "echo report 'Bern' >> ran"
        assert plan["groups"][2][0]["runs"] == "echo {{ fetch }} >> ran"


def test_a_plan_shows_no_secret(program: Program) -> None:
    """The value of a secret is hidden in a plan."""
    text = "resile: 1\nsecrets: [DOOR_KEY]\nsteps:\n  a: {shell: 'open ${env.DOOR_KEY}'}\n"
    done = program.call("run", program.write(text), "--dry-run", code=0, DOOR_KEY="sesame-1234")
    assert "sesame" not in done.stdout + done.stderr
    assert "***" in done.stdout


def test_a_plan_of_a_wrong_file_is_refused(program: Program) -> None:
    """What `run` refuses, --dry-run refuses: a wrong file, and an input that is missing."""
    program.call("run", program.write("resile: 1\nsteps: {a: {shel: x}}\n"), "--dry-run", code=2)
    text = "resile: 1\ninputs: {x: {required: true}}\nsteps: {a: {shell: 'true'}}\n"
    assert "input 'x' is required" in program.call("run", program.write(text), "--dry-run", code=2).stderr


@pytest.mark.parametrize("option", [("--verbose",), ("-v",), ("--debug",), ("--junit", "report.xml")])
def test_options_about_steps_are_refused_without_any(program: Program, option: tuple[str, ...]) -> None:
    """A plan runs no step, so options about what steps print and how they end are not taken in silence."""
    done = program.call("run", program.write(FLOW), "--dry-run", *option, code=2)
    name = "--verbose" if option == ("-v",) else option[0]
    assert f"--dry-run runs no step, so {name} has nothing to show" in done.stderr
    assert not (program.folder / "report.xml").exists()


def test_loops_and_called_steps_in_a_plan(program: Program) -> None:
    """A loop of arcs begins at its first step in the plan, and steps that are only called stand apart."""
    plan = program.json(
        "run",
        program.write(
            "resile: 1\nsteps:\n  a: {shell: 'true', next: [b]}\n"
            "  b: {shell: 'true', next: [{step: a, when: 'false'}], on_failure: {run: [fix]}}\n"
            "  fix: {shell: 'true'}\n"
        ),
        "--dry-run",
    )
    assert [[step["step"] for step in group] for group in plan["groups"]] == [["a"], ["b"]]
    assert [step["step"] for step in plan["called"]] == ["fix"]
    assert plan["groups"][1][0]["arcs_from"] == ["a"]
