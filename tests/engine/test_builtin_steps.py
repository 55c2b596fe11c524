"""Steps that run inside the engine: operations on the memory, and what a transform makes of an output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resile.model.builtin_actions import Memory, Transform
from resile.model.failure import Outcome
from resile.model.workflow import Capture, Shell
from tests.engine.parts import Parts, parts_of

BEFORE = {"n": 2, "l": ["x"], "t": "text", "yes": True}


def with_memory(folder: Path, action: Memory) -> Parts:
    """The parts for one operation, on a memory that holds something."""
    parts = parts_of(folder, action, capture=(Capture("it", "value"),))
    parts.performer.values.memory.write(parts.state.jobs[1], {"default": BEFORE})
    return parts


@pytest.mark.parametrize(
    ("operation", "key", "given", "result", "after"),
    [
        ("set", "new", {"a": 1}, {"a": 1}, {**BEFORE, "new": {"a": 1}}),
        ("set", "n", None, None, {**BEFORE, "n": None}),
        ("append", "l", "y", ["x", "y"], {**BEFORE, "l": ["x", "y"]}),
        ("append", "t", 1, ["text", 1], {**BEFORE, "t": ["text", 1]}),
        ("append", "new", 1, [1], {**BEFORE, "new": [1]}),
        ("increment", "n", 3, 5, {**BEFORE, "n": 5}),
        ("increment", "n", None, 3, {**BEFORE, "n": 3}),
        ("increment", "new", 0.5, 0.5, {**BEFORE, "new": 0.5}),
        ("delete", "n", None, True, {name: value for name, value in BEFORE.items() if name != "n"}),
        ("delete", "new", None, False, BEFORE),
        ("clear", "", None, None, {}),
    ],
)
def test_an_operation_changes_the_memory(
    tmp_path: Path, operation: Any, key: str, given: Any, result: Any, after: dict[str, Any]
) -> None:
    """The step's value is the result; the outcome records the whole namespace."""
    parts = with_memory(tmp_path, Memory(operation, key, value=given))
    assert parts.outcome() == Outcome(0, values={"it": result}, memory={"default": after})


@pytest.mark.parametrize(
    ("operation", "key", "result"),
    [("get", "n", 2), ("get", "new", None), ("list", "", ["l", "n", "t", "yes"])],
)
def test_an_operation_that_reads_records_nothing(tmp_path: Path, operation: Any, key: str, result: Any) -> None:
    """The step's value is what it read."""
    assert with_memory(tmp_path, Memory(operation, key)).outcome() == Outcome(0, values={"it": result})


@pytest.mark.parametrize(
    ("key", "given", "shown"), [("t", 1, "text"), ("yes", 1, "True"), ("n", "x" * 61, "x" * 60), ("n", False, "False")]
)
def test_only_numbers_are_incremented(tmp_path: Path, key: str, given: Any, shown: str) -> None:
    """Neither the old value nor the new one may be anything else; the memory stays."""
    parts = with_memory(tmp_path, Memory("increment", key, value=given))
    made = parts.outcome()
    assert made.failure is not None
    expected = ("exit", f"{key!r} can't be incremented: {shown!r} is no number", 1)
    assert (made.failure.kind, made.failure.message, made.failure.exit_code) == expected
    assert parts.performer.values.memory.namespaces(parts.state.jobs[1]) == {"default": BEFORE}


@pytest.mark.parametrize(
    ("transform", "out", "value"),
    [
        (Transform(), b'{"a": 1}\n', {"a": 1}),
        (Transform(), b" plain \n", "plain"),
        (Transform(parse="text"), b"[1]", "[1]"),
        (Transform(parse="last"), b"said\n[1]\n", [1]),
        (Transform(parse="last"), b"said\nmore", "more"),
        (Transform(as_items=True), b"[1, 2]", [1, 2]),
        (Transform(as_items=True), b"one", ["one"]),
        (Transform(as_items=True), b"0", [0]),
        (Transform(parse="text", as_items=True), b"[1, 2]", [1, 2]),
    ],
)
def test_a_transform_reads_the_output(tmp_path: Path, transform: Transform, out: bytes, value: Any) -> None:
    """As JSON where it is JSON, unless it is to stay text; a list of items has one at least."""
    parts = parts_of(tmp_path, Shell("true"), transform=transform, capture=(Capture("it", "value"),))
    assert parts.end(out).values == {"it": value}


@pytest.mark.parametrize("out", [b"no", b'{"a": "\xff"}', b'{"a":' + b"[" * 100_000], ids=["text", "no text", "deep"])
def test_an_output_that_must_be_json_fails_the_step_if_it_is_not(tmp_path: Path, out: bytes) -> None:
    """The engine goes on."""
    parts = parts_of(tmp_path, Shell("true"), transform=Transform(parse="json"), capture=(Capture("it", "value"),))
    failure = parts.failure(out)
    assert (failure.kind, failure.message.startswith("the output is not JSON (")) == ("contract", True)


def test_an_empty_output_is_no_list_of_items(tmp_path: Path) -> None:
    """It has no first item, and says so."""
    parts = parts_of(tmp_path, Shell("true"), transform=Transform(as_items=True), capture=(Capture("it", "value"),))
    failure = parts.failure(b"\n")
    assert (failure.kind, failure.message.startswith("'a' ")) == ("contract", True)
