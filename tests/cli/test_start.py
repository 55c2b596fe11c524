"""How the program starts and ends: nothing heavy is loaded, a launcher starts ahead, none is left behind."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from tests.cli.program import DEADLINE_SECONDS, Program

ONE = 'resile: 1\nname: one\nsteps:\n  only: {shell: "true"}\n'
# Each costs a noticeable part of the time in which a run of one step must be done.
HEAVY = {"asyncio", "dataclasses", "inspect", "json", "logging", "rich", "subprocess", "tempfile", "typing_extensions"}


# Tells at its end what is loaded; `AST` if Python has defined the classes of syntax nodes.
TELLING = """
import sys
from resile.cli.main import carry_out
code = carry_out(sys.argv[1:])
print(*sys.modules, *(kind.__name__ for kind in object.__subclasses__() if kind.__name__ == "AST"), file=sys.stderr)
sys.exit(code)
"""


def imported(program: Program, *words: str) -> set[str]:
    """The top-level names of every module that a command loads."""
    done = subprocess.run(
        [sys.executable, "-c", TELLING, *words],
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_SECONDS,
    )
    return {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}


def test_a_run_loads_nothing_heavy(program: Program) -> None:
    """A run of one step loads none of the heavy modules; where the file is known, no parser either."""
    program.env["PYTHONDONTWRITEBYTECODE"] = ""
    program.write(ONE)
    first = imported(program, "run", "flow.yaml")
    assert (first & HEAVY, "yaml" in first, "msgspec" in first) == (set(), True, True)
    # Python would define the classes of syntax nodes for one text to compile, such as an annotation that is a text.
    assert imported(program, "run", "flow.yaml") & (HEAVY | {"yaml", "re", "AST"}) == set()


def test_what_is_hidden_while_loading_is_there_afterwards() -> None:
    """What msgspec had to do without is as ever once the program has loaded what it needs."""
    code = (
        "import sys\nfrom resile.cli.main import carry_out\n"
        "carry_out(['version'])\nassert 'msgspec' in sys.modules\n"
        "hidden = {'typing_extensions', 'platform', 'datetime', 're', 'msgspec.inspect', 'msgspec.yaml'}\n"
        "print(hidden & set(sys.modules))\n"
        "import datetime, platform, re, typing, uuid, msgspec\n"
        "class Told(msgspec.Struct):\n    'A\\n    b.'\n"
        "title = msgspec.json.schema(Told)['$defs']['Told']['title']\n"
        "day = msgspec.json.decode('\"2024-02-29\"', type=datetime.date)\n"
        "kind = type(msgspec.inspect.type_info(int)).__name__\n"
        "same = msgspec.inspect is sys.modules['msgspec.inspect']\n"
        "print(platform.node() != '', uuid._LINUX, title, day, kind, same)\n"
        "lower = typing.Annotated[str, msgspec.Meta(pattern='^[a-z]+$')]\n"
        "print([msgspec.convert('abc', lower)], typing.Pattern.__origin__ is re.Pattern)\n"
        "hints = typing.get_type_hints(carry_out)\n"
        "print(typing.Match.__origin__ is re.Match, hints == {'words': list[str], 'return': int})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-4:] == [
        "set()",
        "True True Told 2024-02-29 IntType True",
        "['abc'] True",
        "True True",
    ]


@pytest.mark.parametrize(
    ("words", "code"),
    [(("run", "flow.yaml"), 0), (("run", "nowhere.yaml"), 2), (("resume", "1"), 0), (("rerun", "9"), 2)],
)
def test_no_launcher_is_left_behind(program: Program, words: tuple[str, ...], code: int) -> None:
    """The launcher that was started ahead ends with the program, whether a run took it or not."""
    program.call("run", program.write(ONE), code=0)
    # A launcher inherits this pipe like everything that the program starts, so its end is seen here.
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    done = subprocess.run(
        [*program.argv, *words], cwd=program.folder, env=program.env, capture_output=True, pass_fds=(theirs,)
    )
    os.close(theirs)
    assert done.returncode == code
    ready, _, _ = select.select([ours], [], [], DEADLINE_SECONDS)
    assert (ready, os.read(ours, 1)) == ([ours], b"")
    os.close(ours)


def test_a_run_has_one_launcher(program: Program) -> None:
    """The launcher that was started ahead is the one that runs the steps: the program starts no other."""
    program.write("resile: 1\nname: one\nsteps:\n  only: {shell: 'ps -o ppid= -p $PPID', capture: parent}\n")
    with program.start("run", "flow.yaml", "--json") as run:
        assert run.end() == 0
        assert f'"outputs":{{"parent":"{run.process.pid}"}}' in run.text["out"]


def test_paths_that_are_not_utf8_are_refused(program: Program) -> None:
    """A file in a folder whose name is not UTF-8 is refused by `check` and `run`, and so is a call in that folder."""
    folder = os.fsencode(program.folder) + b"/d\xff"
    os.mkdir(folder)
    program.write(ONE)
    with open(folder + b"/flow.yaml", "w") as file:
        file.write(ONE)
    for command in ("check", "run"):
        done = subprocess.run(
            [*program.argv, command, b"d\xff/flow.yaml"], cwd=program.folder, env=program.env, capture_output=True
        )
        assert (done.returncode, b"is not UTF-8 text [encoding]" in done.stdout + done.stderr) == (2, True)
    done = subprocess.run(
        [*program.argv, "run", str(program.folder / "flow.yaml")], cwd=folder, env=program.env, capture_output=True
    )
    assert (done.returncode, b"the path of this folder, " in done.stderr) == (2, True)
    assert "no runs" in program.call("status", code=0).stdout
