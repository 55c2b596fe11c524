"""Help, and what the program says to calls that it can't carry out."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from resile import __version__
from resile.cli.grammar import COMMON
from resile.cli.help import WIDTH, command_help, overview
from resile.cli.parse import find_command, parse, split
from resile.cli.table import COMMANDS, FAMILIES, GROUPS
from resile.errors import ResileError
from tests.cli.program import Program


@pytest.mark.parametrize("words", [(), ("--help",), ("help",), ("-h",)])
def test_the_overview_lists_every_command(program: Program, words: tuple[str, ...]) -> None:
    """Without a command, or asked for help, the program lists all commands and exits 0."""
    done = program.call(*words, code=0)
    assert done.stdout == overview()
    assert done.stderr == ""
    assert all(f"  {command.name} " in done.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_complete_help(command: object) -> None:
    """Each command's help names all its options, examples and exit codes within 80 columns."""
    found = next(known for known in COMMANDS if known is command)
    text = command_help(found)
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert all(name in text for option in found.options + COMMON for name in option.names)
    assert sum(found in commands for commands in GROUPS.values()) == 1
    assert found.examples
    assert found.exits
    assert "Exit codes:\n    0  " in text


@pytest.mark.parametrize("words", [("run", "--help"), ("help", "run"), ("--help", "run"), ("run", "-h", "--json")])
def test_help_of_a_command(program: Program, words: tuple[str, ...]) -> None:
    """Help of a command can be asked for before and behind it, and wins over everything else."""
    assert program.call(*words, code=0).stdout == command_help(find_command("run"))


@pytest.mark.parametrize("family", FAMILIES)
def test_help_of_a_family_shows_all(program: Program, family: str) -> None:
    """`resile events --help` shows the help of both its commands, and `resile dlq --help` of all its six."""
    letters = ("list", "show", "stats", "retry", "export", "purge")
    tokens = ("create", "ls", "revoke")
    pairs = {"events": ("list", "follow"), "db": ("check", "copy"), "slurm": ("status", "cancel")}
    assert {**pairs, "dlq": letters, "token": tokens} == FAMILIES
    texts = [command_help(find_command(f"{family} {member}")) for member in FAMILIES[family]]
    assert program.call(family, "--help", code=0).stdout == "\n".join(texts)


def test_version(program: Program) -> None:
    """The version stands behind --version, and with its company in `version`."""
    assert program.call("--version", code=0).stdout == f"resile {__version__}\n"
    document = program.json("version")
    assert list(document) == ["version", "resile", "python", "sqlite"]
    text = "Resile {resile}\nPython {python}\nSQLite {sqlite}\n".format(**document)
    assert program.call("version", code=0).stdout == text


