"""Which system a file is written for, and what is said where that is not clear."""

from __future__ import annotations

from pathlib import Path

import pytest

from resile.cli.table_daily import DIALECTS
from resile.dialects.compile import compile_text
from resile.dialects.detect import FRONT_ENDS, NAMES, detect, tables
from resile.dialects.formats.yaml import parse
from resile.dialects.reading.diagnostics import Diagnostics
from tests.cli.program import Program

SHAPES = {
    "resile: 1\nsteps: [{shell: a}]": ("native", "it has the key `resile`"),
    "resile: 1\nmode: mapreduce\nmap: {input: [1], agent_template: [{shell: a}]}": (
        "native",
        "it has the key `resile`",
    ),
    "- shell: a": ("prodigy", "it is a list of steps with `shell`"),
    "- name: a\n- claude: b": ("prodigy", "it is a list of steps"),
    "- /lint": ("prodigy", "it is a list of steps with slash commands"),
    "commands: []": ("prodigy", "it has a list `commands`"),
    "commands: [{shel: a}]": ("prodigy", "it has a list `commands`"),
    "commands: [{analyze: {}}]": ("prodigy", "`commands` is a list of steps with `analyze`"),
    "tasks: [{shell: a}]": ("prodigy", "`tasks` is a list of steps with `shell`"),
    "steps: [{shell: a}]": ("prodigy", "`steps` is a list of steps with `shell`"),
    "mode: mapreduce\nmap: {input: [1], agent_template: [{shell: a}]}": ("prodigy", "it says `mode: mapreduce`"),
    "map: {input: [1], agent_template: [{shell: a}]}": ("prodigy", "its `map` has an `agent_template`"),
    "version: '1.0'\nchecks: {a: {type: command, exec: b}}": ("visor", "it has `checks` by name and a `version`"),
    "version: '1.0'\nsteps: {a: {exec: b}}": ("visor", "it has `steps` by name and a `version`"),
    "steps: {a: {type: noop}}": ("visor", "it has `steps` by name"),
    "name: a\njobs: [{name: b, command: c}]": ("torc", "it has a list `jobs`"),
    "apiVersion: noetl.io/v2\nkind: Playbook": ("noetl", "it says `apiVersion: noetl.io/v2`"),
    "workflow: [{step: start, tool: {kind: python}}]": (
        "noetl",
        "its `workflow` is a list of steps with tools and arcs",
    ),
}
STRANGE = ("a: 1", "- 1", "- [a]", "just text", "steps: {a: {shell: b}}", "commands: {a: b}", "name: x\nsteps: 3", "[]")


@pytest.mark.parametrize("text", SHAPES)
def test_a_file_is_known_by_its_shape(text: str) -> None:
    """One front end recognises it, and says by what."""
    report = Diagnostics("flow.yaml")
    root = parse(text.encode(), report)
    assert root is not None
    assert detect(root, report) == SHAPES[text]
    assert report.findings() == ()
    assert [name for name, recognise in FRONT_ENDS.items() if recognise(root)] == [SHAPES[text][0]]


@pytest.mark.parametrize("text", STRANGE)
def test_what_is_no_workflow_file_is_said_to_be_none(text: str) -> None:
    """An error that says what a file would look like."""
    result = compile_text(text)
    (finding,) = result.diagnostics
    assert (finding.code, finding.line, finding.column, result.dialect) == ("dialect", 1, 1, "")
    assert finding.message.startswith("this is not a workflow file: ")
    assert "resile: 1" in finding.hint


def test_what_could_be_two_things_is_refused() -> None:
    """The error names both and how to choose, and choosing works."""
    text = "commands: [{shell: a}]\njobs: [{name: b, command: c}]"
    result = compile_text(text)
    (finding,) = result.diagnostics
    assert finding.code == "ambiguous"
    expected = "this file could be prodigy (`commands` is a list of steps with `shell`) or torc (it has a list `jobs`)"
    assert finding.message == expected
    assert finding.hint == "say which: --dialect prodigy or --dialect torc"
    chosen = compile_text(text, dialect="prodigy")
    assert (chosen.dialect, chosen.why) == ("prodigy", "--dialect says so")
    assert [finding.message for finding in chosen.diagnostics] == ["the workflow has no key `jobs`"]


def test_a_forced_dialect_may_not_fit() -> None:
    """A list is no native file, whatever the caller says."""
    (finding,) = compile_text("- shell: a", dialect="native").diagnostics
    assert finding.message == "a file of native is a mapping, not a list"


def test_a_profile_is_for_prodigy_files() -> None:
    """A file that can't have profiles is not run as if it had the one that is asked for."""
    (finding,) = compile_text("resile: 1\nsteps: [{shell: a}]", profile="dev").diagnostics
    assert finding.message == "files of native have no profiles"


def test_every_front_end_has_tables() -> None:
    """The compatibility page is made of them; the command line knows the same names."""
    assert DIALECTS == NAMES
    for name in ("native", "prodigy"):
        assert all(table.keys for table in tables(name))


def test_the_command_line_chooses(tmp_path: Path) -> None:
    """`check` prints the dialect and why; `run` with the wrong one runs nothing."""
    program = Program(tmp_path)
    program.write("- shell: echo hello\n")
    (file,) = program.json("check", "flow.yaml")["files"]
    assert (file["dialect"], file["why"], file["ok"], file["steps"]) == (
        "prodigy",
        "it is a list of steps with `shell`",
        True,
        1,
    )
    document = program.json("run", "flow.yaml", "--dialect", "visor", code=2)
    assert document["error"]["message"] == "a file of visor is a mapping, not a list"
    assert program.json("run", "flow.yaml", "--dialect", "prodigy")["dialect"] == "prodigy"
    assert program.json("run", "flow.yaml")["dialect"] == "prodigy"
