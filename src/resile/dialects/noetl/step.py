"""One step of a playbook: its tool, arguments, loop and following actions become a native step.

    tool -> action      loop -> a map whose one step is the tool      case, next, retry, vars, sink -> Follow

In a loop, retries, sinks and stored values belong to the step that runs for each item; arcs and cases about `loop.done`
belong to the loop as a whole.

`spec` has the rules that admit a step when a path reaches it. The first rule that holds decides. If none holds, the
step is admitted only if no rule has `allow: true`. A step that is not admitted is skipped, and its path leads to `end`.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import Part, StepPart, text_in, value_of
from resile.dialects.noetl.arcs import END, arc_to
from resile.dialects.noetl.follow import NOWHERE, Follow, condition_of
from resile.dialects.noetl.keys import ADMIT, ADMIT_RULE, STEP
from resile.dialects.noetl.loops import read_iterator, read_loop
from resile.dialects.noetl.task import add_follow, build_action, read_follow, resolve_tool
from resile.dialects.noetl.tools.keys import TOOLS
from resile.dialects.noetl.tools.pipeline import is_pipeline, read_pipeline
from resile.dialects.noetl.tools.tool import Tool, keys_of_step, read_tool
from resile.dialects.noetl.values import NoetlReading, read_rules
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.values import wrong
from resile.errors import shorten
from resile.languages.jinja.templates import expression_of

_ROUTERS = ("start", END)


def read_step(reading: NoetlReading, name: str, key: Scalar, node: Mapping) -> StepPart:
    """Build the native step that a mapping of the playbook describes."""
    reading.owner = name
    node = _drop_misplaced_keys(reading, _with_auth_in_tool(_with_tool_of_call(reading, node)))
    fields = read_keys(reading, node, keys_of_step(STEP, node))
    follow = Follow()
    child = read_pipeline(reading, node) if is_pipeline(node) else None
    tool = None if is_pipeline(node) else read_tool(reading, node)
    is_router = name.lower() in _ROUTERS or bool({"next", "case"} & node.entries.keys())
    if tool is None and not {"tool", "type"} & node.entries.keys() and not is_router:
        message = f"the step `{shorten(name)}` needs `tool`"
        reading.report.error("value", message, key, hint=f"one of {', '.join(TOOLS)}; `noop` does nothing")
    if is_router and tool is None and "loop" in node.entries and child is None:
        reading.report.error("value", "a `loop` needs a `tool`", node.entries["loop"][0])
    loop = _loop_of(reading, fields, tool)
    is_iterator = tool is not None and tool.kind == "iterator"
    if tool is not None and is_iterator:
        loop, tool = read_iterator(reading, tool, loop, follow)
    args, tool = resolve_tool(reading, fields.get("args", {}), tool, follow)
    of_items = len(follow.sinks)
    read_follow(reading, fields, tool, node, name, follow)
    if loop is not None and follow.otherwise is not None:
        message = "`else` of the cases is not run in a loop: it is not said whether it is for an item or for all"
        hint = "write its condition as the `when` of a case"
        reading.report.error("not-run", message, follow.otherwise, hint=hint)
    if is_iterator:
        follow.whole = {sink["id"] for sink in follow.sinks[of_items:] if "when" not in sink}
    action, transform = build_action(reading, tool, follow)
    if fields.get("pass"):
        action, transform = {"noop": True}, None
    elif child is not None:
        action, transform = child, None
    admitted = _read_admission(reading, fields.get("spec", {}).get("policy", {}).get("admit"), name)
    timeout = fields.get("timeout", tool.fields.get("timeout") if tool is not None else None)
    step = StepPart(key, **action, args=args or None, when=admitted, timeout=timeout)
    if loop is None:
        step = add_follow(step, name, transform, follow)
    else:
        step = _build_loop(step, name, loop, transform, follow)
    return step.replace(critical=fields.get("critical") or None)


def _loop_of(reading: NoetlReading, fields: dict[str, Any], tool: Tool | None) -> Part | None:
    """Read the `loop` of a step, or of its tool."""
    own: Node | None = fields.get("loop")
    inner: Node | None = tool.fields.get("loop") if tool is not None else None
    if own is not None and inner is not None:
        reading.report.error("conflict", "the step and its tool both have a `loop`", inner, hint="keep one of them")
    given = own or inner
    return read_loop(reading, given) if given is not None else None


def _read_admission(reading: NoetlReading, node: Node | None, step: str) -> Part | None:
    """Build the condition under which a step is admitted; None if it always is, or after a report."""
    if node is None:
        return None
    rules: Node | None = read_keys(reading, node, ADMIT).get("rules")
    if step == END:
        reading.report.error("end", "`end` is always admitted", node, hint="take `admit` out")
        return None
    if not isinstance(rules, Sequence) or not rules.items:
        wrong(reading, rules or node, "a list of rules")
        return None
    answers: list[tuple[str, bool]] = []
    for place, rule in read_rules(reading, rules, ADMIT_RULE):
        condition, then = expression_of(rule["when"]), rule["then"]
        if condition and "allow" in then:
            answers.append((condition, then["allow"]))
        else:
            message = "the condition must be one expression" if not condition else "`then` needs `allow`"
            reading.report.error("value", message, place)
    if len(answers) < len(rules.items):
        return None
    text = "false" if any(allows for _, allows in answers) else "true"
    for condition, allows in reversed(answers):
        text = f"{str(allows).lower()} if ({condition}) else ({text})"
    return condition_of(text, node)


def _with_tool_of_call(reading: NoetlReading, node: Mapping) -> Mapping:
    """Make the `call` of a step its `tool`: older playbooks write `call: {type: K, …}`."""
    if "call" not in node.entries:
        return node
    key, inner = node.entries["call"]
    kept = {word: entry for word, entry in node.entries.items() if word != "call"}
    kind = next((word for word in ("kind", "type") if isinstance(inner, Mapping) and word in inner.entries), "")
    if not isinstance(inner, Mapping) or not kind:
        wrong(reading, inner, "a tool with its `type`; a `call` of another step belongs into `then` of a case")
    elif {"tool", "type"} & kept.keys():
        reading.report.error("conflict", "`call` and `tool` say the same thing", key)
    else:
        fields = {"kind" if word == kind else word: entry for word, entry in inner.entries.items()}
        kept["tool"] = (key, Mapping(fields, inner.line, inner.column))
    return Mapping(kept, node.line, node.column)


def _with_auth_in_tool(node: Mapping) -> Mapping:
    """Move the credential of a step into its tool, if the tool can have one and has none."""
    inner = value_of(node, "tool")
    if "auth" not in node.entries or not isinstance(inner, Mapping) or "auth" in inner.entries:
        return node
    known = TOOLS.get(text_in(value_of(inner, "kind")).lower())
    if known is None or "auth" not in known.keys:
        return node
    tool = Mapping({**inner.entries, "auth": node.entries["auth"]}, inner.line, inner.column)
    kept = {word: entry for word, entry in node.entries.items() if word != "auth"}
    return Mapping({**kept, "tool": (node.entries["tool"][0], tool)}, node.line, node.column)


def _drop_misplaced_keys(reading: NoetlReading, node: Mapping) -> Mapping:
    """Report keys of the tool that are on the step by mistake, and leave them out."""
    inner = value_of(node, "tool")
    kind = text_in(value_of(inner, "kind")) if isinstance(inner, Mapping) else ""
    known = TOOLS.get(kind.lower())
    if known is None:
        return node
    kept = {}
    for word, entry in node.entries.items():
        if word in known.keys and word not in STEP.keys and known.keys[word].field != "args":
            hint = "indent it under `tool`"
            reading.report.error("misplaced", f"`{word}` belongs into `tool` of `{reading.owner}`", entry[0], hint=hint)
        else:
            kept[word] = entry
    return Mapping(kept, node.line, node.column)


def _ask_arcs(step: StepPart, name: str) -> StepPart:
    """Give arcs without a condition one that is always true: the engine then evaluates the effects beside them."""
    arcs: list[Part] = step.get("next", [])
    if any("when" in arc or "args" in arc for arc in arcs) or name == END:
        return step
    always = condition_of("true", NOWHERE)
    return step.replace(next=[arc.replace(when=always) for arc in arcs] or [arc_to(END, always)])


def _build_loop(step: StepPart, name: str, loop: Part, transform: dict[str, Any] | None, follow: Follow) -> StepPart:
    """Build a map step, with the tool as the one step of each item."""
    own = set(range(len(follow.cases))) - follow.of_loop
    inner_effects = [effect for effect in follow.effects if effect["case"] in own or effect["kind"] == "fail"]
    outer_effects = [effect for effect in follow.effects if effect not in inner_effects]
    of_loop = [
        sink
        for sink in follow.sinks
        if sink["id"] in follow.whole or int(sink.get("when", {}).get("case", -1)) in follow.of_loop
    ]
    inner = Follow(
        cases=follow.cases,
        effects=inner_effects,
        attempts=follow.attempts,
        rules=[rule for rule in follow.rules if rule["then"] != "tolerate"],
        sinks=[sink for sink in follow.sinks if sink not in of_loop],
    )
    outer = Follow(
        cases=follow.cases,
        effects=outer_effects,
        rules=[rule for rule in follow.rules if rule["then"] == "tolerate"],
        arcs=follow.arcs,
        sinks=of_loop,
    )
    item = f"{name}_item"
    steps = {item: add_follow(step, item, transform, inner)}
    whole = StepPart(step, map=loop.replace(steps=steps), when=step.get("when"))
    whole = add_follow(whole, name, None, outer)
    return _ask_arcs(whole, name) if outer_effects else whole