def test_the_package_can_be_run_as_a_module(program: Program) -> None:
    """`python -m resile` is the same program."""
    ran = subprocess.run([sys.executable, "-m", "resile", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == program.call("--version", code=0).stdout


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("rnu", "flow.yaml"), "there is no command 'rnu'", "did you mean 'run'?"),
        (("frobnicate",), "there is no command 'frobnicate'", "`resile --help` lists the commands"),
        (("events",), "`resile events` needs one of: list, follow", "resile events list RUN"),
        (("dlq",), "`resile dlq` needs one of: list, show, stats, retry, export, purge", "resile dlq list RUN"),
        (("dlq", "rerty", "1"), "there is no command 'dlq rerty'", "did you mean 'dlq retry'?"),
        (("events", "lss", "1"), "there is no command 'events lss'", "did you mean 'events list'?"),
        (("list",), "there is no command 'list'", "`resile ls` lists the runs"),
        (("history",), "there is no command 'history'", "`resile ls` lists the runs"),
        (("delete", "7"), "there is no command 'delete'", "`resile prune` deletes runs that have ended"),
        (("start", "a"), "there is no command 'start'", "`resile run FILE` starts a workflow"),
        (("stop", "7"), "there is no command 'stop'", "`resile cancel RUN` ends a run"),
        (("kill", "7"), "there is no command 'kill'", "`resile cancel RUN` ends a run"),
        (("tail", "7"), "there is no command 'tail'", "`resile logs RUN -f` follows the output of a run"),
        (("show", "7"), "there is no command 'show'", "`resile status RUN` shows a run"),
        (("validate", "a"), "there is no command 'validate'", "`resile check FILE` checks a file"),
        (("run",), "`resile run` needs FILE", "`resile run --help` shows its usage"),
        (("run", "a", "b"), "`resile run` does not take 'b'", "`resile run --help` shows its usage"),
        (
            ("run", "a", "--max-paralel", "2"),
            "resile run has no option --max-paralel",
            "did you mean '--max-parallel'?",
        ),
        (("run", "a", "--max-parallel"), "--max-parallel needs a value: --max-parallel N", None),
        (("run", "a", "--max-parallel", "--debug"), "--max-parallel needs a value: --max-parallel N", None),
        (("run", "a", "--max-parallel", "0"), "--max-parallel is a whole number from 1 to 10000, not '0'", ""),
        (
            ("resume", "1", "--max-parallel", "10001"),
            "--max-parallel is a whole number from 1 to 10000, not '10001'",
            "",
        ),
        (("run", "a", "--retry-max=-1"), "--retry-max is a whole number from 0 to 1000, not '-1'", ""),
        (("run", "a", "--retry-max=1001"), "--retry-max is a whole number from 0 to 1000, not '1001'", ""),
        (
            ("run", "a", "--max-loops", "10001"),
            "--max-loops is a whole number from 0 to 10000, not '10001'",
            "",
        ),
        (("run", "a", "--bogus"), "resile run has no option --bogus", "`resile run --help` shows the options"),
        (("logs", "1", "--folow"), "resile logs has no option --folow", "did you mean '--follow'?"),
        (("run", "a", "--cpus", "nan"), "--cpus is a number above 0, not 'nan'", ""),
        (("run", "a", "--memory", "lots"), None, "such as 512m or 8g"),
        (("status", "--json=yes"), "--json takes no value", "`resile status --help` shows the options"),
        (("explain",), "`resile explain` needs RUN", "`resile ls` lists the runs"),
        (("dlq", "show", "1"), "`resile dlq show` needs ITEM", "`resile dlq show --help` shows its usage"),
        (("status", "seven"), "RUN is the number of a run, not 'seven'", "`resile ls` lists the runs"),
        (("status", "--color", "sometimes"), "--color is one of auto, always, never, not 'sometimes'", ""),
        (("completion", "fsh"), "SHELL is one of bash, zsh, fish, not 'fsh'", "did you mean 'fish'?"),
        (
            ("events", "list", "1", "--type", "step_faild"),
            "no event has the type 'step_faild'",
            "did you mean 'step_failed'?",
        ),
    ],
)
def test_wrong_calls(program: Program, words: tuple[str, ...], message: str | None, hint: str | None) -> None:
    """A wrong call exits 2, says what is wrong and what may have been meant, and writes nothing."""
    done = program.call("--json", *words, code=2)
    document = msgspec.json.decode(done.stdout)
    assert list(document) == ["version", "error", "diagnostics"]
    assert list(document["error"]) == ["code", "message", "where", "hint"]
    assert document["error"]["code"] == "usage"
    assert document["diagnostics"] == []
    assert message in (None, document["error"]["message"])
    assert hint in (None, document["error"]["hint"])
    assert done.stderr.startswith(f"resile: error: {document['error']['message']}\n")
    plain = program.call(*words, code=2)
    assert plain.stdout == ""
    assert plain.stderr == done.stderr
    assert list(program.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        (("failures", "99"), "failures", "parked"),
        (("reset-status", "99"), "reset-status", "reset"),
        (("try", "flow.yaml", "a", "--fail", "exit:1"), "try", "rehearse"),
        (("run", "flow.yaml", "--on-fail-max-loops", "2"), "--on-fail-max-loops", "--max-loops"),
        (("run", "flow.yaml", "--on-fail-max-loops=2"), "--on-fail-max-loops", "--max-loops"),
    ],
)
def test_old_spellings(program: Program, words: tuple[str, ...], old: str, new: str) -> None:
    """A spelling of the version before does the same, and a note on stderr names the new one."""
    program.call("run", program.write("resile: 1\nname: x\nsteps:\n- {id: a, shell: 'true'}\n"), code=0)
    done = program.call(*words, "--json")
    notes = [line for line in done.stderr.splitlines() if line.startswith("resile: note: ")]
    assert notes == [f"resile: note: `{old}` is called `{new}` now; the next version will not know the old name"]
    renamed = program.call(*(word.replace(old, new) if word.startswith(old) else word for word in words), "--json")
    assert (renamed.returncode, "resile: note: " in renamed.stderr) == (done.returncode, False)
    assert list(msgspec.json.decode(renamed.stdout)) == list(msgspec.json.decode(done.stdout))


def test_ls_is_short_for_list(program: Program) -> None:
    """`ls` does the same as `list` in both groups, without a note."""
    program.call("run", program.write("resile: 1\nname: x\nsteps:\n- {id: a, shell: 'true'}\n"), code=0)
    for group in ("events", "dlq"):
        short, full = (program.call(group, word, "1", code=0) for word in ("ls", "list"))
        assert (short.stdout, short.stderr) == (full.stdout, "")


