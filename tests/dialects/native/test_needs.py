"""Long lists of needs, which steps share: each step is told of what is wrong with it, as if it had its list alone."""

from __future__ import annotations

import pytest

from resile.core.scheduling.plan import plan_of
from resile.dialects.compile import compile_text
from resile.dialects.native.graph.edges import SHARED_NEEDS_MIN
from resile.model.codec import decode, encode

NAMES = [f"a{number}" for number in range(SHARED_NEEDS_MIN)]
LIST = ", ".join(NAMES)
COLUMN = len("  b: {shell: x, needs: [") + 1


def flow(*more: str, first: str = "") -> str:
    """A workflow of many steps and then these, one in a line."""
    steps = "".join(f"  {name}: {{shell: x}}\n" for name in NAMES)
    return f"resile: 1\nsteps:\n{first}{steps}" + "".join(f"  {line}\n" for line in more)


def findings(text: str) -> list[tuple[str, int, int, str]]:
    """What is wrong with a file: code, line, column, message."""
    return [(f.code, f.line, f.column, f.message) for f in compile_text(text).diagnostics]


def test_every_step_is_told_of_a_name_that_no_step_has() -> None:
    """Also those whose list was seen before."""
    text = flow(f"b: {{shell: x, needs: [{LIST}, z]}}", f"c: {{shell: x, needs: [{LIST}, z]}}")
    line, column = 3 + len(NAMES), COLUMN + len(LIST) + 2
    expected = [("unknown-step", line + number, column, "there is no step `z`") for number in range(2)]
    assert findings(text) == expected


def test_a_step_in_the_list_that_it_shares() -> None:
    """The list is well for the steps that are not in it."""
    text = flow(f"b: {{shell: x, needs: [{LIST}]}}").replace("a3: {shell: x", f"a3: {{shell: x, needs: [{LIST}]")
    column = len("  a3: {shell: x, needs: [a0, a1, a2, ") + 1
    assert findings(text) == [("cycle", 6, column, "the step `a3` needs itself")]


def test_a_cycle_through_lists() -> None:
    """Steps that stand before what they need may wait for each other, or not."""
    first = f"  b: {{shell: x, needs: [{LIST}]}}\n"
    assert findings(flow(first=first)) == []
    (found,) = findings(flow(first=first).replace("a2: {shell: x", "a2: {shell: x, needs: b"))
    assert found == ("cycle", 3, 3, "these steps wait for each other: `b` (3:3) needs `a2` (6:3) needs `b`")


def test_an_empty_list_in_a_list_of_steps() -> None:
    """It is refused where it can't undo the order, and taken in a mapping and at the first step."""
    listed = "resile: 1\nsteps:\n- {id: a, shell: x, needs: []}\n- {id: b, shell: x, needs: []}\n"
    message = "`needs: []` changes nothing: in a list each step waits for the one before, here `a`"
    assert findings(listed) == [("conflict", 4, 21, message)]
    assert findings("resile: 1\nsteps:\n  a: {shell: x}\n  b: {shell: x, needs: []}\n") == []


@pytest.mark.parametrize("order", ["bcdef", "bdcfe"])
def test_who_waits_for_whom(order: str) -> None:
    """Shared or not, every need is an edge, and dependents stand in the order of the file."""
    lists = {"b": LIST, "c": LIST, "d": f"{LIST}, b", "e": f"{LIST}, b", "f": LIST}
    text = flow(*(f"{name}: {{shell: x, needs: [{lists[name]}]}}" for name in order))
    workflow = compile_text(text).workflow
    assert workflow is not None
    apart = decode(encode(workflow))
    assert apart == workflow
    plan = plan_of(workflow)
    last = len(NAMES)
    assert plan.dependents[:last] == [list(range(last, last + len(order)))] * last
    assert plan.dependents[last] == [plan.index[name] for name in order if name in "de"]
    assert plan.waiting == [0] * last + [lists[name].count(",") + 1 for name in order] + [0]
    for name in ("dependents", "waiting", "grouped"):
        assert getattr(plan, name) == getattr(plan_of(apart), name)
