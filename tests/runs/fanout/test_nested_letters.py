"""Dead letters of maps inside items, child workflows and forEach: they run again and see what they saw before."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from tests.runs.fanout.runs import letters
from tests.runs.ladder.flows import Flows

# What a leaf leaves behind: its name and everything around it that it sees. It fails for even items until it is fixed.
LEAF = "echo ${item_id} ${item} %s >> effects; test -e fixed || test ${item} -ne 2"
CHILD = """\
resile: 1
name: child
inputs: {who: {required: true}}
steps:
- {id: name, shell: 'echo child-of-${inputs.who}', capture: whose}
- id: inner
  map: {input: [1, 2, 3], steps: [{id: leaf, shell: 'LEAF'}], error_policy: {continue_on_failure: true}}
- {id: after, shell: 'echo after ${inputs.who} ${steps.inner.failed} >> effects'}
""".replace("LEAF", LEAF % "${whose} ${inputs.who}")
IN_MAP = """\
name: deep
inputs: {greeting: hello}
steps:
- {id: top, shell: echo top, capture: top}
- id: outer
  map:
    input: [{n: x}, {n: y}]
    steps:
    - {id: name, shell: 'echo ${item.n}${item.n}', capture: twice}
    - id: inner
      map: {input: [1, 2, 3], steps: [{id: leaf, shell: 'LEAF'}], error_policy: {continue_on_failure: true}}
    - {id: tail, shell: 'echo after ${twice} ${steps.inner.dead_letters} >> effects'}
""".replace("LEAF", LEAF % "${twice} ${top} ${inputs.greeting} ${steps.name.output}")
IN_CHILD = "name: deep\nsteps:\n- {id: sub, workflow: child.yaml, inputs: {who: me}}\n"
IN_CHILD_IN_MAP = """\
name: deep
steps:
- id: outer
  map:
    input: [x, y]
    steps: [{id: sub, workflow: child.yaml, inputs: {who: '${item}'}}]
"""
IN_FOREACH = """\
name: deep
steps:
  list: {shell: "echo '[10, 20]'", foreach: true, error_policy: {continue_on_failure: true}}
  some: {shell: "echo '[1, 2, 3]'", needs: [list], foreach: true, error_policy: {continue_on_failure: true}}
  leaf: {shell: 'LEAF', needs: [some]}
  report: {shell: 'echo after ${steps.leaf.failed} >> effects', needs: [leaf], fanout: reduce}