def test_options_before_and_behind_the_command() -> None:
    """Common options may stand on either side of the command, with their values, and `--` ends all options."""
    name, rest = split(["--db", "a.db", "--json", "logs", "7", "--attempt=2", "--", "--odd"])
    call = parse(find_command(name), rest)
    assert (name, call.db, call.json, call.run, call.whole("attempt"), call.text("STEP")) == (
        "logs",
        "a.db",
        True,
        7,
        2,
        "--odd",
    )
    assert (call.color, call.flag("follow"), call.text("export")) == ("auto", False, None)


def test_a_repeated_option_collects_or_the_last_one_counts() -> None:
    """Options that take several values keep them in order; of the others the last one counts."""
    call = parse(find_command("run"), ["f", "--input", "a=1", "--cpus", "1", "--input=b=-2", "--cpus", "0.5"])
    assert call.texts("input") == ["a=1", "b=-2"]
    assert call.number("cpus") == 0.5


def test_a_number_beyond_all_bounds_is_refused() -> None:
    """A number of a thousand digits is refused like any other wrong value."""
    with pytest.raises(ResileError, match=r"whole number from 1 to 10000, not '9{40}'"):
        parse(find_command("run"), ["f", "--max-parallel", "9" * 1000])


def test_what_the_system_refuses_is_told_plainly(program: Program) -> None:
    """A full device, a folder that is none or is gone: the system's word and the place, exit 2, no class name."""
    flow = program.write("resile: 1\nname: one\nsteps:\n  only: {shell: echo hello}\n")
    program.call("run", flow, code=0)
    program.env["FLOW"] = str(program.folder / flow)
    resile = f"'{program.argv[0]}' -m resile.cli.main"
    for words in ("status", "--help", "--version", "version", "completion bash"):
        assert in_shell(program, f"{resile} {words} > /dev/full") == (
            2,
            "resile: error: standard output: No space left on device\n",
        )
    gone = f'mkdir gone; cd gone; rmdir ../gone; {resile} run "$FLOW" --json 2>&1 >/dev/null'
    assert in_shell(program, gone, stream="stdout") == (
        2,
        "resile: error: the current folder does not exist any more\n",
    )
    document = program.json("logs", "1", "--export", "/dev/null", code=2)
    assert document["error"]["message"] == "/dev/null is not a folder"
    document = program.json("logs", "1", "--export", "/proc/here", code=2)
    assert (document["error"]["code"], document["error"]["where"]) == ("system", "/proc/here")


def in_shell(program: Program, text: str, stream: str = "stderr") -> tuple[int, str]:
    """The exit code of a line of shell, and what it said on one stream."""
    done = subprocess.run(
        ["sh", "-c", text], cwd=program.folder, env=program.env, capture_output=True, text=True, timeout=60
    )
    said: str = getattr(done, stream)
    return done.returncode, said


def test_an_unexpected_error_shows_no_traceback(program: Program) -> None:
    """What nobody foresaw is one line with a way to the traceback, and exit code 70."""
    broken = {"PYTHONPATH": f"{program.folder}:{program.env['PYTHONPATH']}"}
    (program.folder / "apsw.py").write_text("raise RuntimeError('no engine room')\n")
    done = program.call("version", code=70, **broken)
    assert done.stdout == ""
    assert done.stderr == (
        "resile: error: RuntimeError: no engine room\n  hint: RESILE_TRACEBACK=1 shows the traceback\n"
    )
    told = program.call("version", code=70, RESILE_TRACEBACK="1", **broken).stderr
    assert told.startswith("Traceback (most recent call last):\n")
    assert "in version\n" in told


NO_TEXT = os.fsdecode(b"b\xffd")


@pytest.mark.parametrize("place", ["file", "folder", "database"])
def test_a_path_that_is_no_text(program: Program, place: str) -> None:
    """A path that is no UTF-8 is an error of the call (exit 2) that shows it, and nothing has run."""
    flow = program.write("resile: 1\nsteps: [{id: a, shell: touch ran}]\n", f"{NO_TEXT}.yaml")
    if place == "folder":
        program.folder /= NO_TEXT
        program.folder.mkdir()
    if place != "file":
        flow = program.write("resile: 1\nsteps: [{id: a, shell: touch ran}]\n")
    if place == "database":
        program.env["RESILE_DB"] = f"{program.folder}/{NO_TEXT}.db"
    said = program.call("run", flow, code=2).stderr
    assert "UTF-8" in said
    assert "b\\udcffd" in said
    assert not (program.folder / "ran").exists()
