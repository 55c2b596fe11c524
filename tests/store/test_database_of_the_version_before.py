"""A database that version 0.1 wrote: everything in it can be looked at, and what was unfinished goes on.

tests/data/database_0_1/README.md says which runs there are.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.cli.program import Program, rule_text

DATA = Path(__file__).parent.parent / "data" / "database_0_1"
DIALECTS = {8: "prodigy", 9: "torc", 10: "visor", 11: "noetl", 12: "python"}
STEPS = {
    1: {"fetch": ("completed", 2), "build": ("completed", 2), "greet": ("completed", 1), "extra": ("skipped", 0)},
    2: {
        "prepare": ("completed", 1),
        "solve": ("completed", 4),
        "verify": ("failed", 4),
        "tell": ("canceled", 0),
        "note": ("completed", 1),
    },
    3: {"list": ("completed", 1), "work": ("completed", 1), "report": ("completed", 1)},
    4: {"build": ("completed", 2), "announce": ("completed", 1)},
    5: {"solve": ("pending_failed", 2), "report": ("blocked", 0), "end": ("blocked", 0)},
    6: {"first": ("completed", 1), "wait": ("terminated", 1), "last": ("canceled", 0)},
    7: {
        "first": ("completed", 1),
        "wait": ("running", 1),
        "each": ("blocked", 0),
        "last": ("blocked", 0),
        "end": ("blocked", 0),
    },
    8: {"count": ("completed", 1), "step-2": ("completed", 2), "step-3": ("completed", 1)},
    9: {"prepare": ("completed", 2), "make_1": ("completed", 1), "make_2": ("completed", 1), "join": ("completed", 1)},
    10: {"compile": ("completed", 3), "remedy": ("completed", 1), "count": ("completed", 2)},
    11: {"start": ("completed", 1), "each": ("completed", 1)},
    12: {"numbers": ("completed", 1), "square": ("completed", 1), "total": ("completed", 2)},
}
FAILED = """\
run 2 failed failed: Routing loop budget exceeded (max_loops=2) during on_failure goto

solve (failed.yaml:12:3) passed at attempt 4
  attempt 1: exit code 10
    answers   failed.yaml:8:7 failure_handler solver: exit_codes 10 (1 of 2)
    repair    passed
    then      attempt 2
  attempt 2: passed
  attempt 3: passed
  attempt 4: passed

verify (failed.yaml:16:3) failed after 4 attempts
  attempt 1: exit code 1: checksum is wrong
    answers   failed.yaml:18:5 retry 1
    then      attempt 2
  attempt 2: exit code 1: checksum is wrong
    spent     failed.yaml:18:5 retry 1 (1 of 1)
    answers   failed.yaml:19:18 goto solve
    then      back to solve, loop 1 of 2
  attempt 3: exit code 1: checksum is wrong
    spent     failed.yaml:18:5 retry 1 (1 of 1)
    answers   failed.yaml:19:18 goto solve
    then      back to solve, loop 2 of 2
  attempt 4: exit code 1: checksum is wrong
    spent     failed.yaml:18:5 retry 1 (1 of 1)
    no budget failed.yaml:19:18 goto solve
    then      Routing loop budget exceeded (max_loops=2) during on_failure goto, so the failure stands
  canceled because of it: tell
"""
EXPLAINED = {
    1: "run 1 completed completed, although 2 attempts failed",
    3: "run 3 items completed, although 4 attempts failed",
    4: "run 4 parent completed, although 2 attempts failed",
    5: "run 5 parked is parked: solve waits for judgement",
    6: "run 6 canceled was canceled: 0@fixture:",
    7: "run 7 killed is interrupted: nothing has failed",
    8: "run 8 prodigy-commands completed, although 1 attempt failed",
    9: "run 9 torc-jobs completed, although 1 attempt failed",
    10: "run 10 visor completed, although 1 attempt failed",
    11: "run 11 noetl-words completed",
    12: "run 12 squares completed, although 1 attempt failed",
}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program in a folder with a copy of that database, whose runs began there, and which nobody drives."""
    program = Program(tmp_path)
    database = Path(program.env["RESILE_DB"])
    database.write_bytes((DATA / "resile.db").read_bytes())
    shutil.unpack_archive(DATA / "output.tar.gz", tmp_path)
    db = apsw.Connection(str(database))
    db.execute("UPDATE runs SET output = ?, directory = ?", (str(tmp_path / "output"), str(tmp_path))).fetchall()
    # The clock of another machine may be behind the one on which the run was killed.
    db.execute("UPDATE leases SET expires_at = 1").fetchall()
    db.close()
    return program


