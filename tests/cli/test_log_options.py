"""`logs --tail`, `--since`, `--export`, names that look alike, `events` in one spelling, `explain --story`."""

from __future__ import annotations

import pytest

from tests.cli.program import Program

TALK = """\
resile: 1
steps:
  - {name: first, shell: "seq 1 5; echo bad >&2"}
  - {name: second, shell: "printf 'a\\\\nb\\\\nc'"}
"""
ALIKE = """\
resile: 1
steps:
  m: {map: {input: [x], steps: [{name: a, shell: echo inner}]}}
  "m[0]/a": {shell: echo outer, needs: [m]}
  "m[0]": {shell: echo like an item, needs: [m]}
  "m_0__a": {shell: echo flat, needs: [m]}
  "1": {shell: echo one, needs: [m]}
"""


def test_the_last_lines_of_each_stream(program: Program) -> None:
    """--tail prints the last lines of each stream of each attempt, and 0 of them prints nothing."""
    program.call("run", program.write(TALK), code=0)
    assert program.call("logs", "1", "--tail", "2", code=0).stdout == (
        "==> first, attempt 1, stdout <==\n4\n5\n==> first, attempt 1, stderr <==\nbad\n"
        "==> second, attempt 1, stdout <==\nb\nc"
    )
    assert program.call("logs", "1", "second", "--attempt", "1", "--stdout", "--tail", "1", code=0).stdout == "c"
    assert program.call("logs", "1", "-f", "--stderr", "--tail", "9", code=0).stdout.endswith("<==\nbad\n")
    assert program.call("logs", "1", "--tail", "0", code=0).stdout == ""
    assert program.json("logs", "1", "first", "--stdout", "--tail", "1")["logs"][0]["text"] == "5\n"


def test_only_what_was_written_since(program: Program) -> None:
    """--since leaves out attempts that had ended before, takes a duration or a time, and refuses anything else."""
    program.call("run", program.write(TALK), code=0)
    assert "==> first" in program.call("logs", "1", "--since", "1h", code=0).stdout
    assert program.call("logs", "1", "--since", "2999-01-01T00:00:00Z", code=0).stdout == ""
    assert "is no duration and no time" in program.call("logs", "1", "--since", "soon", code=2).stderr


def test_exported_files_are_named_by_step(program: Program) -> None:
    """--export names each file by its step, too; steps whose names look alike there have their job's number."""
    program.call("run", program.write(ALIKE), code=0)
    program.call("logs", "1", "--export", "out", code=0)
    texts = {
        path.name: path.read_text()
        for path in (program.folder / "out").iterdir()
        if not path.name.startswith("job_") and path.name.endswith(".o")
    }
    assert sorted(texts.values()) == ["flat\n", "inner\n", "like an item\n", "one\n", "outer\n"]
    assert texts["m[0]_a1.o"] == "like an item\n"
    assert texts["1_a1.o"] == "one\n"
    assert [name for name, text in texts.items() if text == "outer\n"] == ["m[0]_a_j2_a1.o"]
    assert len([name for name in texts if name.startswith("m[0]_a_j")]) == 2
    program.call("logs", "1", "--export", "out", code=0)
    program.call("rerun", "1", code=0)
    program.call("logs", "1", "--export", "out", code=0)
    assert (program.folder / "out" / "1_r2_a1.o").read_text() == "one\n"


@pytest.mark.parametrize(
    ("name", "expected"), [("m[0]/a", ["outer\n"]), ("m[0]", ["like an item\n"]), ("1", ["one\n"]), ("a", ["inner\n"])]
)
def test_a_name_means_one_step(program: Program, name: str, expected: list[str]) -> None:
    """A step whose name looks like an item, a path or a number is found by it, and nothing else is."""
    program.call("run", program.write(ALIKE), code=0)
    assert [log["text"] for log in program.json("logs", "1", name)["logs"]] == expected


def test_two_databases_in_one_folder_share_no_log_file(program: Program) -> None:
    """Runs of two databases beside each other write different files."""
    for name in ("a.db", "b.db"):
        program.call("run", program.write(TALK.replace("bad", name)), "--db", name, code=0)
    for name in ("a.db", "b.db"):
        shown = program.call("logs", "1", "first", "--attempt", "1", "--stderr", "--db", name, code=0).stdout
        assert shown == f"{name}\n"
    written = sorted(path.read_text() for path in (program.folder / "output").rglob("job_wf1_j1_*.e"))
    assert written == ["a.db\n", "b.db\n"]


def test_events_are_spelled_one_way(program: Program) -> None:
    """In the text view every type of event has underscores, and a filter takes what the view shows."""
    program.call("run", program.write(TALK), code=0)
    types = [line.split()[2] for line in program.call("events", "list", "1", code=0).stdout.splitlines()]
    assert "step_exit" in types
    assert not any("." in kind for kind in types)
    assert program.call("events", "list", "1", "--type", "step_exit", code=0).stdout.count("step_exit") == 3
    assert '"type":"step.exit"' in program.call("events", "list", "1", "--json", code=0).stdout


def test_the_story_of_a_step(program: Program) -> None:
    """`explain --story STEP` prints the events of the step with those that caused them before, as `events` does."""
    program.call("run", program.write(TALK), code=0)
    told = program.call("explain", "1", "--story", "second", code=0).stdout
    job = next(job["id"] for job in program.json("status", "1")["jobs"] if job["step"] == "second")
    assert told == program.call("events", "list", "1", "--story", str(job), code=0).stdout
    assert "step_completed first" in told
    assert '"step":"second"' in program.call("explain", "1", "--story", "second", "--json", code=0).stdout
    assert "has no step 'third'" in program.call("explain", "1", "--story", "third", code=2).stderr
    assert "--story names the step already" in program.call("explain", "1", "first", "--story", "second", code=2).stderr
