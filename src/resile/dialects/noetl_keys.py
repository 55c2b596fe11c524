"""The keys of a playbook, in tables: what is read, what is refused by name, and what is a comment.

One table for each mapping of the grammar, of all four kinds of playbook: v1 (fields of the tool on the step), v2 with
`case`, retry lists, and arcs. Which kind a step is written in is seen by its keys, and not by its `apiVersion`.
"""

from __future__ import annotations

from resile.dialects.base import INVALID, Key, Reading, Table, table
from resile.dialects.native_values import choice, texts, wrong
from resile.dialects.noetl_values import (
    arguments,
    arguments_or_template,
    attempts,
    comment,
    condition,
    data,
    factor,
    filled_template,
    name,
    node_itself,
    seconds,
    template,
    yes_or_no,
)
from resile.dialects.tree import Node, Scalar
from resile.dialects.visor_values import refused
from resile.model.limits import PARALLEL_MAX

KINDS = ("python", "shell", "http", "postgres", "duckdb", "playbook", "workbook", "iterator", "noop")
KINDS_REFUSED = {
    "container": "a container runtime or a cluster",
    "snowflake": "a Snowflake account",
    "transfer": "two databases and their drivers",
    "secrets": "a secret manager; name its entries under `keychain`",
    "secret": "a secret manager; name its entries under `keychain`",
    "playbooks": "a catalog of playbooks",
    "script": "a cluster job; use `shell` or `python`",
    "nats": "a NATS server",
    "ducklake": "a DuckLake catalog",
    "artifact": "an artifact store",
    "subscription": "a message broker",
    "agent": "an agent framework",
    "rhai": "the Rhai language; use `python`",
    "gcs": "Google Cloud Storage",
    "sftp": "an SFTP server",
    "save": "the old `save` tool; use `sink`",
    "result": "a result store",
    "mcp": "an MCP server",
    "gateway": "a gateway",
    "auth": "an identity service",
    "provider": "a cloud provider",
    "test": "NoETL's own test runner",
}
MODES = ("sequential", "async", "parallel")


def _count(reading: Reading, node: Node) -> object:
    """A number of things at a time."""
    if isinstance(node, Scalar) and type(node.value) is int and 1 <= node.value <= PARALLEL_MAX:
        return node.value
    return wrong(reading, node, f"a whole number from 1 to {PARALLEL_MAX}")


def _timeout(reading: Reading, node: Node) -> object:
    """Seconds, or a duration in words."""
    from resile.dialects.native_values import duration

    return duration(reading, node)


def _jitter(reading: Reading, node: Node) -> object:
    """`true`, or a share of the delay."""
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return 0.5 if node.value else 0.0
    value = factor(reading, node)
    return value if value is INVALID or value <= 1 else wrong(reading, node, "true, false, or a share of at most 1")


