"""The items of a fan-out: what each kind of input holds, which of it is taken, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from resile.engine.actions.map import items_program
from resile.model.fanout import Source
from resile.model.limits import ITEM_BYTES_MAX, ITEM_DEPTH_MAX
from tests.engine.listing import Listing

HOSTILE = "a b'\"$(touch pwned)`\n;é"


@pytest.fixture
def listing(tmp_path: Path) -> Listing:
    """A fresh folder."""
    return Listing(tmp_path)


def test_the_items_file_has_a_line_for_each_item(listing: Listing) -> None:
    """A line is `[index,value]` with the value as it was written, and nothing is left beside the file."""
    assert listing.items('{"a": 1.50}\n\n  "x"  \r\n[1]\n', name="in.jsonl") == [(0, {"a": 1.5}), (1, "x"), (2, [1])]
    assert Path(listing.into).read_bytes() == b'[0,{"a": 1.50}]\n[1,"x"]\n[2,[1]]\n'
    assert listing.left() == ["map.jsonl"]


@pytest.mark.parametrize(
    ("name", "content", "values"),
    [
        ("in.json", "[1, [2], {}]", [1, [2], {}]),
        ("in.json", "\ufeff [ 1 ,\n 2 ] \n", [1, 2]),
        ("in.json", "[]", []),
        ("in.json", '[\n {\n "a":\n 1\n },\n "\\n"\n]', [{"a": 1}, "\n"]),
        ("in.json", '{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        ("in.data", "[1]\n[2]", [[1], [2]]),
        ("in.jsonl", "[1, 2]\n", [[1, 2]]),
        ("in.NDJSON", '\ufeff{"a": 1}', [{"a": 1}]),
        ("in.jsonl", "", []),
        (
            "in.json",
            '["\\ud800", 123456789012345678901234567890, "é"]',
            ["\ud800", 123456789012345678901234567890, "é"],
        ),
    ],
)
def test_files_are_told_apart_by_what_they_hold(listing: Listing, name: str, content: str, values: list[Any]) -> None:
    """JSON Lines are known by name, or by a first line that is a value with more after it; all else is JSON."""
    assert listing.values(content, name=name) == values


ORDERS = '{"orders": {"open": [{"id": 1}, {"id": 2}], "none": [], "map": {"x": 5, "y": [6]}, "n": 3}, "l": [[1, 2]]}'


@pytest.mark.parametrize(
    ("json_path", "values"),
    [
        ("$.orders.open", [{"id": 1}, {"id": 2}]),
        ("$.orders.open[*]", [{"id": 1}, {"id": 2}]),
        ("$.orders.none", []),
        ("$.orders.none[*]", []),
        ("$.orders.none[*].id", []),
        ("$.orders.map[*]", [5, [6]]),
        ("$.orders.map.y", [6]),
        ("$.l[*]", [[1, 2]]),
        ("$.l[0]", [1, 2]),
        ("$..open", [{"id": 1}, {"id": 2}]),
        ("$.orders.open[?(@.id > 1)]", [{"id": 2}]),
        ("$.orders.open[?@.id > 5]", []),
        ("$['orders']['open'][*].id", [1, 2]),
        ("$.orders.open[:1]", [{"id": 1}]),
    ],
)
def test_a_json_path_finds_the_items(listing: Listing, json_path: str, values: list[Any]) -> None:
    """One array that a path names means its elements, and nothing found by looking through what is there is no item."""
    assert listing.values(ORDERS, json_path=json_path) == values


@pytest.mark.parametrize(
    ("json_path", "complaint"),
    [
        ("$.order.open[*]", "nothing is there under $.order"),
        ("$.orders.n[*]", "$.orders.n is a number, not an array"),
        ("$.orders.n", "$.orders.n is a number, not an array"),
        ("$.orders.n.deep", "nothing is there under $.orders.n.deep"),
        ("$.orders", "$.orders is an object, not an array"),
        ("", "$ is an object, not an array"),
        ("$.orders.open[7]", "nothing is there under $['orders']['open'][7]"),
        ("$.orders.open[*].name", "nothing is there under $['orders']['open'][*]['name']"),
        ("$.orders.open[0]", "$.orders.open[0] is an object, not an array"),
        ("$..nowhere", "nothing is there under $..['nowhere']"),
        ("$.orders[", "json_path `$.orders[` is no JSONPath: unexpected end of query"),
    ],
)
def test_a_json_path_that_leads_nowhere_is_refused(listing: Listing, json_path: str, complaint: str) -> None:
    """A path that does not exist and a value that is no array are errors and never zero items."""
    assert listing.refused(ORDERS, json_path=json_path) == f"in.json: {complaint}"


def test_json_lines_are_an_array_to_a_json_path(listing: Listing) -> None:
    """A path looks into the list of lines, as it would into a file with the same values in brackets."""
    lines = '{"n": 1}\n{"n": 2}\n'
    assert listing.values(lines, name="in.jsonl", json_path="$[*]") == [{"n": 1}, {"n": 2}]
    assert listing.values(lines, name="in.jsonl", json_path="$[*].n") == [1, 2]
    os.unlink(listing.into)
    complaint = listing.refused(lines, name="in.jsonl", json_path="$.n")
    assert complaint == "in.jsonl: nothing is there under $.n: JSON Lines are an array"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("in.jsonl", "1\n" * 6 + '{"a": \n' + "2\n" * 3, "line 7: this is no JSON: Input data was truncated"),
        ("in.jsonl", "\n\n{]\n", "line 3: this is no JSON: JSON is malformed: object keys must be strings (byte 1)"),
        ("in.jsonl", b'"\xff"', "line 1: this is no JSON: 'utf-8' codec can't decode byte 0xff in position 0"),
        ("in.json", "[1]\n[2\n", "line 2: this is no JSON: Input data was truncated"),
        ("in.json", "", "it is empty"),
        ("in.json", "hello", "this is no JSON: no value begins like this (byte 0)"),
        ("in.json", "5", "$ is a number, not an array"),
        ("in.json", "[1, 2", "this is no JSON: it ends too early (byte 5)"),
        ("in.json", '[1, "2', "this is no JSON: it ends in the middle of a value (byte 6)"),
        ("in.json", "[1,]", "this is no JSON: a value is missing here (byte 3)"),
        ("in.json", "[1}", "this is no JSON: a comma or ] is expected here (byte 2)"),
        ("in.json", "[1] 2", "this is no JSON: there is more after its end (byte 4)"),
        ("in.json", "[1, 2 3]", "item 1: this is no JSON: JSON is malformed: trailing characters"),
        ("in.json", "[NaN]", "item 0: this is no JSON: JSON is malformed: invalid character (byte 0)"),
        ("in.json", "[1e999]", "item 0: this is no JSON: Number out of range"),
        ("in.json", f"[{'[' * 201}{']' * 201}]", f"item 0: it is nested in more than {ITEM_DEPTH_MAX} levels"),
    ],
)
def test_malformed_input_is_named_by_its_place(
    listing: Listing, name: str, content: str | bytes, complaint: str
) -> None:
    """Each complaint says the file, the line or item, and what is wrong there."""
    assert listing.refused(content, name=name).startswith(f"{name}: {complaint}")


def test_keys_on_the_way_are_read_as_json_reads_them(listing: Listing) -> None:
    """Escaped keys are found, values beside the way are passed by, and a key that is there twice is refused."""
    text = '{"x": {"b": [9], "s": "]}\\\\"}, "\\u0061": {"y": [[{}]], "b" : [1, 2], "z": {}}, "w": [{}]}'
    assert listing.values(text, json_path="$.a.b") == [1, 2]
    os.unlink(listing.into)
    assert listing.refused('{"a": [1], "a": [2]}', json_path="$.a") == "in.json: $.a is there twice"
    assert "a colon is expected" in listing.refused('{"x" 1, "a": [1]}', json_path="$.a")
    assert "a key is expected" in listing.refused('{x: 1, "a": [1]}', json_path="$.a")
    assert "a comma or }" in listing.refused('{"a": [1]]', json_path="$.a")


def test_large_items_pass_and_larger_ones_are_refused(listing: Listing) -> None:
    """Five megabytes are an item; more than the limit is named by index and size, in every kind of input."""
    large = "x" * 5_000_000
    assert listing.values(f'["{large}", 1]') == [large, 1]
    assert listing.values(f'1\n"{large}"', name="in.jsonl") == [1, large]
    os.unlink(listing.into)
    text = f'"{"x" * (ITEM_BYTES_MAX + 3)}"'
    wrong = f"item 1 has {ITEM_BYTES_MAX + 5} bytes, at most {ITEM_BYTES_MAX} are allowed"
    assert listing.refused(f"[0, {text}, 2]") == f"in.json: {wrong}"
    assert listing.refused(f"0\n\n{text}\n2", name="in.jsonl") == f"in.jsonl: {wrong}"
    assert listing.refused(f"[0, {text}]", json_path="$[?true == true]") == f"in.json: {wrong}"


def test_a_large_array_is_not_held_in_memory(listing: Listing) -> None:
    """A program that may have less memory than its input has bytes, all of them in one line, lists it nevertheless."""
    with open(listing.folder / "in.json", "w") as file:
        file.write('{"data": [0')
        for number in range(100):
            file.write(f', "{number}{"x" * 1_000_000}"')
        file.write("]}")
    argv, told = items_program(Source(path="in.json", json_path="$.data"), listing.into, str(listing.folder), str)
    limited = ["sh", "-c", 'ulimit -v 90000; exec "$@"', "sh", *argv]
    done = subprocess.run(limited, env={**os.environb, b"RESILE_STEP": told}, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"101\n", b"")
    assert os.path.getsize(listing.into) > 100_000_000


@pytest.mark.parametrize(
    ("command", "json_path", "values"),
    [
        ("echo '[1, \"a\"]'", "", [1, "a"]),
        ("printf '{\\n\"l\": [1]\\n}'", "$.l", [1]),
        ("echo '{\"l\": [1]}'", "$.l[*]", [1]),
        ('printf \'{"n": 1}\\n{"n": 2}\\n\'', "", [{"n": 1}, {"n": 2}]),
        ("echo '{\"n\": 1}'", "", [{"n": 1}]),
        ("printf '\"a\"\\n5\\n'", "", ["a", 5]),
        ("printf 'one\\n\\n  two \\r\\n3\\n'", "", ["one", "  two ", "3"]),
        ("printf 'caf\\351\\n'", "", ["caf\udce9"]),
        ("printf '1\\n2'", "", ["1", "2"]),
        ("true", "", []),
        ("echo $FROM; echo ${RESILE_STEP-gone}; pwd -P | grep -c /", "", ["caller", "gone", "1"]),
    ],
)
def test_a_commands_output_is_read_by_what_it_looks_like(
    listing: Listing, command: str, json_path: str, values: list[Any]
) -> None:
    """JSON, JSON Lines and plain lines are told apart, and the command has the step's directory and environment."""
    assert listing.values(command=command, json_path=json_path) == values


