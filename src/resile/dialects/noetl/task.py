"""The common parts of a step and of a tool in a pipeline: a tool, its arguments and the actions after it.

keys of the step and its tool -> Follow -> add_follow -> keys of the native step
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node
from resile.dialects.native.nodes import Part, StepPart, items_of
from resile.dialects.noetl.arcs import END, read_next
from resile.dialects.noetl.event_cases import read_cases
from resile.dialects.noetl.follow import (
    NOWHERE,
    Follow,
    all_of,
    condition_of_case,
    is_about_failure,
    make_effect,
    none_of,
    read_set,
    repair_keys_for,
    text_of,
)
from resile.dialects.noetl.keys import ASSERT, WORKBOOK_ENTRY
from resile.dialects.noetl.retry import read_retry
from resile.dialects.noetl.tools.credentials import read_secret
from resile.dialects.noetl.tools.sink import read_sink
from resile.dialects.noetl.tools.tool import Tool, action_of, keys_of_step, merge_tools, read_tool
from resile.dialects.noetl.values import NoetlReading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import read_keys
from resile.errors import shorten
from resile.languages.jinja.scope import SECRET

_SECRETS = ("secrets", "secret")


def build_action(
    reading: NoetlReading, tool: Tool | None, follow: Follow
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Build the native action of a tool, and the transform of its output."""
    if tool is not None and tool.kind in _SECRETS:
        if follow.effects or follow.attempts or follow.cases or follow.sinks:
            message = "the value of a `secrets` tool is never stored, so nothing can follow from it"
            hint = "name it in the steps that use it: `{{ STEP.secret_value }}`"
            reading.report.error("not-run", message, tool.kind_node, hint=hint)
        return {"noop": True}, None
    action, transform = action_of(reading, tool) if tool is not None else (None, None)
    if (action is None or "noop" in action) and (follow.effects or follow.attempts or follow.cases):
        # `case`, `vars` and `retry` act on the result of an attempt, so a step without an action needs a real attempt.
        return {"python": "result = None"}, {"parse": "last"}
    return action or {"noop": True}, transform


def resolve_tool(
    reading: NoetlReading, given: dict[str, Any], tool: Tool | None, follow: Follow
) -> tuple[dict[str, Any], Tool | None]:
    """Merge the arguments of a step over those of its tool, and replace a workbook tool by the entry it calls."""
    args = dict(tool.fields.get("args", {})) if tool is not None else {}
    if tool is not None and tool.kind == "workbook":
        called = _tool_of_workbook(reading, tool, follow)
        if called is not None and called.kind == "workbook":
            reading.report.error("workbook", "an entry of the workbook can't call another one", called.kind_node)
            called = None
        args = {**(called.fields.get("args", {}) if called is not None else {}), **args}
        tool = merge_tools(tool, called) if called is not None else None
    if tool is not None and tool.kind in _SECRETS:
        if "secret_name" in tool.fields:
            # The step itself does nothing: templates that name it get the value of the secret.
            return {SECRET: read_secret(reading, tool.fields["secret_name"])}, tool
        reading.report.error("value", "a secrets tool needs `secret_name`", tool.node)
    return {**args, **given}, tool


def _tool_of_workbook(reading: NoetlReading, tool: Tool, follow: Follow) -> Tool | None:
    """Read the workbook entry that a tool calls; None after a report."""
    wanted = tool.fields.get("name")
    if wanted is None:
        reading.report.error("value", "a workbook tool needs `name`", tool.node)
        return None
    entry = reading.workbook.get(wanted)
    if entry is None:
        hint = did_you_mean(wanted, reading.workbook, "entries")
        reading.report.error("workbook", f"the workbook has no `{shorten(wanted)}`", tool.node, hint=hint)
        return None
    fields = read_keys(reading, entry, keys_of_step(WORKBOOK_ENTRY, entry))
    _read_assert(reading, fields, follow)
    read_sinks(reading, fields, follow)
    called = read_tool(reading, entry)
    if called is None or "args" not in fields:
        return called
    return replace(called, fields={**called.fields, "args": {**called.fields.get("args", {}), **fields["args"]}})


