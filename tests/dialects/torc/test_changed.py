"""Torc's reinitialize: jobs run again whose input files, data or commands changed, or whose outputs are missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resile.errors import ResileError
from tests.runs.changed.place import Place

FILES = [{"name": name, "path": f"{name}.txt"} for name in ("in", "mid", "out")]
JOBS = [
    {"name": "first", "command": "cat ${files.input.in} > ${files.output.mid}"},
    {"name": "second", "command": "cat ${files.input.mid} > ${files.output.out}"},
    {"name": "tuned", "command": "echo ${user_data.input.setting}"},
    {"name": "listed", "command": "echo listed", "input_user_data": ["other"]},
    {"name": "asks", "command": "torc user-data list > /dev/null || true"},
]


def _spec(**more: Any) -> str:
    """A workflow file; some of its parts may be others."""
    data = [{"name": "setting", "data": {"a": 1}}, {"name": "other", "data": [1]}]
    return json.dumps({"name": "flow", "files": FILES, "user_data": data, "jobs": JOBS, **more})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder in which the workflow has run once."""
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("in")
    place = Place("flow.json")
    place.write(_spec())
    assert place.run().status == "completed"
    return place


def test_nothing_changed(place: Place) -> None:
    """Nothing runs again."""
    assert place.changes(1) == {}
    assert place.rerun(1) is None


def test_input_files_and_outputs(place: Place) -> None:
    """A changed input file and a missing output concern their jobs, and all below."""
    Path("out.txt").unlink()
    assert place.changes(1) == {"second": "outputs"}
    Path("in.txt").write_text("other")
    assert place.changes(1) == {"first": "reads", "second": "outputs"}
    again = place.rerun(1)
    assert again is not None
    assert (again.epoch, place.started(1, 2), Path("out.txt").read_text()) == (2, ["first", "second"], "other")


def test_user_data(place: Place) -> None:
    """Changed data concerns the jobs that read it, and no job that only stands beside it."""
    place.write(_spec(user_data=[{"name": "setting", "data": {"a": 2}}, {"name": "other", "data": [1]}]))
    assert place.changes(1) == {"tuned": "command"}
    place.write(_spec(user_data=[{"name": "setting", "data": {"a": 1}}, {"name": "other", "data": [2]}]))
    assert place.changes(1) == {"listed": "command"}


def test_resources_do_not_count(place: Place) -> None:
    """Other resources change no job; another command does."""
    asked = [{"name": "small", "num_cpus": 1, "memory": "10m", "runtime": "PT1H"}]
    jobs = [{**JOBS[0], "resource_requirements": "small"}, *JOBS[1:]]
    place.write(_spec(resource_requirements=asked, jobs=jobs))
    assert place.changes(1) == {}
    place.write(_spec(jobs=[JOBS[0], {**JOBS[1], "command": JOBS[1]["command"] + "; true"}, *JOBS[2:]]))
    assert place.changes(1) == {"second": "command"}


def test_missing_input(place: Place) -> None:
    """A file that no job writes and that is not there is refused before anything runs, and no epoch begins."""
    Path("in.txt").unlink()
    with pytest.raises(ResileError, match="no job writes the file `in`"):
        place.rerun(1)
    Path("in.txt").write_text("in")
    assert place.rerun(1) is None
