"""Calls that are more than a name: tools, workflows, and steps with arguments become steps of their own.

    on_init     steps before the step, called STEP.NAME; their outputs are seen by it under the name of the call
    on_success  steps in the scope of what follows the step           on_fail   steps of its repair

A called step is a copy: it does what the step does, with `args`, and answers no failure but by plain retries.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, plain
from resile.dialects.native.step import Drafted
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.visor.keys import TOOL
from resile.dialects.visor.schemas import is_schema
from resile.dialects.visor.step import Draft
from resile.dialects.visor.values import Call, VisorReading
from resile.dialects.visor.workflows import child_of
from resile.errors import shorten
from resile.model.builtin_actions import Transform
from resile.model.rules import Origin
from resile.model.workflow import Capture, Need, Shell, Step


def place_calls(reading: VisorReading, drafts: dict[str, Draft]) -> dict[str, Drafted]:
    """Every step with what it calls in its place; the steps that run before others among them."""
    result: dict[str, Drafted] = {}
    for name, draft in drafts.items():
        drafted = draft.drafted
        if draft.before:
            drafted = _with_before(reading, drafts, draft, result)
        if draft.remedy:
            drafted = _with_remedy(reading, drafts, drafted, draft.remedy)
        if draft.after and drafted.step.on_success is not None:
            actions = replace(drafted.step.on_success, steps=_in_order(reading, drafts, draft.after))
            drafted = replace(drafted, step=replace(drafted.step, on_success=actions))
        result[name] = drafted
    return result


def _with_before(reading: VisorReading, drafts: dict[str, Draft], draft: Draft, result: dict[str, Drafted]) -> Drafted:
    """The step after those that run before it, which are put among the others."""
    drafted = draft.drafted
    step = drafted.step
    needs, when = drafted.needs, step.when
    aliases: dict[str, str] = {}
    for call in draft.before:
        called = _called(reading, drafts, call)
        if called is None:
            continue
        alias = call.alias or call.name
        name = _free(f"{step.name}.{alias}", drafts, result)
        placed = replace(_renamed(called, name), when=when, aliases=dict(aliases))
        result[name] = Drafted(placed, Mapping({}, call.node.line, call.node.column), call.node, needs,
                               fanout=drafted.fanout)  # fmt: skip
        # The first of them asks the step's condition; where it does not hold, the rest are skipped with it.
        needs, when = ((Need((name,)), call.node),), None
        aliases[alias] = name
    if not aliases:
        return drafted
    return replace(drafted, step=replace(step, when=when, aliases=aliases), needs=(*drafted.needs, *needs))


def _free(name: str, *taken: dict[str, Any]) -> str:
    """The name, or one with a number that no step has."""
    found, number = name, 1
    while any(found in names for names in taken):
        number += 1
        found = f"{name}-{number}"
    return found


def _with_remedy(reading: VisorReading, drafts: dict[str, Draft], drafted: Drafted, calls: tuple[Call, ...]) -> Drafted:
    """The step whose remedy runs steps of its own."""
    steps = _in_order(reading, drafts, calls)
    rules = tuple(
        replace(rule, repair=replace(rule.repair, steps=steps)) if rule.repair is not None else rule
        for rule in drafted.step.rules
    )
    return replace(drafted, step=replace(drafted.step, rules=rules))


def _in_order(reading: VisorReading, drafts: dict[str, Draft], calls: tuple[Call, ...]) -> tuple[Step, ...]:
    """Called steps, one after the other."""
    steps: list[Step] = []
    aliases: dict[str, str] = {}
    for call in calls:
        called = _called(reading, drafts, call)
        if called is None:
            continue
        name = _free(call.alias or call.name, {step.name: step for step in steps})
        needs = (Need((steps[-1].name,), True),) if steps else ()
        steps.append(replace(_renamed(called, name), needs=needs, aliases=dict(aliases)))
        aliases[call.alias or call.name] = name
    return tuple(steps)


def _renamed(step: Step, name: str) -> Step:
    """The step under another name, which is also that of its value."""
    capture = tuple(replace(capture, name=name) for capture in step.capture)
    return replace(step, name=name, capture=capture, called_only=False)


def _called(reading: VisorReading, drafts: dict[str, Draft], call: Call) -> Step | None:
    """What a call runs, or None after a report."""
    kinds: dict[str, dict[str, Any]] = {
        "step": {**drafts}, "tool": {**reading.tools}, "workflow": {**reading.workflows}
    }  # fmt: skip
    known = kinds[call.kind]
    if call.name not in known and not (call.kind == "workflow" and "." in call.name):
        hint = did_you_mean(call.name, known, f"{call.kind}s")
        message = f"there is no {call.kind} `{shorten(call.name)}`"
        reading.report.error(f"unknown-{call.kind}", message, call.node, hint=hint)
        return None
    origin = reading.origin(call.node)
    if call.kind == "tool":
        return _tool(reading, call, origin)
    if call.kind == "workflow":
        child = child_of(reading, call.node, call.args)
        capture = (Capture(call.name, "value"),)
        return None if child is None else Step(
            name=call.name, action=child, capture=capture, transform=Transform(), origin=origin
        )  # fmt: skip
    step = drafts[call.name].drafted.step
    rules = tuple(rule for rule in step.rules if rule.then == "retry" and rule.repair is None)
    return replace(step, rules=rules, on_success=None, needs=(), args=call.args, origin=origin)


def _tool(reading: VisorReading, call: Call, origin: Origin) -> Step | None:
    """The command of a tool."""
    key, node = reading.tools[call.name]
    fields = read_keys(reading, node, TOOL)
    if "exec" not in fields:
        if "exec" not in node.entries:
            reading.report.error("value", f"the tool `{shorten(call.name)}` has no `exec`", key)
        return None
    args = _arguments(reading, fields.get("inputSchema"), call)
    transform = Transform(
        parse="json" if fields.get("parseJson") else "auto",
        template=fields.get("transform", ""),
        code=fields.get("transform_js", ""),
    )
    return Step(
        name=call.name,
        action=Shell(fields["exec"], stdin=fields.get("stdin", "")),
        capture=(Capture(call.name, "value"),),
        transform=transform,
        timeout_seconds=fields.get("timeout"),
        env=fields.get("env", {}),
        args=args,
        origin=origin,
    )


def _arguments(reading: VisorReading, node: Node | None, call: Call) -> dict[str, Any]:
    """The arguments of a tool: those given must be known, those required given, defaults are filled in."""
    if node is None:
        return call.args
    schema = plain(node)
    if not is_schema(reading, node, schema) or not isinstance(schema, dict):
        return call.args
    properties = schema.get("properties", {})
    given = dict(call.args)
    for name, about in properties.items():
        if isinstance(about, dict) and "default" in about:
            given.setdefault(name, about["default"])
    required = schema.get("required", [])
    for name in required if isinstance(required, list) else []:
        if name not in given:
            reading.report.error("input", f"the tool `{shorten(call.name)}` needs `{shorten(str(name))}`", call.node)
    for name in given:
        if properties and name not in properties:
            hint = did_you_mean(name, properties, "its arguments")
            reading.report.error(
                "input", f"the tool `{shorten(call.name)}` takes no `{shorten(name)}`", call.node, hint=hint
            )
    return given
