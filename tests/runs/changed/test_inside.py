"""Maps and child workflows: what changed inside them changes the whole step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from resile.commands.client import Client
from tests.runs.changed.place import LIMITS, Place, Quiet

PROGRAM = """\
from resile import Workflow, step

@step
def one(number: int) -> int:
    return number + MORE

with Workflow("flow") as flow:
    one.map([1, 2])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)
    return Place()


def _rerun_failed(run: int) -> str:
    """Run what failed again; the status of the run."""
    with Client.at("state.db") as client:
        return client.rerun(run, LIMITS, Quiet(None), failed_only=True).document.status


def test_the_code_of_functions_in_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file with the code of a function that runs for items has changed."""
    monkeypatch.chdir(tmp_path)
    place = Place("flow.py")
    place.write(PROGRAM.replace("MORE", "1"))
    run = place.run().run
    assert place.changes(run) == {}
    place.write(PROGRAM.replace("MORE", "2"))
    assert place.changes(run) == {"one": "command"}
    assert place.rerun(run) is not None
    assert place.changes(run) == {}


def test_items_of_earlier_epochs_count(place: Place) -> None:
    """A map that went on with the items that had failed knows what the others read and wrote."""
    inner = {"id": "s", "shell": "cat ${item}.in && touch ${item}.out", "reads": "${item}.in", "outputs": "${item}.out"}
    place.write({"steps": {"m": {"map": {"input": ["x", "y"], "steps": [inner]}}}})
    Path("x.in").write_text("x")
    run = place.run().run
    Path("y.in").write_text("y")
    assert _rerun_failed(run) == "completed"
    assert place.changes(run) == {}
    Path("x.in").write_text("other")
    assert place.changes(run) == {"m": "reads"}
    Path("x.in").write_text("x")
    Path("x.out").unlink()
    assert place.changes(run) == {"m": "outputs"}


def test_steps_of_a_child_in_earlier_epochs_count(place: Place) -> None:
    """A child workflow that went on where it failed knows what its first step read."""
    Path("child.yaml").write_text(
        '{"resile": 1, "name": "child", "steps": [{"id": "a", "shell": "cat x.in", "reads": "x.in"},'
        ' {"id": "b", "shell": "test -e fixed"}]}'
    )
    place.write({"steps": {"w": {"workflow": "child.yaml"}}})
    Path("x.in").write_text("x")
    run = place.run().run
    Path("fixed").touch()
    assert _rerun_failed(run) == "completed"
    assert place.changes(run) == {}
    Path("x.in").write_text("other")
    assert place.changes(run) == {"w": "reads"}


@pytest.mark.parametrize("kind", ["workflow", "map"])
def test_a_file_with_a_fixed_name_that_is_written_inside(place: Place, kind: str) -> None:
    """A step inside a map or a child workflow wrote a file whose name needs no run to be known, and it is gone."""
    inner = {"id": "s", "shell": "touch fixed.out", "outputs": "fixed.out"}
    Path("child.yaml").write_text(json.dumps({"resile": 1, "name": "child", "steps": [inner]}))
    action = {"workflow": "child.yaml", "map": {"input": ["x"], "steps": [inner]}}[kind]
    place.write({"steps": {"outer": {kind: action}}})
    run = place.run().run
    assert place.changes(run) == {}
    Path("fixed.out").unlink()
    assert place.changes(run) == {"outer": "outputs"}


def test_items_that_read_a_file_in_different_states(place: Place) -> None:
    """No state of the file is the one that the results of the map come from."""
    inner = {"id": "s", "shell": "cat all.in; test ${item} = x || test -e fixed", "reads": "all.in"}
    place.write({"steps": {"m": {"map": {"input": ["x", "y"], "steps": [inner]}}}})
    Path("all.in").write_text("1")
    run = place.run().run
    Path("all.in").write_text("2")
    Path("fixed").touch()
    assert _rerun_failed(run) == "completed"
    assert place.changes(run) == {"m": "reads"}


def test_items_with_different_inputs(place: Place) -> None:
    """A map whose items ran with different inputs counts as changed, whatever the inputs are."""
    from resile.commands.start.call import Given

    inner = {"id": "s", "shell": "echo ${inputs.n}; test ${item} = x || test -e fixed"}
    place.write({"inputs": {"n": {"default": "1"}}, "steps": {"m": {"map": {"input": ["x", "y"], "steps": [inner]}}}})
    run = place.run().run
    Path("fixed").touch()
    with Client.at("state.db") as client:
        client.rerun(run, LIMITS, Quiet(None), failed_only=True, inputs=Given(("n=2",)))
    assert [place.changes(run, f"n={n}") for n in (1, 2)] == [{"m": "new"}, {"m": "new"}]
