"""The Visor front end: a mapping with `version` and `steps` (or `checks`) becomes a native tree.

    extends (files) -> keys -> steps -> calls -> items, order (items)  ->  native tree, which compile_native reads

A file without any `depends_on` whose jumps lead to earlier steps runs in the order in which it is written. Steps that
only `run` names run only when they are called. Every key has an effect, is refused by name, or is a label, for which
the reader gives a notice.
"""

from __future__ import annotations

import re
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe
from resile.dialects.native.compile import compile_part
from resile.dialects.native.context import NativeReading
from resile.dialects.native.graph.routes import remedies_among
from resile.dialects.native.nodes import (
    Part,
    StepPart,
    WorkflowPart,
    items_of,
    node_of,
    sequence,
    text_in,
    value_of,
    walk,
    word,
)
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.values import name_problem, wrong
from resile.dialects.visor.calls import place_calls
from resile.dialects.visor.conditions import is_gated, past_gates, when_of
from resile.dialects.visor.files import extend
from resile.dialects.visor.items import drop_onward_jumps, place_below_items, run_for_items, runs_in_order
from resile.dialects.visor.keys import FILE, TABLES
from resile.dialects.visor.step import Draft, read_step
from resile.dialects.visor.tools import tool_of
from resile.dialects.visor.values import Call, Known, Lowered, VisorReading
from resile.dialects.visor.workflows import read_inputs, read_outputs, read_workflows, stem_of
from resile.errors import shorten
from resile.model.limits import STEPS_MAX
from resile.model.workflow import Workflow

NAME = "visor"
__all__ = ["NAME", "TABLES", "compile_visor"]

_LITERAL = re.compile(r"""(['"`])((?:(?!\1)[^\\\n])*)\1""")
_NO_STEPS_HINT = "a file of tools or workflows is there for others to extend"
# Names of the checkout, as code and templates use them.
_OF_CHECKOUT = re.compile(
    r"\b(?:pr\??\.\w|files\b[\s.\[|)]|fileCount\b|filesCount\b|filesChanged\b|hasChanges\b|branch\b|baseBranch\b)"
)
Named = dict[str, tuple[Node, Mapping]]
"""Steps by name, each with the node of its name."""


def compile_visor(source: Source, root: Mapping, report: Diagnostics) -> Workflow | None:
    """Compile a Visor file; return None if it has an error."""
    lowered = _lower(VisorReading(source, report, _lower_known), extend(source, root, report))
    if lowered is None:
        return None
    reading = NativeReading(source, report, NAME, is_checked=True)
    reading.errexit = False
    reading.onward = "a step that depends on this one follows it by itself; `if` says when"
    reading.needing = "depends on"
    return compile_part(reading, lowered.root.to_node())


def _lower_known(around: VisorReading, known: Known, name: str, loading: tuple[str, ...]) -> Lowered | None:
    """Lower a workflow that a step of another one calls."""
    reading = VisorReading(known.source, around.report, _lower_known, loading)
    reading.tools = around.tools
    reading.models = around.models
    reading.servers = around.servers
    reading.workflows = dict(around.workflows)
    lowered = _lower(reading, known.root, name)
    around.uses_checkout = around.uses_checkout or reading.uses_checkout
    if lowered is not None:
        lowered.root["source"] = {"file": known.source.file, "folder": known.source.folder}
    return lowered


def _lower(reading: VisorReading, root: Mapping, name: str = "") -> Lowered | None:
    """Lower a workflow to a native tree, and report its errors; return None if it has no steps."""
    reading.fields = fields = read_keys(reading, root, FILE)
    texts = (part.text for part in walk(root) if isinstance(part, Scalar) and isinstance(part.value, str))
    reading.uses_checkout = any(_OF_CHECKOUT.search(text) for text in texts)
    is_called = bool(reading.loading)
    if "version" not in root.entries and not is_called and "id" not in fields:
        reading.report.error("version", "the file has no `version`", root, hint='write version: "1.0"')
    reading.models = {**reading.models, **{key: fields[key] for key in ("ai_provider", "ai_model") if key in fields}}
    reading.servers = {**reading.servers, **fields.get("ai_mcp_servers", {})}
    _read_tools(reading, fields.get("tools"))
    read_workflows(reading, root, fields)
    reading.inputs = read_inputs(reading, fields.get("inputs"))
    if "fail_if" in fields:
        message = "as in Visor, `fail_if` of the file only makes a remark: no step and no run fails by it"
        reading.report.notice(
            "tolerated", message, root.entries["fail_if"][0], hint="`fail_if` of a step makes it fail"
        )
    for each, check in fields.get("failure_conditions", {}).items():
        reading.conditions[each] = Part(root.entries["failure_conditions"][0], **check)
    named, is_list = _named_steps(reading, root)
    reading.remedies = _remedies(named)
    drafts = {each: read_step(reading, each, key, node) for each, (key, node) in named.items()}
    if not is_called:
        _skip_needs_left_out(reading, drafts)
    outputs = read_outputs(reading, fields)
    placed = place_calls(reading, drafts)
    drop_onward_jumps(reading, placed)
    run_for_items(placed)
    place_below_items(reading, placed, is_list)
    is_list = is_list or runs_in_order(reading, root, placed)
    inputs = reading.inputs | ({} if is_called else _gate_inputs(reading, drafts, named, root))
    label = fields.get("name") or fields.get("id") or name or stem_of(reading.source.file)
    native = WorkflowPart(
        root,
        name=label,
        inputs=inputs or None,
        env=fields.get("env") or None,
        max_parallel=fields.get("max_parallel"),
        routing={"max_loops": fields["routing"]["max_loops"]} if "max_loops" in fields.get("routing", {}) else None,
        templates="liquid",
        failure_key="on_fail",
        condition_errors="skip",
        memory_file=_memory_file(reading, root),
        memory_namespace=reading.namespace,
        steps=_steps(root, placed, outputs, is_list, in_turn="max_parallel" not in fields),
    )
    return Lowered(native, label, inputs) if placed or reading.fields.get("steps") is not None else None


