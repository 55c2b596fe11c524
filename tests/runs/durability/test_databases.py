"""Databases that use one folder share nothing, and what older versions left in it is still found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.cli.program import Gate, Program, Started

WAITING = """\
resile: 1
name: waiting
steps:
  first: {shell: 'echo from $WHO'}
  wait: {needs: [first], shell: 'echo up > up_$WHO; read line < go_$WHO; echo $WHO >> effects; echo $WHO is done'}
  last: {needs: [wait], shell: 'test "$WHO" = "${steps.first.output}" || echo ${steps.first.output}'}
"""
MAP = """\
resile: 1
name: each
steps:
  each: {map: {input: [1, 2], steps: [{id: say, shell: 'echo $WHO ${item}; test ! -e broken'}]}}
"""
# Drives a run as the version without names of databases did.
BEFORE = """
import sys
from resile.commands.load import compile_workflow
from resile.commands.run import drive_engine
from resile.core.events import Capacity, RunStarted
from resile.engine.session import create, take
from resile.model import codec
from resile.store.sqlite import schema
from resile.store.sqlite.store import SqliteStore

database, folder, output = sys.argv[1:]
store = SqliteStore(database, migrations=schema.MIGRATIONS[:4])
# This engine numbers its leases and announces its events; the test takes that out again.
for later in ("6_fences.sql", "7_labels.sql", "8_servers.sql"):
    store._db.execute(schema.statements(later)).fetchall()
workflow = compile_workflow(folder + "/flow.yaml")
first = RunStarted(1.0, Capacity(2), {})
row, state = create(store, workflow, codec.encode(workflow), first, output=output, directory=folder)
class Silent:
    debug = None
    def on_start(self, run, state, interrupt): pass
    def notes(self, state, notes): pass
    def warn(self, text): pass
drive_engine(store, row, state, take(store, row.id), [first], Capacity(2), Silent())
"""

TO_VERSION_4 = """
DROP INDEX runs_key;
ALTER TABLE runs DROP COLUMN key;
ALTER TABLE runs DROP COLUMN labels;
ALTER TABLE runs DROP COLUMN fence;
ALTER TABLE leases DROP COLUMN number;
ALTER TABLE requests DROP COLUMN result;
DROP TABLE submissions;
DROP TABLE announcements;
DROP TABLE tokens;
DROP TABLE calls;
DROP TABLE claims;
"""


class Databases:
    """Programs in one folder, each with a database of its own in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "flow.yaml").write_text(WAITING)
        self.gates: dict[str, tuple[Gate, Gate]] = {}

    def program(self, who: str, database: str | None = None) -> Program:
        """The program with the database of this name; its steps have its name as $WHO."""
        program = Program(self.folder)
        program.env |= {"RESILE_DB": str(self.folder / (database or f"{who}.db")), "WHO": who}
        self.gates.setdefault(who, (program.gate(f"up_{who}"), program.gate(f"go_{who}")))
        return program

    def start_and_kill(self, who: str, database: str | None = None) -> Program:
        """Start a run, wait until its second step is under way, and kill its engine."""
        program = self.program(who, database)
        with program.start("run", "flow.yaml") as started:
            self.gates[who][0].wait()
            kill(started)
        return program

    def effects(self) -> list[str]:
        """What the waiting steps did."""
        path = self.folder / "effects"
        return path.read_text().split() if path.exists() else []


def kill(started: Started) -> None:
    """Kill an engine, and wait until it is gone."""
    os.kill(started.process.pid, signal.SIGKILL)
    started.process.wait()


def logs(program: Program, run: int = 1) -> list[str]:
    """What every step of a run printed."""
    return [each["text"] for each in program.json("logs", str(run))["logs"]]


