"""What is emitted comes to the same workflow: every file that we have, generated models, and texts of every shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from resile.dialects.compile import compile_file, compile_text
from resile.dialects.formats.nodes import plain
from resile.dialects.native.writer.compare import differences
from resile.dialects.native.writer.document import emit
from resile.dialects.native.writer.yaml import write
from resile.errors import Diagnostic, ResileError
from resile.model.builtin_actions import (
    Ask,
    Case,
    Check,
    Collect,
    Computed,
    Effect,
    Log,
    Memory,
    MemoryFile,
    Script,
    Transform,
)
from resile.model.cluster import Cluster, Scheduler
from resile.model.fanout import Breaker, ErrorPolicy, Source
from resile.model.limits import LOOPS_MAX
from resile.model.rules import Backoff, Escalation, Match, Origin, Transition
from resile.model.workflow import (
    Agent,
    Arc,
    Capture,
    Child,
    Condition,
    FanOut,
    Http,
    Input,
    Need,
    Noop,
    Python,
    Query,
    Repair,
    Resources,
    Rule,
    Secret,
    Shell,
    Step,
    SuccessActions,
    Validate,
    Workflow,
    WriteFile,
)
from tests.dialects.compiling import compiled

HERE = Path(__file__).parent.parent
EXAMPLES = HERE.parent.parent / "examples"
FILES = sorted(
    file for file in [*(HERE / "files").glob("*/*"), *EXAMPLES.glob("*.yaml")] if not file.name.startswith("refused-")
)


def again(workflow: Workflow, **options: Any) -> Workflow:
    """What the emitted text of a workflow comes to."""
    text = emit(workflow, **options)
    result = compile_text(text, file="again.yaml", folder=options.get("folder", workflow.folder))
    assert result.workflow is not None, text
    assert result.dialect == "native"
    return result.workflow


def same(one: Workflow, other: Workflow) -> bool:
    """Do two workflows differ in nothing but where they stand?"""
    return [each.path for each in differences(one, other)] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_our_files(file: Path) -> None:
    """Each of our files, in whichever dialect, and once more from its native form: the same text."""
    result = compile_file(file)
    if result.workflow is None:
        pytest.skip("a part of another file")
    workflow = result.workflow
    assert same(workflow, again(workflow))
    text = emit(workflow, result.diagnostics)
    once = compile_text(text, file=str(file.parent / "once.yaml"), folder=workflow.folder).workflow
    assert once is not None
    assert _without_comments(emit(once)) == _without_comments(text)


def _without_comments(text: str) -> list[str]:
    """The lines that say something."""
    return [line for line in text.split("\n") if not line.lstrip().startswith("# ")]


def step(name: str = "s", action: Any = None, **fields: Any) -> Step:
    """A step that does something."""
    return Step(name=name, action=action or Shell("x"), **fields)


def flow(*steps: Step, **fields: Any) -> Workflow:
    """A workflow of these steps."""
    given = {"end": Step(name="end", action=Noop()), **fields}
    return Workflow(name="w", dialect="visor", file="w.yaml", folder="/f", steps=steps, **given)


_STEPS = (step("on_failure-1"), step("q", Agent("hi"), needs=(Need(("on_failure-1",), True),)))
_RULES = (
    Rule(then="retry", text="t", match=Match((1,), (2,), ("oom",), (9,), "p"), limit=3, limit_of="job",
         wait=Backoff("linear", 1.0, 2.5, delay_seconds_max=60.0, jitter=0.5, jitter_of="initial"), cost=2),
    Rule(then="recovered", text="r", repair=Repair(_STEPS, timeout_seconds=0.25, on_failure="ignore")),
    Rule(then="retry", text="y", repair=Repair(calls=("a",), calls_js="[]", on_failure="fail"), routing=True,
         retries_anyway=True, when=Condition("x > 1", "code")),
    Rule(then="retry", text="e", change=Escalation(2.0, 1024, 30.0)),
    Rule(then="goto", text="g", target="b", target_js="q", transitions=(Transition("z", "b"), Transition("y")),
         limit=9),
    Rule(then="fail", text="halt", halts=True, repair=Repair()),
)  # fmt: skip
_ACTIONS: list[Any] = [
    Shell("a && b", "bash", "in\nput"),
    Noop(),
    Agent("p", ("./a", "-x"), "stdin", 1.5, 10),
    Validate("test -e x", "bash"),
    WriteFile("a", "b\n\n", 0o755),
    Http("http://h/p", "PUT", {"A": "b"}, "body", None, (200, 201), {"q": 1}, None, True, False),
    Http("http://h", json={"a": [1, None, "${x}"]}, method="POST"),
    Python("def main(a):\n    return a\n", inputs={"a": {"b": 1}}, names=("c",), places={"d": 2}, status_fails=False),
    Python(file="m.py"),
    Query("duckdb", "select 1", database="d", params={"a": 1}, key=("k",), columns={"c": "int"}),
    Script("return 1", "n"),
    Log("m", "warn", True),
    Memory("set", "k", "n", {"a": 1}),
    Memory("append", "k", code="1"),
    Ask("q", "d"),
    Collect((Computed("a", "t"), Computed("b", code="c"))),
]
_POLICY = ErrorPolicy(
    "fail", False, 3, 0.5, 4, "batched", 7, 5, Backoff("exponential", 1.0, multiplier=3.0), Breaker(1, 2, 3.0, 4)
)


@pytest.mark.parametrize("action", _ACTIONS, ids=lambda action: type(action).__name__)
def test_every_action(action: Any) -> None:
    """Each action with every field that it has; a question has the rule by which it waits."""
    waits = (Rule(then="park", text="ask", limit=LOOPS_MAX),)
    workflow = flow(step("s", action, rules=waits) if isinstance(action, Ask) else step("s", action))
    assert same(workflow, again(workflow))


def test_every_field_of_a_step_and_of_a_rule() -> None:
    """Nothing in the ladder or beside it is lost."""
    one = step(
        "s", rules=_RULES, needs=(Need(("a", "b")), Need(("b",), True)), arcs_mode="first",
        arcs=(Arc("c", Condition("q", "jinja"), {"k": 1}),),
        when=Condition("0", "case", besides=(Condition("", "none", besides=(Condition("true"),)),)),
        on_loss="park", timeout_seconds=90.0, grace_seconds=0.0, env={"A": "1"}, working_dir="d", outputs=("f", "g"),
        capture=(Capture("a", "json"), Capture("b-c", "value")), resources=Resources(0.5, 2**30, 1, 60.0),
        runs_on=("gpu", "big"), commit_required=True, critical=True,
        transform=Transform("json", "t", "c", True, {"type": "object"}, first=Transform(code="f")),
        checks=(Check(name="n", code="c", must=False, effect="remark", message="m"),), cases=(Case("w", True),),
        effects=(Effect(kind="set", name="v", value=[1], path="p", case=0, when="x"),), args={"k": None},
        aliases={"o": "a"}, tags=("t",), events=("e",), group="g",
        on_success=SuccessActions(calls=("a",), calls_js="[]", target="b", cost=3, run_cost=2),
    )  # fmt: skip
    workflow = flow(step("a"), step("b"), one, step("c"))
    assert same(workflow, again(workflow))


def test_every_field_of_a_workflow() -> None:
    """What stands above the steps, and an `end` that does something."""
    workflow = flow(
        step(), end=step("end", Shell("echo")), inputs={
            "a": Input(default="1"), "b": Input("json", [1]), "c": Input("json", {"d": 1}), "d": Input("number", 1.5),
            "e": Input(required=True), "f": Input("bool", False), "g": Input("json", schema={"type": "object"}),
            "h": Input("json", {"whole": 4.0, "list": [2.0, 1e15, 3]}), "i": Input("number", 4.0),
        },
        secrets={"T": Secret(env="U"), "F": Secret(file="f"), "O": Secret(env="V", is_optional=True)},
        env={"A": "", "B": "yes", "C": "0o17"},
        env_files=(".env",), max_parallel=3, grace_seconds=2.5, loops_max=7, templates="liquid", failure_key="on_fail",
        memory_file=MemoryFile("m", False, False), memory_namespace="n", cluster=Cluster({"b": Scheduler(60.0, 2)}),
        failure_handlers={"h": _RULES[:2], "e": (Rule(then="retry", text="failure_handler e: exit_codes 3",
                                                      match=Match((3,)), limit=2),)},
    )  # fmt: skip
    assert same(workflow, again(workflow))


def test_fan_outs_and_what_stands_inside() -> None:
    """Items from everywhere, with a policy; inner steps take over the environment, or do not."""
    inner = (step("i", env={"A": "1"}, working_dir="d"), step("j", needs=(Need(("i",), True),), in_order=True))
    sources = [
        Source((1, "a", None), filter="item", filter_bare=True, sort_by="a DESC", distinct="b", offset=1, items_max=2),
        Source(path="a b"), Source(command="ls", program="bash", json_path="$.x"), Source(template="{{ q }}"),
    ]  # fmt: skip
    for source in sources:
        fan = FanOut(source, inner, _POLICY, 3, 60.0, "worktree", "sc", "nm")
        workflow = flow(step("m", fan, env={"A": "1"}, working_dir="d"), step("n", needs=(Need(("m",)),)))
        assert same(workflow, again(workflow))


def test_a_workflow_in_a_workflow() -> None:
    """A child comes to stand in the step that calls it."""
    child = flow(step("c"), inputs={"t": Input(default="x")}, templates="jinja", failure_handlers={"h": _RULES[:1]})
    workflow = flow(step("s", Child("child.yaml", child, {"t": "{{ y }}"}, "c")))
    assert same(workflow, again(workflow))


def test_a_remedy_that_nobody_names_and_a_named_step_that_runs_anyway() -> None:
    """Who runs only when called for is said where the names do not say it."""
    calling = step("b", rules=(Rule(then="retry", text="t", repair=Repair(calls=("a",))),))
    workflow = flow(step("a"), calling, step("c", called_only=True))
    assert same(workflow, again(workflow))
    assert "called_only: false" in emit(workflow)


def test_short_keys_are_used_where_they_say_it_all() -> None:
    """A ladder comes back in the keys in which people write it."""
    text = (
        "resile: 1\nname: w\nsteps:\n  a:\n    shell: x\n    needs: [b]\n    timeout: 5m\n    on_failure:\n"
        "      retry:\n        max: 2\n        backoff:\n          type: exponential\n          initial: 500ms\n"
        "      run: [f]\n      goto: b\n    park: true\n  b:\n    shell: |\n      y\n      z\n"
        "    on_failure:\n      commands:\n        - fix\n      max_attempts: 3\n  f:\n    noop: true\n"
    )
    written = emit(compiled(text)).split("\n", 1)[1]
    assert written == text.replace("commands:\n        - fix", "commands: fix")


def test_findings_are_comments_at_their_step() -> None:
    """What the front end said about a step stands above it."""
    result = compile_text("- shell: a\n- shell: b\n  on_failure: fix\n", file="w.yml", folder="/f")
    assert result.workflow is not None
    lines = emit(result.workflow, result.diagnostics).split("\n")
    assert lines[0] == "# From w.yml, a file of prodigy; written by `resile migrate`."
    at = lines.index("  - shell: b")
    assert lines[at - 1].startswith("  # the step counts as recovered once its handler passes")


def test_no_name_ends_a_comment() -> None:
    """What stands in a comment stays there, whatever a file is called and a finding says."""
    workflow = msgspec.structs.replace(flow(step()), file="a\nresile: 2\r\u2028.yml")
    finding = Diagnostic(severity="notice", code="c", message="x\nsteps: {}", file=workflow.file, line=9)
    lines = emit(workflow, [finding]).split("\n")
    assert lines[0] == "# From a resile: 2  .yml, a file of visor; written by `resile migrate`."
    assert "  # x steps: {}" in lines


def test_paths_are_found_from_another_folder(tmp_path: Path) -> None:
    """A file that goes elsewhere finds what stood beside the old one."""
    (tmp_path / "new").mkdir()
    workflow = flow(step("s", Python(file="m.py")), env_files=(".env",), secrets={"T": Secret(file="t")})
    workflow = msgspec.structs.replace(workflow, folder=str(tmp_path))
    there = again(workflow, folder=str(tmp_path / "new"))
    assert there.env_files == ("../.env",)
    assert there.secrets == {"T": Secret(file="../t")}
    assert there.steps[0].action == Python(file="../m.py")


def test_what_has_no_native_form_is_refused() -> None:
    """Edges that a handler can't have."""
    repair = Repair((step("p"), step("q", needs=(Need(("p",)),))))
    with pytest.raises(ResileError, match=r"no native file says what this one does: .*needs"):
        emit(flow(step("s", rules=(Rule(then="recovered", text="t", repair=repair),))))


