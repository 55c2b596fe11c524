"""A damaged database is named as such by every command, `db check` says what is wrong, and a lost one stops its run."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import apsw
import pytest

from tests.cli.program import Gate, Program

FLOW = """\
resile: 1
name: flow
steps:
  first: {shell: 'echo one; echo first >> effects'}
  wait: {needs: [first], shell: 'echo up > up; read line < go; echo wait >> effects'}
  last: {needs: [wait], shell: 'echo last >> effects'}
"""
SMALL = """\
resile: 1
name: small
steps:
  broken: {shell: 'echo text; exit 3', park: true}
  each: {map: {input: [1, 2], steps: [{id: work, shell: 'echo ${item}'}]}}
"""
HINT = "`resile db check` says which runs are whole; move the file and its `-wal` away and put a backup in its place, "
OTHER = "or name another with --db"
ACCEPT = "or go on without them after `resile db check --accept`"
LOOKS = (
    ("status",),
    ("status", "1"),
    ("logs", "1"),
    ("events", "list", "1"),
    ("explain", "1"),
    ("parked", "1"),
    ("metrics", "1"),
    ("dlq", "list", "1"),
    ("judge", "1", "broken", "retry"),
    ("resume", "1"),
    ("cancel", "1"),
    ("rerun", "1"),
    ("run", "flow.yaml"),
)


def database(program: Program) -> Path:
    """The file of the program's database."""
    return Path(program.env["RESILE_DB"])


def effects(program: Program) -> list[str]:
    """What the steps did."""
    path = program.folder / "effects"
    return path.read_text().split() if path.exists() else []


def change(program: Program, sql: str) -> None:
    """Change a database behind our back."""
    db = apsw.Connection(str(database(program)))
    db.execute(sql).fetchall()
    db.close()


@pytest.fixture
def killed(program: Program) -> Gate:
    """A run whose engine was killed while its second step waits at the gate, after a run that ended cleanly."""
    program.call("run", program.write(SMALL, "small.yaml"), code=4)
    up, go = program.gate("up"), program.gate("go")
    with program.start("run", program.write(FLOW)) as started:
        up.wait()
        started.send(signal.SIGKILL)
        started.process.wait()
    return go


@pytest.fixture
def small(program: Program) -> Program:
    """A program with one run, which is parked."""
    program.call("run", program.write(SMALL), code=4)
    return program


def test_a_whole_database(small: Program) -> None:
    """`db check` counts the runs and exits 0; its document has the database's name and no problems."""
    assert small.call("db", "check", code=0).stdout == "1 run: 1 whole, 0 damaged\n"
    document = small.json("db", "check", "1")
    name = apsw.Connection(str(database(small))).execute("SELECT id FROM identity").get
    assert document == {
        "version": 1,
        "identity": name,
        "is_whole": True,
        "problems": [],
        "runs": [{"run": 1, "workflow": "small", "status": "parked", "problems": []}],
    }
    assert small.json("db", "check", "7", code=2)["error"]["code"] == "no-such-run"


def test_a_run_that_waits_for_a_server_is_whole(program: Program) -> None:
    """It has no event yet: its jobs are as it was made, ready or blocked or only called for."""
    steps = "{a: {shell: 'false', on_failure: {run: [c]}}, b: {shell: 'true', needs: [a]}, c: {shell: 'true'}}"
    program.call("submit", program.write(f"resile: 1\nname: waits\nsteps: {steps}\n"))
    assert program.call("db", "check").stdout == "1 run: 1 whole, 0 damaged\n"


def test_there_is_no_database(program: Program) -> None:
    """`db check` of nothing is an error, and makes nothing."""
    assert program.json("db", "check", code=2)["error"]["code"] == "no-store"
    assert not database(program).exists()


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        (
            "UPDATE jobs SET status = 5 WHERE id = 1",
            "job 1 (broken): the log says pending_failed, 1 attempts, the table completed, 1 attempts",
        ),
        ("DELETE FROM jobs WHERE id = 2", "job 2 (each): the log says completed, 1 attempts, the table nothing"),
        ("DELETE FROM log WHERE place & 68719476735 = 3", "events 3 to 5 are missing"),
        ("UPDATE definitions SET body = '{}'", "its definition is not the one that it was made with"),
        ("UPDATE attempts SET out_length = 99", "output is gone or cut: stdout of job 1, attempt 1, and 2 more"),
    ],
)
def test_what_does_not_agree_is_found(small: Program, sql: str, problem: str) -> None:
    """`db check` exits 1 and says what is wrong, with the number of the run."""
    change(small, sql)
    lines = small.call("db", "check", code=1).stdout.splitlines()
    assert f"run 1 small: {problem}" in lines
    assert lines[-1] == "1 run: 0 whole, 1 damaged"
    (run,) = small.json("db", "check", code=1)["runs"]
    assert problem in run["problems"]


