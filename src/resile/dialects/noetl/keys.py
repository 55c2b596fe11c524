"""The key tables of a playbook: keys that are read, refused by name, or comments.

One table for each mapping of the grammar, of all four kinds of playbook: v1 (fields of the tool on the step), v2 with
`case`, retry lists, and arcs. The keys of a step determine its kind, not the `apiVersion`.
"""

from __future__ import annotations

from resile.dialects.noetl import values as read
from resile.dialects.noetl.tools.keys import (
    ARGS,
    AUTH,
    AUTH_DATABASE,
    AUTH_ENTRY,
    ITEMS,
    MODE,
    SCRIPT,
    SCRIPT_SOURCE,
    TOOLS,
)
from resile.dialects.reading.key_tables import Key, Table, key_table, refused_key
from resile.dialects.reading.values import boolean, choice, duration, integer, one_of, texts
from resile.model.limits import LOOPS_MAX

LOOP_POLICY = key_table(
    "policy of a loop",
    read.comment("exec", "the items run where Resile runs"),
    refused_key("failure", "a failed item lets the others finish and then fails the step"),
)
LOOP_SPEC = key_table(
    "spec of a loop",
    MODE,
    Key("max_in_flight", "number", "items that run at once", read.count),
    Key("policy", "mapping", "rules about the items", read.mapping_of(LOOP_POLICY)),
)
LOOP = key_table(
    "loop",
    *ITEMS,
    Key("spec", "mapping", "the settings in the newer form", read.mapping_of(LOOP_SPEC)),
    refused_key("cursor", "a cursor needs a database: list the items in a step before"),
)
PER_ITERATION = key_table(
    "per_iteration",
    Key("sink", "mapping", "the destination of its result"),
)
NEXT_CALL = key_table(
    "next_call",
    Key("url", "text", "another url", read.template),
    Key("params", "mapping", "other parameters", read.arguments),
    Key("headers", "mapping", "other headers", read.arguments),
    Key("args", "mapping", "other arguments", read.arguments),
    Key("payload", "data", "another body", read.data),
)
RETRY = key_table(
    "retry",
    Key("max_attempts", "number", "executions in all, the first included (3)", read.attempts),
    *read.with_aliases(Key("initial_delay", "seconds", "the first wait (1)", read.seconds), "delay"),
    Key("max_delay", "seconds", "the longest wait (60)", read.seconds),
    Key("backoff_multiplier", "number", "the factor from one wait to the next (2)", read.factor),
    Key("backoff", "none | linear | exponential, or seconds", "how waits grow"),
    Key("jitter", "bool", "whether waits vary at random", read.jitter),
    Key("retry_when", "condition", "checked after each attempt", read.condition),
    Key("stop_when", "condition", "checked before `retry_when`", read.condition),
    Key("retry_on", "list", "the kinds of failures that are tried again", texts(read.name)),
    Key("params", "mapping", "parameters of the next request", read.arguments),
    Key("next_call", "mapping", "settings that differ in the next attempt", read.mapping_of(NEXT_CALL)),
    Key("collect", "mapping", "the values to keep from each attempt"),
    Key("sink", "mapping", "of a policy: the destination of each attempt's result"),
    Key("per_iteration", "mapping", "the same, under `sink`", read.mapping_of(PER_ITERATION)),
)
# The first policy whose condition holds applies.
POLICY = key_table(
    "a policy of `retry`",
    Key("when", "condition", "checked after each attempt", read.condition),
    Key("then", "mapping", "how to go on"),
)
# Evaluated at each event of the step; the first case that holds applies.
CASE = key_table(
    "a case",
    Key("when", "condition", "a condition on `event`, `response`, `error`", read.condition),
    Key("then", "mapping or list", "the actions to take: every key of it"),
    Key("else", "mapping or list", "in the last case: the actions after a success at which no case held"),
)
THEN = key_table(
    "then",
    Key("next", "arcs", "where to go"),
    Key("step", "text", "the same as `next`"),
    Key("args", "mapping", "values for that step", read.arguments),
    Key("call", "mapping", "a step that runs as well; without a step the tool again, with other settings"),
    Key("set", "mapping or list", "variables"),
    Key("collect", "mapping", "adds to a variable"),
    Key("result", "data", "the result of the step"),
    Key("sink", "mapping", "the destination of the result"),
    Key("retry", "mapping", "one more attempt"),
    Key("fail", "text", "fails the step with this message"),
)
COLLECT = key_table(
    "collect",
    Key("from", "name", "the value to add (the response)", read.name),
    Key("data", "data", "the value to add, as data", read.data),
    Key("into", "name", "the variable", read.name),
    *read.with_aliases(one_of("mode", "the way to add it", "append", "extend", "merge", "replace"), "strategy"),
    Key("path", "text", "the part of the value to add", read.name),
)
SINK = key_table(
    "sink",
    *read.with_aliases(
        Key("tool", "text or mapping", "postgres, duckdb, http, python, event_log"), "storage", "backend"
    ),
    Key("table", "text", "the table to write to", read.filled_template),
    one_of("mode", "add a row, or replace one", "insert", "append", "upsert"),
    Key("key", "name or list", "the columns that identify a row", texts(read.name)),
    Key("args", "mapping or template", "the row", read.arguments_or_template),
    Key("from", "name or template", "the row, or a list of rows, by its name", read.name),
    Key("data", "mapping or template", "the row, or a list of rows", read.data),
    Key("mapping", "mapping", "columns, and the fields of a row that fill them", read.arguments),
    *read.with_aliases(
        Key("statement", "text", "statements instead of a table", field="command"),
        "command",
        "commands",
        "query",
    ),
    Key("auth", "name or mapping", "the credential, or several"),
    Key("database", "text", "the file of a DuckDB database", read.template),
    *read.with_aliases(Key("url", "text", "the address of the request", read.filled_template), "endpoint"),
    Key("method", "text", "GET, POST …", read.name),
    Key("headers", "mapping", "headers of the request", read.arguments),
    Key("params", "mapping", "the query of the URL", read.arguments_or_template),
    Key("payload", "data", "the body", read.data),
    Key("code", "text", "Python code that receives the result"),
    Key("when", "condition", "the sink runs only if this holds", read.condition),
)
ARC = key_table(
    "an arc of `next`",
    Key("step", "text", "the step"),
    Key("when", "condition", "the arc is taken only if this holds", read.condition),
    Key("then", "list", "where to go if it holds"),
    Key("else", "list", "where to go if no earlier condition holds; beside `when`, if that does not"),
    *read.with_aliases(Key("args", "mapping", "values for that step", read.arguments), "with", "input"),
    Key("data", "mapping", "the same as `args`, and stronger", read.arguments),
    Key("set", "mapping", "variables to set when the arc is taken"),
    read.comment("desc", "what it is for"),
)
NEXT_SPEC = key_table(
    "spec of next",
    one_of("mode", "the first that holds, or all", "exclusive", "inclusive"),
    read.comment("on_no_match", "a step from which no arc is taken leads to `end`"),
)
NEXT = key_table(
    "next",
    Key("spec", "mapping", "how arcs are chosen", read.mapping_of(NEXT_SPEC)),
    Key("arcs", "list", "the arcs"),
    *(key for key in ARC.keys.values() if key.name != "set"),
)
ASSERT = key_table(
    "assert",
    Key("expects", "list", "arguments", texts(read.name)),
    Key("returns", "list", "keys of the result", texts(read.name)),
)
# The first rule that holds decides.
ADMIT = key_table(
    "admit",
    Key("rules", "list", "the rules"),
    one_of("mode", "the first counts", "exclusive"),
)
ADMIT_THEN = key_table("then of `admit`", Key("allow", "bool", "whether the step is admitted", boolean))
ADMIT_ELSE = key_table("else of `admit`", Key("then", "mapping", "the answer", read.mapping_of(ADMIT_THEN)))
ADMIT_RULE = key_table(
    "a rule of `admit`",
    Key("when", "condition", "checked when a path reaches the step", read.condition),
    Key("then", "mapping", "the answer", read.mapping_of(ADMIT_THEN)),
    Key("else", "mapping", "the answer if no earlier rule holds", read.mapping_of(ADMIT_ELSE)),
)
STEP_POLICY = key_table(
    "policy of a step",
    Key("admit", "mapping", "rules that admit the step when a path reaches it"),
    refused_key("lifecycle", "write `timeout` on the step"),
    refused_key("failure", "a failed item lets the others finish and then fails the step"),
    refused_key("emit", "every step writes its events"),
)
STEP_SPEC = key_table(
    "spec of a step",
    Key("policy", "mapping", "rules", read.mapping_of(STEP_POLICY)),
)
STEP = key_table(
    "a step",
    Key("step", "text", "its name"),
    read.comment("desc", "what it is for"),
    read.comment("description", "what it is for"),
    *read.with_aliases(Key("tool", "mapping or text", "what it does"), "type"),
    *ARGS,
    Key("loop", "mapping", "runs it for each item of a list"),
    Key("case", "list", "actions after its events"),
    Key("next", "arcs", "where to go"),
    Key("vars", "mapping", "variables to set from its result", read.arguments),
    Key("set", "mapping", "the same as `vars`"),
    Key("retry", "true, number, mapping or list", "when it is tried again"),
    *read.with_aliases(Key("sink", "mapping", "the destination of its result"), "save"),
    Key("assert", "mapping", "required arguments and results"),
    Key("timeout", "duration", "how long it may take", duration),
    Key("critical", "bool", "whether its failure cancels the steps beside it", boolean),
    Key("pass", "bool", "with `true` the tool is not run", boolean),
    Key("spec", "mapping", "rules that admit the step", read.mapping_of(STEP_SPEC)),
    refused_key("output", "a step's result is what its tool gives"),
    refused_key("auth", "only tools that ask a service or a database take it, once"),
    Key("call", "mapping", "the same as `tool`, in the form of older playbooks"),
    refused_key("run", "it belongs into `tool`"),
)
WORKBOOK_ENTRY = key_table(
    "an entry of the workbook",
    Key("name", "text", "its name"),
    read.comment("desc", "what it is for"),
    *read.with_aliases(Key("tool", "mapping or text", "the tool"), "type"),
    *ARGS,
    Key("assert", "mapping", "required arguments and results"),
    Key("sink", "mapping", "the destination of the result"),
)
TASK = key_table(
    "the task of an iterator",
    read.comment("name", "its name"),
    read.comment("desc", "what it is for"),
    *read.with_aliases(Key("tool", "mapping or text", "the tool"), "type"),
    *ARGS,
    *read.with_aliases(Key("sink", "mapping", "the destination of an item's result"), "save"),
    Key("assert", "mapping", "required arguments and results of an item"),
    Key("retry", "true, number, mapping or list", "when an item is tried again"),
    Key("timeout", "duration", "how long an item may take", duration),
)
# Secrets, read from the environment: `keychain.NAME.FIELD` is $NAME_FIELD in capitals.
KEYCHAIN_ENTRY = key_table(
    "an entry of the keychain",
    Key("name", "text", "its name", read.name),
    Key("map", "mapping", "its fields"),
    *(
        read.comment(word, "the environment takes the place of the service")
        for word in ("kind", "scope", "provider", "auth", "auto_renew", "endpoint", "method", "headers", "data", "ttl",
                     "credential", "type", "description", "fields", "cache", "project")
    ),
)  # fmt: skip
EXECUTOR_SPEC = key_table(
    "spec of the executor",
    Key("entry_step", "text", "the first step"),
    Key("final_step", "text", "the step that runs last"),
    Key("max_loops", "number", "how often arcs may lead back to a step that has run (1000)", integer(0, LOOPS_MAX)),
    Key("no_next_is_error", "bool", "must be false: a step without an arc leads to `end`", read.no_next_is_error),
    read.comment("pool", "Resile has one"),
)
EXECUTOR = key_table(
    "executor",
    Key("spec", "mapping", "the first and the last step", read.mapping_of(EXECUTOR_SPEC)),
    read.comment("kind", "Resile runs it"),
    read.comment("profile", "Resile runs it"),
    read.comment("version", "Resile runs it"),
    read.comment("requires", "requirements are checked when the file is loaded"),
)
METADATA = key_table(
    "metadata",
    Key("name", "text", "its name", read.name),
    Key("path", "text", "the name by which other playbooks call it", read.name),
)
FILE = key_table(
    "a playbook",
    Key("apiVersion", "text", "noetl.io/v1, /v2 or /v10"),
    Key("kind", "Playbook", "what the file is", choice("Playbook", "playbook")),
    Key("metadata", "mapping", "its name"),
    Key("name", "text", "the same as `metadata.name`", read.name),
    Key("path", "text", "the same as `metadata.path`", read.name),
    read.comment("description", "what it is for"),
    read.comment("version", "its name"),
    Key("workload", "mapping", "the inputs of a run, with their defaults"),
    Key("spec", "mapping", "more inputs, under the name `spec`"),
    Key("keychain", "list", "secrets"),
    Key("workbook", "list", "tools that steps can call"),
    Key("workflow", "list", "the steps"),
    Key("executor", "mapping", "how it starts", read.mapping_of(EXECUTOR)),
    read.comment("tracing", "Resile has its own log and metrics"),
)
TASK_SPEC = key_table("spec of a tool", Key("policy", "mapping", "rules"))
# Actions after the tool's outcome: the first rule that holds applies.
TASK_POLICY = key_table(
    "policy of a tool",
    Key("rules", "list", "the rules"),
    one_of("mode", "the first counts", "exclusive"),
    one_of("on_unmatched", "what happens after a failure that no rule matches (fail)", "continue", "fail"),
    *(refused_key(word, "write a tool of its own into the list") for word in ("before", "after", "finally")),
)
TASK_THEN = key_table(
    "then of a tool",
    one_of("do", "how to go on", "continue", "retry", "jump", "break", "fail"),
    Key("to", "text", "the tool to jump to", read.name),
    Key("attempts", "number", "executions in all, the first included (3)", read.attempts, "max_attempts"),
    Key("backoff", "none | linear | exponential, or seconds", "how waits grow"),
    Key("delay", "seconds", "the first wait (1)", read.seconds, "initial_delay"),
    Key("set_ctx", "mapping", "variables of the playbook"),
    Key("set_iter", "mapping", "variables of this item, or of this visit of the step"),
)
TASK_ELSE = key_table("else of a tool", Key("then", "mapping", "the actions to take"))
TASK_RULE = key_table(
    "a rule of a tool",
    Key("when", "condition", "a condition on `outcome`", read.condition),
    Key("then", "mapping", "the actions to take"),
    Key("else", "mapping", "the actions if no earlier rule holds", read.mapping_of(TASK_ELSE)),
)
TABLES: tuple[Table, ...] = (
    FILE, METADATA, EXECUTOR, EXECUTOR_SPEC, KEYCHAIN_ENTRY, WORKBOOK_ENTRY, TASK, STEP, LOOP, LOOP_SPEC, LOOP_POLICY,
    CASE, THEN, NEXT, NEXT_SPEC, ARC, COLLECT, SINK, RETRY, PER_ITERATION, POLICY, NEXT_CALL, ASSERT, STEP_SPEC,
    STEP_POLICY, ADMIT, ADMIT_RULE, ADMIT_ELSE, ADMIT_THEN, TASK_SPEC, TASK_POLICY, TASK_RULE, TASK_ELSE, TASK_THEN,
    SCRIPT, SCRIPT_SOURCE, AUTH, AUTH_ENTRY, AUTH_DATABASE,
    *(known for kind, known in TOOLS.items() if kind not in ("duckdb", "secret")),
)  # fmt: skip