_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30) | st.text(
    " \n\t:#-'\"{}[]|>&*!%@`,ayesn0.~\\é\x85\u2028\ufeff", max_size=12
)


_SCALARS = _TEXTS | st.integers(-(2**62), 2**62) | st.booleans() | st.none() | st.floats(-1e300, 1e300)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists and mappings of what there is."""
    return st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4)


@settings(max_examples=300, deadline=None)
@given(st.recursive(_SCALARS, _nested, max_leaves=12))
@example({"<<": None})
def test_any_data_is_read_as_it_was_written(data: object) -> None:
    """Whatever stands in a text or a mapping comes back."""
    from resile.dialects.formats.yaml import parse
    from resile.dialects.reading.diagnostics import Diagnostics

    report = Diagnostics("f")
    root = parse(write({"a": data}).encode(), report)
    assert report.findings() == ()
    assert root is not None
    assert plain(root) == {"a": data}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(_TEXTS.filter(str.strip), st.sampled_from(range(len(_RULES) + 1))), min_size=1, max_size=6),
    st.data(),
)
def test_generated_models(parts: list[tuple[str, int]], data: st.DataObject) -> None:
    """Random graphs with random ladders and texts."""
    steps = [step("a"), step("b", needs=(Need(("a",), True),))]
    for place, (text, count) in enumerate(parts):
        names = [each.name for each in steps]
        needs = tuple(
            Need((name,), data.draw(st.booleans())) for name in data.draw(st.lists(st.sampled_from(names), unique=True))
        )
        rules = (
            _RULES[:count] if Need(("b",)) in needs else tuple(rule for rule in _RULES[:count] if rule.then != "goto")
        )
        steps.append(step(f"s{place}", Shell(text), needs=needs, rules=rules, env={"T": text}))
    workflow = flow(*steps, templates="jinja")
    assert same(workflow, again(workflow))


def test_origins_are_no_difference() -> None:
    """A position is not part of what a workflow does."""
    assert same(flow(step(origin=Origin(3, 4))), flow(step(origin=Origin(5, 6))))
    assert [each.path for each in differences(flow(step("a")), flow(step("b")))] == [".steps[a].name"]
    assert list(differences(Backoff("fixed", 1.0, 2.0, 3.0), Backoff("fixed", 1.0))) == []
    assert [each.path for each in differences(Backoff("linear", 1.0, 2.0), Backoff("linear", 1.0))] == [
        ".increment_seconds"
    ]
