"""Sinks: tools that take the result of a step.

    sink: {tool: postgres | duckdb, table, mode, key, args | data, mapping}      a row, or one for each item of a list
    sink: {tool: {kind | type: …, …}}               the same, with its keys inside
    sink: {tool: postgres | duckdb, statement}      sink: {tool: http, url, payload}      sink: {tool: python, code}

The log of the run has every result, so `event_log` adds nothing. If a sink fails, its step fails.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.nodes import Part, StepPart
from resile.dialects.noetl.follow import all_of, condition_of
from resile.dialects.noetl.keys import SINK
from resile.dialects.noetl.tools.credentials import headers_of, read_database_auth
from resile.dialects.noetl.tools.http import METHODS
from resile.dialects.noetl.tools.python_code import compile_code, statements_of
from resile.dialects.noetl.tools.tool import kind_of
from resile.dialects.noetl.values import NoetlReading, refuse_keys
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import wrong
from resile.errors import shorten
from resile.languages.jinja.templates import is_template, problem

KINDS = ("postgres", "duckdb", "http", "python")
LOGS = ("event_log", "event", "log")
_RESULT = "{{ result }}"
_FIELDS = {
    "postgres": ("table", "mode", "key", "args", "data", "mapping", "command", "auth"),
    "duckdb": ("table", "mode", "key", "args", "data", "mapping", "command", "auth", "database"),
    "http": ("url", "method", "headers", "params", "payload", "args", "data", "auth"),
    "python": ("code", "args", "data"),
    **dict.fromkeys(LOGS, ("args", "data")),
}
_OF_ROWS = {"table": "warning", "mode": "warning", "key": "error", "mapping": "error"}
"""Keys without effect beside statements (warning), and keys that would have to change the statements (error)."""


def read_sink(reading: NoetlReading, node: Node, name: str, when: Part | None) -> Part | None:
    """Build the step of a sink, for a list of commands; None if there is nothing to run, or after a report."""
    if not isinstance(node, Mapping):
        wrong(reading, node, "a mapping with `tool`")
        return None
    merged = _merge_tool(reading, node)
    if merged is None:
        return None
    kind_node, whole = merged
    fields = read_keys(reading, whole, SINK)
    named = kind_node.text if isinstance(kind_node, Scalar) else ""
    kind = named if named in LOGS else kind_of(reading, kind_node)
    if kind not in _FIELDS:
        if kind:
            reading.report.error("not-run", f"a `{kind}` tool can't take a result", kind_node, hint=", ".join(KINDS))
        return None
    if "from" in fields:
        text = fields.pop("from")
        if "data" in fields:
            reading.report.error(
                "conflict", "`from` and `data` both say what is written", node, hint="keep one of them"
            )
        fields["data"] = text if is_template(text) else f"{{{{ {text} }}}}"
        if reason := problem(fields["data"]):
            reading.report.error("template", f"`{shorten(text)}` names no value: {reason}", node)
            return None
    useless = fields.keys() - {"tool", "when", *_FIELDS[kind]}
    refuse_keys(reading, whole, useless, f"means nothing for a {kind} sink")
    if kind in LOGS:
        for word in sorted(fields.keys() & {"args", "data", "when"}):
            message = f"`{word}` adds nothing: the result of a step is in the run's log in any case"
            reading.report.warning(
                "no-effect", message, whole.entries.get(word, (whole,))[0], hint=f"take `{word}` out"
            )
        return None
    action = _build_action(reading, kind, fields, whole)
    if action is None:
        return None
    args = fields.get("args", {})
    own = {**args, "data": fields.get("data", args or _RESULT)} if isinstance(args, dict) else {"data": args}
    if "when" in fields:
        when = all_of([*([when] if when is not None else []), condition_of(fields["when"], node)])
    return StepPart(node, id=name, inherit=False, when=when, args=own, **action)


def _merge_tool(reading: NoetlReading, node: Mapping) -> tuple[Node, Mapping] | None:
    """Merge the keys of a sink with those of its tool; return the kind separately. None after a report."""
    given = next((node.entries[word] for word in ("tool", "storage", "backend") if word in node.entries), None)
    if given is None:
        reading.report.error("value", "a sink needs `tool`", node, hint=", ".join((*KINDS, *LOGS)))
        return None
    tool = given[1]
    if isinstance(tool, Scalar):
        return tool, node
    kind = next((word for word in ("kind", "type") if isinstance(tool, Mapping) and word in tool.entries), "")
    if not isinstance(tool, Mapping) or not kind:
        wrong(reading, tool, "the kind of a tool, or a mapping with `kind`")
        return None
    inner = {word: entry for word, entry in tool.entries.items() if word != kind}
    for word in inner.keys() & node.entries.keys():
        message = f"`{shorten(word)}` stands in the sink and in its tool"
        reading.report.error("conflict", message, inner[word][0], hint="keep one of them")
    return tool.entries[kind][1], Mapping({**inner, **node.entries}, node.line, node.column)


def _build_action(reading: NoetlReading, kind: str, fields: dict[str, Any], node: Mapping) -> dict[str, Any] | None:
    """Build the action of a sink, as keys of a native step."""
    if kind == "http":
        return _build_request(reading, fields, node)
    if kind != "python":
        return _build_query(reading, kind, fields, node)
    code: Node | None = fields.get("code")
    if isinstance(code, Scalar):
        return compile_code(reading, code.text, code)
    if code is None:
        reading.report.error("value", "a python sink needs `code`", node)
    else:
        wrong(reading, code, "code")
    return None


def _build_request(reading: NoetlReading, fields: dict[str, Any], node: Mapping) -> dict[str, Any] | None:
    """Build the request that carries the result."""
    method = str(fields.get("method", "POST")).upper()
    if "url" not in fields or method not in METHODS:
        message = "an http sink needs `url`" if "url" not in fields else f"`{shorten(method)}` is no method of HTTP"
        reading.report.error("value", message, node)
        return None
    headers = headers_of(reading, fields)
    body = fields.get("payload", fields.get("args", fields.get("data", _RESULT)))
    params = fields.get("params")
    return {"http": Part(node, url=fields["url"], method=method, headers=headers, json=body, params=params)}


def _build_query(reading: NoetlReading, kind: str, fields: dict[str, Any], node: Mapping) -> dict[str, Any] | None:
    """Build a query: rows for a table, or statements."""
    auth = read_database_auth(reading, fields.get("auth"), kind)
    query = Part(node, engine=kind, **auth, database=fields.get("database"))
    if "command" in fields:
        for word, severity in _OF_ROWS.items():
            if word in fields:
                tell = reading.report.error if severity == "error" else reading.report.warning
                message = f"`{word}` means nothing for statements"
                tell("conflict", message, node.entries[word][0], hint=f"take `{word}` out")
        statements = statements_of(reading, fields["command"])
        return None if statements is INVALID else {"query": query.replace(statements=statements)}
    if "table" not in fields:
        reading.report.error("value", f"a {kind} sink needs `table` or `statement`", node)
        return None
    key = [value for value, _ in fields.get("key", ())]
    if (fields.get("mode") == "upsert") != bool(key):
        message = "`mode: upsert` needs `key`" if not key else "`key` is for `mode: upsert`"
        reading.report.error("conflict", message, node)
        return None
    rows = fields.get("args", fields.get("data", _RESULT))
    columns = {str(column): str(name) for column, name in fields.get("mapping", {}).items()}
    return {"query": query.replace(table=fields["table"], rows=rows, columns=columns, key=key)}
