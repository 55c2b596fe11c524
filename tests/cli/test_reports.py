"""`--junit`, annotations of GitHub Actions, `${workflow.folder}`, and a child workflow in Python."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.cli.program import Program

MIXED = """\
resile: 1
name: a <mixed> & "odd" run
steps:
  good: {shell: "true"}
  "bad: 100%, <b>":
    shell: "printf '\\\\033[1m]]>\\\\001 & <x> \\\\377\\\\n::error::no\\\\r\\\\n50%%\\\\n' >&2; exit 3"
  behind: {shell: "true", needs: ["bad: 100%, <b>"]}
  off: {shell: "true", when: "false"}
  fine: {shell: "false", on_failure: true}
"""


def test_a_report_for_junit(program: Program) -> None:
    """The report is well-formed whatever a step prints, and has a case for each step with how it ended."""
    program.call("run", program.write(MIXED), "--junit", "report.xml", code=1)
    suite = ElementTree.parse(program.folder / "report.xml").getroot()[0]
    assert {key: suite.get(key) for key in ("name", "tests", "failures", "errors", "skipped")} == {
        "name": 'a <mixed> & "odd" run',
        "tests": "5",
        "failures": "1",
        "errors": "0",
        "skipped": "2",
    }
    cases = {case.get("name"): [(child.tag, child.get("type")) for child in case] for case in suite}
    assert cases == {
        "good": [],
        "bad: 100%, <b>": [("failure", "exit 3")],
        "behind": [("skipped", None)],
        "off": [("skipped", None)],
        "fine": [],
    }
    failure = suite.find(".//failure")
    assert failure is not None
    assert "exit code 3" in (failure.text or "")


def test_a_report_of_a_rerun_and_of_a_parked_run(program: Program) -> None:
    """`rerun` writes a report, too; a parked step is an error in it."""
    program.write("resile: 1\nsteps: {a: {shell: 'false', park: true}}\n")
    program.call("run", "flow.yaml", "--junit", "one.xml", code=4)
    program.call("rerun", "1", "--junit", "two.xml", code=4)
    for name in ("one.xml", "two.xml"):
        suite = ElementTree.parse(program.folder / name).getroot()[0]
        assert (suite.get("errors"), suite.get("failures")) == ("1", "0")


def test_a_report_that_cannot_be_written_is_refused(program: Program) -> None:
    """A report in a folder that is not there is refused before anything runs."""
    program.write("resile: 1\nsteps: {a: {shell: echo x > ran}}\n")
    assert (
        "--junit no/such/r.xml can't be written"
        in program.call("run", "flow.yaml", "--junit", "no/such/r.xml", code=2).stderr
    )
    assert not (program.folder / "ran").exists()


def test_annotations_of_github_actions(program: Program) -> None:
    """With GITHUB_ACTIONS each failed step is an annotation at its line, escaped, on one line; else there is none."""
    program.write(MIXED)
    done = program.call("run", "flow.yaml", code=1, GITHUB_ACTIONS="true")
    lines = [line for line in done.stderr.splitlines() if line.startswith("::")]
    assert len(lines) == 4
    assert lines[0].startswith("::stop-commands::")
    assert lines.pop(1) == f"::{lines.pop(0)[17:]}::"
    start = "::error file=flow.yaml,line=5,col=3,title=bad%3A 100%25%2C <b> failed::exit code 3"
    assert lines[0].startswith(start)
    assert lines[1].startswith("::warning file=flow.yaml,line=9,col=3,title=fine tolerated::")
    assert "%25" not in lines[1]
    quiet = program.call("run", "flow.yaml", code=1, GITHUB_ACTIONS="")
    assert not any(line.startswith("::") for line in quiet.stderr.splitlines())


@pytest.mark.parametrize("command", ["run", "check"])
def test_annotations_of_a_file_with_errors(program: Program, command: str) -> None:
    """Each error and warning of a file is an annotation at its place, with its hint; notices are none."""
    program.write("resile: 1\nsteps:\n  a: {shell: x, needs: [bb]}\n  b: {shell: y, shel: y}\n")
    done = program.call(command, "flow.yaml", code=2, GITHUB_ACTIONS="true")
    shown = [line for line in done.stderr.splitlines() if line.startswith(("::error", "::warning", "::notice"))]
    assert shown == [
        "::error file=flow.yaml,line=3,col=25,title=unknown-step::there is no step `bb`%0Adid you mean `b`?",
        "::error file=flow.yaml,line=4,col=17,title=unknown-key::a step has no key `shel`%0Adid you mean `shell`?",
    ]


def test_annotations_of_steps_inside_others(program: Program) -> None:
    """A step of an item, a child or a handler is shown at the line of the step around it; a parked one as parked."""
    program.write("resile: 1\nsteps: [{id: deep, shell: exit 4}]\n", "inner.yaml")
    program.write(
        "resile: 1\nsteps:\n  m: {map: {input: [1], steps: [{id: w, shell: exit 2}]}}\n"
        "  m.x: {workflow: inner.yaml}\n  p: {shell: exit 9, park: true}\n"
    )
    done = program.call("run", "flow.yaml", "--max-parallel", "1", code=4, GITHUB_ACTIONS="true")
    shown = [line.split("::")[1] for line in done.stderr.splitlines() if line.startswith("::error")]
    assert sorted(line.removeprefix("error file=flow.yaml,") for line in shown) == [
        "line=3,col=3,title=m failed",
        "line=3,col=3,title=m[0]/w failed",
        "line=4,col=3,title=m.x failed",
        "line=4,col=3,title=m.x/deep failed",
        "line=5,col=3,title=p parked",
    ]


def test_github_obeys_no_output_of_a_step(program: Program) -> None:
    """All that is quoted stands between two lines with a word that no step can know."""
    program.write("resile: 1\nsteps: {a: {shell: 'echo ::error::forged; echo ::set-env name=X::y >&2; exit 3'}}\n")
    done = program.call("run", "flow.yaml", code=1, GITHUB_ACTIONS="true")
    first, *middle = done.stderr.splitlines()
    end = middle.index(f"::{first.removeprefix('::stop-commands::')}::")
    assert [line for line in middle[end + 1 :] if "forged" in line or "set-env" in line] == [
        "::error file=flow.yaml,line=2,col=9,title=a failed::exit code 3: ::set-env name=X::y"
    ]
    assert "::error::forged" in done.stdout


def test_the_folder_of_the_workflow(program: Program) -> None:
    """`${workflow.folder}` is the folder of the workflow file, wherever the run was started."""
    (program.folder / "flows").mkdir()
    program.write("resile: 1\nsteps: {a: {shell: 'echo ${workflow.folder} > said'}}\n", "flows/f.yaml")
    assert "workflow" not in program.call("run", "flows/f.yaml", code=0).stderr
    assert (program.folder / "said").read_text() == f"{program.folder}/flows\n"
    plan = program.json("run", "flows/f.yaml", "--dry-run")
    assert plan["groups"][0][0]["runs"] == f"echo '{program.folder}/flows' > said"


def test_a_child_workflow_in_python_is_refused_as_such(program: Program) -> None:
    """A step that names a Python file as its workflow is refused with the reason, at its line."""
    program.write("print('never')\n", "inner.py")
    done = program.call("run", program.write("resile: 1\nsteps:\n  a: {workflow: inner.py}\n"), code=2)
    assert "flow.yaml:3:" in done.stderr
    assert "`inner.py` is a workflow in Python, which can't be a step of a file" in done.stderr
    assert "never" not in done.stdout


def test_the_annotation_of_a_recovered_step(program: Program) -> None:
    """It is a notice that names the command with the rest of the story."""
    program.write("resile: 1\nsteps: {a: {shell: exit 3, on_failure: {shell: 'true'}}}\n")
    done = program.call("run", "flow.yaml", code=0, GITHUB_ACTIONS="true")
    assert [line for line in done.stderr.splitlines() if line.startswith("::notice")] == [
        "::notice file=flow.yaml,line=2,col=9,title=a recovered::"
        "it failed at first; `resile explain 1` says what followed"
    ]