_ARGS = (
    Key("args", "mapping", "values for the step, by name", arguments),
    Key("with", "mapping", "the same as `args`", arguments, "args"),
    Key("input", "mapping", "the same as `args`", arguments, "args"),
)
_TOOL = (
    Key("kind", "text", "what the tool does", node_itself),
    *_ARGS,
    Key("retry", "mapping or list", "when the tool is tried again", node_itself),
    Key("timeout", "duration", "how long it may take", _timeout),
    Key("loop", "mapping", "the same as `loop` of the step", node_itself),
    Key("assert", "mapping", "the same as `assert` of the step", node_itself),
)
PYTHON = table(
    "a python tool",
    "Python code with a `main`, whose parameters are found by name",
    *_TOOL,
    Key("code", "text", "the code", node_itself),
    Key("code_b64", "text", "the code in base64", node_itself),
    Key("code_base64", "text", "the same as `code_b64`", node_itself, "code_b64"),
    Key("script", "mapping", "a file that has the code", node_itself),
    Key("result_status", "fail | ignore", "is a result with `status: error` a failure?", choice("fail", "ignore")),
    comment("libs", "Python libraries are those of the environment"),
)
SHELL = table(
    "a shell tool",
    "commands for bash, one after the other until one fails",
    *_TOOL,
    Key("cmds", "list", "the commands", node_itself),
    Key("command", "text", "one command", node_itself, "cmds"),
    Key("cmd", "text", "the same as `command`", node_itself, "cmds"),
    Key("commands", "list", "the same as `cmds`", node_itself, "cmds"),
    Key("env", "mapping", "variables of the environment", arguments),
    Key("cwd", "text", "the directory", template),
    Key("working_dir", "text", "the same as `cwd`", template, "cwd"),
)
HTTP = table(
    "an http tool",
    "one request",
    *_TOOL,
    Key("method", "text", "GET, POST …", name),
    Key("url", "text", "where to", filled_template),
    Key("endpoint", "text", "the same as `url`", filled_template, "url"),
    Key("headers", "mapping", "headers of the request", arguments),
    Key("params", "mapping or template", "what stands behind the `?`", arguments_or_template),
    Key("payload", "data", "the body: JSON, or text", data),
    Key("data", "data", "the same as `payload`", data, "payload"),
    Key("body", "data", "the same as `payload`", data, "payload"),
    Key("json", "data", "the same as `payload`", data, "payload"),
    Key("verify_ssl", "bool", "must the server prove who it is?", yes_or_no),
    refused("auth", "keep what it needs in the keychain and write the header yourself"),
)
QUERY = table(
    "a postgres or duckdb tool",
    "statements; every value is written for its place",
    *_TOOL,
    Key("command", "text", "the statements", node_itself),
    Key("commands", "text or list", "the same as `command`", node_itself, "command"),
    Key("query", "text", "the same as `command`", node_itself, "command"),
    Key("statement", "text", "the same as `command`", node_itself, "command"),
    Key("sql", "text", "the same as `command`", node_itself, "command"),
    Key("script", "mapping", "a file that has the statements", node_itself),
    Key("auth", "text", "the credential: `$<NAME>_DSN` says how to reach the database", node_itself),
    Key("database", "text", "the file of a DuckDB database; one for each run where none is named", template),
    Key("params", "list", "values that the statement is bound to", data),
)
PLAYBOOK = table(
    "a playbook tool",
    "another playbook, which the step waits for and whose verdict it inherits",
    *_TOOL,
    Key("path", "text", "its file, or its `metadata.path`", node_itself),
    Key("payload", "mapping", "the same as `args`", arguments, "args"),
    Key("return_step", "text", "the step whose result is the result", name),
    comment("task", "what the parent calls the step"),
    comment("version", "the file that is there is run"),
    refused("wait", "a step always waits for its playbook"),
)
WORKBOOK = table(
    "a workbook tool",
    "a tool of the workbook, with the arguments of the step",
    *_TOOL,
    Key("name", "text", "its name in the workbook", name),
    Key("task", "text", "the same as `name`", name, "name"),
)
ITERATOR = table(
    "an iterator tool",
    "a tool for each item of a list",
    *_TOOL,
    Key("collection", "template", "the list", node_itself, "in"),
    Key("in", "template", "the list", node_itself),
    Key("element", "text", "what the item is called", name, "iterator"),
    Key("iterator", "text", "the same as `element`", name),
    Key("mode", "sequential | async | parallel", "one after the other, or at the same time", choice(*MODES)),
    Key("concurrency", "number", "how many at a time", _count),
    Key("limit", "number", "how many items at the most", _count),
    Key("task", "mapping", "the tool", node_itself),
    refused("where", "choose the items in the step before, or with Jinja's `selectattr`"),
    refused("order_by", "sort the items in the step before, or with Jinja's `sort`"),
    refused("chunk", "batch the items in the step before, or with Jinja's `batch`"),
)
NOOP = table("a noop tool", "nothing: a point where paths meet", *_TOOL)
TOOLS: dict[str, Table] = {
    "python": PYTHON,
    "shell": SHELL,
    "http": HTTP,
    "postgres": QUERY,
    "duckdb": QUERY,
    "playbook": PLAYBOOK,
    "workbook": WORKBOOK,
    "iterator": ITERATOR,
    "noop": NOOP,
}
SCRIPT = table(
    "script",
    "where code or statements are kept",
    Key("uri", "text", "the file, relative to the playbook", filled_template),
    Key("source", "mapping", "what kind of place it is", node_itself),
)
SCRIPT_SOURCE = table(
    "source of a script",
    "the kind of place; only files are read, because text from outside never becomes code",
    Key("type", "file | inline", "a file, or code in the playbook itself", name),
    Key("code", "text", "the code of an inline script", node_itself),
    *(
        refused(word, "code is not fetched from elsewhere: keep it in a file")
        for word in ("auth", "endpoint", "method", "timeout", "headers", "bucket", "region")
    ),
)
LOOP = table(
    "loop",
    "runs the step once for each item",
    Key("in", "template", "the list", node_itself),
    Key("collection", "template", "the same as `in`", node_itself, "in"),
    Key("iterator", "text", "what the item is called", name),
    Key("element", "text", "the same as `iterator`", name, "iterator"),
    Key("mode", "sequential | async | parallel", "one after the other, or at the same time", choice(*MODES)),
    Key("concurrency", "number", "how many at a time", _count),
    Key("limit", "number", "how many items at the most", _count),
    Key("spec", "mapping", "the same in the newer form", node_itself),
    refused("cursor", "a cursor needs a database: list the items in a step before"),
    refused("where", "choose the items in the step before, or with Jinja's `selectattr`"),
    refused("order_by", "sort the items in the step before, or with Jinja's `sort`"),
    refused("chunk", "batch the items in the step before, or with Jinja's `batch`"),
)
LOOP_SPEC = table(
    "spec of a loop",
    "how the items run",
    Key("mode", "sequential | async | parallel", "one after the other, or at the same time", choice(*MODES)),
    Key("max_in_flight", "number", "how many at a time", _count),
    comment("policy", "where items run is for Resile to decide"),
)
RETRY = table(
    "retry",
    "when a step is tried again",
    Key("max_attempts", "number", "executions in all, the first included (3)", attempts),
    Key("initial_delay", "seconds", "the first wait (1)", seconds),
    Key("delay", "seconds", "the same as `initial_delay`", seconds, "initial_delay"),
    Key("max_delay", "seconds", "the longest wait (60)", seconds),
    Key("backoff_multiplier", "number", "by how much each wait is longer (2)", factor),
    Key("backoff", "none | linear | exponential, or seconds", "how waits grow", node_itself),
    Key("jitter", "bool", "do waits differ a little?", _jitter),
    Key("retry_when", "condition", "asked after each attempt", condition),
    Key("stop_when", "condition", "asked before `retry_when`", condition),
    Key("retry_on", "list", "the kinds of failures that are tried again", texts(name)),
    Key("params", "mapping", "parameters of the next request", arguments),
    Key("next_call", "mapping", "what is other in the next attempt", node_itself),
    Key("collect", "mapping", "what is kept of each attempt", node_itself),
    refused("sink", "write it in `case`, or on the step"),
    refused("per_iteration", "what is collected is the result of the step: write `sink` on the step"),
)
NEXT_CALL = table(
    "next_call",
    "what is other in the next attempt",
    Key("url", "text", "another url", template),
    Key("params", "mapping", "other parameters", arguments),
    Key("headers", "mapping", "other headers", arguments),
    Key("args", "mapping", "other arguments", arguments),
    Key("payload", "data", "another body", data),
)
POLICY = table(
    "a policy of `retry`",
    "the first whose condition holds counts",
    Key("when", "condition", "asked after each attempt", condition),
    Key("then", "mapping", "how to go on", node_itself),
)
CASE = table(
    "a case",
    "asked at each event of the step; the first that holds counts",
    Key("when", "condition", "of `event`, `response`, `error`", condition),
    Key("then", "mapping or list", "what follows: every key of it", node_itself),
)
THEN = table(
    "then",
    "what follows from a case",
    Key("next", "arcs", "where to go", node_itself),
    Key("step", "text", "the same as `next`", node_itself),
    Key("args", "mapping", "values for that step", arguments),
    Key("call", "mapping", "a step that runs as well", node_itself),
    Key("set", "mapping or list", "variables", node_itself),
    Key("collect", "mapping", "adds to a variable", node_itself),
    Key("result", "data", "the result of the step", node_itself),
    Key("sink", "mapping", "where the result goes", node_itself),
    Key("retry", "mapping", "one more attempt", node_itself),
    Key("fail", "text", "the step fails, and this is why", node_itself),
)
COLLECT = table(
    "collect",
    "adds to a variable",
    Key("from", "name", "what is added (the response)", name),
    Key("data", "data", "what is added, as data", data),
    Key("into", "name", "the variable", name),
    Key("mode", "append | extend | merge | replace", "how", choice("append", "extend", "merge", "replace")),
    Key("strategy", "append | extend | merge | replace", "the same as `mode`",
        choice("append", "extend", "merge", "replace"), "mode"),
    Key("path", "text", "the part of it that is added", name),
)  # fmt: skip
SINK = table(
    "sink",
    "a tool that takes the result",
    Key("tool", "text or mapping", "postgres, duckdb, http, python, event_log", node_itself),
    Key("storage", "text or mapping", "the same as `tool`", node_itself, "tool"),
    Key("backend", "text or mapping", "the same as `tool`", node_itself, "tool"),
    Key("table", "text", "the table that takes a row", filled_template),
    Key("mode", "insert | append | upsert", "add a row, or replace one", choice("insert", "append", "upsert")),
    Key("key", "name or list", "the columns that tell a row", texts(name)),
    Key("args", "mapping or template", "the row", arguments_or_template),
    Key("data", "mapping or template", "the row, or a list of rows", data),
    Key("mapping", "mapping", "columns, and the fields of a row that fill them", arguments),
    Key("statement", "text", "statements instead of a table", node_itself, "command"),
    Key("command", "text", "the same as `statement`", node_itself),
    Key("commands", "text", "the same as `statement`", node_itself, "command"),
    Key("query", "text", "the same as `statement`", node_itself, "command"),
    Key("auth", "text", "the credential", node_itself),
    Key("database", "text", "the file of a DuckDB database", template),
    Key("url", "text", "where a request goes", filled_template),
    Key("endpoint", "text", "the same as `url`", filled_template, "url"),
    Key("method", "text", "GET, POST …", name),
    Key("headers", "mapping", "headers of the request", arguments),
    Key("params", "mapping", "what stands behind the `?`", arguments_or_template),
    Key("payload", "data", "the body", data),
    Key("code", "text", "Python code that takes the result", node_itself),
)
ARC = table(
    "an arc of `next`",
    "where to go",
    Key("step", "text", "the step", node_itself),
    Key("when", "condition", "whether", condition),
    Key("then", "list", "where to, where it holds", node_itself),
    Key("else", "list", "where to, where none of those before holds", node_itself),
    Key("args", "mapping", "values for that step", arguments),
    Key("with", "mapping", "the same as `args`", arguments, "args"),
    Key("data", "mapping", "the same as `args`", arguments, "args"),
    Key("input", "mapping", "the same as `args`", arguments, "args"),
    Key("set", "mapping", "variables that are set when it is taken", node_itself),
    comment("desc", "what it is for"),
)
NEXT = table(
    "next",
    "arcs with their mode",
    Key("spec", "mapping", "how arcs are chosen", node_itself),
    Key("arcs", "list", "the arcs", node_itself),
    *(key for key in ARC.keys.values() if key.name != "set"),
)
NEXT_SPEC = table(
    "spec of next",
    "how arcs are chosen",
    Key("mode", "exclusive | inclusive", "the first that holds, or all", choice("exclusive", "inclusive")),
    comment("on_no_match", "a step from which no arc is taken leads to `end`"),
)
ASSERT = table(
    "assert",
    "what must be there",
    Key("expects", "list", "arguments", texts(name)),
    Key("returns", "list", "keys of the result", texts(name)),
)
STEP = table(
    "a step",
    "one step of the workflow",
    Key("step", "text", "its name", node_itself),
    comment("desc", "what it is for"),
    comment("description", "what it is for"),
    Key("tool", "mapping or text", "what it does", node_itself),
    Key("type", "text", "the same as `tool`", node_itself, "tool"),
    *_ARGS,
    Key("loop", "mapping", "runs it for each item of a list", node_itself),
    Key("case", "list", "what follows from its events", node_itself),
    Key("next", "arcs", "where to go", node_itself),
    Key("vars", "mapping", "variables that are set from its result", arguments),
    Key("set", "mapping", "the same as `vars`", node_itself),
    Key("retry", "true, number, mapping or list", "when it is tried again", node_itself),
    Key("sink", "mapping", "where its result goes", node_itself),
    Key("save", "mapping", "the same as `sink`", node_itself, "sink"),
    Key("assert", "mapping", "what must be there", node_itself),
    Key("timeout", "duration", "how long it may take", _timeout),
    Key("critical", "bool", "does its failure cancel what runs beside it?", yes_or_no),
    Key("pass", "bool", "with `true` the tool is not run", yes_or_no),
    refused("spec", "admission is not run: say it with `when` on the arcs that lead here"),
    refused("output", "a step's result is what its tool gives"),
    refused("auth", "it belongs into `tool`"),
    refused("call", "it belongs into `then` of a case"),
    refused("run", "it belongs into `tool`"),
)
DATA_ARGS = (
    Key("data", "mapping", "the same as `args`", arguments, "args"),
    Key("params", "mapping", "the same as `args`", arguments, "args"),
)
WORKBOOK_ENTRY = table(
    "an entry of the workbook",
    "a tool that steps can call",
    Key("name", "text", "its name", node_itself),
    comment("desc", "what it is for"),
    Key("tool", "mapping or text", "the tool", node_itself),
    Key("type", "text", "the same as `tool`", node_itself, "tool"),
    Key("assert", "mapping", "what must be there", node_itself),
    Key("sink", "mapping", "where the result goes", node_itself),
)
KEYCHAIN_ENTRY = table(
    "an entry of the keychain",
    "secrets, read from the environment: `keychain.NAME.FIELD` is $NAME_FIELD in capitals",
    Key("name", "text", "its name", name),
    Key("map", "mapping", "its fields", node_itself),
    *(
        comment(word, "the environment takes the place of the service")
        for word in ("kind", "scope", "provider", "auth", "auto_renew", "endpoint", "method", "headers", "data", "ttl",
                     "credential", "type", "description", "fields", "cache", "project")
    ),
)  # fmt: skip
EXECUTOR = table(
    "executor",
    "how the playbook starts",
    Key("spec", "mapping", "the steps that begin and end it", node_itself),
    comment("kind", "Resile runs it"),
    comment("profile", "Resile runs it"),
    comment("version", "Resile runs it"),
    comment("requires", "what is needed is looked at when the file is loaded"),
)
EXECUTOR_SPEC = table(
    "spec of the executor",
    "the steps that begin and end a run",
    Key("entry_step", "text", "the first step", node_itself),
    Key("final_step", "text", "the step that runs last", node_itself),
    Key("no_next_is_error", "bool", "must be false: a step without an arc leads to `end`", yes_or_no),
    comment("pool", "Resile has one"),
)
METADATA = table(
    "metadata",
    "what the playbook is called",
    Key("name", "text", "its name", name),
    Key("path", "text", "the name by which other playbooks call it", name),
)
FILE = table(
    "a playbook",
    "the whole file",
    Key("apiVersion", "text", "noetl.io/v1, /v2 or /v10", node_itself),
    Key("kind", "Playbook", "what the file is", choice("Playbook", "playbook")),
    Key("metadata", "mapping", "what it is called", node_itself),
    Key("name", "text", "the same as `metadata.name`", name),
    Key("path", "text", "the same as `metadata.path`", name),
    comment("description", "what it is for"),
    comment("version", "what it is called"),
    Key("workload", "mapping", "values that a run can be given, with their defaults", node_itself),
    Key("spec", "mapping", "more of them, under the name `spec`", node_itself),
    Key("keychain", "list", "secrets", node_itself),
    Key("workbook", "list", "tools that steps can call", node_itself),
    Key("workflow", "list", "the steps", node_itself),
    Key("executor", "mapping", "how it starts", node_itself),
    comment("tracing", "Resile has its own log and metrics"),
)
TABLES: tuple[Table, ...] = (
    FILE, METADATA, EXECUTOR, EXECUTOR_SPEC, KEYCHAIN_ENTRY, WORKBOOK_ENTRY, STEP, LOOP, LOOP_SPEC, CASE, THEN, NEXT,
    NEXT_SPEC, ARC, COLLECT, SINK, RETRY, POLICY, NEXT_CALL, ASSERT, SCRIPT, SCRIPT_SOURCE,
    PYTHON, SHELL, HTTP, QUERY, PLAYBOOK, WORKBOOK, ITERATOR, NOOP,
)  # fmt: skip
