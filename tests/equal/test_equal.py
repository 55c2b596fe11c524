"""The comparison of two versions finds what differs, and says where."""

from __future__ import annotations

from pathlib import Path

from tests.equal.compiling import Compiler, Version
from tests.equal.differences import Difference, Table, differences
from tests.equal.files import ROOT


def test_every_place_that_differs_is_told() -> None:
    """Places are keys and numbers; another type, an entry more and an entry less are differences."""
    old = {"name": "a", "steps": [{"id": 1}, {"id": 2}], "gone": None}
    new = {"name": "a", "steps": [{"id": 1.0}, {"id": 2}, "more"], "come": [1]}
    assert list(differences(old, new)) == [
        Difference("steps.0.id", "1", "1.0"),
        Difference("steps.2", "nothing", "'more'"),
        Difference("gone", "None", "nothing"),
        Difference("come", "nothing", "[1]"),
    ]
    assert list(differences(old, old)) == []


def test_of_long_texts_the_part_that_differs_is_shown() -> None:
    """What both begin with is left out but for a few characters."""
    (found,) = differences("a" * 1000 + "b", "a" * 1000 + "c", "text")
    assert (found.old[-2:], found.new[-2:]) == ("b'", "c'")
    assert len(found.old) < 100


def test_a_row_accepts_what_both_patterns_match() -> None:
    """A row is for some files and some places; one that was not needed is told."""
    table = Table([("examples/*", "model.*.text", "a better text"), ("docs/*", "*", "never")])
    assert table.accepts("examples/a.yaml", Difference("model.steps.0.text", "1", "2"))
    assert not table.accepts("tests/a.yaml", Difference("model.steps.0.text", "1", "2"))
    assert not table.accepts("examples/a.yaml", Difference("model.steps.0.name", "1", "2"))
    assert table.unused() == ["docs/*: *: never"]


def test_the_driver_compiles_with_this_version(tmp_path: Path) -> None:
    """It finds the modules that it needs by the names in its tables, and tells model, findings and native text."""
    flow = tmp_path / "flow.yaml"
    flow.write_text("resile: 1\nname: one\nsteps:\n- id: a\n  shell: 'true'\n")
    version = Version("new", ROOT, tmp_path)
    version.prepare()
    compiler = Compiler(version, tmp_path)
    try:
        compiler.ask(flow)
        told = compiler.answer()
    finally:
        compiler.close()
    assert told["model"]["steps"][0]["name"] == "a"
    assert told["check"]["files"][0]["ok"]
    assert "resile: 1" in told["migrated"]
