"""A tool and what follows it: what a step of a playbook and a tool of a pipeline have in common."""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node
from resile.dialects.native.nodes import Part
from resile.dialects.noetl.arcs import END, read_next, read_set
from resile.dialects.noetl.conditions import all_of, asked_case, is_about_failure, none_of, text_of
from resile.dialects.noetl.event_cases import read_cases
from resile.dialects.noetl.follow import Follow, read_assert, read_sinks
from resile.dialects.noetl.keys import WORKBOOK_ENTRY
from resile.dialects.noetl.retry import read_retry
from resile.dialects.noetl.tools.tool import Tool, action_of, around, keys_with_tool, read_tool
from resile.dialects.noetl.values import NoetlReading
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.reading.suggestions import did_you_mean
from resile.errors import shorten


def action_keys(
    reading: NoetlReading, tool: Tool | None, follow: Follow
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What a step does, as keys of a native step, and what is made of what it prints."""
    action, transform = action_of(reading, tool) if tool is not None else (None, None)
    if (action is None or "noop" in action) and (follow.effects or follow.attempts or follow.cases):
        # `case`, `vars` and `retry` act on the result of an attempt, so a step that does nothing needs one.
        return {"python": "result = None"}, {"parse": "last"}
    return action or {"noop": True}, transform


def tool_arguments(
    reading: NoetlReading, given: dict[str, Any], tool: Tool | None, follow: Follow
) -> tuple[dict[str, Any], Tool | None]:
    """The arguments of a step, its own before its tool's; and the tool, which may be one of the workbook."""
    args = dict(tool.fields.get("args", {})) if tool is not None else {}
    while tool is not None and tool.kind == "workbook":
        called = _from_workbook(reading, tool, follow)
        if called is None or called.kind == "workbook":
            if called is not None:
                reading.report.error("workbook", "an entry of the workbook can't call another one", called.kind_node)
            tool = None
        else:
            args = {**called.fields.get("args", {}), **args}
            tool = around(tool, called)
    return {**args, **given}, tool


def _from_workbook(reading: NoetlReading, tool: Tool, follow: Follow) -> Tool | None:
    """The tool of the workbook that a step calls."""
    wanted = tool.fields.get("name")
    if wanted is None:
        reading.report.error("value", "a workbook tool needs `name`", tool.node)
        return None
    entry = reading.workbook.get(wanted)
    if entry is None:
        hint = did_you_mean(wanted, reading.workbook, "entries")
        reading.report.error("workbook", f"the workbook has no `{shorten(wanted)}`", tool.node, hint=hint)
        return None
    node = entry[1]
    fields = read_keys(reading, node, keys_with_tool(WORKBOOK_ENTRY, node))
    if "assert" in fields:
        read_assert(reading, fields["assert"], follow)
    if "sink" in fields:
        read_sinks(reading, fields["sink"], follow)
    return read_tool(reading, node)


def read_follow(
    reading: NoetlReading, fields: dict[str, Any], tool: Tool | None, node: Mapping, name: str, follow: Follow
) -> None:
    """Everything that follows a step."""
    for word in ("vars", "set"):
        if word in fields:
            follow.effects += read_set(reading, node.entries[word][1])
    for given in (fields, tool.fields if tool is not None else {}):
        if "assert" in given:
            read_assert(reading, given["assert"], follow)
    inner: dict[str, Any] = tool.fields if tool is not None else {}
    for word in ("retry", "timeout"):
        if word in fields and word in inner:
            message = f"the step and its tool both have a `{word}`"
            reading.report.error("conflict", message, node.entries[word][0], hint="keep one of them")
    retry: Node | None = fields.get("retry") or inner.get("retry")
    if retry is not None:
        read_retry(reading, retry, follow)
    if "case" in fields:
        read_cases(reading, fields["case"], follow)
    if "sink" in fields:
        read_sinks(reading, fields["sink"], follow)
    if "next" in fields:
        _read_ways(reading, fields["next"], follow)
    if name == END and follow.arcs:
        place = node.entries.get("next", node.entries.get("case", (node,)))[0]
        reading.report.error("end", "nothing follows `end`", place, hint="take the arcs of `end` out")
        follow.arcs.clear()


def _read_ways(reading: NoetlReading, node: Node, follow: Follow) -> None:
    """The arcs of the step itself, which are taken where no case led anywhere."""
    led: list[Part] = []
    for arc in follow.arcs:
        led += [arc["when"]] if arc["when"] not in led else []
    found = read_next(reading, node, (none_of([asked_case(when["case"], when) for when in led]),) if led else ())
    if led and found.effects:
        message = "variables that an arc sets can't be told apart from what a case leads to"
        reading.report.error("conflict", message, node, hint="write `set` in the case, or on the step")
    answers = [condition for condition in found.asked if is_about_failure(text_of(condition))]
    # A failure that an arc speaks of is dealt with where that arc is taken, and then no other one is.
    follow.rules += [Part(answer, then="tolerate", text="next", when=answer, limit=1_000) for answer in answers]
    follow.arcs += [_unless(arc, answers) if answers else arc for arc in found.arcs]
    follow.effects += found.effects


def _unless(arc: Part, answers: list[Part]) -> Part:
    """An arc that is not taken where one of those is that answer a failure; those are as they are."""
    own = [arc["when"]] if "when" in arc else []
    conditions = [*own, *(own[0].get("besides", ()) if own else ())]
    if {text_of(condition) for condition in conditions} & {text_of(answer) for answer in answers}:
        return arc
    return arc.changed(when=all_of([*own, none_of(answers)]))
