"""Secrets: the steps have them, and nothing that is written or printed does."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from resile.engine.secrets import ENCODED_LINES_MAX, Hidden
from tests.engine.conftest import Place

SECRET = "hunter2-very-secret"
LINES = "first-line-secret\nsecond-line-secret"


def _found(folder: Path, needle: bytes) -> list[str]:
    """The files that hold some bytes."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()]


def test_a_line_of_four_characters_is_long_enough() -> None:
    """Of the lines of a secret those of four characters or more are redacted by themselves, however many bytes those
    have.
    """
    hidden = Hidden({"KEY": "abcd\nxyz", "OTHER": "äöüß\näöü"})
    assert hidden.redact("abcd xyz äöüß äöü abcd\nxyz") == "*** xyz *** äöü ***"


def test_a_secret_appears_nowhere(place: Place) -> None:
    """Not in logs, events, the summary or the database, however a step prints, captures or fails with it."""
    key = place.folder / "key"
    key.write_text(LINES + "\n")
    code, document = place.run(
        """
resile: 1
secrets: {TOKEN: {env: MY_TOKEN}, KEY: {file: key}}
steps:
  print: {shell: 'echo "token $TOKEN and $KEY"; printf %s "$TOKEN" | wc -c', capture: said}
  fail: {shell: 'echo "denied: $TOKEN" >&2; echo "$KEY"; exit 9', on_failure: true, needs: [print]}
  use: {shell: 'test ${said} != x && echo ${steps.fail.stderr}', needs: [fail]}
  end: {shell: "echo ${execution.first_failure.message}"}
""",
        env={"MY_TOKEN": SECRET},
    )
    key.unlink()
    assert code == 0
    assert "19" in document["outputs"]["said"]
    assert "***" in document["first_failure"]["message"]
    events = repr(place.events(1)) + repr(document)
    for needle in (SECRET, *LINES.split("\n")):
        assert needle not in events
        assert _found(place.state, needle.encode()) == []


BASE64 = base64.b64encode
URL_BASE64 = base64.urlsafe_b64encode
ODD = "p4ss/w+rd: <é&'\\\">?"


@pytest.mark.parametrize("secret", [SECRET, ODD, "tiny", "x" * 200 + "é?>", "1234567", LINES])
@pytest.mark.parametrize(
    "write",
    [
        lambda raw: BASE64(raw),
        lambda raw: BASE64(b"user:" + raw),
        lambda raw: BASE64(b"me:" + raw),
        lambda raw: BASE64(b"root:" + raw),
        lambda raw: URL_BASE64(b"user:" + raw).rstrip(b"="),
        lambda raw: URL_BASE64(raw),
        lambda raw: base64.encodebytes(b"someone@example.org:" + raw),
        lambda raw: raw.hex().encode(),
        lambda raw: raw.hex().upper().encode(),
        lambda raw: quote(raw, safe="").encode(),
        lambda raw: quote_plus(raw).encode(),
        lambda raw: re.sub(b"%..", lambda found: found[0].lower(), quote(raw).encode()),
        lambda raw: html.escape(raw.decode()).encode(),
        lambda raw: html.escape(raw.decode(), quote=False).encode(),
        lambda raw: json.dumps(raw.decode()).encode(),
        lambda raw: json.dumps(json.dumps([raw.decode()])).encode(),
        lambda raw: json.dumps(json.dumps([raw.decode()], ensure_ascii=False), ensure_ascii=False).encode(),
        lambda raw: json.dumps(json.dumps([raw.decode()], ensure_ascii=False)).encode(),
    ],
)
def test_a_secret_does_not_hide_in_an_encoding(secret: str, write: Callable[[bytes], bytes]) -> None:
    """Base64 alone and after a user's name, in hexadecimal, in urls, HTML and JSON: nothing of it is left."""
    raw = secret.encode()
    written = write(raw)
    made = Hidden({"KEY": secret}).redact(f"before {written.decode()} after")
    assert made.startswith("before ")
    assert made.endswith(" after")
    assert "***" in made
    left = re.sub(r"\*\*\*", "", made[len("before ") : -len(" after")])
    ends = {written.decode()[:size] for size in range(30)} | {'"[\\"\\"]"', '""'}
    assert left.rstrip("=\n") in ends, (written, made)