@pytest.mark.parametrize(
    ("command", "json_path", "complaint"),
    [
        ("echo null", "", "$ is null, not an array"),
        ("printf '{\\n\"l\": [1]\\n}'", "", "$ is an object, not an array"),
        ("echo '[oops'", "", "item 0: this is no JSON: JSON is malformed: invalid character (byte 0)"),
        ("true", "$.l", "it is empty"),
        ("echo hello", "$.l", "this is no JSON: no value begins like this (byte 0)"),
        ("printf '{\"n\": 1}\\nx\\n'", "", "line 2: this is no JSON: JSON is malformed: invalid character (byte 0)"),
    ],
)
def test_output_that_is_no_list_is_refused(listing: Listing, command: str, json_path: str, complaint: str) -> None:
    """What begins like JSON must be a list of items, and where there is a path there must be JSON."""
    assert listing.refused(command=command, json_path=json_path) == f"the output of the command: {complaint}"


def test_a_command_that_fails_lists_nothing(listing: Listing) -> None:
    """Its exit code is the program's, its last complaint is in the message, and what it printed is dropped."""
    code, said, complaint = listing.list(command="echo a; echo first >&2; echo 'no disk' >&2; exit 3")
    assert (code, said, complaint) == (3, "", "the command that lists the items exited with 3: no disk")
    code, _, complaint = listing.list(command="echo a; kill -TERM $$")
    assert (code, complaint) == (143, "the command that lists the items was ended by signal 15")
    code, _, complaint = listing.list(command="echo a", program="no-such-shell")
    assert (code, complaint) == (127, "can't run no-such-shell: No such file or directory")
    assert listing.left() == []