""".replace("LEAF", LEAF % "${steps.list.output}")

CASES = {
    "map in map": (
        IN_MAP,
        {"outer[0]/inner": "xx top hello xx", "outer[1]/inner": "yy top hello yy"},
        ["after xx 1", "after yy 1"],
    ),
    "map in child": (IN_CHILD, {"sub/inner": "child-of-me me"}, ["after me 1"]),
    "map in child in item": (
        IN_CHILD_IN_MAP,
        {"outer[0]/sub/inner": "child-of-x x", "outer[1]/sub/inner": "child-of-y y"},
        ["after x 1", "after y 1"],
    ),
    "forEach in forEach": (IN_FOREACH, {"list[0]/some": "10", "list[1]/some": "20"}, ["after 1", "after 1"]),
}


def effects(flows: Flows) -> list[str]:
    """What the steps left behind, in the order of the alphabet, and forget it."""
    path = flows.folder / "effects"
    found = sorted(path.read_text().splitlines())
    path.unlink()
    return found


def totals(numbers: dict[str, Any]) -> tuple[Any, ...]:
    """What all fan-outs of one map came to together."""
    return tuple(numbers[key] for key in ("total_items", "successful", "failed", "dead_letters", "error_types"))


@pytest.mark.parametrize("case", CASES)
def test_letters_run_again_and_see_what_they_saw(flows: Flows, case: str) -> None:
    """Only the failed items run, with the names, inputs and items around them; then none is left, and counts hold."""
    text, maps, after = CASES[case]
    flows.program.write(CHILD, "child.yaml")
    ran = flows.run(text)
    ids = [f"{name}[1]" for name in maps]
    every = [f"{name}[{index}] {index + 1} {seen}" for name, seen in maps.items() for index in range(3)]
    assert effects(flows) == sorted([*every, *after])
    assert letters(flows) == [(name, "failed", 1) for name in ids]
    assert ran.document["dead_letters"] == len(ids)
    path = re.sub(r"\[\d+\]", "", next(iter(maps)))
    count = len(maps)
    assert totals(ran.document["maps"][path]) == (3 * count, 2 * count, count, count, {"exit:1": count})
    assert flows.program.json("dlq", "retry", "1", code=1)["left"] == len(ids)
    assert letters(flows) == [(name, "failed", 2) for name in ids]
    numbers = flows.program.json("metrics", "1")["maps"][path]
    assert totals(numbers) == (3 * count, 2 * count, count, count, {"exit:1": count})
    again = [f"{name}[1] 2 {seen}" for name, seen in maps.items()]
    assert effects(flows) == again
    (flows.folder / "fixed").touch()
    assert flows.program.json("dlq", "retry", "1")["succeeded"] == len(ids)
    assert effects(flows) == again
    assert letters(flows) == []
    document = flows.program.json("status", "1")
    assert (document["status"], document["dead_letters"]) == ("completed", 0)
    assert totals(document["maps"][path]) == (3 * count, 3 * count, 0, 0, {})
    flows.program.json("rerun", "1")
    assert totals(flows.program.json("status", "1")["maps"][path]) == (3 * count, 3 * count, 0, 0, {})
    lines = flows.program.call("events", "ls", "1", "--type", "redrive_finished", "--json", code=0).stdout.splitlines()
    assert sum('"successful":3,"failed":0' in line for line in lines) == len(ids)


def test_the_letters_of_one_item_of_the_outer_map(flows: Flows) -> None:
    """A map is called by its step, by its path, or for one item around it; one that is several is refused."""
    flows.program.write(CHILD, "child.yaml")
    flows.run(
        IN_CHILD_IN_MAP
        + "- {id: inner, map: {input: [7], steps: [{shell: exit 1}], error_policy: {continue_on_failure: true}}}\n"
    )
    names = ["inner[0]", "outer[0]/sub/inner[1]", "outer[1]/sub/inner[1]"]
    for word, expected in (
        ("inner", names),
        ("outer/sub/inner", names[1:]),
        ("outer[1]/sub/inner", names[2:]),
        ("outer", []),
    ):
        listed = flows.program.json("dlq", "list", "1", "--step", word)["dead_letters"]
        assert [letter["item_id"] for letter in listed] == expected
        assert flows.program.json("dlq", "stats", "1", "--step", word)["total"] == len(expected)
        exported = flows.program.call("dlq", "export", "1", "--step", word, code=0).stdout
        assert len(exported.splitlines()) == len(expected)
    error = flows.program.json("dlq", "retry", "1", "--step", "inner", code=2)["error"]
    assert error["message"] == "run 1 has dead letters of several maps: inner, outer/sub/inner"
    error = flows.program.json("dlq", "list", "1", "--step", "sub", code=2)["error"]
    assert (error["code"], error["hint"]) == ("no-such-map", "its maps are: outer, outer/sub/inner, inner")
    (flows.folder / "fixed").touch()
    assert flows.program.json("dlq", "retry", "1", "--step", "outer[1]/sub/inner")["map"] == "outer/sub/inner"
    assert flows.program.json("dlq", "purge", "1", "--step", "outer/sub/inner", "--yes")["purged"] == 1
    assert [name for name, _, _ in letters(flows)] == ["inner[0]"]


def test_an_item_that_several_maps_have(flows: Flows) -> None:
    """An index or a short name that is ambiguous is refused, with the full names and how to say one of them."""
    flows.run(IN_MAP)
    for which in ("1", "inner[1]"):
        error = flows.program.json("dlq", "show", "1", which, code=2)["error"]
        assert error["code"] == "ambiguous-item"
        assert error["message"].endswith(f"are called {which}: outer[0]/inner[1], outer[1]/inner[1]")
        assert error["hint"] == "name one in full, such as `resile dlq show 1 'outer[0]/inner[1]'`"
    assert flows.program.json("dlq", "show", "1", "outer[1]/inner[1]")["correlation_id"] == "1:outer[1]/inner[1]"
    assert flows.program.json("dlq", "show", "1", "1", "--step", "outer[0]/inner")["item_id"] == "outer[0]/inner[1]"


# With a limit on failures no item is reserved ahead, so that a signal can't come too late to hold the next one back.
GATED = """\
name: gated
steps:
- id: outer
  map:
    input: [x, y]
    max_parallel: 1
    steps:
    - {id: name, shell: 'echo ${item}${item}', capture: whose}
    - id: inner
      map:
        input: [0, 1]
        max_parallel: 1
        error_policy: {max_failures: 99}
        steps:
        - {id: s, shell: 'test -e open || exit 1; echo ${whose}${item} >> effects; echo here > at; read go < gate'}
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("how", [("dlq", "retry", "1"), ("resume", "1")])
def test_a_redrive_that_is_cut_short_goes_on(flows: Flows, number: signal.Signals, how: tuple[str, ...]) -> None:
    """In the second fan-out, by Ctrl-C or kill -9: what runs is finished or adopted, the rest follows, all once."""
    flows.run(GATED)
    (flows.folder / "open").touch()
    at, gate = flows.program.gate("at"), flows.program.gate("gate")
    with flows.program.start("dlq", "retry", "1") as redrive:
        for _ in range(2):
            at.wait()
            gate.open()
        at.wait()
        redrive.send(number)
        if number is signal.SIGINT:
            redrive.until("err", "stopping")
            gate.open()
        assert redrive.end() == (130 if number is signal.SIGINT else -9)
    left = [name for name, _, _ in letters(flows)]
    assert left == ["outer[1]/inner[0]", "outer[1]/inner[1]"][number is signal.SIGINT :]
    gate.open(2)
    flows.program.call(*how, code=0)
    assert (flows.folder / "effects").read_text().split() == ["xx0", "xx1", "yy0", "yy1"]
    assert letters(flows) == []