def test_a_row_without_its_run_is_found(small: Program) -> None:
    """`db check` looks for rows that belong to nothing."""
    change(small, "INSERT INTO requests (run, at, kind, body) VALUES (99, 1.0, 'cancel', '{}')")
    document = small.json("db", "check", code=1)
    assert document["problems"] == ["a row of requests belongs to a row of runs that is gone"]


@pytest.mark.parametrize("content", [b"\xff" * 8192, b"this was a database once\n" * 400], ids=["rubbish", "text"])
@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_file_that_is_no_database(small: Program, words: tuple[str, ...], content: bytes) -> None:
    """Every command exits 2, says so in one line with a hint, and changes nothing."""
    database(small).write_bytes(content)
    done = small.call(*words, code=2)
    assert done.stderr.splitlines() == [
        f"resile: error: {database(small)} is not a database, or its first page is damaged",
        "  hint: name another file with --db or $RESILE_DB, or put a backup in its place",
    ]
    assert database(small).read_bytes() == content


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_database_that_was_cut(small: Program, words: tuple[str, ...]) -> None:
    """Every command exits 2 on a database that lost its second half, and no step runs again."""
    os.truncate(database(small), database(small).stat().st_size // 2 // 4096 * 4096)
    done = small.call(*words, code=2)
    first, second = done.stderr.splitlines()
    assert first.startswith(f"resile: error: {database(small)} is damaged: ")
    assert second == f"  hint: {HINT}{OTHER}"
    assert small.call("db", "check", code=1).stdout.startswith("database: ")


@pytest.mark.parametrize("seed", range(8))
def test_pages_of_rubbish(small: Program, seed: int) -> None:
    """Whatever page is overwritten, a command works as ever or exits 2 and calls the database damaged."""
    chance = random.Random(seed)
    size = database(small).stat().st_size
    with open(database(small), "r+b") as file:
        for _ in range(2):
            file.seek(chance.randrange(1, size // 4096) * 4096)
            file.write(chance.randbytes(4096))
    codes = set()
    for words in (words for words in LOOKS if words[0] != "rerun"):
        done = small.call(*words)
        codes.add(done.returncode)
        assert done.returncode in (0, 2, 4), done
        assert done.returncode != 2 or " is damaged: " in done.stderr, done
        assert "Traceback" not in done.stderr
    assert small.call("db", "check", code=1).stdout.startswith("database: ")


@pytest.mark.parametrize("words", [("status",), ("status", "2"), ("resume", "2"), ("run", "flow.yaml")], ids=" ".join)
@pytest.mark.parametrize("sides", [("-wal",), ("-wal", "-shm")], ids=["wal", "wal and shm"])
def test_a_missing_wal(program: Program, killed: Gate, sides: tuple[str, ...], words: tuple[str, ...]) -> None:
    """A database whose WAL was deleted after a kill is refused: no step runs again before the user has accepted it."""
    for side in sides:
        Path(f"{database(program)}{side}").unlink()
    done = program.call(*words, code=2)
    first, second = done.stderr.splitlines()
    assert first.startswith(f"resile: error: {database(program)} is damaged: ")
    assert first.endswith(f" of run 2 are gone, because {database(program)}-wal is missing, cut or damaged")
    assert second == f"  hint: {HINT}{ACCEPT}"
    assert effects(program) == ["first"]
    killed.open()
    checked = program.json("db", "check", code=1)
    assert checked["problems"] == [first.partition(" is damaged: ")[2]]
    assert [run["run"] for run in checked["runs"]] == [1]
    program.call("db", "check", "--accept", code=1)
    assert program.call("db", "check", code=0).stdout == "1 run: 1 whole, 0 damaged\n"
    assert [run["run"] for run in program.json("status")["runs"]] == [1]


def test_a_restored_backup(program: Program, killed: Gate) -> None:
    """A backup in the place of a damaged database is used without a question, and its runs go on."""
    backup = program.folder / "backup.db"
    source, target = apsw.Connection(str(database(program))), apsw.Connection(str(backup))
    with target.backup("main", source, "main") as copying:
        copying.step()
    target.close()
    source.close()
    killed.open()
    for path in program.folder.glob("resile.db*"):
        path.unlink()
    backup.rename(database(program))
    assert program.json("resume", "2")["status"] == "completed"
    assert effects(program) == ["first", "wait", "last"]
    assert program.json("db", "check")["is_whole"]


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_database_that_is_lost_while_a_run_goes_on(program: Program, how: str) -> None:
    """The run stops within a moment and says what happened; the step that runs goes on to its end."""
    up, go, done = program.gate("up"), program.gate("go"), program.gate("done")
    flow = FLOW.replace("echo wait >> effects", "echo wait >> effects; echo done > done")
    with program.start("run", program.write(flow)) as started:
        up.wait()
        database(program).rename(program.folder / "away")
        if how == "replaced":
            database(program).write_bytes(b"another")
        assert started.end() == 130, started.text
        lines = started.text["err"].splitlines()
    assert lines[-3:] == [
        f"resile: error: {database(program)} was {how} while it was in use, so nothing more can be recorded",
        "  hint: steps that run go on; put the file back as it was, or start a new run",
        "  run 1 is interrupted",
    ]
    assert effects(program) == ["first"]
    go.open()
    done.wait()
    assert effects(program) == ["first", "wait"]
    assert database(program).exists() == (how == "replaced")
    (program.folder / "away").rename(database(program))
    assert program.json("resume", "1")["status"] == "completed"
    assert effects(program) == ["first", "wait", "last"]


def change_log(program: Program, sql: str) -> None:
    """Change the log of a run by hand, and take the snapshot away that a resume would start from."""
    db = apsw.Connection(str(database(program)))
    db.execute(f"DELETE FROM snapshots; {sql}")
    db.close()


@pytest.mark.parametrize("words", [("status", "1"), ("resume", "1"), ("rerun", "1")], ids=" ".join)
def test_an_event_that_is_missing(small: Program, words: tuple[str, ...]) -> None:
    """A log with a hole is damaged: what follows it is not believed, and nothing runs again."""
    change_log(small, "DELETE FROM log WHERE place = (SELECT place FROM log ORDER BY place LIMIT 1 OFFSET 1)")
    done = small.call(*words, code=2)
    first, second = done.stderr.splitlines()
    assert first.startswith("resile: error: the log of run 1 is damaged: events ")
    assert first.endswith(" are missing")
    assert second == "  hint: `resile db check` says which runs are whole; put a backup of the database in its place"


def test_a_fault_of_the_core_is_not_called_damage(small: Program) -> None:
    """A log that is whole and can't be folded is an unexpected error (exit 70), and the database is not blamed."""
    change_log(small, "")
    fault = "import sys\nfrom resile.core import react\n"
    fault += "react.HANDLERS[react.events.AttemptEnded] = lambda *_: {}['fault']\n"
    small.argv = [sys.executable, "-c", f"{fault}from resile.cli.main import main\nsys.exit(main())"]
    done = small.call("resume", "1", code=70)
    assert done.stderr.splitlines() == [
        "resile: error: KeyError: 'fault'",
        "  hint: RESILE_TRACEBACK=1 shows the traceback",
    ]
    small.env["RESILE_TRACEBACK"] = "1"
    done = small.call("resume", "1", code=70)
    assert "while replaying the log of run 1; its database has no damage" in done.stderr


@pytest.mark.parametrize("options", [(), ("--failed-only",)])
def test_a_reset_run_is_whole(program: Program, options: tuple[str, ...]) -> None:
    """After `reset` the tables say what the log says, also of steps that wait for others."""
    program.write(
        'resile: 1\nname: flow\nsteps:\n  one: {shell: "true"}\n  two: {shell: exit 3, needs: one}\n'
        '  three: {shell: "true", needs: two}\n'
    )
    program.call("run", "flow.yaml", code=1)
    program.call("reset", "1", *options, code=0)
    assert program.call("db", "check", code=0).stdout == "1 run: 1 whole, 0 damaged\n"
