"""`prune`: which runs are deleted, what of them is gone, and what stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.cli.program import Program

GOOD = "resile: 1\nname: good\nsteps: [{shell: 'echo hello'}]\n"
BAD = "resile: 1\nname: bad\nsteps: [{shell: 'echo no >&2; exit 3'}]\n"
PARKS = "resile: 1\nname: parks\nsteps: [{shell: 'false', park: true}]\n"
LETTERS = "resile: 1\nname: letters\nsteps: {m: {map: {input: [1, 2], steps: [{shell: 'echo x; exit 1'}]}}}\n"
LARGE = """\
resile: 1
name: large
steps: [{shell: "head -c 3000000 /dev/urandom | base64 -w 0"}]
"""


def runs_of(program: Program) -> list[int]:
    """The numbers of the runs that are left, oldest first."""
    return sorted(run["run"] for run in program.json("ls")["runs"])


def made(program: Program, *texts: str) -> None:
    """One run of each text."""
    for text in texts:
        program.call("run", program.write(text))


def files_below(folder: Path) -> list[str]:
    """All files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def count_rows(program: Program, run: int) -> dict[str, int]:
    """How many rows of each table belong to a run."""
    db = apsw.Connection(str(program.folder / "resile.db"))
    counts = {"log": db.execute("SELECT count(*) FROM log WHERE place >> 36 = ?", (run,)).get}
    for table in ("jobs", "attempts", "snapshots", "leases", "requests", "dead_letters", "kept_scopes"):
        counts[table] = db.execute(f"SELECT count(*) FROM {table} WHERE run = ?", (run,)).get
    counts["runs"] = db.execute("SELECT count(*) FROM runs WHERE id = ?", (run,)).get
    counts["definitions"] = db.execute("SELECT count(*) FROM definitions").get
    db.close()
    return counts


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (("--older-than", "0s"), [1, 2, 4, 5]),
        (("--older-than", "1h"), []),
        (("--keep-last", "2"), [1, 2]),
        (("--keep-last", "0"), [1, 2, 4, 5]),
        (("--status", "completed"), [1, 4]),
        (("--status", "failed,canceled"), [2, 5]),
        (("--workflow", "good"), [1, 4]),
        (("--workflow", "good", "--keep-last", "1"), [1]),
        (("--workflow", "bad", "--status", "completed"), []),
        (("--workflow", "parks"), []),
    ],
)
def test_conditions(program: Program, words: tuple[str, ...], gone: list[int]) -> None:
    """All conditions must hold, a dry run only lists the same runs, and the parked run stays in any case."""
    made(program, GOOD, BAD, PARKS, GOOD, BAD)
    would = program.json("prune", *words, "--dry-run")
    assert (would["runs"], would["bytes"] > 0) == (gone, bool(gone))
    assert runs_of(program) == [1, 2, 3, 4, 5]
    assert program.json("prune", *words)["runs"] == gone
    assert runs_of(program) == [number for number in (1, 2, 3, 4, 5) if number not in gone]
    assert program.json("prune", *words)["runs"] == []


def test_everything_of_a_run_is_deleted(program: Program) -> None:
    """Rows of every table, the log and all files are gone; the other run keeps its own, and numbers are not reused."""
    made(program, LETTERS, GOOD)
    output = program.folder / "output"
    before = count_rows(program, 1)
    assert min(before[name] for name in ("log", "jobs", "attempts", "dead_letters", "runs")) > 0
    kept = [name for name in files_below(output) if "wf1_" not in name]
    assert len(kept) < len(files_below(output))
    logs = program.call("logs", "2", code=0).stdout
    assert program.json("prune", "--workflow", "letters")["runs"] == [1]
    assert {name: count for name, count in count_rows(program, 1).items() if name != "definitions"} == {
        name: 0 for name in before if name != "definitions"
    }
    assert files_below(output) == kept
    assert program.call("logs", "2", code=0).stdout == logs
    assert program.json("status", "1", code=2)["error"]["code"] == "no-such-run"
    assert program.json("db", "check")["is_whole"] is True
    assert program.json("run", program.write(GOOD))["run"] == 3


