"""The tools of a playbook: a kind with its fields becomes an action, for a step, a workbook entry or a sink.

    tool: {kind: K, fields}      tool: K, or type: K, with the fields beside it      [one of these]

Each step that calls a workbook entry reads it again, with its own arguments.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe
from resile.dialects.native.nodes import Part
from resile.dialects.noetl.keys import STEP
from resile.dialects.noetl.tools.http import read_http
from resile.dialects.noetl.tools.keys import DATA_ARGS, KINDS, KINDS_REFUSED, TOOLS
from resile.dialects.noetl.tools.python_code import read_code, read_script, statements_of
from resile.dialects.noetl.values import NoetlReading, filled_template
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, REFUSED, Key, Table, read_keys
from resile.dialects.reading.suggestions import did_you_mean
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
    given = step.entries.get("tool") or step.entries.get("type")
    if given is None:
        return None
    node = given[1]
    if isinstance(node, Sequence):
        node = label_of(reading, node.items[0], 1)[1] if node.items else node
    if isinstance(node, Mapping):
        if "kind" not in node.entries:
            reading.report.error("value", "a tool needs `kind`", node, hint=f"one of {', '.join(KINDS)}")
            return None
        kind_node = node.entries["kind"][1]
        return _read_kind(reading, kind_node, node, beside=False)
    return _read_kind(reading, node, step, beside=True)


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
        own = {word: entry for word, entry in node.entries.items() if word in _keys_beside_step(kind, known)}
        node = Mapping(own, node.line, node.column)
        known = Table(known.name, known.doc, _keys_beside_step(kind, known))
    return Tool(kind, read_keys(reading, node, known), node, kind_node)


def _keys_beside_step(kind: str, known: Table) -> dict[str, Key]:
    """List the keys of a tool that may be on the step; a key of both is the step's, except the arguments."""
    common = {word: key for word, key in known.keys.items() if not _is_of_step(word) or key.field == "args"}
    own = {word: key for word, key in common.items() if word not in ("args", "with", "input", "kind")}
    more = {} if kind == "http" else {key.name: key for key in DATA_ARGS if key.name not in own}
    return {**own, **more}


def _is_of_step(word: str) -> bool:
    """Does a step have this key itself?"""
    return word in STEP.keys and STEP.keys[word].kind != REFUSED


def keys_of_step(known: Table, node: Mapping) -> Table:
    """List the keys of a step or workbook entry: its own, and those of a tool whose keys are beside them."""
    given = node.entries.get("tool") or node.entries.get("type")
    kind_node = given[1] if given is not None else None
    if isinstance(kind_node, Mapping) and "kind" in kind_node.entries and known is STEP:
        return _add_data_keys(known, kind_node.entries["kind"][1])
    if not isinstance(kind_node, Scalar) or kind_node.text.lower() not in TOOLS:
        return known
    kind = kind_node.text.lower()
    more = {
        word: Key(word, key.kind, key.doc, _leave_to_tool) for word, key in _keys_beside_step(kind, TOOLS[kind]).items()
    }
    own = {word: key for word, key in known.keys.items() if word not in more or key.kind != REFUSED}
    return Table(known.name, known.doc, {**more, **own})


def _add_data_keys(known: Table, kind: Node) -> Table:
    """Add the other names of a step's arguments that are no keys of its tool."""
    tool = TOOLS.get(kind.text.lower()) if isinstance(kind, Scalar) else None
    if tool is None:
        return known
    taken = {word for word, key in tool.keys.items() if key.field != "args"}
    return Table(known.name, known.doc, {**known.keys, **{key.name: key for key in DATA_ARGS if key.name not in taken}})


def _leave_to_tool(_: Reading, __: Node) -> Any:
    """Skip a field that is read with the tool."""
    return INVALID


def merge_tools(outer: Tool, inner: Tool) -> Tool:
    """Put the retry, timeout, assert and arguments of a tool over those of the tool that it calls."""
    kept: dict[str, Any] = {
        word: outer.fields[word] for word in ("retry", "timeout", "assert", "args") if word in outer.fields
    }
    if "args" in kept:
        kept["args"] = {**inner.fields.get("args", {}), **kept["args"]}
    return Tool(inner.kind, {**inner.fields, **kept}, inner.node, inner.kind_node)


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
        hint = did_you_mean(kind, KINDS, "kinds")
        reading.report.error("tool", f"there is no tool `{shorten(node.text)}`", node, hint=hint)
        return ""
    if kind in PACKAGES and not _is_installed(PACKAGES[kind]):
        message = f"`{kind}` tools need the package {PACKAGES[kind]}, which is not installed"
        reading.report.error("extra", message, node, hint=f"pip install 'resile[{kind}]'")
        return ""
    return kind


def _is_installed(package: str) -> bool:
    """Can a package be imported?"""
    from importlib.util import find_spec

    return find_spec(package) is not None


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
    items = given.items if isinstance(given, Sequence) else [given]
    commands = [filled_template(reading, item) for item in items]
    if INVALID in commands or not commands:
        if not commands:
            reading.report.error("value", "there are no commands to run", given)
        return None
    before = "set -e\n" if len(commands) > 1 else ""
    env = {name: "" if value is None else str(value) for name, value in fields.get("env", {}).items()}
    keys = {"env": env, "working_dir": fields.get("cwd")}
    given_keys = {key: value for key, value in keys.items() if value}
    return {"shell": before + "\n".join(commands), "shell_program": "bash", **given_keys}


def _build_query(reading: NoetlReading, tool: Tool) -> dict[str, Any] | None:
    """Build a query from statements, inline or in a file."""
    fields, engine = tool.fields, "postgres" if tool.kind == "postgres" else "duckdb"
    if ("command" in fields) == ("script" in fields):
        reading.report.error("value", f"a {engine} tool needs `command` or `script`", tool.node)
        return None
    statements, file = "", ""
    if "command" in fields:
        statements = statements_of(reading, fields["command"])
        if statements is INVALID:
            return None
    else:
        file, inline = read_script(reading, fields["script"])
        statements = statements_of(reading, inline) if inline is not None else ""
        if statements is INVALID or not (file or statements):
            return None
    auth = auth_of(reading, fields.get("auth"), engine)
    own = {"engine": engine, "statements": statements, "file": file, "auth": auth}
    return {"query": Part(tool.node, **own, database=fields.get("database"), params=fields.get("params"))}


def auth_of(reading: NoetlReading, node: Node | None, engine: str) -> str:
    """Read the name of a credential. A mapping of several, for DuckDB to attach, is refused."""
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return ""
    if isinstance(node, Scalar):
        value = filled_template(reading, node)
        return "" if value is INVALID else str(value)
    message = f"`auth` of a {engine} tool must be the name of one credential, not {describe(node)}"
    reading.report.error("not-run", message, node, hint="attach other databases in the statements themselves")
    return ""


def _build_playbook(reading: NoetlReading, fields: dict[str, Any], node: Mapping) -> dict[str, Any] | None:
    """Build the action that runs another playbook."""
    from resile.dialects.noetl.child_playbook import read_playbook

    if "path" not in fields:
        reading.report.error("value", "a playbook tool needs `path`", node)
        return None
    return read_playbook(reading, fields["path"], fields)
