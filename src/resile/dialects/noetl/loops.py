"""Loops, written as `loop` or as a tool of kind `iterator` that runs another tool for each item.

    loop: {in: list | template, iterator: name, mode, concurrency, where, order_by, limit, chunk}
    tool: {kind: iterator, collection, element, task: {tool, sink}}

`where` selects items of the list, `order_by` sorts them, `limit` takes the first of them, `chunk` groups them. All of
this becomes one template, so that a migrated file can contain it too.
"""

from __future__ import annotations

import re
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import Part, mentions, text_in
from resile.dialects.noetl.follow import Follow
from resile.dialects.noetl.keys import LOOP, TASK
from resile.dialects.noetl.task import read_sinks
from resile.dialects.noetl.tools.keys import TOOLS
from resile.dialects.noetl.tools.tool import Tool, keys_of_step, merge_tools, read_tool
from resile.dialects.noetl.values import NoetlReading, data
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.errors import shorten
from resile.languages.jinja import templates

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_DIRECTION = re.compile(r"\s+(asc|desc)$", re.IGNORECASE)


def read_loop(reading: NoetlReading, node: Node) -> Part | None:
    """Read the loop of a step, as a native `map` without its steps."""
    fields = read_keys(reading, node, LOOP)
    if not isinstance(node, Mapping):
        return None
    about = fields.get("spec", {})
    for word, newer in (("mode", "mode"), ("concurrency", "max_in_flight")):
        if word in fields and newer in about and fields[word] != about[newer]:
            message = f"`{word}` and `{newer}` of `spec` say different things"
            reading.report.error("conflict", message, node.entries[word][0], hint="keep one of them")
        if newer in about:
            fields[word] = about[newer]
    return _build_map(reading, fields, node)


def _build_map(reading: NoetlReading, fields: dict[str, Any], node: Mapping) -> Part | None:
    """Build a native `map` from the fields of a loop or an iterator."""
    for word, known in (("in", {"in", "collection"}), ("iterator", {"iterator", "element"})):
        if word not in fields:
            if not known & node.entries.keys():
                reading.report.error("value", f"a loop needs `{word}`", node)
            return None
    source = _build_source(reading, fields, node)
    if source is None:
        return None
    in_turn = fields.get("mode", "sequential") == "sequential"
    if in_turn and "concurrency" in fields and fields["concurrency"] > 1:
        reading.report.error("conflict", "a sequential loop runs one item at a time", node, hint="mode: async")
    parallel = 1 if in_turn else fields.get("concurrency")
    policy = {"on_item_failure": "fail"}
    return Part(node, **source, item_name=fields["iterator"], max_parallel=parallel, error_policy=policy)


def _build_source(reading: NoetlReading, fields: dict[str, Any], node: Mapping) -> dict[str, Any] | None:
    """Build the `input` of a map: the list itself, or a template whose value is a list."""
    given: Node = fields["in"]
    limit: int | None = fields.get("limit")
    values = data(reading, given) if isinstance(given, Sequence) else None
    if values is INVALID:
        return None
    shaped = {"where", "order_by", "chunk"} & fields.keys()
    if values is not None and not shaped and not any(mentions(given, mark) for mark in ("{{", "{%", "{#")):
        return {"input": values, "max_items": limit}
    whole = _read_list_text(reading, given, values)
    if not whole:
        return None
    if not shaped and values is None:
        return {"input": {"template": templates.condition_text(whole)}, "max_items": limit}
    text = _build_template(reading, whole, fields, node)
    return {"input": {"template": text}, "max_items": None if "chunk" in fields else limit} if text else None


def _read_list_text(reading: NoetlReading, node: Node, values: Any) -> str:
    """Read the list as one expression, with or without braces; empty after a report."""
    if values is not None:
        return _expression_for(values)
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.text.strip():
        reading.report.error("type", "the items of a loop are a list, or a template that comes to one", node)
        return ""
    reason = templates.problem(templates.condition_text(node.text))
    if reason:
        reading.report.error("template", f"this is no template that can be rendered: {reason}", node)
    return "" if reason else node.text


def _build_template(reading: NoetlReading, whole: str, fields: dict[str, Any], node: Mapping) -> str:
    """Build the template that selects, orders and groups the items; empty after a report."""
    text, item = templates.expression_of(whole), fields["iterator"]
    if not text:
        hint = "write it as one `{{ … }}`"
        reading.report.error("template", "what is chosen from must be one expression", fields["in"], hint=hint)
        return ""
    text = f"({text})"
    if "where" in fields:
        condition = fields["where"]
        text += f" | chosen({item!r}, {condition!r}{_arguments_for(condition, item)})"
    if "order_by" in fields:
        found = _DIRECTION.search(fields["order_by"])
        key = _DIRECTION.sub("", fields["order_by"]).strip()
        if _FIELD.fullmatch(key) and key.partition(".")[0] != item:
            key = f"{item}.{key}"
        key = templates.condition_text(key)
        if templates.problem(key):
            where = node.entries["order_by"][1]
            reading.report.error("template", f"`{shorten(fields['order_by'])}` is nothing to order by", where)
            return ""
        backwards = found is not None and found[1].lower() == "desc"
        text += f" | ordered({item!r}, {key!r}{', reverse=true' if backwards else ''}{_arguments_for(key, item)})"
    if "chunk" in fields:
        part = f"({text} | list)[:{fields['limit']}]" if "limit" in fields else text
        text = templates.groups_of(part, fields["chunk"])
    return f"{{{{ {text} }}}}"


def _arguments_for(text: str, item: str) -> str:
    """List the other names in a text as arguments for the filter that renders it for each item."""
    return "".join(f", {name}={name}" for name in sorted(templates.names_in(templates.condition_text(text)) - {item}))


def _expression_for(value: Any) -> str:
    """Write data whose texts may be templates as one expression."""
    if isinstance(value, str):
        return templates.text_expression(value) if templates.is_template(value) else repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_expression_for(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {_expression_for(inner)}' for name, inner in value.items())}}}"
    return repr(value)


def read_iterator(
    reading: NoetlReading, tool: Tool, loop: Part | None, follow: Follow
) -> tuple[Part | None, Tool | None]:
    """Read an iterator: its loop, and the tool that runs for each item."""
    if loop is not None:
        reading.report.error("conflict", "an iterator is a loop: it has none of its own", tool.kind_node)
        return None, None
    found = _build_map(reading, tool.fields, tool.node)
    task: Node | None = tool.fields.get("task")
    if not isinstance(task, Mapping):
        reading.report.error("value", "an iterator needs `task`, a mapping with the tool", tool.node)
        return found, None
    if "kind" in task.entries:
        task = _separate_tool(task)
    fields = read_keys(reading, task, keys_of_step(TASK, task))
    read_sinks(reading, fields, follow)
    inner = read_tool(reading, task)
    if inner is None:
        if not {"tool", "type"} & task.entries.keys():
            reading.report.error("value", "the task of an iterator needs `tool`", task)
        return found, None
    return found, merge_tools(tool, merge_tools(Tool("task", fields, task, inner.kind_node), inner))


def _separate_tool(task: Mapping) -> Mapping:
    """Move the keys of the tool in a task into a mapping of their own."""
    key, kind = task.entries["kind"]
    known = TOOLS.get(text_in(kind).lower())
    names = known.keys if known is not None else {}
    own = {word: entry for word, entry in task.entries.items() if word in TASK.keys and word not in names}
    rest = {word: entry for word, entry in task.entries.items() if word not in own}
    return Mapping({"tool": (key, Mapping(rest, task.line, task.column)), **own}, task.line, task.column)