def test_a_killed_listing_leaves_nothing(listing: Listing) -> None:
    """An items file is there whole or not at all, also after a kill in the middle."""
    code, _, _ = listing.list(command="seq 1000; kill -9 $PPID", sort_by="item")
    assert (code, listing.left()) == (-signal.SIGKILL, [])


def test_values_reach_commands_and_paths_as_data(listing: Listing) -> None:
    """A value is quoted for the shell it goes to, and put as it is into a file's name and a path."""
    values = {"inputs.x": HOSTILE, "inputs.name": "deep", "inputs.file": "in"}
    command = "printf '%s\\n' ${inputs.x} \"<${inputs.x}>\" ${FROM}"
    expected = "\n".join((HOSTILE, f"<{HOSTILE}>", "caller")).split("\n")
    assert listing.values(command=command, program="bash", values=values) == expected
    (listing.folder / "in.json").write_text('{"deep": [1]}')
    assert listing.values(path="${inputs.file}.json", json_path="$.${inputs.name}", values=values) == [1]
    assert not (listing.folder / "pwned").exists()


def test_a_file_is_looked_for_beside_the_workflow_first(listing: Listing) -> None:
    """A path means the folder of the workflow's file, then the directory of the step, and the message names both."""
    beside = listing.folder / "flows"
    beside.mkdir()
    (listing.folder / "in.json").write_text("[1]")

    def program() -> tuple[int, str]:
        argv, told = items_program(Source(path="in.json"), listing.into, str(beside), str)
        env = {**os.environb, b"RESILE_STEP": told}
        done = subprocess.run(argv, cwd=listing.folder, env=env, capture_output=True, check=False)
        return done.returncode, done.stderr.decode().strip()

    assert (program(), listing.read()) == ((0, ""), [(0, 1)])
    (beside / "in.json").write_text("[2]")
    assert (program(), listing.read()) == ((0, ""), [(0, 2)])
    (beside / "in.json").unlink()
    (listing.folder / "in.json").unlink()
    message = f"there is no file in.json (looked for in {beside} and in {listing.folder})"
    assert program() == (2, message)
    (beside / "in.json").mkdir()
    assert program() == (2, "in.json is not a file")
