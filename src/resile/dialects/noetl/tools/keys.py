"""The key tables of the tools of a playbook: one for each kind, and their common keys."""

from __future__ import annotations

from resile.dialects.noetl import values as read
from resile.dialects.reading.key_tables import Key, Table, key_table, refused_key
from resile.dialects.reading.values import boolean, duration, one_of

KINDS_REFUSED = {
    "container": "a container runtime or a cluster",
    "snowflake": "a Snowflake account",
    "transfer": "two databases and their drivers",
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
_ARGUMENTS = Key("args", "mapping", "values for the step, by name", read.arguments)
ARGS = read.with_aliases(_ARGUMENTS, "with", "input")
DATA_ARGS = read.with_aliases(_ARGUMENTS, "data", "params", "payload")[1:]
"""More names of the arguments, for tools other than requests."""
_TOOL = (
    Key("kind", "text", "what the tool does"),
    *ARGS,
    Key("retry", "mapping or list", "when the tool is tried again"),
    Key("timeout", "duration", "how long it may take", duration),
    Key("loop", "mapping", "the same as `loop` of the step"),
    Key("assert", "mapping", "the same as `assert` of the step"),
)
MODE = one_of("mode", "one after the other, or at the same time", "sequential", "async", "parallel")
ITEMS = (
    *read.with_aliases(Key("in", "template", "the list"), "collection"),
    *read.with_aliases(Key("iterator", "text", "the name of the item", read.name), "element"),
    MODE,
    Key("concurrency", "number", "items that run at once", read.count),
    Key("limit", "number", "the most items", read.count),
    Key("where", "condition", "a condition on each item, under the loop's name for it", read.condition),
    Key("order_by", "field or expression, `asc` or `desc`", "the sort key of the items", read.filled_template),
    Key("chunk", "number", "the number of items that form one", read.count),
)
"""The keys of a loop and of an iterator."""
# Python code with a `main`, whose parameters are found by name.
PYTHON = key_table(
    "a python tool",
    *_TOOL,
    *DATA_ARGS,
    Key("code", "text", "the code"),
    *read.with_aliases(Key("code_b64", "text", "the code in base64"), "code_base64"),
    Key("script", "mapping", "a file that has the code"),
    one_of(
        "result_status",
        "whether a result with `status: error`, or such a part of its `data`, is a failure",
        "fail",
        "ignore",
    ),
    read.comment("libs", "Python libraries are those of the environment"),
)
# Commands for bash, one after the other until one fails.
SHELL = key_table(
    "a shell tool",
    *_TOOL,
    *read.with_aliases(Key("cmds", "text or list", "the commands"), "commands", "command", "cmd"),
    Key("env", "mapping", "variables of the environment", read.arguments),
    *read.with_aliases(Key("cwd", "text", "the directory", read.template), "working_dir"),
)
HTTP = key_table(
    "an http tool",
    *_TOOL,
    Key("method", "text", "GET, POST …", read.name),
    *read.with_aliases(Key("url", "text", "the address", read.filled_template), "endpoint"),
    Key("headers", "mapping", "headers of the request", read.arguments),
    Key("params", "mapping or template", "the query of the URL", read.arguments_or_template),
    *read.with_aliases(Key("payload", "data", "the body: JSON, or text", read.data), "data", "body", "json"),
    Key("verify_ssl", "bool", "whether to check the server's certificate", boolean),
    Key("auth", "name or mapping", "a credential from the environment, or its parts"),
)
# Parts of the credential that are not written come from the environment: `$NAME_TOKEN`, `$NAME_USERNAME` … in capitals.
AUTH = key_table(
    "auth of an http tool",
    one_of("type", "how (bearer)", "bearer", "basic", "api_key"),
    *read.with_aliases(Key("name", "text", "the credential"), "credential"),
    Key("token", "template", "the token of a bearer", read.filled_template),
    Key("username", "template", "the user of basic authentication", read.filled_template),
    Key("password", "template", "the password of basic authentication", read.filled_template),
    Key("key", "template", "the value of an api_key", read.filled_template),
    Key("header", "text", "the header for an api_key (X-API-Key)", read.name),
)
_SERVICE = tuple(
    read.comment(word, "the environment or a file of credentials takes the place of the service")
    for word in ("source", "provider", "oauth_credential")
)
# One credential of several, under its name.
AUTH_ENTRY = key_table(
    "a credential of `auth`",
    *read.with_aliases(one_of("type", "how (bearer)", "bearer", "basic", "api_key", "header"), "tool"),
    read.comment("key", "what the service calls it; with `source: credential` its name"),
    read.comment("credential", "the same as `key`"),
    Key("name", "text", "the header, for `type: header`"),
    Key("value", "template", "the value of that header", read.filled_template),
    *(AUTH.keys[word] for word in ("token", "username", "password", "header")),
    *_SERVICE,
)
# Each is a secret of DuckDB; for postgres one of them is the database.
AUTH_DATABASE = key_table(
    "a credential of a database tool",
    *read.with_aliases(one_of("type", "what it is for (postgres)", "postgres", "gcs", "hmac", "s3"), "tool", "service"),
    *read.with_aliases(Key("key", "text", "its name (the name under which it stands)"), "credential", "name"),
    Key("scope", "template", "the addresses that it is for", read.filled_template),
    Key("secret_name", "text", "its name in DuckDB (the name under which it stands)", read.name),
    *_SERVICE,
)
QUERY = key_table(
    "a postgres or duckdb tool",
    *_TOOL,
    *read.with_aliases(Key("command", "text or list", "the statements"), "commands", "query", "statement", "sql"),
    Key("script", "mapping", "a file that has the statements"),
    Key("auth", "name or mapping", "the credential: `$<NAME>_DSN` says how to reach the database; or several"),
    Key("database", "text", "the file of a DuckDB database (one for each run)", read.template),
    Key("params", "list", "values to bind to the statement", read.data),
)
PLAYBOOK = key_table(
    "a playbook tool",
    *_TOOL,
    *DATA_ARGS,
    Key("path", "text", "its file, or its `metadata.path`"),
    Key("return_step", "text", "the step whose result is the result", read.name),
    read.comment("task", "what the parent calls the step"),
    read.comment("version", "the file that is there is run"),
    Key("wait", "true", "must be true: a step always waits for its playbook", read.always),
    Key("return_result", "true", "must be true: the result of the playbook is the result of the step", read.always),
)
WORKBOOK = key_table(
    "a workbook tool",
    *_TOOL,
    *DATA_ARGS,
    *read.with_aliases(Key("name", "text", "its name in the workbook", read.name), "task"),
)
ITERATOR = key_table(
    "an iterator tool",
    *_TOOL,
    *ITEMS,
    Key("task", "mapping", "the tool"),
)
# The value of a secret, for templates: `{{ STEP.secret_value }}`. It is never stored.
SECRETS = key_table(
    "a secrets tool",
    _TOOL[0],
    *read.with_aliases(Key("secret_name", "text", "the secret: `$<NAME>_SECRET_VALUE`"), "name"),
    *(
        read.comment(word, "the environment or a file of credentials takes the place of the service")
        for word in ("provider", "project", "project_id", "version", "region", "auth")
    ),
)
NOOP = key_table("a noop tool", *_TOOL)
TOOLS: dict[str, Table] = {
    "python": PYTHON,
    "shell": SHELL,
    "http": HTTP,
    "postgres": QUERY,
    "duckdb": QUERY,
    "playbook": PLAYBOOK,
    "workbook": WORKBOOK,
    "iterator": ITERATOR,
    "secrets": SECRETS,
    "secret": SECRETS,
    "noop": NOOP,
}
SCRIPT = key_table(
    "script",
    Key("uri", "text", "the file, relative to the playbook", read.filled_template),
    Key("source", "mapping", "the kind of source"),
)
# The kind of place; only files are read, because text from outside never becomes code.
SCRIPT_SOURCE = key_table(
    "source of a script",
    Key("type", "file | inline", "a file, or code in the playbook itself", read.name),
    Key("code", "text", "the code of an inline script"),
    *(
        refused_key(word, "code is not fetched from elsewhere: keep it in a file")
        for word in ("auth", "endpoint", "method", "timeout", "headers", "bucket", "region")
    ),
)
