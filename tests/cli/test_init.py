"""`init`: the first workflow of a new user."""

from __future__ import annotations

from tests.cli.program import Program


def test_the_first_workflow_fails_and_recovers(program: Program) -> None:
    """It is written with no finding of `check`, and its run retries one step and repairs another."""
    written = program.call("init", code=0)
    assert written.stdout == "flow.yaml: written; `resile run flow.yaml` runs it\n"
    [checked] = program.json("check", "flow.yaml")["files"]
    assert (checked["dialect"], checked["ok"], checked["diagnostics"]) == ("native", True, [])
    for run in (1, 2):
        document = program.json("run", "flow.yaml", "--input", "who=you")
        jobs = {job["step"]: (job["status"], job["recovered"], job["attempts"]) for job in document["jobs"]}
        assert jobs.pop("on_failure-1") == ("completed", False, 1)
        assert (document["run"], document["status"]) == (run, "completed")
        assert jobs == {
            "prepare": ("completed", False, 1),
            "fetch": ("completed", False, 2),
            "build": ("completed", True, 2),
            "greet": ("completed", False, 1),
            "end": ("completed", False, 1),
        }
        assert document["outputs"] == {"greeting": "hello you"}
    assert sorted(path.name for path in program.folder.iterdir() if "hello" in path.name) == []


def test_an_existing_file_stays(program: Program) -> None:
    """A file that is there is exit 2 and unchanged, unless --force says otherwise; another name is free."""
    program.write("mine")
    assert program.json("init", code=2)["error"]["code"] == "file-exists"
    assert (program.folder / "flow.yaml").read_text() == "mine"
    assert program.json("init", "other.yaml") == {"version": 1, "file": "other.yaml"}
    assert "#   run it                      resile run other.yaml\n" in (program.folder / "other.yaml").read_text()
    program.call("init", "--force", code=0)
    assert (program.folder / "flow.yaml").read_text().startswith("# A workflow that fails twice")


def test_a_place_that_can_not_be_written(program: Program) -> None:
    """A folder that does not exist is exit 2 with the reason."""
    error = program.json("init", "nowhere/flow.yaml", code=2)["error"]
    assert error["message"] == "nowhere/flow.yaml can't be written: No such file or directory"
