"""`graph`: every step and edge is in every format, escaped, and a run has the colors of its statuses."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.program import Program

FLOW = """\
resile: 1
name: all kinds
steps:
  prepare: {shell: "true"}
  build:
    needs: prepare
    shell: "false"
    on_failure: {shell: "true", fail_workflow: false}
  test:
    needs: [prepare]
    shell: "true"
    on_failure: {goto: prepare}
  either: {needs: ["build|test"], shell: "true", next: [{step: last, when: "1 === 1"}]}
  last: {shell: "true"}
  each:
    map: {input: [1, 2], steps: [{id: work, shell: "true"}], error_policy: {continue_on_failure: true}}
  end: {shell: "true"}
"""
HOSTILE = """\
resile: 1
name: '<b>&"name"'
steps:
  'a <b> & "c" ]]>': {shell: "true"}
  'back\\slash; {x} | #'': {shell: "true", needs: ['a <b> & "c" ]]>']}
  '日本語 -->': {shell: "true"}
""".replace("| #''", "#'")
NAMES = ("prepare", "build", "test", "either", "last", "each", "work", "on_failure-1", "end")
FORMATS = ("text", "dot", "mermaid", "svg")


def drawn(program: Program, target: str, kind: str) -> str:
    """The graph in one format."""
    return program.call("graph", target, "--format", kind, code=0).stdout


def texts_of(svg: str) -> Iterator[str]:
    """The texts of a well-formed document."""
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    yield from (found.text or "" for found in root.iter("{http://www.w3.org/2000/svg}text"))


def edges_of(document: dict[str, Any]) -> set[tuple[str, str, str]]:
    """The edges of a document, by the names of their steps."""
    names = {step["id"]: step["step"] for step in document["steps"]}
    return {(names[edge["source"]], names[edge["target"]], edge["kind"]) for edge in document["edges"]}


def test_the_steps_and_edges_of_a_file(program: Program) -> None:
    """Needs, alternatives, arcs, jumps back, handlers and the steps of items are edges or stand inside their step."""
    document = program.json("graph", program.write(FLOW))
    assert (document["workflow"], document["run"], document["status"]) == ("all kinds", None, "")
    assert sorted(step["step"] for step in document["steps"]) == sorted(NAMES)
    by_name = {step["step"]: step for step in document["steps"]}
    assert by_name["work"]["inside"] == by_name["each"]["id"]
    assert by_name["on_failure-1"]["inside"] == by_name["build"]["id"]
    assert by_name["each"]["action"] == "map"
    assert edges_of(document) >= {
        ("prepare", "build", "needs"),
        ("prepare", "test", "needs"),
        ("build", "either", "any"),
        ("test", "either", "any"),
        ("either", "last", "next"),
        ("test", "prepare", "failure"),
        ("build", "on_failure-1", "failure"),
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_has_every_step(program: Program, kind: str) -> None:
    """A label of each step is in each format, of a file and of a run."""
    program.write(FLOW)
    program.call("run", "flow.yaml", code=0)
    for target in ("flow.yaml", "1"):
        found = drawn(program, target, kind)
        labels = list(texts_of(found)) if kind == "svg" else [found]
        for name in NAMES:
            assert any(name in label for label in labels), name


def test_text_is_the_default(program: Program) -> None:
    """Without a format the graph is text, a line for each step, with what it needs and what answers its failure."""
    assert program.call("graph", program.write(FLOW), code=0).stdout == drawn(program, "flow.yaml", "text")
    lines = drawn(program, "flow.yaml", "text").splitlines()
    assert lines[0] == "all kinds"
    assert lines[1:3] == ["  prepare", "  build  needs prepare"]
    assert lines[3].startswith("      on failure on_failure-1 (")
    assert "  either  needs build, test" in lines
    assert "      then last (1 === 1)" in lines
    assert lines[lines.index("  each") + 1] == "    work"


def test_a_run_has_its_statuses(program: Program) -> None:
    """The steps of a run have their statuses, those of items counted, and colors in every format that has some."""
    program.write(FLOW)
    program.call("run", "flow.yaml", code=0)
    document = program.json("graph", "1")
    assert (document["run"], document["status"]) == (1, "completed")
    status = {step["step"]: (step["status"], step["counts"]) for step in document["steps"]}
    assert status["prepare"] == ("completed", {})
    assert status["work"] == ("completed", {"completed": 2})
    assert status["build"][0] == "recovered"
    assert "  prepare  [completed]" in drawn(program, "1", "text").splitlines()
    assert 'fillcolor="#c8e6c9"' in drawn(program, "1", "dot")
    assert "classDef completed fill:#c8e6c9" in drawn(program, "1", "mermaid")
    assert 'fill="#c8e6c9"' in drawn(program, "1", "svg")
    assert 'fill="#c8e6c9"' not in drawn(program, "flow.yaml", "svg")


def test_names_are_escaped(program: Program) -> None:
    """Names with marks of a format stay names: the document is well-formed and the labels are whole."""
    names = [step["step"] for step in program.json("graph", program.write(HOSTILE))["steps"]]
    assert len(names) == 3
    assert set(names) <= set(texts_of(drawn(program, "flow.yaml", "svg")))
    for kind in ("dot", "mermaid"):
        lines = drawn(program, "flow.yaml", kind).splitlines()
        labels = [line for line in lines if line.strip().startswith(("n1", "n2", "n3"))]
        assert len(labels) == 4
        assert not any("<b>" in line for line in lines) or kind == "dot"


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_takes_it(program: Program) -> None:
    """Graphviz draws the names as they are."""
    drawing = drawn(program, program.write(HOSTILE), "dot")
    ran = subprocess.run(["dot", "-Tsvg"], input=drawing, capture_output=True, text=True, check=True)
    assert "日本語" in ran.stdout


def test_a_long_chain_and_a_cycle_of_arcs(program: Program) -> None:
    """A chain of 3,000 steps and arcs that lead back are drawn, too."""
    chain = "".join(f"  - {{id: s{number}, shell: x}}\n" for number in range(3_000))
    svg = drawn(program, program.write(f"resile: 1\nsteps:\n{chain}"), "svg")
    assert sum(1 for _ in texts_of(svg)) == 3_000
    loop = "resile: 1\nsteps: {a: {shell: x, next: b}, b: {shell: x, next: [{step: a, when: 'false'}]}}\n"
    assert list(texts_of(drawn(program, program.write(loop), "svg"))) == ["a", "b"]


def test_what_can_not_be_drawn(program: Program) -> None:
    """A file with an error, a run that is not there and an unknown format are exit 2."""
    program.write("resile: 1\nsteps: {a: {needs: b, shell: x}}\n")
    assert program.json("graph", "flow.yaml", code=2)["error"]["code"] == "unknown-step"
    assert program.json("graph", "7", code=2)["error"]["code"] in ("no-store", "no-such-run")
    assert program.json("graph", "flow.yaml", "--format", "png", code=2)["error"]["code"] == "usage"


def test_a_label_that_names_its_target(program: Program) -> None:
    """The text says once where a failure leads."""
    steps = "  a: {shell: x}\n  b: {shell: x, needs: [a], on_failure: {run: [fix], goto: a}}\n  fix: {shell: x}\n"
    program.write(f"resile: 1\nname: x\nsteps:\n{steps}")
    lines = drawn(program, "flow.yaml", "text").splitlines()
    assert lines[3:5] == ["      on failure run fix", "      on failure goto a"]


def test_the_graph_of_a_run_shows_items_as_they_are_now(tmp_path: Path) -> None:
    """An item that failed and passed as a retried letter counts as completed, once."""
    program = Program(tmp_path)
    map_ = "{map: {input: [1, 2], steps: [{id: work, shell: 'test -e ok || test ${item} = 1'}]}}"
    program.write(f"resile: 1\nname: letters\nsteps: {{each: {map_}}}\n")
    program.call("run", "flow.yaml", code=1)
    assert "    work  [1 completed, 1 failed]" in drawn(program, "1", "text").splitlines()
    (program.folder / "ok").touch()
    program.call("dlq", "retry", "1", "--resume", code=0)
    assert drawn(program, "1", "text").splitlines() == [
        "letters, run 1: completed",
        "  each  [completed]",
        "    work  [2 completed]",
    ]
