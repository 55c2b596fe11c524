"""The tools of a playbook: a kind with its fields becomes an action, on a step, in the workbook, or as a sink.

    tool: {kind: K, fields}      tool: K, or type: K, with the fields beside it      [one of these]

What stands in the workbook is read where a step calls it, with the arguments of that step.
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
    """A tool that was read: its kind, its fields, and the nodes where they stand."""

    kind: str
    fields: dict[str, Any]
    node: Mapping
    kind_node: Node


def read_tool(reading: NoetlReading, step: Mapping) -> Tool | None:
    """The tool of a step with its fields, and with those of the workbook's where it calls one; None after a report.

    The keys of a step that has its tool's fields beside it are told apart from these by their tables.
    """
    given = step.entries.get("tool") or step.entries.get("type")
    if given is None:
        return None
    node = given[1]
    if isinstance(node, Sequence):
        node = labelled(reading, node.items[0], 1)[1] if node.items else node
    if isinstance(node, Mapping):
        if "kind" not in node.entries:
            reading.report.error("value", "a tool needs `kind`", node, hint=f"one of {', '.join(KINDS)}")
            return None
        kind_node = node.entries["kind"][1]
        return _read(reading, kind_node, node, TOOLS, beside=False)
    return _read(reading, node, step, TOOLS, beside=True)


def labelled(reading: NoetlReading, node: Node, number: int) -> tuple[str, Node]:
    """A tool of a list, and what it is called there: `{label: {kind}}`, `{name: label, kind}`, or by its number."""
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


def _read(
    reading: NoetlReading, kind_node: Node, node: Mapping, tables: dict[str, Table], *, beside: bool
) -> Tool | None:
    """A tool of a kind; its fields stand in a mapping of their own, or beside those of the step."""
    kind = kind_of(reading, kind_node)
    if not kind:
        return None
    known = tables[kind]
    if beside:
        own = {word: entry for word, entry in node.entries.items() if word in _beside(kind, known)}
        node = Mapping(own, node.line, node.column)
        known = Table(known.name, known.doc, _beside(kind, known))
    return Tool(kind, read_keys(reading, node, known), node, kind_node)


def _beside(kind: str, known: Table) -> dict[str, Key]:
    """The keys of a tool that may stand on the step; what both have is the step's, but for the arguments."""
    common = {word: key for word, key in known.keys.items() if not _is_of_step(word) or key.field == "args"}
    own = {word: key for word, key in common.items() if word not in ("args", "with", "input", "kind")}
    more = {} if kind == "http" else {key.name: key for key in DATA_ARGS if key.name not in own}
    return {**own, **more}


def _is_of_step(word: str) -> bool:
    """Does a step have such a key of its own?"""
    return word in STEP.keys and STEP.keys[word].kind != REFUSED


def keys_with_tool(known: Table, node: Mapping) -> Table:
    """The keys of a step, or of an entry of the workbook: its own, and its tool's where those stand beside them."""
    given = node.entries.get("tool") or node.entries.get("type")
    kind_node = given[1] if given is not None else None
    if isinstance(kind_node, Mapping) and "kind" in kind_node.entries and known is STEP:
        return _with_data(known, kind_node.entries["kind"][1])
    if not isinstance(kind_node, Scalar) or kind_node.text.lower() not in TOOLS:
        return known
    kind = kind_node.text.lower()
    more = {word: Key(word, key.kind, key.doc, _elsewhere) for word, key in _beside(kind, TOOLS[kind]).items()}
    own = {word: key for word, key in known.keys.items() if word not in more or key.kind != REFUSED}
    return Table(known.name, known.doc, {**more, **own})


def _with_data(known: Table, kind: Node) -> Table:
    """The keys of a step whose tool stands apart, with other names of its arguments that are no keys of the tool."""
    tool = TOOLS.get(kind.text.lower()) if isinstance(kind, Scalar) else None
    if tool is None:
        return known
    taken = {word for word, key in tool.keys.items() if key.field != "args"}
    return Table(known.name, known.doc, {**known.keys, **{key.name: key for key in DATA_ARGS if key.name not in taken}})


def _elsewhere(_: Reading, __: Node) -> Any:
    """A field of the tool, which is read with the tool."""
    return INVALID


def around(outer: Tool, inner: Tool) -> Tool:
    """A tool that another one calls: what that one says about it comes before its own."""
    kept: dict[str, Any] = {
        word: outer.fields[word] for word in ("retry", "timeout", "assert", "args") if word in outer.fields
    }
    if "args" in kept:
        kept["args"] = {**inner.fields.get("args", {}), **kept["args"]}
    return Tool(inner.kind, {**inner.fields, **kept}, inner.node, inner.kind_node)


def kind_of(reading: NoetlReading, node: Node) -> str:
    """The kind of a tool, or an empty text after a report."""
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
    """Is a package there?"""
    from importlib.util import find_spec

    return find_spec(package) is not None


def action_of(reading: NoetlReading, tool: Tool) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """What a tool does, as keys of a native step, and what is made of what it prints; nothing after a report."""
    fields, kind = tool.fields, tool.kind
    if kind == "python":
        return read_code(reading, fields, tool.node), {"parse": "last"}
    if kind == "shell":
        return _shell(reading, fields, tool.node), {}
    if kind == "http":
        return read_http(reading, fields, tool.node), {"parse": "last"}
    if kind in ("postgres", "duckdb"):
        return _query(reading, tool), {"parse": "last"}
    if kind == "playbook":
        return _playbook(reading, fields, tool.node), None
    return {"noop": True}, None


def _shell(reading: NoetlReading, fields: dict[str, Any], node: Mapping) -> dict[str, Any] | None:
    """Commands, one after the other until one fails."""
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


def _query(reading: NoetlReading, tool: Tool) -> dict[str, Any] | None:
    """Statements for a database."""
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
    """The name of a credential; a mapping of several is for what DuckDB attaches, which is not run."""
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return ""
    if isinstance(node, Scalar):
        value = filled_template(reading, node)
        return "" if value is INVALID else str(value)
    message = f"`auth` of a {engine} tool must be the name of one credential, not {describe(node)}"
    reading.report.error("not-run", message, node, hint="attach other databases in the statements themselves")
    return ""


def _playbook(reading: NoetlReading, fields: dict[str, Any], node: Mapping) -> dict[str, Any] | None:
    """Another playbook."""
    from resile.dialects.noetl.child_playbook import read_playbook

    if "path" not in fields:
        reading.report.error("value", "a playbook tool needs `path`", node)
        return None
    return read_playbook(reading, fields["path"], fields)
