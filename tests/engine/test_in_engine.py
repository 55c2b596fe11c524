"""Attempts that the engine makes by itself: files that it writes, and items that it knows without a program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from resile.core.events import AttemptEnded
from resile.core.react import react
from resile.engine.items.listing import items_path, read_items
from resile.model.failure import Failure, Kind, Outcome
from resile.model.fanout import Source
from resile.model.workflow import FanOut, Shell, Step, WriteFile
from tests.core.world import failed, flow
from tests.engine.parts import Parts, parts_of
from tests.engine.simulated import START

INNER = (Step(name="work", action=Shell("true")),)


def map_over(folder: Path, source: Source, **inputs: Any) -> Parts:
    """The parts for a workflow of one fan-out."""
    return Parts(flow(Step(name="each", action=FanOut(source, INNER))), folder, **inputs)


def listed(folder: Path, job: int = 1) -> list[Any]:
    """The items that the first attempt of a job listed."""
    items, _, ended = read_items(items_path(str(folder), f"j{job}_r1_a1"), 0, 100)
    assert ended
    return [item.value for item in items]


def test_a_file_is_written_with_its_mode_and_its_folder(tmp_path: Path) -> None:
    """The folder is made; the attempt ends well, and no part of a file is left."""
    made = parts_of(tmp_path, WriteFile("new/file", "text\n", mode=0o640)).outcome()
    file = tmp_path / "new" / "file"
    assert (made, file.read_text()) == (Outcome(exit_code=0), "text\n")
    assert (file.stat().st_mode & 0o777, os.listdir(file.parent)) == (0o640, ["file"])


def test_a_file_that_cannot_be_written_fails_the_step(tmp_path: Path) -> None:
    """It ends as a command would that says why."""
    (tmp_path / "taken").write_text("")
    path = tmp_path / "taken" / "file"
    made = parts_of(tmp_path, WriteFile("taken/file", "text")).outcome()
    message, why = f"can't write {path}: File exists", "write_file: File exists"
    assert made == Outcome(1, Failure(Kind.EXIT, message, 1, signature=why))


@pytest.mark.parametrize(
    ("source", "items"),
    [
        (Source(values=(1, "b")), [1, "b"]),
        (Source(template="${inputs.list}"), ["a", 2]),
        (Source(template="${inputs.text}"), [3]),
        (Source(values=()), []),
    ],
    ids=["values", "list", "text of a list", "none"],
)
def test_items_that_the_engine_knows_are_listed_by_it(tmp_path: Path, source: Source, items: list[Any]) -> None:
    """Values of the file, and a reference to a list or to the JSON text of one."""
    made = map_over(tmp_path, source, list=["a", 2], text="[3]").outcome()
    assert made == Outcome(exit_code=0, values={"items": len(items)})
    assert listed(tmp_path) == items


def test_a_reference_to_no_list_fails_the_step(tmp_path: Path) -> None:
    """The failure names the reference."""
    failure = map_over(tmp_path, Source(template="${inputs.one}"), one="x").outcome().failure
    assert failure is not None
    assert (failure.kind, failure.message) == ("contract", "`${inputs.one}` is not a list")


@pytest.mark.parametrize(
    ("source", "remark"),
    [
        (Source(step="a"), "'a' gave no list, so there are no items"),
        (Source(template="${inputs.none}"), "`${inputs.none}` has no value, so there are no items"),
        (Source(template="${gone}"), "`${gone}` has no value, so there are no items"),
        (Source(path="missing.json"), "there is no file missing.json, so there are no items"),
    ],
)
def test_end_has_no_items_where_nothing_gave_them(tmp_path: Path, source: Source, remark: str) -> None:
    """After a failure the step that gives them may never have run; `end` runs all the same."""
    first, end = Step(name="a", action=Shell("false")), Step(name="end", action=FanOut(source, INNER))
    parts = Parts(flow(first, end=end), tmp_path, none="")
    react(parts.state, AttemptEnded(START, 1, 1, failed()))
    assert parts.outcome(2) == Outcome(exit_code=0, values={"items": 0}, remarks=(remark,))
    assert listed(tmp_path, 2) == []


def test_elsewhere_a_missing_value_fails_the_step(tmp_path: Path) -> None:
    """Only `end` does without."""
    failure = map_over(tmp_path, Source(template="${inputs.none}"), none="").outcome().failure
    assert failure is not None
    assert failure.message == "`${inputs.none}` is not a list"
