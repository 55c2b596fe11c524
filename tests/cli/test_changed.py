"""`rerun --changed` and `run --cached` on the command line."""

from __future__ import annotations

from tests.cli.program import Program

FLOW = """
resile: 1
name: flow
steps:
  a: {shell: "cat in.txt > out.txt", reads: in.txt, outputs: out.txt}
  b: {shell: "echo b", needs: a}
"""


def test_only_what_changed(program: Program) -> None:
    """The plan, the rerun and the run say what changed and what did not."""
    program.write(FLOW)
    program.write("1", "in.txt")
    program.call("run", "flow.yaml", code=0)
    assert program.call("rerun", "1", "--changed", code=0).stdout == "nothing to do\n"
    assert program.json("rerun", "1", "--changed", "--dry-run") == {"version": 1, "steps": []}
    program.write("2", "in.txt")
    assert program.json("rerun", "1", "--changed", "--dry-run")["steps"] == [
        {"step": "a", "reason": "reads", "detail": "in.txt changed"},
        {"step": "b", "reason": "needs", "detail": "a runs again"},
    ]
    listed = program.call("run", "flow.yaml", "--cached", "--dry-run", code=0)
    assert listed.stdout == "a  reads: in.txt changed\nb  needs: a runs again\n"
    program.call("rerun", "1", "--changed", code=0)
    second = program.json("run", "flow.yaml", "--cached")
    steps = [(job["step"], job["status"], job["cached"], job["attempts"]) for job in second["jobs"][:2]]
    assert (second["run"], steps) == (2, [("a", "completed", True, 0), ("b", "completed", True, 0)])
    for wrong in (("--dry-run",), ("--changed", "--as-new"), ("--changed", "--failed-only")):
        program.call("rerun", "1", *wrong, code=2)
    program.call("run", "flow.yaml", "--cached", "--from", "b", code=2)


def test_a_file_that_is_gone_did_not_change(program: Program) -> None:
    """The reason says that it is missing, beside those that changed."""
    program.write("resile: 1\nname: flow\nsteps:\n  a: {shell: 'true', reads: [in.txt, kept.txt, gone.txt]}\n")
    for name in ("in.txt", "kept.txt", "gone.txt"):
        program.write("1", name)
    program.call("run", "flow.yaml", code=0)
    (program.folder / "gone.txt").unlink()
    assert program.call("rerun", "1", "--changed", "--dry-run", code=0).stdout == "a  reads: gone.txt is missing\n"
    program.write("2", "in.txt")
    listed = program.call("rerun", "1", "--changed", "--dry-run", code=0)
    assert listed.stdout == "a  reads: in.txt changed, gone.txt is missing\n"