@pytest.mark.parametrize("secret", [ODD, "~it's a {b,c} #1", "#!a$b`c`"])
def test_a_secret_does_not_hide_in_the_quotes_of_a_shell(secret: str) -> None:
    """As Python, a trace and `printf %q` of bash quote it."""
    hidden = Hidden({"KEY": secret})
    assert hidden.redact(shlex.quote(secret)) == "'***'"
    words = ["bash", "-c", 'printf \'%q\n\' "$1"; set -x; : "$1"', "bash", secret]
    done = subprocess.run(words, env={"LC_ALL": "C.UTF-8"}, capture_output=True, text=True, check=True, timeout=60)
    assert (hidden.redact(done.stdout), hidden.redact(done.stderr)) == ("***\n", "+ : '***'\n")


def test_base64_inside_a_longer_text_is_masked_at_every_place() -> None:
    """Whatever stands before and after a secret, of its own letters at most the two that it shares are left."""
    hidden = Hidden({"KEY": SECRET})
    for before in range(7):
        for after in range(4):
            whole = BASE64(b"~" * before + SECRET.encode() + b"~" * after).decode()
            made = hidden.redact(whole)
            assert "***" in made
            assert len(made.replace("***", "").strip("=")) <= (before + after) * 4 / 3 + 3, (whole, made)


def test_encodings_of_short_secrets_leave_ordinary_text_alone() -> None:
    """A secret below four characters is looked for as it is; its encodings would be everywhere."""
    hidden = Hidden({"A": "a", "B": "&;", "C": "12"})
    text = "61 YQ MTI 3132 %26%3B &amp;; 0x26"
    assert hidden.redact(text) == "61 YQ MTI 3132 *** &***mp;; 0x26"


def test_a_secret_of_many_lines_is_looked_for_as_a_whole_in_its_encodings() -> None:
    """Each line is redacted as it is, and the encoded whole however it is wrapped."""
    lines = [f"line number {number} of the key" for number in range(ENCODED_LINES_MAX + 1)]
    hidden = Hidden({"KEY": "\n".join(lines)})
    assert hidden.redact(f"- {lines[7]} -") == "- *** -"
    encoded = base64.encodebytes("\n".join(lines).encode()).decode()
    assert hidden.redact(f"- {encoded} -").strip("-= \n") == "***"


def test_encoded_secrets_are_not_kept(place: Place) -> None:
    """Neither in the output of steps, however they encode it, nor in captured values, events or files."""
    code, document = place.run(
        r"""
resile: 1
secrets: [TOK]
steps:
  a:
    shell: |
      printf '%s' "$TOK" | base64
      printf 'user:%s' "$TOK" | base64 -w 0; echo
      printf '%s' "$TOK" | od -An -v -tx1 | tr -d ' \n'; echo
    capture: said
""",
        env={"TOK": SECRET * 5},
    )
    assert code == 0
    assert document["outputs"]["said"].splitlines() == ["***=", "dXNlcj***==", "***"]
    raw = (SECRET * 5).encode()
    for needle in (BASE64(raw)[:40], BASE64(b"user:" + raw)[8:48], raw.hex().encode()[:40]):
        assert needle.decode() not in repr(place.events(1))
        assert _found(place.state, needle) == []


def test_a_missing_secret_is_an_error_before_anything_runs(place: Place) -> None:
    """Exit 2, and nothing was written."""
    code, document = place.run("resile: 1\nsecrets: [NOT_THERE_AT_ALL]\nsteps:\n  a: {shell: touch ran}\n")
    assert (code, document["error"]["code"]) == (2, "secret-missing")
    assert not (place.folder / "ran").exists()
    assert not place.state.exists()