def test_an_outer_item_that_runs_again_settles_the_letters_inside(flows: Flows) -> None:
    """Its own redrive, and a rerun of everything, run the inner items too: none of them stays behind as a letter."""
    stop = IN_MAP.replace("continue_on_failure: true", "on_item_failure: stop")
    stop = stop.replace("{n: y}]\n", "{n: y}]\n    error_policy: {continue_on_failure: true}\n")
    flows.run(stop)
    everything = [
        ("outer[0]", "failed", 1), ("outer[1]", "failed", 1), ("outer[0]/inner[1]", "failed", 1),
        ("outer[0]/inner[2]", "not_started", 0), ("outer[1]/inner[1]", "failed", 1),
        ("outer[1]/inner[2]", "not_started", 0),
    ]  # fmt: skip
    assert letters(flows) == everything
    flows.program.call("rerun", "1", "--max-parallel", "1", code=0)
    assert letters(flows) == [(name, reason, 2 * count) for name, reason, count in everything]
    (flows.folder / "fixed").touch()
    flows.program.json("dlq", "retry", "1", "--step", "outer", "--filter", "item.n === 'x'")
    assert [name for name, _, _ in letters(flows)] == ["outer[1]", "outer[1]/inner[1]", "outer[1]/inner[2]"]
    flows.program.call("rerun", "1", code=0)
    assert letters(flows) == []


def test_letters_of_an_epoch_before_run_again(flows: Flows) -> None:
    """A rerun that fails before the map comes leaves its letters as they are, and they can still be retried."""
    flows.program.write(CHILD, "child.yaml")
    flows.run(IN_CHILD_IN_MAP.replace("steps:\n", "steps:\n- {id: gate, shell: 'test ! -e shut'}\n", 1))
    effects(flows)
    (flows.folder / "shut").touch()
    flows.program.call("rerun", "1", code=1)
    (flows.folder / "fixed").touch()
    assert flows.program.json("dlq", "retry", "1")["succeeded"] == 2
    assert effects(flows) == ["outer[0]/sub/inner[1] 2 child-of-x x", "outer[1]/sub/inner[1] 2 child-of-y y"]
    assert flows.program.json("status", "1")["status"] == "failed"


def test_of_many_items_in_all_only_those_that_did_not_succeed_are_listed(flows: Flows) -> None:
    """However they are nested: 40 times 30 are too many, and two of them failed."""
    ran = flows.run(
        "error_policy: {continue_on_failure: true}\n"
        "steps:\n- id: outer\n  map:\n    input: seq 1 40\n    steps:\n    - id: inner\n      map:\n"
        "        input: seq 1 30\n        steps: [{id: leaf, noop: true}]\n"
        "    - {id: last, shell: 'test ${item} -lt 39'}\n"
    )
    assert {(job["scope"], job["step"]) for job in ran.document["jobs"] if job["scope"] != "root"} == {
        (f"outer[{number}]", step) for number in (38, 39) for step in ("inner", "last")
    }


def test_results_of_a_map_inside_of_another(flows: Flows) -> None:
    """Each step after an inner map sees the results of that one alone, those of the outer map are its own."""
    ran = flows.run(
        "name: x\nsteps:\n- id: outer\n  map:\n    input: [a, b]\n    steps:\n    - {id: n, shell: 'echo ${item}', "
        "capture: who}\n    - {id: inner, map: {input: [1, 2], steps: [{shell: 'echo ${who}${item}'}]}}\n"
        "    - {id: last, shell: 'echo ${steps.inner.results[1]}!'}\n"
        "- {shell: 'echo ${steps.outer.results}', capture: all}\n"
    )
    assert ran.document["outputs"] == {"all": '["a2!","b2!"]'}
