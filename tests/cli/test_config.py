"""`resile.toml`, the user's file, variables and flags: which value counts, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw
import pytest

from resile.cli.settings import KEYS
from tests.cli.program import Program

GOOD = "resile: 1\nname: good\nsteps: [{shell: 'true'}]\n"


class Place:
    """A project folder with one below it, a user's folder, and the program in the lower one."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        (self.project / "sub").mkdir(parents=True)
        self.user = folder / "config" / "resile"
        self.user.mkdir(parents=True)
        self.program = Program(self.project / "sub")
        del self.program.env["RESILE_DB"]
        self.program.env |= {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state")}

    def write(self, text: str, *, user: bool = False) -> str:
        """Write the project's file, or the user's; its path."""
        path = self.user / "config.toml" if user else self.project / "resile.toml"
        path.write_text(text)
        return str(path)

    def values(self, *words: str) -> dict[str, tuple[Any, str]]:
        """What `config` prints: value and source by key."""
        document = self.program.json("config", *words)
        assert list(document) == ["version", "values"]
        return {found["key"]: (found["value"], found["from"]) for found in document["values"]}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place without any configuration."""
    return Place(tmp_path)


def test_the_defaults(place: Place, tmp_path: Path) -> None:
    """Without any file every key has its default."""
    found = place.values()
    assert tuple(found) == KEYS
    assert {source for _, source in found.values()} == {"default"}
    assert found["db"][0] == str(tmp_path / "state" / "resile" / "resile.db")
    assert found["output"][0] == str(tmp_path / "state" / "resile" / "output")
    assert found["agent"][0] == "claude -p"
    assert found["executor"][0] == "local"
    assert found["max_parallel"][0] >= 1


def test_the_order_of_sources(place: Place) -> None:
    """The project's file wins over the user's, a variable over both, a flag over all."""
    mine = place.write("max_parallel = 2\nagent = 'mine'\n", user=True)
    assert place.values()["max_parallel"] == (2, mine)
    theirs = place.write("max_parallel = 3\n")
    assert (place.values()["max_parallel"], place.values()["agent"]) == ((3, theirs), ("mine", mine))
    place.program.env["RESILE_MAX_PARALLEL"] = "4"
    assert place.values()["max_parallel"] == (4, "$RESILE_MAX_PARALLEL")
    assert place.values("--max-parallel", "5")["max_parallel"] == (5, "flag")


def test_the_nearest_file_counts(place: Place) -> None:
    """Of the files in this folder and those above only the nearest one counts."""
    place.write("max_parallel = 3\nagent = 'far'\n")
    near = place.project / "sub" / "resile.toml"
    near.write_text("max_parallel = 7\n")
    assert place.values()["max_parallel"] == (7, str(near))
    assert place.values()["agent"] == ("claude -p", "default")


def test_database_and_output_of_the_project(place: Place, tmp_path: Path) -> None:
    """Paths are relative to the file's folder, every command uses that database, and --db and $RESILE_DB win."""
    path = place.write("db = 'state/runs.db'\noutput = 'logs'\n")
    place.program.call("run", place.program.write(GOOD), code=0)
    assert (place.project / "state" / "runs.db").exists()
    assert (place.project / "logs" / "runs").is_dir()
    assert not (tmp_path / "state").exists()
    assert [run["run"] for run in place.program.json("ls")["runs"]] == [1]
    assert place.values()["db"] == (str(place.project / "state" / "runs.db"), path)
    assert place.program.json("ls", "--db", "other.db")["runs"] == []
    place.program.env["RESILE_DB"] = "third.db"
    assert place.program.json("ls")["runs"] == []
    assert place.values()["db"] == ("third.db", "$RESILE_DB")
    assert place.values("--db", "other.db")["db"] == ("other.db", "flag")


def test_the_server_of_the_user(place: Place) -> None:
    """The user's own file may name one; $RESILE_SERVER wins over it, and so does a database of the project."""
    mine = place.write("server = 'http://127.0.0.1:1'\n", user=True)
    assert place.values()["server"] == ("http://127.0.0.1:1", mine)
    error = place.program.json("ls", code=2)["error"]
    assert (error["code"], "http://127.0.0.1:1" in error["message"]) == ("server-unreachable", True)
    error = place.program.json("resources", "1", code=2)["error"]
    assert error["message"] == f"`resile resources` works on a database, and {mine} names a server"
    assert error["hint"] == f"name the database with --db, or change {mine}"
    assert place.program.json("ls", "--db", "other.db")["runs"] == []
    place.program.env["RESILE_SERVER"] = "http://127.0.0.1:2"
    assert place.values()["server"] == ("http://127.0.0.1:2", "$RESILE_SERVER")
    del place.program.env["RESILE_SERVER"]
    place.write("db = 'runs.db'\n")
    assert place.values()["server"] == ("", "default")
    assert place.program.json("ls")["runs"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server = 'localhost'", "`server` is an address, not 'localhost'"),
        ("server = 8700", "`server` is a text, not 8700"),
        ("db = 'a.db'\nserver = 'http://127.0.0.1:1'", "`db` and `server` exclude each other"),
    ],
)
def test_servers_that_are_none(place: Place, text: str, message: str) -> None:
    """The user's file is refused with exit 2."""
    path = place.write(text, user=True)
    assert place.program.json("ls", code=2)["error"]["message"] == f"{path}: {message}"


