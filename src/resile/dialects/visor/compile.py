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

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe
from resile.dialects.native.foreach import finishing
from resile.dialects.native.graph import report_strangers
from resile.dialects.native.routes import remedies_among
from resile.dialects.native.scope import settle
from resile.dialects.native.step import Drafted
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.values import name_problem, wrong
from resile.dialects.visor.calls import place_calls
from resile.dialects.visor.conditions import gate_inputs, is_gated, named_conditions, past_gates
from resile.dialects.visor.files import Placed, extended
from resile.dialects.visor.keys import FILE, TABLES
from resile.dialects.visor.step import Draft, Settings, read_step, with_action
from resile.dialects.visor.values import Known, VisorReading
from resile.dialects.visor.workflows import child_of, read_inputs, read_outputs, read_workflows
from resile.errors import shorten
from resile.model.builtin_actions import MemoryFile
from resile.model.fanout import FanOut
from resile.model.limits import LOOPS_DEFAULT, STEPS_MAX
from resile.model.rules import Origin
from resile.model.workflow import Condition, Need, Noop, Step, Workflow

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
    reading.servers = around.servers
    reading.workflows = dict(around.workflows)
    before = len(around.report.errors)
    workflow = _compile(reading, known.root, name)
    return workflow if len(around.report.errors) == before else None


def _compile(reading: VisorReading, root: Mapping, name: str = "") -> Workflow:
    """The workflow as far as it can be read; what is wrong with it is reported."""
    report, is_part = reading.report, bool(name)
    fields = read_keys(reading, root, FILE)
    if "version" not in root.entries and not is_part and "id" not in fields:
        report.error("version", "the file has no `version`", root, hint='write version: "1.0"')
    reading.models.update({key: fields[key] for key in ("ai_provider", "ai_model") if key in fields})
    reading.servers = {**reading.servers, **fields.get("ai_mcp_servers", {})}
    _read_tools(reading, fields.get("tools"))
    read_workflows(reading, root, fields)
    reading.inputs = read_inputs(reading, fields.get("inputs"))
    named, is_list = _named(reading, root, fields, is_part)
    reading.remedies = _remedies(named)
    settings = _settings(reading, root, fields, is_part)
    drafts = _drafts(reading, named, settings)
    if not is_part:
        _wait_for_the_chosen(reading, drafts)
    outputs = read_outputs(reading, fields)
    placed = _without_onward(reading, place_calls(reading, drafts))
    placed = _below_items(reading, _called_for_items(reading, placed), is_list)
    if not is_list:
        is_list = _runs_in_order(reading, root, placed)
    steps = _tolerant_items(settle(reading, placed, is_list))
    if "max_parallel" not in fields:
        steps = _one_by_one(steps)
    report_strangers(reading)
    end = Step(name="end", action=outputs or Noop(), origin=reading.origin(root))
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
    if drafts and all(step.get("tags") for step in of_steps) and not fields.get("tag_filter", {}).get("include"):
        message = "every step has tags: nothing runs unless some are asked for"
        reading.report.notice("tags", message, next(iter(drafts.values())).drafted.key, hint="--input tags=NAME,NAME")
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


