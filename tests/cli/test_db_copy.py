"""`resile db copy`: runs move between databases, and go on there."""

from __future__ import annotations

import os

from tests.cli.program import Program

FAILS = """\
resile: 1
name: fails
steps:
  m: {map: {input: [1, 2], steps: [{shell: 'echo item; test -e fixed'}]}}
"""
PARKS = "resile: 1\nname: parks\nsteps: {ask: {shell: 'echo asked >> asked; exit 3', park: true}}\n"


def at(program: Program, db: str, *words: str, code: int = 0) -> str:
    """What a command prints about another database."""
    return program.call(*words, "--db", db, code=code).stdout


def test_runs_are_the_same_in_the_copy(program: Program) -> None:
    """Status, events, logs, letters and the check agree; a run that is there already is refused, and none is copied."""
    program.call("run", program.write(FAILS), code=1)
    program.call("run", program.write(PARKS), code=4)
    copy = str(program.folder / "copy.db")
    here = program.env["RESILE_DB"]
    assert program.call("db", "copy", here, copy).stdout == "2 runs copied: 1-2\n"
    for words in (("status", "1", "--json"), ("events", "list", "1"), ("logs", "1"), ("dlq", "list", "1", "--json")):
        assert at(program, copy, *words) == program.call(*words).stdout
    assert "2 whole, 0 damaged" in at(program, copy, "db", "check")
    refused = program.call("db", "copy", here, copy, "2", code=2)
    assert "there is a run 2 in" in refused.stderr
    some = str(program.folder / "some.db")
    assert program.json("db", "copy", here, some, "2", "2")["runs"] == [2]
    assert program.call("db", "copy", here, some, code=2).stdout == ""
    assert [run["run"] for run in program.json("ls", "--db", some)["runs"]] == [2]


def test_a_parked_run_goes_on_in_the_copy(program: Program) -> None:
    """It is judged and resumed where it was copied to, even when the first database is gone."""
    program.call("run", program.write(PARKS), code=4)
    copy = str(program.folder / "copy.db")
    here = program.env["RESILE_DB"]
    program.call("db", "copy", here, copy)
    for side in ("", "-wal", "-shm"):
        if os.path.exists(here + side):
            os.unlink(here + side)
    at(program, copy, "judge", "1", "ask", "skip")
    at(program, copy, "resume", "1")
    assert (program.folder / "asked").read_text() == "asked\n"


def test_wrong_databases_are_refused(program: Program) -> None:
    """A source that is not there, one database under two names, and a run that is not there."""
    program.call("run", program.write(PARKS), code=4)
    here = program.env["RESILE_DB"]
    assert "no database" in program.call("db", "copy", "nowhere.db", "copy.db", code=2).stderr
    assert not os.path.exists(program.folder / "copy.db")
    link = program.folder / "link.db"
    link.symlink_to(here)
    assert "same database" in program.call("db", "copy", here, str(link), code=2).stderr
    assert "no run 9" in program.call("db", "copy", here, str(program.folder / "copy.db"), "9", code=2).stderr
