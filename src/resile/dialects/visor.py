"""The Visor front end: a mapping with `version` and `steps` (or `checks`) becomes a Workflow.

    extends (visor_files) -> keys (visor_keys) -> steps (visor_step) -> calls (visor_calls)
        -> items, edges and names, as in a native file (native_scope) -> Workflow with Liquid templates

A file without any `depends_on` whose jumps lead to earlier steps runs in the order in which it is written. Steps that
are named by `run` and by nothing else run only when they are called for. Nothing is parsed and ignored: a key changes
what runs, is refused by name, or is a label that the user is told of.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from resile.dialects.base import Diagnostics, Source
from resile.dialects.native_graph import report_strangers
from resile.dialects.native_scope import settle
from resile.dialects.native_step import Drafted
from resile.dialects.native_values import name_problem, wrong
from resile.dialects.tree import Mapping, Node, Scalar, Sequence, describe, shorten
from resile.dialects.visor_calls import place_calls
from resile.dialects.visor_checks import gate_inputs, named_conditions
from resile.dialects.visor_files import Placed, extended
from resile.dialects.visor_keys import FILE, TABLES
from resile.dialects.visor_step import Draft, Settings, read_step, with_action
from resile.dialects.visor_values import Known, VisorReading, read_keys
from resile.dialects.visor_workflows import child_of, read_inputs, read_outputs, read_workflows
from resile.model.inside import MemoryFile
from resile.model.limits import LOOPS_DEFAULT, STEPS_MAX
from resile.model.rules import Origin
from resile.model.workflow import Need, Noop, Step, Workflow

__all__ = ["TABLES", "compile_part", "compile_visor"]

_LITERAL = re.compile(r"""(['"`])((?:(?!\1)[^\\\n])*)\1""")
Named = list[tuple[str, Scalar | Mapping, Mapping]]


def compile_visor(source: Source, root: Mapping, report: Diagnostics) -> Workflow | None:
    """The workflow in a Visor file, or None where it has an error."""
    placed = Placed(report)
    workflow = _compile(VisorReading(source, placed), extended(source, root, placed))
    report.left_out += placed.left_out
    return None if report.errors else workflow


def compile_part(around: VisorReading, known: Known, name: str, loading: tuple[str, ...]) -> Workflow | None:
    """A workflow that a step of another one runs."""
    reading = VisorReading(known.source, around.report, loading)
    reading.tools = around.tools
    reading.models = around.models
    reading.workflows = dict(around.workflows)
    before = len(around.report.errors)
    workflow = _compile(reading, known.root, name)
    return workflow if len(around.report.errors) == before else None


def _compile(reading: VisorReading, root: Mapping, name: str = "") -> Workflow:
    """The workflow as far as it can be read; what is wrong with it is reported."""
    report, is_part = reading.report, bool(name)
    fields = read_keys(reading, root, FILE)
    if "version" not in root.entries and not is_part:
        report.error("version", "the file has no `version`", root, hint='write version: "1.0"')
    reading.models.update({key: fields[key] for key in ("ai_provider", "ai_model") if key in fields})
    _read_tools(reading, fields.get("tools"))
    read_workflows(reading, root, fields)
    reading.inputs = read_inputs(reading, fields.get("inputs"))
    named, is_list = _named(reading, root, fields, is_part)
    reading.remedies = _remedies(named)
    settings = _settings(reading, fields, is_part)
    drafts = _drafts(reading, named, settings)
    outputs = read_outputs(reading, fields)
    placed = _below_items(reading, _called_for_items(reading, place_calls(reading, drafts)), is_list)
    if not is_list:
        is_list = _runs_in_order(reading, root, placed)
    steps = settle(reading, placed, is_list)
    report_strangers(reading)
    end = Step(name="end", action=outputs or Noop(), origin=Origin(root.line, root.column))
    routing = fields.get("routing", {})
    return Workflow(
        name=fields.get("name") or fields.get("id") or name or _stem(reading.source.file),
        dialect="visor",
        file=reading.source.file,
        folder=reading.source.folder,
        steps=steps,
        end=end,
        inputs=reading.inputs | ({} if is_part else _gates(reading, drafts, fields)),
        env=fields.get("env", {}),
        max_parallel=fields.get("max_parallel"),
        loops_max=routing.get("max_loops", LOOPS_DEFAULT),
        templates="liquid",
        failure_key="on_fail",
        memory_file=_memory_file(reading, root, fields),
        memory_namespace=settings.namespace,
    )


def _gates(reading: VisorReading, drafts: dict[str, Draft], fields: dict[str, Any]) -> dict[str, Any]:
    """The inputs that say which steps run."""
    of_steps = [draft.fields for draft in drafts.values()]
    return gate_inputs(reading, of_steps, {**fields, "inputs": reading.inputs})


def _stem(file: str) -> str:
    """A workflow without a name is called like its file."""
    return file.rpartition("/")[2].rpartition(".")[0] or file.rpartition("/")[2]


def _read_tools(reading: VisorReading, node: Node | None) -> None:
    """The tools that `on_init` can name; one is read when it is called."""
    if isinstance(node, Mapping):
        for name, (key, value) in node.entries.items():
            if isinstance(value, Mapping):
                reading.tools = {**reading.tools, name: (key, value)}
            else:
                wrong(reading, value, "a tool: a mapping with `exec`")
    elif node is not None:
        wrong(reading, node, "a mapping of names to tools")


def _settings(reading: VisorReading, fields: dict[str, Any], is_part: bool) -> Settings:
    """What the file says for all its steps."""
    conditions = named_conditions(reading, fields["failure_conditions"]) if "failure_conditions" in fields else {}
    return Settings(
        conditions=conditions,
        remark=fields.get("fail_if", ""),
        on_fail=fields.get("routing", {}).get("defaults", {}).get("on_fail"),
        namespace=fields.get("memory", {}).get("namespace", "default"),
        fail_fast=fields.get("fail_fast", False),
        gated=not is_part,
    )


def _memory_file(reading: VisorReading, root: Mapping, fields: dict[str, Any]) -> MemoryFile | None:
    """The file of the memory, where it has one."""
    given = fields.get("memory", {})
    is_file = given.get("storage") == "file"
    if is_file and "file" not in given:
        reading.report.error("value", "`storage: file` needs `file`", root.entries["memory"][0])
        return None
    if not is_file:
        for word in ("file", "format", "auto_load", "auto_save"):
            if word in given:
                message = f"`{word}` has no meaning without `storage: file`"
                reading.report.error("conflict", message, root.entries["memory"][0], hint=f"take `{word}` out")
        return None
    return MemoryFile(given["file"], given.get("auto_load", True), given.get("auto_save", True))


def _named(reading: VisorReading, root: Mapping, fields: dict[str, Any], is_part: bool) -> tuple[Named, bool]:
    """The steps with their names, and whether they are a list."""
    report = reading.report
    given: Node | None = fields.get("steps")
    if given is None:
        if "steps" not in root.entries and "checks" not in root.entries:
            hint = "" if is_part else "a file of tools or workflows is there for others to extend"
            report.error("value", "the file has neither `steps` nor `checks`", root, hint=hint)
        return [], False
    if isinstance(given, Scalar):
        report.error("type", f"`steps` must be a mapping, not {describe(given)}", given)
        return [], False
    count = len(given.items if isinstance(given, Sequence) else given.entries)
    if not count or count > STEPS_MAX:
        message = f"{count} steps are more than {STEPS_MAX}" if count else "there are no steps to run"
        hint = "" if count else "a file of tools or workflows is there for others to extend"
        report.error("limit" if count else "value", message, given, hint=hint)
        return [], False
    pairs: list[tuple[str, Scalar | Mapping | Sequence, Node]] = []
    if isinstance(given, Mapping):
        pairs = [(name, key, node) for name, (key, node) in given.entries.items()]
    else:
        pairs = [_listed(number, item) for number, item in enumerate(given.items, 1)]
    found: Named = []
    for name, key, node in pairs:
        problem = "is the name of what runs last" if name == "end" else name_problem(name)
        if not isinstance(node, Mapping):
            report.error("type", f"a step must be a mapping, not {describe(node)}", node)
        elif problem:
            report.error("name", f"the step name `{shorten(name)}` {problem}", key)
        elif any(name == other for other, _, _ in found) and isinstance(given, Sequence):
            report.error("duplicate", f"the step `{shorten(name)}` is here twice", key)
        elif not isinstance(key, Sequence):
            found.append((name, key, node))
    return found, isinstance(given, Sequence)


def _listed(number: int, item: Node) -> tuple[str, Scalar | Mapping | Sequence, Node]:
    """A step of a list, called by its `id`, which is then taken out."""
    if not isinstance(item, Mapping) or "id" not in item.entries or not isinstance(item.entries["id"][1], Scalar):
        return f"step-{number}", item, item
    key = item.entries["id"][1]
    entries = {word: entry for word, entry in item.entries.items() if word != "id"}
    return key.text, key, Mapping(entries, item.line, item.column)


def _remedies(named: Named) -> frozenset[str]:
    """The steps that are named by `run`, or in the code of `run_js`, and that nothing depends on."""
    called: set[str] = set()
    needed: set[str] = set()
    for _, _, node in named:
        entry = node.entries.get("depends_on")
        for item in _items(entry[1]) if entry is not None else ():
            if isinstance(item, Scalar):
                needed |= {part.strip() for part in item.text.split("|")}
        for word in ("on_init", "on_fail", "on_success", "on_finish"):
            inner = node.entries.get(word)
            if inner is not None and isinstance(inner[1], Mapping):
                called |= _called(inner[1])
    return frozenset(called - needed)


def _items(node: Node) -> list[Node]:
    """The items of a list, or the one thing that there is."""
    return node.items if isinstance(node, Sequence) else [node]


def _called(node: Mapping) -> set[str]:
    """The steps that one set of routing keys calls for."""
    found: set[str] = set()
    for item in _items(node.entries["run"][1]) if "run" in node.entries else ():
        inner: Node = item.entries["step"][1] if isinstance(item, Mapping) and "step" in item.entries else item
        if isinstance(inner, Scalar):
            found.add(inner.text)
    code = node.entries.get("run_js")
    if code is not None and isinstance(code[1], Scalar):
        found |= {text for _, text in _LITERAL.findall(code[1].text)}
    return found


def _drafts(reading: VisorReading, named: Named, settings: Settings) -> dict[str, Draft]:
    """Every step by its name, in the order of the file."""
    drafts: dict[str, Draft] = {}
    for name, key, node in named:
        draft = read_step(reading, name, key, node, settings)
        if draft.kind == "workflow":
            draft = _with_child(reading, draft, key)
        drafts[name] = draft
    reading.owner = ""
    return drafts


def _with_child(reading: VisorReading, draft: Draft, key: Scalar | Mapping) -> Draft:
    """A step with the workflow that it runs."""
    target = draft.fields.get("workflow")
    if not isinstance(target, Scalar) or not isinstance(target.value, str):
        if target is None:
            reading.report.error("value", "a `workflow` step needs `workflow`", key)
        else:
            wrong(reading, target, "the name of a workflow")
        return draft
    child = child_of(reading, target, draft.fields.get("args", {}))
    return draft if child is None else with_action(draft, child)


def _called_for_items(reading: VisorReading, drafts: dict[str, Drafted]) -> dict[str, Drafted]:
    """A step with `fanout: map` that a producer of items runs after its success runs for each of them."""
    result = dict(drafts)
    for producer, draft in drafts.items():
        actions = draft.step.on_success
        if draft.foreach is None or actions is None:
            continue
        mapped = [name for name in actions.calls if name in drafts and _asks_for_items(drafts[name])]
        if not mapped:
            continue
        calls = tuple(name for name in actions.calls if name not in mapped)
        left = replace(actions, calls=calls, run_cost=1 if calls or actions.calls_js or actions.steps else 0)
        result[producer] = replace(result[producer], step=replace(draft.step, on_success=left))
        for name in mapped:
            needs = (*result[name].needs, (Need((producer,)), draft.key))
            result[name] = replace(result[name], needs=needs)
        scope = reading.scope
        scope.named = [named for named in scope.named if named.owner != producer or named.node.text not in mapped]
    return result


def _asks_for_items(draft: Drafted) -> bool:
    """Does a step say that it runs for each item?"""
    return draft.fanout == "map" and "fanout" in draft.node.entries


def _below_items(reading: VisorReading, drafts: dict[str, Drafted], is_list: bool) -> dict[str, Drafted]:
    """Which steps stand below a `forEach`; one without dependents just gives a list."""
    order = list(drafts)
    below: set[str] = set()
    leading: set[str] = set()
    for _ in order:
        before = len(below)
        for number, name in enumerate(order):
            needed = {other for need, _ in drafts[name].needs for other in need.any_of if other in drafts}
            if is_list and number:
                needed.add(order[number - 1])
            producers = {other for other in needed if drafts[other].foreach is not None}
            mapped = {other for other in needed if other in below and drafts[other].fanout != "reduce"}
            if producers or mapped:
                below.add(name)
                leading |= producers
        if len(below) == before:
            break
    result: dict[str, Drafted] = {}
    for name, draft in drafts.items():
        fanout = draft.fanout if name in below and draft.fanout == "reduce" else ""
        has_items = name in leading and any(
            drafts[other].fanout != "reduce"
            for other in below
            if any(name in need.any_of for need, _ in drafts[other].needs) or is_list
        )
        if draft.foreach is not None and not has_items:
            message = f"nothing runs for each item of `{shorten(name)}`: its output is a list"
            reading.report.notice("foreach", message, draft.key)
        if draft.node.entries and name not in below:
            message = "`fanout` changes nothing here: no step that this one depends on has `forEach`"
            reading.report.notice("fanout", message, draft.node.entries["fanout"][0])
        foreach = draft.foreach if has_items else None
        result[name] = replace(draft, foreach=foreach, fanout=fanout)
    return result


def _runs_in_order(reading: VisorReading, root: Mapping, drafts: dict[str, Drafted]) -> bool:
    """Does a file without any `depends_on` mean the order in which it is written? Its jumps say so."""
    if any(draft.needs for draft in drafts.values()):
        return False
    place = {name: number for number, name in enumerate(drafts)}
    jumps = [named for named in reading.scope.named if named.how != "run" and not named.by_default]
    back = [
        named for named in jumps if named.owner in place and place.get(named.node.text, len(place)) < place[named.owner]
    ]
    if not jumps or len(back) < len(jumps):
        return False
    message = "no step has `depends_on` and jumps lead to earlier steps: the steps run in the order they are written in"
    where = next(iter(root.entries.values()))[0]
    reading.report.notice("order", message, where, hint="`depends_on` says it in the file")
    return True
