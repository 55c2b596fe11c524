"""`foreach`: which steps become which fan-out, what stays outside, and what can't be meant."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping
from resile.dialects.formats.yaml import parse
from resile.dialects.native.compile import compile_native
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.model.fanout import ErrorPolicy
from resile.model.workflow import FanOut, Need, Repair, Step
from tests.dialects.compiling import compiled
from tests.dialects.native.test_native_errors import findings

HEAD = "resile: 1\nsteps:\n"


def shape(steps: tuple[Step, ...]) -> list[Any]:
    """Names, needs and what stands inside fan-outs: `[name, needs…]`, with the inner steps last where there are any."""
    return [
        [
            step.name,
            *("|".join(need.any_of) for need in step.needs),
            *([shape(step.action.steps)] if isinstance(step.action, FanOut) else []),
        ]
        for step in steps
    ]


def shape_of(steps: str) -> list[Any]:
    """The shape of a workflow with these steps."""
    return shape(compiled(HEAD + steps).steps)


def messages(steps: str) -> list[str]:
    """The findings of a workflow with these steps, without hints."""
    return [finding.partition("\n")[0] for finding in findings(HEAD + steps)]


def test_one_step_below() -> None:
    """A fan-out of one step is called like it, and who needs the step needs the fan-out."""
    assert shape_of(
        "  p: {shell: x, foreach: true}\n  each: {shell: 'echo ${item.a} ${steps.p.output}', needs: p}\n"
        "  r: {shell: 'echo ${steps.each.results}', needs: each, fanout: reduce}\n"
    ) == [["p"], ["each", "p", [["each"]]], ["r", "each"]]  # fmt: skip


def test_all_steps_below_are_one_fanout() -> None:
    """What is reached through steps of the items is in the items; what only needs a reduce step is not."""
    assert shape_of(
        "  p: {shell: x, foreach: true}\n"
        "  a: {shell: x, needs: p}\n"
        "  before: {shell: x}\n"
        "  b: {shell: 'echo ${steps.a.output}', needs: [p, 'a', before]}\n"
        "  r: {shell: x, needs: [a, b], fanout: reduce}\n"
        "  s: {shell: x, needs: r}\n"
        "  t: {shell: x, needs: ['a|before'], fanout: reduce}\n"
    ) == [
        ["p"], ["a+b", "p", "before", [["a"], ["b", "a"]]], ["before"], ["r", "a+b"], ["s", "r"], ["t", "a+b|before"],
    ]  # fmt: skip


def test_two_producers() -> None:
    """Each producer has its own fan-out."""
    assert shape_of(
        "  p: {shell: x, foreach: true}\n  q: {shell: x, foreach: true}\n  a: {shell: x, needs: p}\n"
        "  b: {shell: x, needs: q}\n  r: {shell: x, needs: [a, b], fanout: reduce}\n"
        "  c: {shell: x, needs: [q, d]}\n  d: {shell: x}\n"
    )[2:] == [["a", "p", [["a"]]], ["b+c", "q", "d", [["b"], ["c"]]], ["r", "a", "b+c"], ["d"]]  # fmt: skip


def test_two_producers_with_remedies() -> None:
    """Each fan-out has the remedies of its own steps."""
    assert shape_of(
        "  p: {shell: x, foreach: true}\n  q: {shell: x, foreach: true}\n  a: {shell: x, needs: p, on_failure: {run: f}}\n"
        "  b: {shell: x, needs: q, on_failure: {run: g}}\n  f: {shell: x}\n  g: {shell: x}\n"
    ) == [["p"], ["q"], ["a", "p", [["a"], ["f"]]], ["b", "q", [["b"], ["g"]]]]  # fmt: skip


def test_nested() -> None:
    """A producer among the items has a fan-out inside them, and `reduce` goes one level out at a time."""
    assert shape_of(
        "  p: {shell: x, foreach: true}\n  q: {shell: 'x ${item}', needs: p, foreach: true, max_parallel: 2}\n"
        "  b: {shell: 'x ${item} ${steps.p.output}', needs: q}\n"
        "  c: {shell: 'x ${steps.b.total}', needs: b, fanout: reduce}\n"
        "  d: {shell: \"x ${steps['q+b+c'].failed}\", needs: c, fanout: reduce}\n"
    ) == [["p"], ["q+b+c", "p", [["q"], ["b", "q", [["b"]]], ["c", "b"]]], ["d", "q+b+c"]]  # fmt: skip


def test_in_a_list_order_counts() -> None:
    """In a list everything after a producer runs for its items, up to a step that says `fanout: reduce`."""
    text = "- {id: a, shell: x}\n- {id: p, shell: x, foreach: true}\n- {id: b, shell: x}\n- {id: c, shell: x}\n- {id: r, shell: x, fanout: reduce}\n- {id: s, shell: x}\n"
    assert shape_of(text) == [["a"], ["p", "a"], ["b+c", "p", [["b"], ["c", "b"]]], ["r", "b+c"], ["s", "r"]]
    inner = compiled(HEAD + text).steps[2].action
    assert isinstance(inner, FanOut)
    assert inner.steps[1].needs == (Need(("b",), True),)
    assert (inner.scope, inner.source.step, inner.policy) == ("p", "p", ErrorPolicy("fail"))


def test_remedies_follow_who_calls_for_them() -> None:
    """A remedy that only steps of the items call for is in the item, with its own remedies; one of `on_finish` is not."""
    text = (
        "  p: {shell: x, foreach: true, on_finish: {run: tell, goto: p}}\n"
        "  a: {shell: x, needs: p, on_failure: {run: fix}}\n"
        "  fix: {shell: 'x ${item}', on_failure: {run_js: \"['deeper']\"}}\n"
        "  deeper: {shell: x}\n  tell: {shell: x}\n"
        "  other: {shell: x, on_failure: {run: both}}\n  both: {shell: x}\n"
    )
    assert shape_of(text) == [["p"], ["a", "p", [["a"], ["fix"], ["deeper"]]], ["tell"], ["other"], ["both"]]
    steps = compiled(HEAD + text).steps
    assert [step.name for step in steps if step.called_only] == ["tell", "both"]
    assert steps[1].rules[0].repair == Repair(calls=("tell",), on_failure="ignore")
    assert messages(text.replace("run: fix}", "run: [fix, both]}")) == [
        "f:4:51: error: `both` is outside of the item, and nothing jumps out of one [scope]"
    ]


def test_jumps_stay_in_the_item() -> None:
    """An item's step goes back to a step of the item; nothing leads into an item or out of it."""
    text = "  b: {shell: x}\n  p: {shell: x, needs: b, foreach: true}\n  a: {shell: x, needs: p}\n  c: {shell: x, needs: a, on_failure: {goto: TO}}\n  r: {shell: x, needs: c, fanout: reduce, on_failure: {goto: BACK}}\n"
    assert messages(text.replace("TO", "a").replace("BACK", "b")) == []
    assert messages(text.replace("TO", "a").replace("BACK", "a+c")) == [
        "f:7:62: error: `a+c` runs for each item, and nothing jumps into an item [scope]"
    ]
    assert messages(text.replace("TO", "b").replace("BACK", "c")) == [
        "f:6:46: error: `b` is outside of the item, and nothing jumps out of one [scope]",
        "f:7:62: error: `c` runs inside the items of `a+c`, and nothing jumps into an item [scope]",
    ]
    assert messages(text.replace("TO", "p").replace("BACK", "b")) == [
        "f:6:46: error: `p` is outside of the item, and nothing jumps out of one [scope]"
    ]
    assert messages("  p: {shell: x, foreach: true, next: a}\n  a: {shell: x, needs: p, next: z}\n  b: {shell: x, needs: p}\n  z: {shell: x}\n") == [
        "f:3:38: error: `a` runs inside the items of `a+b`, and nothing jumps into an item [scope]",
        "f:4:33: error: `z` is outside of the item, and nothing jumps out of one [scope]",
    ]  # fmt: skip