def effects(program: Program) -> list[str]:
    """What the steps did since the database was copied."""
    path = program.folder / "effects"
    return path.read_text().splitlines() if path.exists() else []


def steps(document: dict[str, list[dict[str, object]]]) -> dict[object, tuple[object, object]]:
    """Status and attempts of each step of the workflow itself, but for an `end` that has run."""
    return {
        job["step"]: (job["status"], job["attempts"])
        for job in document["jobs"]
        if job["scope"] == "root" and (job["step"], job["status"]) != ("end", "completed")
    }


def event_types(program: Program, run: int) -> list[tuple[str, str | None]]:
    """Type and step of every event of a run."""
    lines = program.call("events", "ls", str(run), "--json", code=0).stdout.splitlines()
    return [(event["type"], event["step"]) for event in map(msgspec.json.decode, lines)]


def test_the_database_is_whole(program: Program) -> None:
    """`db check` finds that every log agrees with its tables and its output, before and after it was migrated."""
    whole = program.json("db", "check")
    assert (whole["is_whole"], whole["identity"], len(whole["runs"])) == (True, "", 12)
    program.call("run", program.write("resile: 1\nname: new\nsteps: {only: {shell: echo new}}\n"), code=0)
    whole = program.json("db", "check")
    assert (whole["is_whole"], len(whole["identity"]), len(whole["runs"])) == (True, 16, 13)


def test_the_runs_are_listed(program: Program) -> None:
    """`status` knows every run with its status, the last one first."""
    runs = program.json("status")["runs"]
    assert [(run["run"], run["workflow"], run["status"]) for run in runs] == [
        (12, "squares", "completed"),
        (11, "noetl-words", "completed"),
        (10, "visor", "completed"),
        (9, "torc-jobs", "completed"),
        (8, "prodigy-commands", "completed"),
        (7, "killed", "interrupted"),
        (6, "canceled", "canceled"),
        (5, "parked", "parked"),
        (4, "parent", "completed"),
        (3, "items", "completed"),
        (2, "failed", "failed"),
        (1, "completed", "completed"),
    ]


@pytest.mark.parametrize("run", STEPS)
def test_a_run_is_shown(program: Program, run: int) -> None:
    """`status RUN` knows the system that a file was for, the status of each step and how many attempts it took."""
    document = program.json("status", str(run))
    assert document["dialect"] == DIALECTS.get(run, "native")
    assert steps(document) == STEPS[run]
    assert program.call("status", str(run), code=0).stderr == ""


def test_routes_are_shown(program: Program) -> None:
    """What answered each failure is known by its action and by the rule with its place in the file."""
    routes = program.json("status", "2")["routes"]
    assert [(route["step"], route["attempt"], route["action"], rule_text(route["rule"])) for route in routes] == [
        ("solve", 1, "retry", "failed.yaml:8:7 failure_handler solver: exit_codes 10"),
        ("verify", 1, "retry", "failed.yaml:18:5 retry 1"),
        ("verify", 2, "goto", "failed.yaml:19:18 goto solve"),
        ("verify", 3, "goto", "failed.yaml:19:18 goto solve"),
        ("verify", 4, "budget", "max_loops=2"),
    ]


def test_a_failed_run_is_explained(program: Program) -> None:
    """`explain RUN` tells of every attempt and every rule."""
    assert program.call("explain", "2", code=0).stdout == FAILED


@pytest.mark.parametrize("run", EXPLAINED)
def test_every_run_is_explained(program: Program, run: int) -> None:
    """`explain RUN` says first what came of a run."""
    assert program.call("explain", str(run), code=0).stdout.splitlines()[0].startswith(EXPLAINED[run])


def test_parked_failures_are_shown(program: Program) -> None:
    """`failures` has the output of the step and each of its attempts."""
    (failure,) = program.json("failures", "5")["failures"]
    assert {name: failure[name] for name in ("step", "job", "attempts", "message", "rule", "stdout", "stderr")} == {
        "step": "solve",
        "job": 1,
        "attempts": 2,
        "message": "exit code 1: no luck",
        "rule": {"file": "parked.yaml", "line": 8, "column": 5, "text": "park"},
        "stdout": "some output\n",
        "stderr": "no luck\n",
    }
    assert [(each["attempt"], each["exit_code"]) for each in failure["history"]] == [(1, 1), (2, 1)]


def test_events_are_shown(program: Program) -> None:
    """`events ls` has the whole log of a run."""
    assert event_types(program, 7) == [
        ("playbook_started", None),
        ("workflow_initialized", None),
        ("step_started", "first"),
        ("attempt_started", "first"),
        ("attempt_succeeded", "first"),
        ("step.exit", "first"),
        ("step_completed", "first"),
        ("step_started", "wait"),
        ("attempt_started", "wait"),
    ]