def attempts(document: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """The status and the number of attempts of each step."""
    return {job["step"]: (job["status"], job["attempts"]) for job in document["jobs"] if job["step"] != "end"}


DONE = {"first": ("completed", 1), "wait": ("completed", 1), "last": ("completed", 1)}


@pytest.fixture
def databases(tmp_path: Path) -> Databases:
    """A folder without any database yet."""
    return Databases(tmp_path)


def test_two_databases_beside_each_other(databases: Databases) -> None:
    """Each adopts the step that its own engine left running, and neither sees a byte of the other's output."""
    a, b = databases.start_and_kill("a"), databases.start_and_kill("b")
    databases.gates["b"][1].open()
    assert attempts(b.json("resume", "1")) == DONE
    assert databases.effects() == ["b"]
    databases.gates["a"][1].open()
    assert attempts(a.json("resume", "1")) == DONE
    assert databases.effects() == ["b", "a"]
    for program, who in ((a, "a"), (b, "b")):
        assert logs(program) == [f"from {who}\n", f"{who} is done\n", f"from {who}\n"]
    named = sorted(path for path in databases.folder.rglob("job_wf1_j1_r1_a1.o"))
    assert sorted(path.read_text() for path in named) == ["from a\n", "from b\n"]


def test_a_new_database_after_a_deleted_one(databases: Databases) -> None:
    """The run of the new one starts all its steps, and a step of the deleted one goes on beside it, untouched."""
    databases.start_and_kill("a", "same.db")
    for path in databases.folder.glob("same.db*"):
        path.unlink()
    b = databases.start_and_kill("b", "same.db")
    databases.gates["a"][1].open()
    databases.gates["b"][1].open()
    assert attempts(b.json("resume", "1")) == DONE
    assert sorted(databases.effects()) == ["a", "b"]
    assert logs(b) == ["from b\n", "b is done\n", "from b\n"]


def test_a_second_engine_is_refused(databases: Databases) -> None:
    """A second `resume` exits 2, says which process drives the run, and starts nothing."""
    program = databases.program("a")
    with program.start("run", "flow.yaml") as started:
        databases.gates["a"][0].wait()
        error = program.json("resume", "1", code=2)["error"]
        assert error["code"] == "lease-held"
        assert error["message"].startswith(f"run 1 is driven by process {started.process.pid} on ")
        assert "resile cancel 1" in error["hint"]
        databases.gates["a"][1].open()
        assert started.end() == 0
    assert databases.effects() == ["a"]


def test_two_stores_in_memory(databases: Databases) -> None:
    """Runs of two stores in memory use one folder at the same time, and each has its own output."""
    programs = [databases.program(who, "memory:") for who in ("a", "b")]
    for program in programs:
        program.env["RESILE_DB"] = "memory:"
    with programs[0].start("run", "flow.yaml", "--json") as a, programs[1].start("run", "flow.yaml", "--json") as b:
        for who in ("a", "b"):
            databases.gates[who][0].wait()
        for who in ("a", "b"):
            databases.gates[who][1].open()
        assert (a.end(), b.end()) == (0, 0)
    assert sorted(databases.effects()) == ["a", "b"]
    named = [path.read_text() for path in databases.folder.rglob("job_wf1_j2_r1_a1.o")]
    assert sorted(named) == ["a is done\n", "b is done\n"]


def test_items_of_two_databases(databases: Databases) -> None:
    """Maps, and the items that a redrive runs again, are those of the run's own database."""
    (databases.folder / "broken").touch()
    flows = {"a": MAP, "b": MAP.replace("[1, 2]", "[3, 4, 5]")}
    programs = {who: databases.program(who) for who in flows}
    for who, program in programs.items():
        program.write(flows[who])
        program.call("run", "flow.yaml", code=1)
    lists = [path.read_text() for path in databases.folder.rglob("items/*.jsonl")]
    assert sorted(lists) == ["[0,1]\n[1,2]\n", "[0,3]\n[1,4]\n[2,5]\n"]
    (databases.folder / "broken").unlink()
    assert {who: program.json("dlq", "retry", "1")["succeeded"] for who, program in programs.items()} == {
        "a": 2,
        "b": 3,
    }
    assert sorted(logs(programs["a"])) == ["a 1\n", "a 1\n", "a 2\n", "a 2\n"]


def test_worktrees_of_two_databases(databases: Databases) -> None:
    """Items of two databases in one repository have branches of their own, named after their database."""
    isolated = MAP.replace("input:", "isolation: worktree, input:")
    (databases.folder / "flow.yaml").write_text(isolated)
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *words], cwd=databases.folder, check=True)
    found: dict[str, list[str]] = {}
    for who in ("a", "b"):
        program = databases.program(who)
        program.write(isolated.replace("test ! -e broken", "touch $WHO; exit 1"))
        program.call("run", "flow.yaml", code=1)
        letters = program.json("dlq", "list", "1")["dead_letters"]
        found[who] = [letter["worktree_artifacts"]["branch_name"] for letter in letters]
        assert [letter["worktree_artifacts"]["uncommitted_changes"] for letter in letters] == [[f"?? {who}"]] * 2
    names = {
        who: apsw.Connection(str(databases.folder / f"{who}.db")).execute("SELECT id FROM identity").get
        for who in found
    }
    assert found == {who: [f"resile/{names[who]}/wf1_j1_i{index}" for index in (0, 1)] for who in found}
    branches = subprocess.run(
        ["git", "branch", "--list", "--format=%(refname:short)", "resile/*"],
        cwd=databases.folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert branches.stdout.split() == sorted([*found["a"], *found["b"]])


def test_a_database_that_was_restored(databases: Databases) -> None:
    """A run that takes the number of one that the backup lacks has a folder and a launcher of its own."""
    program = databases.program("a")
    program.write("resile: 1\nname: small\nsteps: {only: {shell: 'echo first'}}\n", "small.yaml")
    program.call("run", "small.yaml", code=0)
    database = databases.folder / "a.db"
    backup = apsw.Connection(str(databases.folder / "backup.db"))
    with backup.backup("main", apsw.Connection(str(database)), "main") as copying:
        copying.step()
    backup.close()
    with program.start("run", "flow.yaml") as started:
        databases.gates["a"][0].wait()
        kill(started)
    for path in databases.folder.glob("a.db*"):
        path.unlink()
    (databases.folder / "backup.db").rename(database)
    again = databases.program("b", "a.db")
    with again.start("run", "flow.yaml", "--json") as started:
        databases.gates["b"][0].wait()
        databases.gates["a"][1].open()
        databases.gates["b"][1].open()
        assert started.end() == 0
    assert logs(again, 2) == ["from b\n", "b is done\n", "from b\n"]
    assert logs(again, 1) == ["first\n"]
    assert sorted(databases.effects()) == ["a", "b"]
    folders = list(databases.folder.rglob("runs/wf2_r1"))
    names = [name for (name,) in apsw.Connection(str(database)).execute("SELECT id FROM identity ORDER BY first_run")]
    assert sorted(folders) == [
        databases.folder / "output" / names[1] / "runs" / "wf2_r1",
        databases.folder / "output" / "runs" / "wf2_r1",
    ]


def test_a_run_of_the_version_before(databases: Databases) -> None:
    """The step that its engine left running is adopted in the old folder, and new runs leave that folder alone."""
    program = databases.program("a")
    output = databases.folder / "output"
    argv = [sys.executable, "-c", BEFORE, program.env["RESILE_DB"], str(databases.folder), str(output)]
    engine = subprocess.Popen(argv, env=program.env, cwd=databases.folder)
    databases.gates["a"][0].wait()
    engine.kill()
    engine.wait()
    with closing(apsw.Connection(program.env["RESILE_DB"])) as db:
        db.execute(TO_VERSION_4).fetchall()
    assert sorted(path.name for path in (output / "runs").iterdir()) == ["wf1_r1"]
    assert program.json("status", "1")["status"] == "interrupted"
    assert logs(program) == ["from a\n"]
    databases.gates["a"][1].open()
    assert attempts(program.json("resume", "1")) == DONE
    assert databases.effects() == ["a"]
    assert logs(program) == ["from a\n", "a is done\n", "from a\n"]
    program.write("resile: 1\nname: small\nsteps: {only: {shell: 'echo $RESILE_OUTPUT_DIR'}}\n", "small.yaml")
    program.call("run", "small.yaml", code=0)
    name = apsw.Connection(program.env["RESILE_DB"]).execute("SELECT first_run, id FROM identity").fetchall()
    assert name[0][0] == 2
    assert logs(program, 2) == [f"{output}/{name[0][1]}\n"]
    assert sorted(path.name for path in (output / "runs").iterdir()) == ["wf1_r1"]
