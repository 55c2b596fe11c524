"""Items that can't be had: what is known before the run is exit 2 and nothing runs, the rest fails the map."""

from __future__ import annotations

import msgspec
import pytest

from tests.cli.program import Program
from tests.runs.ladder.flows import Flows

FLOW = "resile: 1\nname: bad\nsteps:\n- id: process\n  map:\n    KEYS\n    steps: [{shell: ./step item}]\n"
TEN = "".join(f'{{"n": {n}}}\n' if n != 7 else '{"n": 7\n' for n in range(1, 11))


def files(program: Program) -> None:
    """Good and bad inputs beside the workflow."""
    for name, text in {
        "doc.json": '{"name": "x", "items": [1, 2], "none": []}',
        "object.json": '{"a": 1}',
        "broken.json": '[1, 2',
        "ten.jsonl": TEN,
    }.items():  # fmt: skip
        program.write(text, name)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("input: doc.json\n    json_path: $.nope[*]", "doc.json: nothing is there under $.nope"),
        ("input: doc.json\n    json_path: $.name", "doc.json: $.name is a text, not an array"),
        ("input: object.json", "object.json: $ is an object, not an array"),
        ("input: ten.jsonl", "ten.jsonl: line 7: this is no JSON: Input data was truncated"),
        ("input: missing.json", "there is no file missing.json (looked for in FOLDER)"),
    ],
)
def test_what_is_wrong_before_the_run_is_said_before_anything_runs(flows: Flows, keys: str, message: str) -> None:
    """Exit 2 with the place of the map, no run, no step."""
    files(flows.program)
    flows.program.write(FLOW.replace("KEYS", keys))
    document = flows.program.json("run", "flow.yaml", code=2)
    expected = message.replace("FOLDER", str(flows.folder))
    assert document["error"]["message"] == f"the items of 'process': {expected}"
    assert document["error"]["where"] == "flow.yaml:4:7"
    assert not (flows.folder / "trace").exists()
    assert not (flows.folder / "resile.db").exists()


def test_broken_json_is_named(flows: Flows) -> None:
    """A file that ends in the middle of its list."""
    files(flows.program)
    flows.program.write(FLOW.replace("KEYS", "input: broken.json"))
    error = flows.program.json("run", "flow.yaml", code=2)["error"]
    assert error["message"].startswith("the items of 'process': broken.json: ")


def test_no_items_at_a_time_is_refused_with_its_place(flows: Flows) -> None:
    """`max_parallel: 0` could never end."""
    flows.program.write(FLOW.replace("KEYS", "input: [a]\n    max_parallel: 0"))
    error = flows.program.json("run", "flow.yaml", code=2)["error"]
    assert error["message"] == "`0` is out of bounds: expected a whole number from 1 to 10000"
    assert error["where"] == "flow.yaml:7:19"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("input: cat ten.jsonl", "exit code 2: the output of the command: line 7: this is no JSON"),
        ("input: exit 3", "exit code 3"),
        ("input: 'cat doc.json'\n    json_path: $.nope", "exit code 2: the output of the command: nothing is there"),
    ],
)
def test_what_only_a_command_can_tell_fails_the_map(flows: Flows, keys: str, message: str) -> None:
    """Exit 1: the map step fails with the reason, and its rules could answer that."""
    files(flows.program)
    ran = flows.run(FLOW.replace("KEYS", keys), 1)
    assert ran.failed.startswith(message)
    assert ran.order == []


def test_a_file_that_setup_makes_is_looked_at_when_it_is_there(flows: Flows) -> None:
    """A map that needs another step is not looked at before; a malformed file then fails the map."""
    text = (
        "mode: mapreduce\nsetup: [{shell: cp made items.jsonl}]\n"
        "map: {input: items.jsonl, steps: [{shell: './step item-${item.n}'}]}\n"
    )
    flows.program.write(TEN, "made")
    assert flows.run(text, 1).failed.startswith("exit code 2: items.jsonl: line 7: this is no JSON")
    flows.program.write(TEN.replace('{"n": 7\n', '{"n": 7}\n'), "made")
    assert flows.run(text).order == [f"item-{n}" for n in range(1, 11)]


def test_an_empty_array_is_no_error(flows: Flows) -> None:
    """Zero items: the map completes."""
    files(flows.program)
    ran = flows.run(FLOW.replace("KEYS", "input: doc.json\n    json_path: $.none"))
    assert ran.document["maps"]["process"]["total_items"] == 0
    assert ran.order == []


def test_items_of_five_megabytes(flows: Flows) -> None:
    """They run, one after the other; a step sees its item, as far as a shell's argument can hold it."""
    lines = [msgspec.json.encode({"n": n, "text": "x" * 5_000_000}) for n in range(3)]
    (flows.folder / "large.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    text = FLOW.replace("KEYS", "input: large.jsonl").replace("./step item", "'./step item-${item.n}'")
    ran = flows.run(text)
    assert ran.order == ["item-0", "item-1", "item-2"]
    assert ran.document["maps"]["process"]["successful"] == 3


def test_an_item_beyond_the_limit_is_refused_by_its_number(flows: Flows) -> None:
    """One item of 17 MB is too large, whoever made it."""
    (flows.folder / "huge.jsonl").write_bytes(b"1\n" + msgspec.json.encode("x" * 17_000_000) + b"\n")
    ran = flows.run(FLOW.replace("KEYS", "input: huge.jsonl"), 1)
    assert ran.failed == "exit code 2: huge.jsonl: item 1 has 17000002 bytes, at most 16777216 are allowed"
    assert ran.order == []