def _steps(root: Mapping, drafts: dict[str, Draft], outputs: dict[str, Any], is_list: bool, in_turn: bool) -> Node:
    """The native steps: a list if list order counts, else a mapping; `end` collects the outputs of the workflow."""
    made: list[tuple[str, Scalar, StepPart]] = []
    for name, draft in drafts.items():
        keys = draft.keys.replace(needs=draft.needs or None, when=when_of(draft.when), fanout=draft.fanout or None)
        if draft.foreach is not None:
            keys |= {**draft.foreach, **({"in_turn": node_of(True, draft.foreach)} if in_turn else {})}
        made.append((name, draft.key if isinstance(draft.key, Scalar) else word(name, draft.key), keys))
    if not made:
        # A workflow has a step; that of a library does nothing.
        made.append(("nothing", word("nothing", root), StepPart(root, noop=True)))
    if outputs:
        made.append(("end", word("end", root), StepPart(root, collect=outputs)))
    if is_list:
        listed = (keys.replace(id=word(name, key)).to_node() for name, key, keys in made)
        return sequence(listed, root)
    return Mapping({name: (key, keys.to_node()) for name, key, keys in made}, root.line, root.column, root.file)


def _gate_inputs(reading: VisorReading, drafts: dict[str, Draft], named: Named, root: Mapping) -> dict[str, Part]:
    """The inputs by which a run selects steps, of a request that `http_input` gives, and of the checkout, if needed."""
    of_steps = [draft.fields for draft in drafts.values()]
    chosen = reading.fields.get("tag_filter", {})
    if drafts and all(step.get("tags") for step in of_steps) and not chosen.get("include"):
        message = "every step has tags: nothing runs unless some are asked for"
        reading.report.notice("tags", message, next(iter(drafts.values())).key, hint="--input tags=NAME,NAME")
    defaults: dict[str, str | None] = {}
    if any("events" in step for step in of_steps):
        defaults["event"] = "all"
    if reading.uses_checkout:
        defaults["pull_request"] = None
    if chosen or any(step.get("tags") for step in of_steps):
        defaults["tags"] = ",".join(chosen.get("include", ()))
        defaults["exclude_tags"] = ",".join(chosen.get("exclude", ()))
    if any(text_in(value_of(node, "type")) == "http_input" for _, node in named.values()):
        defaults |= {"endpoint": "", "webhook": None}
    for name in defaults:
        if name in reading.inputs:
            message = f"the input `{name}` is one that every run has, and can't be declared"
            reading.report.error("reserved", message, hint="give it another name")
    return {
        name: Part(root, type="json" if default is None else "text", default=default)
        for name, default in defaults.items()
    }


def _read_tools(reading: VisorReading, node: Node | None) -> None:
    """Collect the tools that `on_init` can name; each is read when it is called."""
    if isinstance(node, Mapping):
        for name, (key, value) in node.entries.items():
            if isinstance(value, Mapping):
                reading.tools = {**reading.tools, name: (key, value)}
            else:
                wrong(reading, value, "a tool: a mapping with `exec`")
    elif node is not None:
        wrong(reading, node, "a mapping of names to tools")


def _memory_file(reading: VisorReading, root: Mapping) -> dict[str, Any] | None:
    """The settings of the memory file, or None if the memory has no file."""
    given = reading.fields.get("memory", {})
    if given.get("storage") != "file":
        for word in ("file", "format", "auto_load", "auto_save"):
            if word in given:
                message = f"`{word}` has no meaning without `storage: file`"
                reading.report.error("conflict", message, root.entries["memory"][0], hint=f"take `{word}` out")
        return None
    if "file" not in given:
        reading.report.error("value", "`storage: file` needs `file`", root.entries["memory"][0])
        return None
    return {"path": given["file"], "load": given.get("auto_load", True), "save": given.get("auto_save", True)}