def test_a_secret_does_not_hide_in_json(place: Place) -> None:
    """Escaped in the text, plain in the captured value: neither is kept."""
    secret = 'Zq9pass"w\\ord-é'
    code, document = place.run(
        """
resile: 1
secrets: [TOK]
steps:
  a:
    shell: python3 -c 'import json, os; print(json.dumps({"k":[os.environ["TOK"]]}))'
    capture: {got: json}
""",
        env={"TOK": secret},
    )
    assert (code, document["outputs"]) == (0, {"got": {"k": ["***"]}})
    for needle in (secret, "Zq9pass"):
        assert _found(place.state, needle.encode()) == []


@pytest.mark.parametrize("secret", ['Zq9pa"ss\\word', 'Zq9it\'s\\"both\\"', 'Zq9é\\n"x', "Zq9it's+plain/=x"])
def test_a_secret_does_not_hide_in_what_programs_escape(place: Place, secret: str) -> None:
    """As Python prints it alone, in a list or as bytes, as a shell traces it, in a url."""
    code, document = place.run(
        """
resile: 1
secrets: [TOK]
steps:
  p:
    python: |
      import os, urllib.parse
      t = os.environ["TOK"]
      print([t], ascii(t), t.encode(), {t: "it's"}, repr(t + "'" + '"'), urllib.parse.quote(t, safe=""))
      raise ValueError([t])
    on_failure: true
  s: {shell: 'set -x; : "$TOK"', needs: [p]}
""",
        env={"TOK": secret},
    )
    assert code == 0
    text = repr(place.events(1)) + repr(document)
    assert "Zq9" not in text
    assert _found(place.state, b"Zq9") == []


def test_an_input_that_holds_a_secret_is_refused(place: Place) -> None:
    """Inputs are stored with the run."""
    text = "resile: 1\nsecrets: [TOK]\ninputs: {i: text}\nsteps:\n  a: {shell: 'true'}\n"
    code, document = place.run(text, "--input", f"i=x{SECRET}x", env={"TOK": SECRET})
    assert (code, document["error"]["code"]) == (2, "secret-input")
    assert not place.state.exists()


def test_items_that_a_program_listed_hold_no_secret(place: Place) -> None:
    """However JSON spells it: neither the items file nor a dead letter nor an event has it."""
    code, _ = place.run(
        r"""
resile: 1
secrets: [TOKEN]
steps:
  m:
    map:
      input: 'printf ''[{"k": "%s"}, {"k": "\\u0068%s"}, {"k": "plain"}]'' "$TOKEN" "${TOKEN#h}"'
      steps: {go: {shell: "echo ${item.k} >&2; exit 4"}}
""",
        env={"TOKEN": SECRET},
    )
    assert code == 1
    _, listed = place.call("dlq", "list", "1")
    assert [letter["item_data"] for letter in listed["dead_letters"]] == [{"k": "***"}, {"k": "***"}, {"k": "plain"}]
    assert SECRET not in repr(place.events(1))
    for needle in (SECRET, SECRET[1:]):
        assert _found(place.state, needle.encode()) == []


def test_items_of_a_playbook_and_its_variables_hold_no_secret(place: Place) -> None:
    """Items made by a template, variables that cases set and values that arcs carry are kept without it."""
    (place.folder / "out").mkdir()
    code, _ = place.run(
        """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
keychain:
- {name: api, kind: bearer, map: {token: projects/x/secrets/y}}
workload: {}
workflow:
- step: start
  tool: {kind: shell, command: "true"}
  vars: {kept: "{{ keychain.api.token }}-kept"}
  next: [{step: over, args: {carried: "{{ keychain.api.token }}-carried"}}]
- step: over
  loop: {in: "{{ [keychain.api.token ~ '-item'] }}", iterator: one}
  tool: {kind: shell, command: "echo {{ one }} {{ kept }} {{ carried }} > out/said"}
  next: [{step: end}]
- step: end
""",
        env={"API_TOKEN": SECRET},
    )
    assert code == 0
    assert place.text("out/said") == "***-item ***-kept ***-carried\n"
    assert SECRET not in repr(place.events(1))
    assert _found(place.state, SECRET.encode()) == []


