"""Secrets: the steps have them, and nothing that is written or printed does."""

from __future__ import annotations

from pathlib import Path

from tests.runtime.conftest import Place

SECRET = "hunter2-very-secret"
LINES = "first-line-secret\nsecond-line-secret"


def _found(folder: Path, needle: bytes) -> list[str]:
    """The files that hold some bytes."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()]


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


def test_an_input_that_holds_a_secret_is_refused(place: Place) -> None:
    """Inputs are stored with the run."""
    text = "resile: 1\nsecrets: [TOK]\ninputs: {i: text}\nsteps:\n  a: {shell: 'true'}\n"
    code, document = place.run(text, "--input", f"i=x{SECRET}x", env={"TOK": SECRET})
    assert (code, document["error"]["code"]) == (2, "secret-input")
    assert not place.state.exists()
