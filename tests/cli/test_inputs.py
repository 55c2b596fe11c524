"""`run -`, `--inputs FILE`, `rerun --input`, the warnings of `check` on a run, and a file that has changed."""

from __future__ import annotations

import subprocess

import pytest

from tests.cli.program import DEADLINE_SECONDS, Program

FLOW = """\
resile: 1
name: greet
inputs:
  who: world
  times: {type: number, default: 1}
  loud: {type: bool, default: false}
  more: {type: json, default: []}
steps:
  say: {shell: "echo ${inputs.who} ${inputs.times} ${inputs.loud} ${inputs.more} >> said"}
"""
WARNED = "resile: 1\nsecrets: [DOOR_KEY]\nsteps:\n  a: {shell: 'true ${env.DOOR_KEY}'}\n"


def said(program: Program) -> list[str]:
    """What the step wrote."""
    path = program.folder / "said"
    return path.read_text().splitlines() if path.exists() else []


def from_stdin(program: Program, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Call a command with a workflow on its standard input."""
    return subprocess.run(
        [*program.argv, *words],
        cwd=program.folder,
        env=program.env,
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )


def test_a_workflow_on_standard_input(program: Program) -> None:
    """`run -` runs the workflow on standard input, and the run can be run again later."""
    done = from_stdin(program, FLOW, "run", "-", "--input", "who=you")
    assert (done.returncode, said(program)) == (0, ["you 1 false []"])
    program.call("rerun", "1", code=0)
    assert said(program) == ["you 1 false []"] * 2
    assert not (program.folder / "-").exists()


def test_steps_do_not_read_the_workflow(program: Program) -> None:
    """A step of a workflow on standard input finds its own standard input empty."""
    done = from_stdin(program, "resile: 1\nsteps: {a: {shell: 'cat > read'}}\n", "run", "-")
    assert (done.returncode, (program.folder / "read").read_text()) == (0, "")


def test_errors_on_standard_input_have_a_place(program: Program) -> None:
    """An error in a workflow on standard input names the line, and an empty input is refused."""
    done = from_stdin(program, "resile: 1\nsteps:\n  a: {shel: x}\n", "run", "-")
    assert (done.returncode, "<stdin>:3:7" in done.stderr) == (2, True)
    assert "there is no workflow on standard input" in program.call("run", "-", code=2).stderr
    checked = from_stdin(program, FLOW, "check", "-")
    assert (checked.returncode, "ok, 1 step, native" in checked.stdout) == (0, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("in.yaml", "who: 007\ntimes: 3\nloud: true\nmore: {a: [1, null]}\n"),
        ("in.json", '{"who": "007", "times": 3, "loud": true, "more": {"a": [1, null]}}'),
    ],
)
def test_inputs_from_a_file(program: Program, name: str, text: str) -> None:
    """A file of YAML or JSON gives several inputs; a text keeps its spelling, and --input wins."""
    (program.folder / name).write_text(text)
    program.call("run", program.write(FLOW), "--inputs", name, code=0)
    program.call("run", "flow.yaml", "--input", "times=9", "--inputs", name, code=0)
    assert said(program) == ['007 3 true {"a":[1,null]}', '007 9 true {"a":[1,null]}']


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nobody: 1\n", "in.yaml:1:1: greet has no input 'nobody'"),
        ("- 1\n", "--inputs in.yaml is not a mapping"),
        ("who: [1]\n", "in.yaml:1:6: input 'who': a list is not a text"),
        ("times: many\n", "input 'times': 'many' is not a number"),
        ("who: [\n", "in.yaml:"),
        (None, "--inputs: in.yaml: No such file or directory"),
    ],
)
def test_wrong_files_of_inputs_are_refused(program: Program, text: str | None, message: str) -> None:
    """A file of inputs that is missing, is no mapping, or does not fit the workflow is refused before anything runs."""
    if text is not None:
        (program.folder / "in.yaml").write_text(text)
    done = program.call("run", program.write(FLOW), "--inputs", "in.yaml", code=2)
    assert message in done.stderr
    assert said(program) == []


def test_an_empty_file_of_inputs_gives_none(program: Program) -> None:
    """A file without a value, or with comments only, leaves the defaults."""
    for text in ("", "# who: you\n"):
        (program.folder / "in.yaml").write_text(text)
        program.call("run", program.write(FLOW), "--inputs", "in.yaml", "--only", "say", code=0)
    assert len(set(said(program))) == 1


def test_a_rerun_with_other_inputs(program: Program) -> None:
    """`rerun --input` replaces some inputs and keeps the others, in this run and in a new one."""
    program.call("run", program.write(FLOW), "--input", "who=me", "--input", "times=2", code=0)
    program.call("rerun", "1", "--input", "times=3", code=0)
    program.call("rerun", "1", code=0)
    program.call("rerun", "1", "--as-new", "--input", "who=them", code=0)
    assert said(program) == ["me 2 false []", "me 3 false []", "me 3 false []", "them 3 false []"]
    assert "has no input 'what'" in program.call("rerun", "1", "--input", "what=1", code=2).stderr
    assert program.json("status", "1")["status"] == "completed"


def test_a_rerun_of_failed_steps_says_what_it_keeps_of_the_old_inputs(program: Program) -> None:
    """A completed step that uses a changed input stays as it is, and is named; one that does not use it is not."""
    program.write(
        "resile: 1\nname: t\ninputs: {n: 1, m: 1}\nsteps:\n"
        "  a: {shell: 'echo ${inputs.n}'}\n  b: {shell: 'echo ${inputs.m}'}\n"
        "  c: {shell: echo, when: \"inputs['n'] == 1\"}\n  d: {shell: test -e ok, needs: [a, b, c]}\n"
    )
    program.call("run", "flow.yaml", code=1)
    assert "old inputs" not in program.call("rerun", "1", "--failed-only", "--input", "n=1", code=1).stderr
    said = program.call("rerun", "1", "--failed-only", "--input", "n=5", code=1).stderr
    assert said.splitlines()[0] == (
        "resile: completed with the old inputs, and kept: a, c; `resile rerun 1` runs all steps again"
    )
    assert "old inputs" not in program.call("rerun", "1", "--input", "n=6", code=0).stderr


def test_a_run_prints_the_warnings_of_check(program: Program) -> None:
    """Every `run`, `rerun` and `resume` prints the warnings that `check` prints, every time."""
    program.env["DOOR_KEY"] = "sesame-1234"
    program.write(WARNED)
    assert "warning" in program.call("check", "flow.yaml").stdout
    calls = [("run", "flow.yaml"), ("run", "flow.yaml"), ("rerun", "1"), ("rerun", "1", "--as-new")]
    for words in calls:
        assert "resile: flow.yaml:4:" in program.call(*words, code=0).stderr, words
    program.write(WARNED.replace("KEY}'", "KEY}; exit 3', park: true"))
    program.call("run", "flow.yaml", code=4)
    program.call("judge", "4", "a", "skip", code=0)
    assert "resile: flow.yaml:4:" in program.call("resume", "4", code=0).stderr


def test_a_run_prints_no_notices(program: Program) -> None:
    """What `check` only remarks is not printed by `run`."""
    program.write("resile: 1\nsteps: {a: {shell: 'true', on_failure: 'true'}}\n")
    assert "notice" in program.call("check", "flow.yaml", code=0).stdout
    assert "resile:" not in program.call("run", "flow.yaml", code=0).stderr


def test_a_file_that_has_changed(program: Program) -> None:
    """`rerun` and `resume` say that the file has changed, use the run's own, and say how to use the new one."""
    program.write(FLOW)
    program.call("run", "flow.yaml", code=0)
    assert "has changed" not in program.call("rerun", "1", code=0).stderr
    program.write(FLOW.replace("echo", "echo new"))
    for words in (("rerun", "1"), ("rerun", "1", "--as-new")):
        done = program.call(*words, code=0)
        assert "flow.yaml has changed since run 1 started, and this run goes on with the file as it was" in done.stderr
        assert "to use the new one: resile run flow.yaml" in done.stderr
    assert said(program) == ["world 1 false []"] * 4
    parked = program.write("resile: 1\nsteps: {a: {shell: 'false', park: true}}\n", "p.yaml")
    program.call("run", parked, code=4)
    program.write("resile: 1\nsteps: {a: {shell: 'true', park: true}}\n", "p.yaml")
    program.call("judge", "3", "a", "skip", code=0)
    assert "p.yaml has changed since run 3 started" in program.call("resume", "3", code=0).stderr


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("name: n\nsteps:\n  - {shell: 'true'}\n", "Prodigy file, because `steps` is a list of steps with `shell`"),
        ("- {shell: 'true'}\n", "Prodigy file, because it is a list of steps with `shell`"),
    ],
)
def test_the_first_line_says_what_an_unclear_file_was_taken_for(program: Program, text: str, taken: str) -> None:
    """The first line says whose file it is, if one without `resile: 1` could be meant as a native one."""
    program.write(text)
    first = program.call("run", "flow.yaml", code=0).stderr.splitlines()[0]
    assert first.startswith(f"resile: flow.yaml is taken for a {taken}")
    assert "`resile: 1`" in first
    again = program.call("run", "flow.yaml", "--dialect", taken.split()[0].lower(), code=0)
    assert "taken for" not in again.stderr


def test_a_clear_file_is_not_talked_about(program: Program) -> None:
    """A file that only one system can mean runs without a remark about that."""
    program.write("name: n\ncommands:\n  - {shell: 'true'}\n")
    assert "taken for" not in program.call("run", "flow.yaml", code=0).stderr
