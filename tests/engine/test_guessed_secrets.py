"""Variables whose names look like those of secrets: steps have them, and nothing that is written or printed does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from resile.engine.secrets import values_to_hide
from tests.engine.conftest import Place

TOKEN = "ghp_aB3dE6fG9hJ2"
VARIABLES = {"SOME_TOKEN": TOKEN, "DOOR_KEY": f"{TOKEN}-k", "DEEP_SECRET": f"{TOKEN}-s", "DB_PASSWORD_2": f"{TOKEN}-p"}


def _found(folder: Path) -> list[str]:
    """The files that hold a value of one of the variables; each contains that of the first."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


def test_no_file_has_to_declare_them(place: Place) -> None:
    """Logs, captures, failures, debug lines, events and the database have stars; the step has the value."""
    (place.folder / "flow.yaml").write_text("""
resile: 1
env: {RENAMED: "${env.DEEP_SECRET}"}
steps:
  say: {shell: 'echo "$SOME_TOKEN $DOOR_KEY $DB_PASSWORD_2 $RENAMED"; printf %s "$SOME_TOKEN" > got', capture: said}
  code: {ir: {script: {code: "return env.SOME_TOKEN + env.DOOR_KEY.length"}}, capture: computed, needs: [say]}
  fail: {shell: 'echo "no: $DOOR_KEY" >&2; exit 3', when: "env.SOME_TOKEN != ''", needs: [code]}
""")
    argv = [sys.executable, "-m", "resile.cli.main", "run", "flow.yaml"]
    done = subprocess.run(
        [*argv, "--debug"], cwd=place.folder, env={**place.env, **VARIABLES}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert TOKEN not in done.stdout + done.stderr
    assert place.text("got") == TOKEN
    _, document = place.call("status", "1")
    assert document["outputs"]["said"] == "*** *** *** ***"
    assert document["outputs"]["computed"] == "***3"
    assert document["first_failure"]["message"].endswith("no: ***")
    assert TOKEN not in repr(document) + repr(place.events(1))
    assert _found(place.state) == []


PRODIGY = """
- shell: 'echo "$SOME_TOKEN"; touch ran'
  capture_output: said
- shell: "echo said ${said}"
"""
VISOR = """
version: "1.0"
steps:
  say: {type: command, exec: 'echo "$SOME_TOKEN"; touch ran'}
  tell: {type: command, depends_on: [say], exec: "echo {{ outputs.say }} {{ env.SOME_TOKEN }}"}
  code: {type: script, depends_on: [say], content: "return env.SOME_TOKEN + outputs.say"}
"""
NOETL = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
workflow:
- step: start
  tool: {kind: shell, command: 'echo "$SOME_TOKEN"; touch ran'}
  vars: {kept: "{{ env.SOME_TOKEN }}"}
  next: [{step: end}]
- step: end
  tool: {kind: shell, command: "echo {{ kept }} {{ env.SOME_TOKEN }}"}
"""
TORC = """
name: t
jobs:
- {name: say, command: 'echo "$SOME_TOKEN"; touch ran'}
"""


@pytest.mark.parametrize("text", [PRODIGY, VISOR, NOETL, TORC], ids=["prodigy", "visor", "noetl", "torc"])
def test_in_every_front_end(place: Place, text: str) -> None:
    """The document, the events and every file of the run are without the value, whatever system the file is from."""
    code, document = place.run(text, env=VARIABLES)
    assert (code, (place.folder / "ran").exists()) == (0, True)
    assert TOKEN not in repr(document) + repr(place.events(1))
    assert _found(place.state) == []


def test_a_resumed_run_hides_the_values_of_the_process_that_resumes_it(place: Place) -> None:
    """The value may have changed in between: each process hides its own, and stores none."""
    text = "resile: 1\nsteps:\n  a: {shell: 'echo \"$SOME_TOKEN\"; test -e ready', capture: said}\n"
    assert place.run(text, env=VARIABLES)[0] == 1
    (place.folder / "ready").touch()
    code, document = place.call("rerun", "1", env={"SOME_TOKEN": f"new-{TOKEN}"})
    assert (code, document["outputs"]["said"]) == (0, "***")
    assert TOKEN not in repr(document) + repr(place.events(1))
    assert _found(place.state) == []


def test_an_input_that_holds_one_is_refused(place: Place) -> None:
    """Inputs are stored; the message names the variable, and the hint how to say that it is no secret."""
    text = "resile: 1\ninputs: {i: text}\nsteps:\n  a: {shell: 'echo ${inputs.i} > got'}\n"
    code, document = place.run(text, "--input", f"i=x{TOKEN}", env={"SOME_TOKEN": TOKEN})
    assert (code, document["error"]["code"]) == (2, "secret-input")
    assert document["error"]["message"] == "input 'i' holds the value of the secret SOME_TOKEN, and inputs are stored"
    assert document["error"]["hint"].endswith("RESILE_NOT_SECRET=SOME_TOKEN says that it is none")
    assert not place.state.exists()
    shown = {"SOME_TOKEN": TOKEN, "RESILE_NOT_SECRET": "OTHER,SOME_TOKEN"}
    assert place.run(text, "--input", f"i=x{TOKEN}", env=shown)[0] == 0
    assert place.text("got") == f"x{TOKEN}\n"


def test_only_names_that_look_like_secrets_count() -> None:
    """In capitals or not, by their end, or with `PASSWORD` anywhere."""
    names = [
        "A_TOKEN",
        "b_key",
        "C_SECRET",
        "D_PASSWORD_X",
        "TOKEN",
        "TOKENS",
        "KEYBOARD",
        "KEY_ID",
        "HOME",
        "SECRETARY",
    ]
    hidden = values_to_hide({}, dict.fromkeys(names, TOKEN))
    assert list(hidden) == ["A_TOKEN", "b_key", "C_SECRET", "D_PASSWORD_X", "TOKEN"]


@pytest.mark.parametrize("value", ["", "12345", "     6", "password", "Postgres", "changeme"])
def test_short_and_common_values_are_no_secrets(value: str) -> None:
    """To redact them would turn ordinary text into stars; a file that declares them as secrets still does."""
    assert values_to_hide({}, {"MY_TOKEN": value}) == {}
    assert values_to_hide({"MY_TOKEN": value}, {"MY_TOKEN": value}) == {"MY_TOKEN": value}


def test_the_path_of_a_file_is_no_secret(tmp_path: Path) -> None:
    """`SSH_KEY=/home/me/.ssh/id` names a file, and steps speak of files; a value with a slash that is none is one."""
    (tmp_path / "id").touch()
    assert values_to_hide({}, {"SSH_KEY": str(tmp_path / "id")}) == {}
    assert list(values_to_hide({}, {"SSH_KEY": str(tmp_path / "none")})) == ["SSH_KEY"]
