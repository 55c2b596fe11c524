"""The tools of a playbook: a kind with its fields becomes an action, for a step, a workbook entry or a sink.

    tool: {kind: K, fields}      tool: K, or type: K, with the fields beside it      [one of these]

Each step that calls a workbook entry reads it again, with its own arguments.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import Part, items_of, text_in, value_of
from resile.dialects.noetl.keys import STEP
from resile.dialects.noetl.tools.credentials import read_database_auth
from resile.dialects.noetl.tools.http import read_http
from resile.dialects.noetl.tools.keys import DATA_ARGS, KINDS_REFUSED, TOOLS
from resile.dialects.noetl.tools.python_code import read_code, read_script, statements_of
from resile.dialects.noetl.values import NoetlReading, filled_template
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import INVALID, REFUSED, Key, Table, read_keys
from resile.dialects.reading.values import wrong
from resile.errors import shorten

PACKAGES = {"postgres": "psycopg", "duckdb": "duckdb"}


class Tool(Struct, frozen=True):
    """A tool that was read: its kind, its fields, and their nodes."""

    kind: str
    fields: dict[str, Any]
    node: Mapping
    kind_node: Node


def read_tool(reading: NoetlReading, step: Mapping) -> Tool | None:
    """Read the tool of a step with its fields, which may be beside the keys of the step; None after a report."""
    node = value_of(step, "tool") or value_of(step, "type")
    if node is None:
        return None
    if isinstance(node, Sequence):
        node = label_of(reading, node.items[0], 1)[1] if node.items else node
    if not isinstance(node, Mapping):
        return _read_kind(reading, node, step, beside=True)
    kind = value_of(node, "kind")
    if kind is None:
        reading.report.error("value", "a tool needs `kind`", node, hint=f"one of {', '.join(TOOLS)}")
        return None
    return _read_kind(reading, kind, node, beside=False)


def label_of(reading: NoetlReading, node: Node, number: int) -> tuple[str, Node]:
    """Find the label and the tool of a list entry: `{label: {kind}}`, `{name: label, kind}`, or numbered."""
    label = f"task_{number}"
    if not isinstance(node, Mapping) or "kind" not in node.entries:
        if isinstance(node, Mapping) and len(node.entries) == 1:
            (key, inner), *_ = node.entries.values()
            return key.text, inner
        wrong(reading, node, "a tool with `kind`, or one under its label")
        return label, node
    kind, given = node.entries["kind"][1], node.entries.get("name")
    if given is None or (isinstance(kind, Scalar) and kind.text.lower() == "workbook"):
        return label, node
    rest = {word: entry for word, entry in node.entries.items() if word != "name"}
    if not isinstance(given[1], Scalar):
        wrong(reading, given[1], "the label of the tool")
        return label, Mapping(rest, node.line, node.column)
    return given[1].text, Mapping(rest, node.line, node.column)


def _read_kind(reading: NoetlReading, kind_node: Node, node: Mapping, *, beside: bool) -> Tool | None:
    """Read a tool of one kind; its fields are in a mapping of their own, or `beside` those of the step."""
    kind = kind_of(reading, kind_node)
    if not kind:
        return None
    known = TOOLS[kind]
    if beside:
        known = replace(known, keys=_keys_beside_step(kind))
        own = {word: entry for word, entry in node.entries.items() if word in known.keys}
        node = Mapping(own, node.line, node.column)
    return Tool(kind, read_keys(reading, node, known), node, kind_node)


def _keys_beside_step(kind: str) -> dict[str, Key]:
    """List the keys of a tool that may be on the step; a key of both is the step's, except the arguments."""
    found: dict[str, Key] = {}
    for word, key in TOOLS[kind].keys.items():
        is_of_step = word in STEP.keys and STEP.keys[word].kind != REFUSED
        if word != "kind" and not is_of_step:
            found[word] = key
    more = {} if kind == "http" else {key.name: key for key in DATA_ARGS if key.name not in found}
    return {**found, **more}


def keys_of_step(known: Table, node: Node) -> Table:
    """List the keys of a step or workbook entry: its own, and those of a tool whose keys are beside them."""
    given = (value_of(node, "tool") or value_of(node, "type")) if isinstance(node, Mapping) else None
    if isinstance(given, Mapping):
        tool = TOOLS.get(text_in(value_of(given, "kind")).lower())
        if tool is None or known is not STEP:
            return known
        # More names of the step's arguments, if they are no keys of its tool.
        taken = {word for word, key in tool.keys.items() if key.field != "args"}
        return replace(known, keys={**known.keys, **{key.name: key for key in DATA_ARGS if key.name not in taken}})
    kind = text_in(given).lower()
    if kind not in TOOLS:
        return known
    # The value is read with the tool, not with the step.
    more = {word: replace(key, read=lambda _, __: INVALID, field="") for word, key in _keys_beside_step(kind).items()}
    own = {word: key for word, key in known.keys.items() if word not in more or key.kind != REFUSED}
    return replace(known, keys={**more, **own})