def _named_steps(reading: VisorReading, root: Mapping) -> tuple[Named, bool]:
    """The named steps, and whether they are a list."""
    report = reading.report
    given: Node | None = reading.fields.get("steps")
    if given is None:
        if "steps" not in root.entries and "checks" not in root.entries:
            hint = "" if reading.loading else _NO_STEPS_HINT
            report.error("value", "the file has neither `steps` nor `checks`", root, hint=hint)
        return {}, False
    if isinstance(given, Scalar):
        report.error("type", f"`steps` must be a mapping, not {describe(given)}", given)
        return {}, False
    steps: list[tuple[str, Node, Node]]
    if isinstance(given, Mapping):
        steps = [(name, key, node) for name, (key, node) in given.entries.items()]
    else:
        steps = [_list_step(number, item) for number, item in enumerate(given.items, 1)]
    if len(steps) > STEPS_MAX:
        report.error("limit", f"{len(steps)} steps are more than {STEPS_MAX}", given)
        return {}, False
    if not steps and (reading.loading or not (reading.tools or reading.workflows)):
        report.error("value", "there are no steps to run", given, hint=_NO_STEPS_HINT)
    elif not steps:
        _check_library(reading, given)
    found: Named = {}
    for name, key, node in steps:
        problem = "is the name of what runs last" if name == "end" else name_problem(name)
        if not isinstance(node, Mapping):
            report.error("type", f"a step must be a mapping, not {describe(node)}", node)
        elif problem:
            report.error("name", f"the step name `{shorten(name)}` {problem}", key)
        elif name in found:
            report.error("duplicate", f"the step `{shorten(name)}` is here twice", key)
        else:
            found[name] = (key, node)
    return found, isinstance(given, Sequence)


def _check_library(reading: VisorReading, at: Node) -> None:
    """Check the tools and workflows of a file without steps, which others extend; a run of it does nothing."""
    message = "there are no steps to run: the tools and workflows are there for others to extend"
    reading.report.warning("library", message, at)
    for name, (key, _) in reading.tools.items():
        tool_of(reading, Call("tool", name, key, is_checked=False))
    for name, known in reading.workflows.items():
        reading.lower(reading, known, name, (f"{known.source.file}:{known.root.line}:{known.root.column}",))


def _list_step(number: int, item: Node) -> tuple[str, Node, Node]:
    """A step of a list with its `id` as the name; the `id` is removed from its keys."""
    key = value_of(item, "id") if isinstance(item, Mapping) else None
    if not isinstance(item, Mapping) or not isinstance(key, Scalar):
        return f"step-{number}", item, item
    entries = {word: entry for word, entry in item.entries.items() if word != "id"}
    return key.text, key, Mapping(entries, item.line, item.column, item.file)


def _remedies(named: Named) -> frozenset[str]:
    """Steps that `run` or the code of `run_js` names and that no other step needs."""
    called: set[str] = set()
    needed: dict[str, frozenset[str]] = {}
    for name, (_, node) in named.items():
        needs = value_of(node, "depends_on")
        texts = [item.text for item in items_of(needs) if isinstance(item, Scalar)] if needs is not None else []
        needed[name] = frozenset(part.strip() for text in texts for part in text.split("|"))
        for key in ("on_init", "on_fail", "on_success", "on_finish"):
            routes = value_of(node, key)
            called |= _names_called_by(routes) if isinstance(routes, Mapping) else set()
    return remedies_among(frozenset(called & needed.keys()), needed)


def _names_called_by(routes: Mapping) -> set[str]:
    """Steps that one set of routing keys calls."""
    run, code = value_of(routes, "run"), value_of(routes, "run_js")
    items = items_of(run) if run is not None else []
    targets = [value_of(item, "step") if isinstance(item, Mapping) else item for item in items]
    found = {target.text for target in targets if isinstance(target, Scalar)}
    return found | {text for _, text in _LITERAL.findall(text_in(code))}


def _skip_needs_left_out(reading: VisorReading, drafts: dict[str, Draft]) -> None:
    """Do not wait for steps that events or tags deselect, and do not skip their dependents."""
    for draft in drafts.values():
        for place, need in enumerate(draft.needs):
            group = {name: drafts[name].fields for name in need["any_of"] if name in drafts}
            if any(is_gated(fields) and name not in reading.remedies for name, fields in group.items()):
                draft.needs[place] = need.replace(skip_satisfies=True)
                draft.when = [Part(draft.key, code=past_gates(group)), *draft.when]
