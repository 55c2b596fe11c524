"""Every key of a playbook changes the model, is refused by name, or is a comment: one case for each row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from resile.dialects.compile import Compiled, compile_text
from resile.dialects.detect import tables
from resile.dialects.noetl.values import COMMENT
from resile.dialects.reading.key_tables import REFUSED
from tests.dialects.noetl.cases import AROUND, CASES

ROWS = [(table.name, key) for table in tables("noetl") for key in table.keys.values()]
KID = "{apiVersion: noetl.io/v2, metadata: {name: kid}, workflow: [{step: start, tool: {kind: noop}}]}"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two playbooks to call, where both packages for databases are installed."""
    for package in ("duckdb", "psycopg"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kid.yaml").write_text(KID)
    (tmp_path / "other.yaml").write_text(
        "metadata: {name: o, path: kids/other}\n" + "workflow: [{step: a, tool: noop}]\n"
    )
    return tmp_path


def around(table: str, text: str) -> str:
    """A playbook with this text where a key of the table stands; a whole playbook as it is."""
    if text.startswith(("{workflow", "{workbook")):
        return text
    return AROUND[table] % text


def compiled(text: str, folder: Path) -> Compiled:
    """What comes of a playbook."""
    return compile_text(text, file="flow.yaml", folder=str(folder), dialect="noetl")


def result(text: str, folder: Path) -> Any:
    """The model without the places of things, or the messages of what is wrong."""
    found = compiled(text, folder)
    if found.workflow is None:
        return [finding.message for finding in found.diagnostics if finding.severity == "error"]
    return _without_origins(msgspec.to_builtins(found.workflow))


def _without_origins(data: Any) -> Any:
    """The same data without where things stand in the file."""
    if isinstance(data, dict):
        return {key: _without_origins(value) for key, value in data.items() if key != "origin"}
    if isinstance(data, list | tuple):
        return [_without_origins(value) for value in data]
    return data


def test_every_key_has_a_case() -> None:
    """A key that is accepted without a case does not get in."""
    accepted = {(table, key.name) for table, key in ROWS if key.kind not in (REFUSED, COMMENT)}
    assert accepted == {(table, key) for table, keys in CASES.items() for key in keys}
    assert {table for table, _ in ROWS} == AROUND.keys()


@pytest.mark.parametrize(("table", "key"), [(table, key) for table, keys in CASES.items() for key in keys])
def test_an_accepted_key_changes_the_model(table: str, key: str, installed: Path) -> None:
    """The playbook with the key is another one than that without it, which has no error."""
    case = CASES[table][key]
    with_key, without = (case, "") if isinstance(case, str) else case
    plain = result(around(table, without), installed)
    assert isinstance(plain, dict), plain
    assert result(around(table, with_key), installed) != plain


@pytest.mark.parametrize(("table", "key"), [(table, key.name) for table, key in ROWS if key.kind == REFUSED])
def test_a_refused_key_is_named(table: str, key: str, installed: Path) -> None:
    """A refused key is an error with its name, its place and what to do instead."""
    found = compiled(around(table, f"{key}: x"), installed)
    assert found.workflow is None
    told = [finding for finding in found.diagnostics if finding.message.startswith(f"`{key}` is not run by Resile: ")]
    assert [(finding.code, finding.line, bool(finding.column), bool(finding.hint)) for finding in told] == [
        ("not-run", 1, True, True)
    ]


@pytest.mark.parametrize(("table", "key"), [(table, key.name) for table, key in ROWS if key.kind == COMMENT])
def test_a_comment_changes_nothing(table: str, key: str, installed: Path) -> None:
    """A key that only says something to people is no error and leaves the model as it is."""
    plains = [case[1] for case in CASES[table].values() if isinstance(case, tuple)]
    without = next((text for text in plains if not text.startswith("{")), "")
    plain = result(around(table, without), installed)
    assert isinstance(plain, dict), plain
    assert result(around(table, ", ".join(filter(None, (without, f"{key}: x")))), installed) == plain


@pytest.mark.parametrize(
    ("word", "severity"),
    [("table: t", "warning"), ("mode: append", "warning"), ("key: a", "error"), ("mapping: {a: b}", "error")],
)
def test_statements_of_a_sink_stand_alone(word: str, severity: str, installed: Path) -> None:
    """What is about rows says nothing to a sink that has statements, and somebody is told."""
    found = compiled(around("sink", f"tool: duckdb, statement: select 1, {word}"), installed)
    (told,) = found.diagnostics
    assert (told.severity, told.message) == (severity, f"`{word.partition(':')[0]}` means nothing for statements")
    assert (found.workflow is None) == (severity == "error")


def test_every_key_is_documented() -> None:
    """Each row says what the key takes and what it does, in one line."""
    for table, key in ROWS:
        assert key.kind, (table, key.name)
        assert key.doc, (table, key.name)
        assert "\n" not in key.doc, (table, key.name)


@pytest.mark.parametrize("table", sorted(AROUND.keys() - {"metadata"}))
def test_an_unknown_key_is_an_error(table: str, installed: Path) -> None:
    """A word that no table has is refused, with its place; only metadata may hold any label."""
    beside = {
        "next": "arcs: [], ",
        "sink": "tool: event_log, ",
        "a noop tool": "kind: noop, ",
        "a secrets tool": "kind: secrets, ",
    }.get(table, "")
    found = compiled(around(table, f"{beside}zzz: 1"), installed)
    messages = [finding.message for finding in found.diagnostics if finding.code == "unknown-key"]
    assert f"{table} has no key `zzz`" in messages