def test_what_cant_be_meant() -> None:
    """Items of two producers at once, alternatives across the border, and a fan-out that waits for itself are refused."""
    two = "  p: {shell: x, foreach: true}\n  q: {shell: x, foreach: true}\n  a: {shell: x, needs: p}\n  z: {shell: x, needs: q}\n"
    assert messages(two + "  b: {shell: x, needs: [a, q]}\n") == [
        "f:7:3: error: `b` can't run for the items of `q` and of `p` at once [fanout]"
    ]
    one = "  p: {shell: x, foreach: true}\n  a: {shell: x, needs: p}\n  o: {shell: x}\n"
    assert messages(one + "  b: {shell: x, needs: ['a|o']}\n")[0] == (
        "f:6:25: error: `a|o` mixes steps of the items with others [scope]"
    )
    circle = "  r: {shell: x, needs: a, fanout: reduce}\n  c: {shell: x, needs: [p, r]}\n"
    assert messages(one + circle) == [
        "f:4:3: error: these steps wait for each other: `a+c` (4:3) needs `r` (6:3) needs `a+c` [cycle]"
    ]
    assert messages(one + "  c: {shell: x, needs: p}\n  a+c: {shell: x}\n") == [
        "f:4:3: error: the fan-out `a+c` is called like a step [duplicate]"
    ]
    assert messages("  p: {shell: x, foreach: true}\n  a: {shell: x, needs: p}\n  end: {shell: x, foreach: true, fanout: map}\n") == [
        "f:5:19: error: `end` takes no `foreach`: nothing runs after `end` [reserved]",
        "f:5:34: error: `end` takes no `fanout`: `end` runs once, after every item [reserved]",
    ]  # fmt: skip


