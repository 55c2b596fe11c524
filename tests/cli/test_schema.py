"""`schema`: what the reader takes validates, and what is wrong in shape does not."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from resile.commands.files.schema import native_schema
from resile.dialects.compile import compile_text
from resile.dialects.formats.nodes import plain
from resile.dialects.formats.yaml import parse
from resile.dialects.native.keys.ir import IR_TABLES
from resile.dialects.native.keys.steps import TABLES
from resile.dialects.reading.diagnostics import Diagnostics
from tests.cli.program import Program

ROOT = Path(__file__).parent.parent.parent
ERROR_TESTS = sorted((ROOT / "tests" / "dialects" / "native").glob("test_*errors.py"))
SHAPE = {"unknown-key", "type"}
"""The codes of findings about the shape of a file."""


def validator() -> Any:
    """A validator for the schema, which is itself valid."""
    jsonschema = importlib.import_module("jsonschema")
    schema = native_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def data_of(text: str) -> Any:
    """The data of a YAML text; None where it is no YAML."""
    report = Diagnostics("f")
    node = parse(text.encode("utf-8", "surrogateescape"), report, [], [])
    return None if node is None or report.errors else plain(node)


def texts_of(file: Path) -> set[str]:
    """The workflows in the texts of a test file: whole ones, steps and lines of a workflow."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 20_000:
            text = node.value
            found.add(text if text.startswith("resile: 1") else f"resile: 1\n{text}\nsteps: {{a: {{shell: x}}}}\n")
            found.add(f"resile: 1\nsteps:\n  a: {{shell: x}}\n  s: {{{text}}}\n")
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_validate(path: Path) -> None:
    """Every native file of examples/ has the shape that the schema describes."""
    assert [error.message for error in validator().iter_errors(data_of(path.read_text()))] == []


def test_pages_validate() -> None:
    """Every native workflow that a page of docs/ shows, and that compiles, validates."""
    checker = validator()
    count = 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
            result = compile_text(text, file="f") if text.startswith("resile: 1") else None
            if result is not None and result.workflow is not None:
                count += 1
                assert [error.message for error in checker.iter_errors(data_of(text))] == [], (page.name, text)
    assert count > 20


@pytest.mark.parametrize("path", ERROR_TESTS, ids=lambda path: path.stem)
def test_files_of_the_error_tests(path: Path) -> None:
    """Of the files of our error tests those with a wrong shape do not validate, and those without an error do."""
    checker = validator()
    wrong, fine = 0, 0
    for text in sorted(texts_of(path)):
        data = data_of(text)
        # JSON has no NaN, so a schema can't refuse it.
        if not isinstance(data, dict) or data.get("resile") != 1 or ".nan" in text:
            continue
        result = compile_text(text, file="f")
        errors = {finding.code for finding in result.diagnostics if finding.severity == "error"}
        if result.dialect != "native":
            continue
        if not errors:
            fine += 1
            assert [error.message for error in checker.iter_errors(data)] == [], text
        elif errors & SHAPE:
            wrong += 1
            assert not checker.is_valid(data), text
    assert wrong > 10
    assert wrong + fine > 15


def test_every_key_of_the_reference_is_in_the_schema() -> None:
    """Each key of each table is there with its documentation."""
    schema = native_schema()
    described = [part for part in (schema, *schema["$defs"].values()) if "properties" in part]
    for table in (*TABLES, *IR_TABLES):
        assert any(table.keys.keys() <= part["properties"].keys() for part in described), table.name
    documented = [schema, schema["$defs"]["a-step"], schema["$defs"]["on_failure"], schema["$defs"]["map"]]
    assert all(row["description"] for part in documented for row in part["properties"].values())


def test_the_command_prints_the_document_itself(program: Program) -> None:
    """`schema` prints the schema, with and without --json, and knows the native dialect only."""
    expected = msgspec.json.decode(msgspec.json.encode(native_schema()))
    assert msgspec.json.decode(program.call("schema", code=0).stdout) == expected
    assert program.json("schema", "--dialect", "native") == expected
    assert program.json("schema", "--dialect", "visor", code=2)["error"]["code"] == "usage"