def _settings(reading: VisorReading, root: Mapping, fields: dict[str, Any], is_part: bool) -> Settings:
    """What the file says for all its steps."""
    conditions = named_conditions(reading, fields["failure_conditions"]) if "failure_conditions" in fields else {}
    return Settings(
        conditions=conditions,
        conditions_at=reading.origin(root.entries["failure_conditions"][0]) if conditions else Origin(),
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
    """The steps that are named by `run`, or in the code of `run_js`, and that nothing else needs."""
    called: set[str] = set()
    needed: dict[str, frozenset[str]] = {}
    for name, _, node in named:
        entry = node.entries.get("depends_on")
        items = _items(entry[1]) if entry is not None else []
        texts = [item.text for item in items if isinstance(item, Scalar)]
        needed[name] = frozenset(part.strip() for text in texts for part in text.split("|"))
        for word in ("on_init", "on_fail", "on_success", "on_finish"):
            inner = node.entries.get(word)
            if inner is not None and isinstance(inner[1], Mapping):
                called |= _called(inner[1])
    return remedies_among(frozenset(called & needed.keys()), needed)


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


def _wait_for_the_chosen(reading: VisorReading, drafts: dict[str, Draft]) -> None:
    """Steps that depend on others which events and tags may leave out: those are not waited for then."""
    for draft in drafts.values():
        step, needs = draft.drafted.step, list(draft.drafted.needs)
        for place, (need, node) in enumerate(needs):
            group = {name: drafts[name].fields for name in need.any_of if name in drafts}
            if any(is_gated(fields) and name not in reading.remedies for name, fields in group.items()):
                needs[place] = (Need(need.any_of, True), node)
                step = replace(step, when=_and(step.when, Condition(past_gates(group), "code", step.origin)))
        draft.drafted = replace(draft.drafted, step=step, needs=tuple(needs))


def _and(first: Condition | None, also: Condition) -> Condition:
    """Two conditions, the second of which is asked first."""
    return also if first is None else replace(also, besides=(replace(first, besides=()), *first.besides))


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


def _without_onward(reading: VisorReading, drafts: dict[str, Drafted]) -> dict[str, Drafted]:
    """A step that goes on, after its success, to one that depends on it: that follows by itself, so nothing jumps."""
    result = dict(drafts)
    for name, draft in drafts.items():
        actions = draft.step.on_success
        if actions is None or not actions.target or name not in _before_it(drafts, actions.target):
            continue
        scope = reading.scope
        # What answers a failure is read first, so the last that names it is what follows the success.
        jump = [one for one in scope.named if (one.owner, one.how, one.node.text) == (name, "goto", actions.target)][-1]
        scope.named = [one for one in scope.named if one is not jump]
        message = f"`{shorten(actions.target)}` depends on `{shorten(name)}` and follows it by itself: nothing jumps"
        reading.report.notice("goto", message, jump.node)
        jumps = bool(actions.target_js or actions.transitions)
        left = replace(actions, target="", cost=actions.cost if jumps else 0)
        is_empty = not (jumps or left.calls or left.calls_js or left.steps)
        result[name] = replace(draft, step=replace(draft.step, on_success=None if is_empty else left))
    return result


def _before_it(drafts: dict[str, Drafted], name: str) -> set[str]:
    """All steps that one depends on, at any distance."""
    found: set[str] = set()
    work = [name]
    while work:
        for need, _ in drafts[here].needs if (here := work.pop()) in drafts else ():
            work += [other for other in need.any_of if other not in found]
            found.update(need.any_of)
    return found


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
    previous = dict(zip(order[1:], order, strict=False)) if is_list else {}
    below: set[str] = set()
    leading: set[str] = set()
    for _ in order:
        before = len(below)
        for name in order:
            needed = _needed(drafts, previous, name)
            producers = {other for other in needed if drafts[other].foreach is not None}
            mapped = {other for other in needed if other in below and drafts[other].fanout != "reduce"}
            if producers or mapped:
                below.add(name)
                leading |= producers
        if len(below) == before:
            break
    feeding = {
        name
        for name in leading
        if any(
            drafts[other].fanout != "reduce"
            for other in below
            if any(name in need.any_of for need, _ in drafts[other].needs) or is_list
        )
    }
    gathered = {
        name
        for name in below
        for other in _needed(drafts, previous, name)
        if other in feeding or (other in below and drafts[other].fanout != "reduce")
    }
    result: dict[str, Drafted] = {}
    for name, draft in drafts.items():
        if draft.foreach is not None and name not in feeding:
            message = f"nothing runs for each item of `{shorten(name)}`: its output is a list"
            reading.report.notice("foreach", message, draft.key)
            draft = _finished_at_once(reading, draft)
        if draft.node.entries and name not in below:
            message = "`fanout` changes nothing here: no step that this one depends on has `forEach`"
            reading.report.notice("fanout", message, draft.node.entries["fanout"][0])
        fanout = draft.fanout if name in gathered and draft.fanout == "reduce" else ""
        result[name] = replace(draft, foreach=draft.foreach if name in feeding else None, fanout=fanout)
    return result


def _finished_at_once(reading: VisorReading, draft: Drafted) -> Drafted:
    """A list for whose items nothing runs: what follows them follows the step itself."""
    foreach, name = draft.foreach, draft.step.name
    if foreach is None or foreach.on_finish is None:
        return draft
    if draft.step.on_success is not None:
        message = "`on_finish` and `on_success` follow the same thing here: nothing runs for each item"
        reading.report.error("conflict", message, draft.key, hint="keep `on_success`")
    own = finishing(name)
    scope = reading.scope
    scope.named = [replace(one, owner=name) if one.owner == own else one for one in scope.named]
    scope.spoken = [(name if owner == own else owner, text) for owner, text in scope.spoken]
    return replace(draft, step=replace(draft.step, on_success=foreach.on_finish))


def _needed(drafts: dict[str, Drafted], previous: dict[str, str], name: str) -> set[str]:
    """The steps that one waits for; in a list also the one before it."""
    needed = {other for need, _ in drafts[name].needs for other in need.any_of if other in drafts}
    return needed | ({previous[name]} if name in previous else set())


def _tolerant_items(steps: tuple[Step, ...], are_inside: bool = False) -> tuple[Step, ...]:
    """A failure that is tolerated inside an item leaves the item whole: the step is taken as it is."""
    made: list[Step] = []
    for step in steps:
        if are_inside:
            rules = [replace(rule, then="recovered") if rule.then == "tolerate" else rule for rule in step.rules]
            step = replace(step, rules=tuple(rules))
        if isinstance(step.action, FanOut):
            step = replace(step, action=replace(step.action, steps=_tolerant_items(step.action.steps, True)))
        made.append(step)
    return tuple(made)


def _one_by_one(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Items with steps that depend on each other run one after the other.

    In Visor a step starts when the one before it is over for all items, and files rely on that: what tidies up after
    one item would take away what another still needs. Items of one step run side by side.
    """
    made: list[Step] = []
    for step in steps:
        action = step.action
        if isinstance(action, FanOut):
            names = {inner.name for inner in action.steps}
            is_chain = any(not names.isdisjoint(need.any_of) for inner in action.steps for need in inner.needs)
            inside = _one_by_one(action.steps)
            step = replace(step, action=replace(action, steps=inside, max_parallel=1 if is_chain else None))
        made.append(step)
    return tuple(made)


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