def test_long_names_are_cut() -> None:
    """A fan-out of many steps still has a name that fits."""
    steps = "  p: {shell: x, foreach: true}\n" + "".join(f"  {'s' * 50}{n}: {{shell: x, needs: p}}\n" for n in range(9))
    name = compiled(HEAD + steps).steps[1].name
    assert name == "s" * 50 + "0+8 more"


def test_policy_and_handler_of_a_producer() -> None:
    """A producer's policy is the fan-out's, and its handler answers for every step of the item."""
    text = (
        "resile: 1\nhandlers: {h: [{shell: 'fix ${item}'}]}\nsteps:\n"
        "  p: {shell: x, foreach: true, error_policy: {on_item_failure: 'custom:h', max_failures: 2}}\n"
        "  a: {shell: x, needs: p}\n  b: {shell: x, needs: a, on_failure: true}\n"
    )
    fan = compiled(text).steps[1].action
    assert isinstance(fan, FanOut)
    assert fan.policy == ErrorPolicy(failures_max=2)
    assert [[rule.then for rule in step.rules] for step in fan.steps] == [["recovered"], ["recovered", "tolerate"]]


def test_defaults_name_only_what_an_item_has() -> None:
    """Defaults of the workflow hold in items too; names in them that an item lacks are left out there."""
    head = "resile: 1\nrouting: {defaults: {on_failure: {DEFAULT}}}\nsteps:\n"
    steps = "  f: {shell: x}\n  g: {shell: x}\n  m: {on_failure: false, map: {input: [1], steps: {f: {shell: x, on_failure: false}, b: {shell: y, needs: f}}}}\n"

    def rules(default: str) -> list[tuple[str, str, object, str]]:
        """The rules that the step `b` of the item has by these defaults."""
        fan = compiled(head.replace("DEFAULT", default) + steps).steps[2].action
        assert isinstance(fan, FanOut)
        return [(rule.then, rule.text, rule.repair, rule.target) for rule in fan.steps[1].rules]

    both = Repair(calls=("f",), on_failure="fail")
    assert rules("retry: 2, run: g") == [("retry", "retry 2", None, "")]
    assert rules("run: g") == []
    assert rules("run: [f, g]") == [("retry", "run f, g", both, "")]
    assert rules("goto: f") == [("goto", "goto f", None, "f")]
    assert rules("goto: g") == []
    assert rules("transitions: [{when: q, to: g}]") == []


def test_mapreduce_without_a_version() -> None:
    """A file that only says `mode: mapreduce` is the same workflow."""
    text = b"mode: mapreduce\nname: n\nmap: {input: ls, agent_template: [{shell: 'x ${item}'}]}\n"
    report = Diagnostics("f")
    root = parse(text, report)
    assert isinstance(root, Mapping)
    workflow = compile_native(Source("f", text, "."), root, report)
    assert [finding.code for finding in report.findings()] == ["since-0.2"]
    assert workflow is not None
    assert shape(workflow.steps) == [["map", [["step-1"]]]]