def test_output_is_shown(program: Program) -> None:
    """`logs` finds what steps and functions printed."""
    assert program.call("logs", "1", "greet", "--attempt", "1", "--stdout", code=0).stdout == "hello you\n"
    assert program.call("logs", "4", "announce", "--attempt", "1", "--stdout", code=0).stdout == "released app-1.4\n"
    assert program.call("logs", "9", "join", "--attempt", "1", "--stdout", code=0).stdout == "1\n2\n"
    assert program.call("logs", "12", "total", "--attempt", "1", code=0).stdout.splitlines()[-1] == (
        "ConnectionError: not at once"
    )


def test_dead_letters_are_shown(program: Program) -> None:
    """`dlq list` has the items with their data and how often each failed."""
    letters = program.json("dlq", "list", "3")["dead_letters"]
    assert [(each["item_id"], each["item_data"], each["failure_count"]) for each in letters] == [
        ("work[1]", 4, 2),
        ("work[3]", 6, 2),
    ]
    assert [each["failure_history"][0]["error_message"] for each in letters] == [
        "exit code 4: 4 is even",
        "exit code 4: 6 is even",
    ]


def test_dead_letters_are_run_again(program: Program) -> None:
    """`dlq retry` runs the items by the old definition, and keeps those that fail again."""
    assert program.json("dlq", "retry", "3", code=1)["succeeded"] == 0
    (program.folder / "fixed").touch()
    assert program.json("dlq", "retry", "3")["succeeded"] == 2
    assert program.json("dlq", "list", "3")["dead_letters"] == []


def test_an_unfinished_run_is_resumed(program: Program) -> None:
    """`resume` keeps what had completed, with its value, and runs the lost attempt and the rest."""
    (program.folder / "open").touch()
    document = program.json("resume", "7")
    assert document["status"] == "completed"
    assert steps(document) == {
        "first": ("completed", 1),
        "wait": ("completed", 2),
        "each": ("completed", 1),
        "last": ("completed", 1),
    }
    assert effects(program) == ["wait", "say 1", "say 2", "last 17"]
    assert [(route["step"], route["action"], rule_text(route["rule"])) for route in document["routes"]] == [
        ("wait", "retry", "retry after a lost attempt")
    ]


def test_an_unfinished_run_is_canceled(program: Program) -> None:
    """`cancel` ends a run that nobody drives."""
    program.call("cancel", "7")
    assert program.json("status", "7")["status"] == "canceled"
    assert effects(program) == []


@pytest.mark.parametrize(
    ("verdict", "code", "left"),
    [
        (("retry",), 0, ["report some output", "end completed"]),
        (("skip", "--output", "given"), 0, ["report given", "end completed"]),
        (("fail",), 1, ["end failed"]),
    ],
    ids=["retry", "skip", "fail"],
)
def test_a_parked_run_goes_on(program: Program, verdict: tuple[str, ...], code: int, left: list[str]) -> None:
    """`judge` decides about the failure, and the run goes on to its end."""
    (program.folder / "lucky").touch()
    program.call("judge", "5", "solve", *verdict, "--resume", code=code)
    assert program.json("status", "5")["status"] == ("failed" if code else "completed")
    assert effects(program) == left


def test_a_failed_run_is_run_again(program: Program) -> None:
    """`rerun --failed-only` keeps what had completed, with its output, and runs the rest in the next epoch."""
    (program.folder / "mended").touch()
    document = program.json("rerun", "2", "--failed-only")
    assert (document["status"], document["epoch"]) == ("completed", 2)
    assert {name: status for name, (status, _) in steps(document).items()} == dict.fromkeys(STEPS[2], "completed")
    assert effects(program) == ["told warm"]


@pytest.mark.parametrize("run", [1, 4, 8, 9, 10, 11])
def test_a_completed_run_is_run_again(program: Program, run: int) -> None:
    """`rerun` runs every step by the definition that the old version compiled, with the same statuses and attempts."""
    document = program.json("rerun", str(run))
    assert (document["status"], document["epoch"]) == ("completed", 2)
    assert steps(document) == STEPS[run]


def test_a_new_run_is_added(program: Program) -> None:
    """The old runs stay as they are beside a new one."""
    document = program.json("run", program.write("resile: 1\nname: new\nsteps: {only: {shell: echo new}}\n"))
    assert (document["run"], document["status"]) == (13, "completed")
    assert len(program.json("status")["runs"]) == 13
    assert steps(program.json("status", "2")) == STEPS[2]