def test_the_number_of_steps_at_once(place: Place) -> None:
    """`max_parallel` counts where the workflow says nothing; the workflow and the flag win over it."""
    steps = "steps: {a: {shell: 'true'}, b: {shell: 'true'}}\n"
    place.write("max_parallel = 1\n")
    for text, words, expected in (
        (f"resile: 1\n{steps}", (), 1),
        (f"resile: 1\nmax_parallel: 3\n{steps}", (), 3),
        (f"resile: 1\n{steps}", ("--max-parallel", "2"), 2),
    ):
        run = place.program.json("run", place.program.write(text), *words)["run"]
        db = apsw.Connection(place.values()["db"][0])
        sql = "SELECT event ->> '$.capacity.parallel' FROM log WHERE place = ? << 36 | 1"
        assert db.execute(sql, (run,)).get == expected
        db.close()


def test_the_agent_of_the_project(place: Place) -> None:
    """`agent` is the command of steps whose workflow names none, in the definition and when the file is unchanged."""
    place.write("agent = ['echo', 'an agent', 'says']\n")
    file = place.program.write("resile: 1\nsteps: {a: {agent: hello, capture: said}}\n")
    assert place.program.json("run", file)["outputs"] == {"said": "an agent says hello"}
    place.write("agent = 'echo other'\n")
    assert place.program.json("run", file)["outputs"] == {"said": "other hello"}
    own = place.program.write("resile: 1\nagent: echo own\nsteps: {a: {agent: hello, capture: said}}\n", "own.yaml")
    assert place.program.json("run", own)["outputs"] == {"said": "own hello"}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("max_paralel = 2", "there is no key `max_paralel`", "did you mean `max_parallel`?"),
        ("zzz = 2", "there is no key `zzz`", "keys: db, output, server, max_parallel, agent, executor"),
        (
            "server = 'http://127.0.0.1:1'",
            "`server`: the file of a project names no server, because your token would go to it",
            "take it out; ~/.config/resile/config.toml, RESILE_SERVER or --server names one",
        ),
        ("notify = []", "`notify`: this version of Resile sends no alerts", None),
        ("[retention]\ndays = 3", "`retention`: this version of Resile deletes no runs by itself", None),
        ("executor = 'slurm'", None, "executor = 'local', or leave it out"),
        ("max_parallel = 0", "`max_parallel` is a whole number from 1 to 10000, not 0", ""),
        ("max_parallel = true", "`max_parallel` is a whole number from 1 to 10000, not True", ""),
        ("db = 3", "`db` is a text, not 3", ""),
        ("agent = 'a | b'", "`agent` is a command of plain words, not 'a | b'", "agent = ['claude', '-p']"),
        ("agent = []", "`agent` is a command, not []", None),
        ("db = ", None, "such as max_parallel = 4"),
    ],
)
def test_what_a_file_can_not_say(place: Place, text: str, message: str | None, hint: str | None) -> None:
    """The error is exit 2 and names the file, the key and a near name; nothing runs."""
    path = place.write(text)
    error = place.program.json("run", place.program.write(GOOD), code=2)["error"]
    assert (error["code"], error["where"]) == ("config", path)
    assert error["message"].startswith(f"{path}: ")
    assert message is None or error["message"] == f"{path}: {message}"
    assert hint is None or error["hint"] == hint
    assert not (place.project.parent / "state").exists()


@pytest.mark.parametrize(
    "words",
    [("ls",), ("status",), ("check", "x"), ("version",), ("config",), ("init",), ("prune",), ("dlq", "list", "1")],
)
def test_an_unknown_key_ends_every_command(place: Place, words: tuple[str, ...]) -> None:
    """Also a command that needs no value of the file is exit 2; only help is given."""
    place.write("bd = 'x'", user=True)
    error = place.program.json(*words, code=2)["error"]
    assert (error["code"], error["hint"]) == ("config", "did you mean `db`?")
    place.program.call(*words[:2], "--help", code=0)


def test_a_value_that_works_today_is_taken(place: Place) -> None:
    """`executor = 'local'` is what this version does."""
    path = place.write("executor = 'local'")
    assert place.values()["executor"] == ("local", path)


@pytest.mark.parametrize(("name", "value"), [("RESILE_MAX_PARALLEL", "many"), ("RESILE_AGENT", "a; b")])
def test_a_variable_that_can_not_be_read(place: Place, name: str, value: str) -> None:
    """A wrong variable is exit 2 and named."""
    place.program.env[name] = value
    assert place.program.json("ls", code=2)["error"]["where"] == f"${name}"


def test_what_a_person_reads(place: Place) -> None:
    """Each key is on a line with its value and its source."""
    path = place.write("max_parallel = 3\n")
    lines = place.program.call("config", code=0).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(KEYS)
    assert lines[2].split() == ["server", "=", "-", "default"]
    assert lines[3].split() == ["max_parallel", "=", "3", path]


@pytest.mark.skipif(
    os.geteuid() != 0 and os.environ.get("CI") != "true", reason="only root can make a file of another user"
)
def test_a_file_of_another_user_in_a_shared_folder(place: Place) -> None:
    """Another user's file in a folder that all can write is refused, since it can name a program."""
    path = place.write("agent = 'evil'\n")
    os.chown(path, 12345, 12345)
    assert place.values()["agent"] == ("evil", path)
    place.project.chmod(0o1777)
    error = place.program.json("ls", code=2)["error"]
    assert error["message"] == f"{path}: it belongs to another user, in a folder that others can write"