def read_follow(
    reading: NoetlReading, fields: dict[str, Any], tool: Tool | None, node: Mapping, name: str, follow: Follow
) -> None:
    """Read every key of a step that acts on the result of an attempt."""
    for word in ("vars", "set"):
        if word in fields:
            follow.effects += read_set(reading, node.entries[word][1])
    inner: dict[str, Any] = tool.fields if tool is not None else {}
    _read_assert(reading, fields, follow)
    _read_assert(reading, inner, follow)
    for word in ("retry", "timeout"):
        if word in fields and word in inner:
            message = f"the step and its tool both have a `{word}`"
            reading.report.error("conflict", message, node.entries[word][0], hint="keep one of them")
    retry: Node | None = fields.get("retry") or inner.get("retry")
    if retry is not None:
        read_retry(reading, retry, follow)
    if "case" in fields:
        read_cases(reading, fields["case"], follow)
    read_sinks(reading, fields, follow)
    if "next" in fields:
        _read_arcs(reading, fields["next"], follow)
    if name == END and follow.arcs:
        place = node.entries.get("next", node.entries.get("case", (node,)))[0]
        reading.report.error("end", "nothing follows `end`", place, hint="take the arcs of `end` out")
        follow.arcs.clear()


def _read_arcs(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """Read the `next` of a step: its arcs are taken if no case has taken one."""
    led = follow.led
    found = read_next(reading, node, (none_of([condition_of_case(when["case"], when) for when in led]),) if led else ())
    if led and found.effects:
        message = "variables that an arc sets can't be told apart from what a case leads to"
        reading.report.error("conflict", message, node, hint="write `set` in the case, or on the step")
    answers = [condition for condition in found.asked if is_about_failure(text_of(condition))]
    # An arc whose condition names the failure tolerates it, and then no other arc is taken.
    follow.rules += [Part(answer, then="tolerate", text="next", when=answer, limit=1_000) for answer in answers]
    follow.arcs += [_take_unless(arc, answers) if answers else arc for arc in found.arcs]
    follow.effects += found.effects


def _take_unless(arc: Part, answers: list[Part]) -> Part:
    """Take an arc only if no condition that answers a failure holds; the arcs of these conditions stay unchanged."""
    own = [arc["when"]] if "when" in arc else []
    conditions = [*own, *(own[0].get("besides", ()) if own else ())]
    if {text_of(condition) for condition in conditions} & {text_of(answer) for answer in answers}:
        return arc
    return arc.replace(when=all_of([*own, none_of(answers)]))


def read_sinks(reading: NoetlReading, fields: dict[str, Any], follow: Follow) -> None:
    """Read the sinks of the step itself."""
    for item in items_of(fields["sink"]) if "sink" in fields else []:
        sink = read_sink(reading, item, f"{reading.owner}_sink{len(follow.sinks) + 1}", None)
        follow.sinks += [sink] if sink is not None else []


def _read_assert(reading: NoetlReading, fields: dict[str, Any], follow: Follow) -> None:
    """Read `assert`: the names that must be among the arguments and in the result."""
    wanted = read_keys(reading, fields["assert"], ASSERT) if "assert" in fields else {}
    for name, _ in wanted.get("expects", ()):
        said = f"assert: there is no {name!r} in the arguments"
        follow.effects.append(make_effect("fail", when=f"{name!r} not in args", value=said))
    for name, _ in wanted.get("returns", ()):
        text = f"result is not mapping or {name!r} not in result"
        follow.effects.append(make_effect("fail", when=text, value=f"assert: no {name!r} in the result"))


def add_follow(step: StepPart, name: str, transform: dict[str, Any] | None, follow: Follow) -> StepPart:
    """Add the actions after a step to the native step."""
    captured = {name: "value"} if transform is not None else None
    if "workflow" in step and (follow.effects or follow.cases):
        # Cases and effects of a playbook act on its value, so the value must be transformed.
        transform = {}
    return step.replace(
        capture=captured,
        transform=transform,
        cases=follow.cases or None,
        effects=[*follow.effects, *follow.attempts] or None,
        rules=[_add_sinks(rule, follow.sinks) for rule in follow.rules] or None,
        next=follow.arcs or None,
        on_success=Part(NOWHERE, commands=follow.sinks) if follow.sinks else None,
    )


def _add_sinks(rule: Part, sinks: list[Part]) -> Part:
    """Add the sinks of a success to a rule that accepts a result as it is."""
    if rule["then"] != "recovered" or not sinks:
        return rule
    named = {sink["id"]: sink for sink in (*rule.get("commands", ()), *sinks)}
    return rule.replace(**repair_keys_for(list(named.values()), "fail"))