CHILD = """\
resile: 1
secrets: {TOKEN: {env: MY_TOKEN}, KEY: {file: key}}
steps:
  use: {shell: 'printf "%s %s" "$TOKEN" "$KEY" | wc -c > PLACE/used; echo "$TOKEN $KEY" >&2; exit 3'}
"""


def _child(place: Place) -> None:
    """A workflow with secrets in a folder of its own, and its key beside it."""
    (place.folder / "sub").mkdir()
    (place.folder / "sub" / "child.yaml").write_text(CHILD.replace("PLACE", str(place.folder)))
    (place.folder / "sub" / "key").write_text(f"{LINES}\n")


@pytest.mark.parametrize(
    "step", ["{workflow: sub/child.yaml}", "{map: {input: [1], steps: {go: {workflow: sub/child.yaml}}}}"]
)
def test_the_secrets_of_a_child_are_secrets(place: Place, step: str) -> None:
    """Its steps have them, files are found beside the child, and nothing that is kept does; also inside a map."""
    _child(place)
    _, document = place.run(f"resile: 1\nsteps:\n  call: {step}\n", env={"MY_TOKEN": SECRET})
    assert place.text("used").strip() == str(len(SECRET) + 1 + len(LINES))
    assert document["first_failure"]["message"].endswith("*** ***")
    events = repr(place.events(1)) + repr(document)
    for needle in (SECRET, *LINES.split("\n")):
        assert needle not in events
        assert _found(place.state, needle.encode()) == []


def test_a_missing_secret_of_a_child_is_an_error_before_anything_runs(place: Place) -> None:
    """Exit 2 with the child's file; and two secrets of one name that differ can't both be had."""
    _child(place)
    flow = "resile: 1\nSECRETS\nsteps:\n  first: {shell: touch ran}\n  call: {workflow: sub/child.yaml}\n"
    code, document = place.run(flow.replace("SECRETS", ""))
    assert (code, document["error"]["code"]) == (2, "secret-missing")
    assert document["error"]["where"].endswith("sub/child.yaml")
    flow = flow.replace("SECRETS", "secrets: {KEY: {env: MY_TOKEN}}")
    code, document = place.run(flow, env={"MY_TOKEN": SECRET})
    assert (code, document["error"]["code"]) == (2, "secret-conflict")
    assert not (place.folder / "ran").exists()
    assert not place.state.exists()


def test_an_input_of_a_child_that_holds_a_secret_fails_the_step(place: Place) -> None:
    """Inputs are stored, and a child that got `***` instead would do something else than it was asked to."""
    (place.folder / "child.yaml").write_text("resile: 1\ninputs: {i: text}\nsteps:\n  a: {shell: touch ran}\n")
    text = "resile: 1\nsecrets: [TOK]\nsteps:\n  c: {workflow: child.yaml, inputs: {i: 'x${env.TOK}'}}\n"
    code, document = place.run(text, env={"TOK": SECRET})
    assert (code, document["first_failure"]["kind"]) == (1, "contract")
    assert document["first_failure"]["message"] == (
        "input 'i' holds the value of a secret, and inputs are stored; the child's steps have it in their environment"
    )
    assert not (place.folder / "ran").exists()
    assert _found(place.state, SECRET.encode()) == []


def test_a_run_starts_without_an_optional_secret(place: Place) -> None:
    """`optional` lets a run start without the variable, and masks its value where it is set."""
    text = (
        "resile: 1\nsecrets: {T: {env: MY_T, optional: true}}\nsteps:\n  a: {shell: 'echo \"<$T>\"', capture: said}\n"
    )
    assert place.run(text)[1]["outputs"]["said"] == "<>"
    assert place.run(text, env={"MY_T": SECRET})[1]["outputs"]["said"] == "<***>"