def test_the_space_is_given_back(program: Program) -> None:
    """The folder with database and output gets smaller by what the document says, or by more."""
    made(program, LARGE, GOOD)
    db = apsw.Connection(str(program.folder / "resile.db"))
    db.execute("UPDATE log SET event = json_set(event, '$.padding', ?) WHERE place >> 36 = 1", ("x" * 100_000,))
    db.close()

    def used() -> int:
        return sum(path.stat().st_blocks * 512 for path in program.folder.rglob("*") if path.is_file())

    before = used()
    pruned = program.json("prune", "--workflow", "large")
    assert pruned["runs"] == [1]
    assert pruned["note"] == ""
    assert pruned["bytes"] > 4_000_000
    assert before - used() >= pruned["bytes"] * 0.9
    assert os.path.getsize(program.folder / "resile.db") < 300_000


def test_a_run_that_goes_on_stays(program: Program) -> None:
    """The run of an engine stays and completes, others are deleted beside it, and the note says what waits."""
    made(program, GOOD, GOOD)
    gate, here = program.gate("gate"), program.gate("here")
    text = "resile: 1\nname: waits\nsteps: [{shell: 'echo x > here; read x < gate'}]\n"
    with program.start("run", program.write(text, "waits.yaml")) as engine:
        here.wait()
        pruned = program.json("prune", "--older-than", "0s")
        assert pruned["runs"] == [1, 2]
        assert pruned["note"] == "the space in the database is given back by a later prune: run 3 is being driven"
        gate.open()
        assert engine.end() == 0
    assert runs_of(program) == [3]
    assert program.json("status", "3")["status"] == "completed"


def test_an_interrupted_run_stays(program: Program) -> None:
    """A run whose engine was killed has not ended, so it stays and can be resumed."""
    here = program.gate("here")
    text = "resile: 1\nsteps: [{shell: 'echo x > here; test -e done || exec sleep 60'}]\n"
    with program.start("run", program.write(text)) as engine:
        here.wait()
        engine.process.kill()
        engine.end()
    assert program.json("prune", "--keep-last", "0")["runs"] == []
    assert [run["status"] for run in program.json("ls")["runs"]] == ["interrupted"]
    program.call("cancel", "1", code=0)
    assert program.json("prune", "--keep-last", "0")["runs"] == [1]


def test_the_letters_of_a_redrive_stay(program: Program) -> None:
    """An ended run whose letters are being run again is being driven, so it stays."""
    gate, here = program.gate("gate"), program.gate("here")
    step = "test -e again || exit 1; echo x > here; read x < gate"
    text = f"resile: 1\nsteps: {{m: {{map: {{input: [1], steps: [{{shell: '{step}'}}]}}}}}}\n"
    program.call("run", program.write(text))
    (program.folder / "again").touch()
    with program.start("dlq", "retry", "1") as engine:
        here.wait()
        assert program.json("prune", "--keep-last", "0")["runs"] == []
        assert program.json("prune", "--keep-last", "0", "--dry-run")["runs"] == []
        gate.open()
        assert engine.end() == 0


def error_of(program: Program, *words: str) -> dict[str, Any]:
    """The error of a call that is refused."""
    found: dict[str, Any] = program.json(*words, code=2)["error"]
    return found


def test_refused_calls(program: Program) -> None:
    """No condition, and a status of a run that has not ended, are exit 2, and nothing is deleted."""
    made(program, GOOD)
    assert error_of(program, "prune")["message"] == "`prune` needs a condition: which runs to delete"
    assert error_of(program, "prune", "--dry-run")["hint"] == "such as --older-than 30d or --keep-last 100"
    parked = error_of(program, "prune", "--status", "parked")
    assert parked["message"] == "a run that is parked has not ended, and stays"
    assert "such as 90s" in error_of(program, "prune", "--older-than", "old")["hint"]
    bare = error_of(program, "prune", "--older-than", "30")
    assert (bare["message"], bare["hint"]) == ("--older-than 30 has no unit", "30d means days, 30h hours")
    assert runs_of(program) == [1]


def test_nothing_has_run_yet(program: Program) -> None:
    """Without a database there is nothing to delete, and none is made."""
    assert program.json("prune", "--keep-last", "0") == {"version": 1, "runs": [], "bytes": 0, "note": ""}
    assert not (program.folder / "resile.db").exists()


def test_what_a_person_reads(program: Program) -> None:
    """One line has the number of runs, the space and the numbers."""
    made(program, GOOD, GOOD, BAD, GOOD)
    assert program.call("prune", "--keep-last", "1", "--dry-run").stdout.startswith("3 runs would be deleted, about ")
    done = program.call("prune", "--status", "completed", code=0).stdout
    assert done.startswith("3 runs deleted, ")
    assert done.endswith(" given back: 1-2, 4\n")
    assert program.call("prune", "--status", "completed", code=0).stdout == (
        "no run that has ended meets the conditions\n"
    )