def merge_tools(outer: Tool, inner: Tool) -> Tool:
    """Put the retry, timeout, assert and arguments of a tool over those of the tool that it calls."""
    kept = {word: outer.fields[word] for word in ("retry", "timeout", "assert", "args") if word in outer.fields}
    if "args" in kept:
        kept["args"] = {**inner.fields.get("args", {}), **kept["args"]}
    return replace(inner, fields={**inner.fields, **kept})


def kind_of(reading: NoetlReading, node: Node) -> str:
    """Read the kind of a tool; an empty text after a report."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        wrong(reading, node, "the kind of a tool")
        return ""
    kind = node.text.strip().lower()
    if kind in KINDS_REFUSED:
        message = f"`{kind}` tools are not run by Resile: they need {KINDS_REFUSED[kind]}"
        reading.report.error("not-run", message, node, hint="a `shell` tool can call a program that does it")
        return ""
    if kind not in TOOLS:
        hint = did_you_mean(kind, TOOLS, "kinds")
        reading.report.error("tool", f"there is no tool `{shorten(node.text)}`", node, hint=hint)
        return ""
    from importlib.util import find_spec

    if kind in PACKAGES and find_spec(PACKAGES[kind]) is None:
        message = f"`{kind}` tools need the package {PACKAGES[kind]}, which is not installed"
        reading.report.error("extra", message, node, hint=f"pip install 'resile[{kind}]'")
        return ""
    return kind


def action_of(reading: NoetlReading, tool: Tool) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Build the native action of a tool, and the transform of its output; no action after a report."""
    fields, kind = tool.fields, tool.kind
    if kind == "python":
        return read_code(reading, fields, tool.node), {"parse": "last"}
    if kind == "shell":
        return _build_shell(reading, fields, tool.node), {}
    if kind == "http":
        return read_http(reading, fields, tool.node), {"parse": "last"}
    if kind in ("postgres", "duckdb"):
        return _build_query(reading, tool), {"parse": "last"}
    if kind == "playbook":
        return _build_playbook(reading, fields, tool.node), None
    return {"noop": True}, None


def _build_shell(reading: NoetlReading, fields: dict[str, Any], node: Mapping) -> dict[str, Any] | None:
    """Build a shell action: the commands run one after the other until one fails."""
    given: Node | None = fields.get("cmds")
    if given is None:
        reading.report.error("value", "a shell tool needs `cmds` or `command`", node)
        return None
    commands = [filled_template(reading, item) for item in items_of(given)]
    if not commands:
        reading.report.error("value", "there are no commands to run", given)
    if INVALID in commands:
        return None
    before = "set -e\n" if len(commands) > 1 else ""
    env = {name: "" if value is None else str(value) for name, value in fields.get("env", {}).items()}
    own = {"env": env or None, "working_dir": fields.get("cwd") or None}
    return {"shell": before + "\n".join(commands), "shell_program": "bash", **own}


def _build_query(reading: NoetlReading, tool: Tool) -> dict[str, Any] | None:
    """Build a query from statements, inline or in a file."""
    fields, engine, file = tool.fields, tool.kind, ""
    if ("command" in fields) == ("script" in fields):
        reading.report.error("value", f"a {engine} tool needs `command` or `script`", tool.node)
        return None
    given: Node | None = fields.get("command")
    if given is None:
        file, given = read_script(reading, fields["script"])
    statements = statements_of(reading, given) if given is not None else ""
    if statements is INVALID or not (file or statements):
        return None
    auth = read_database_auth(reading, fields.get("auth"), engine)
    own = {"engine": engine, "statements": statements, "file": file, **auth}
    return {"query": Part(tool.node, **own, database=fields.get("database"), params=fields.get("params"))}


def _build_playbook(reading: NoetlReading, fields: dict[str, Any], node: Mapping) -> dict[str, Any] | None:
    """Build the action that runs another playbook."""
    from resile.dialects.noetl.child_playbook import read_playbook

    if "path" not in fields:
        reading.report.error("value", "a playbook tool needs `path`", node)
        return None
    return read_playbook(reading, fields["path"], fields)
