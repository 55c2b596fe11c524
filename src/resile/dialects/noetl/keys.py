"""The key tables of a playbook: keys that are read, refused by name, or comments.

One table for each mapping of the grammar, of all four kinds of playbook: v1 (fields of the tool on the step), v2 with
`case`, retry lists, and arcs. The keys of a step determine its kind, not the `apiVersion`.
"""

from __future__ import annotations

from resile.dialects.noetl import values as read
from resile.dialects.noetl.tools.keys import ARGS, AUTH, ITEMS, MODE, SCRIPT, SCRIPT_SOURCE, TOOLS
from resile.dialects.reading.key_tables import Key, Table, key_table, refused_key
from resile.dialects.reading.values import boolean, choice, duration, one_of, texts

LOOP_POLICY = key_table(
    "policy of a loop",
    read.comment("exec", "the items run where Resile runs"),
    refused_key("failure", "a failed item lets the others finish and then fails the step"),
)
LOOP_SPEC = key_table(
    "spec of a loop",
    MODE,
    Key("max_in_flight", "number", "how many at a time", read.count),
    Key("policy", "mapping", "rules about the items", read.mapping_of(LOOP_POLICY)),
)
LOOP = key_table(
    "loop",
    *ITEMS,
    Key("spec", "mapping", "the same in the newer form", read.mapping_of(LOOP_SPEC)),
    refused_key("cursor", "a cursor needs a database: list the items in a step before"),
)
PER_ITERATION = key_table(
    "per_iteration",
    Key("sink", "mapping", "where its result goes"),
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
    Key("backoff_multiplier", "number", "by how much each wait is longer (2)", read.factor),
    Key("backoff", "none | linear | exponential, or seconds", "how waits grow"),
    Key("jitter", "bool", "do waits differ a little?", read.jitter),
    Key("retry_when", "condition", "asked after each attempt", read.condition),
    Key("stop_when", "condition", "asked before `retry_when`", read.condition),
    Key("retry_on", "list", "the kinds of failures that are tried again", texts(read.name)),
    Key("params", "mapping", "parameters of the next request", read.arguments),
    Key("next_call", "mapping", "settings that differ in the next attempt", read.mapping_of(NEXT_CALL)),
    Key("collect", "mapping", "what is kept of each attempt"),
    Key("sink", "mapping", "of a policy: where the result of each attempt goes"),
    Key("per_iteration", "mapping", "the same, under `sink`", read.mapping_of(PER_ITERATION)),
)
# The first whose condition holds counts.
POLICY = key_table(
    "a policy of `retry`",
    Key("when", "condition", "asked after each attempt", read.condition),
    Key("then", "mapping", "how to go on"),
)
# Asked at each event of the step; the first that holds counts.
CASE = key_table(
    "a case",
    Key("when", "condition", "of `event`, `response`, `error`", read.condition),
    Key("then", "mapping or list", "what follows: every key of it"),
)
THEN = key_table(
    "then",
    Key("next", "arcs", "where to go"),
    Key("step", "text", "the same as `next`"),
    Key("args", "mapping", "values for that step", read.arguments),
    Key("call", "mapping", "a step that runs as well"),
    Key("set", "mapping or list", "variables"),
    Key("collect", "mapping", "adds to a variable"),
    Key("result", "data", "the result of the step"),
    Key("sink", "mapping", "where the result goes"),
    Key("retry", "mapping", "one more attempt"),
    Key("fail", "text", "the step fails, and this is why"),
)
COLLECT = key_table(
    "collect",
    Key("from", "name", "what is added (the response)", read.name),
    Key("data", "data", "what is added, as data", read.data),
    Key("into", "name", "the variable", read.name),
    *read.with_aliases(one_of("mode", "how", "append", "extend", "merge", "replace"), "strategy"),
    Key("path", "text", "the part of it that is added", read.name),
)
SINK = key_table(
    "sink",
    *read.with_aliases(
        Key("tool", "text or mapping", "postgres, duckdb, http, python, event_log"), "storage", "backend"
    ),
    Key("table", "text", "the table that takes a row", read.filled_template),
    one_of("mode", "add a row, or replace one", "insert", "append", "upsert"),
    Key("key", "name or list", "the columns that identify a row", texts(read.name)),
    Key("args", "mapping or template", "the row", read.arguments_or_template),
    Key("data", "mapping or template", "the row, or a list of rows", read.data),
    Key("mapping", "mapping", "columns, and the fields of a row that fill them", read.arguments),
    *read.with_aliases(
        Key("statement", "text", "statements instead of a table", field="command"),
        "command",
        "commands",
        "query",
    ),
    Key("auth", "text", "the credential"),
    Key("database", "text", "the file of a DuckDB database", read.template),
    *read.with_aliases(Key("url", "text", "where a request goes", read.filled_template), "endpoint"),
    Key("method", "text", "GET, POST …", read.name),
    Key("headers", "mapping", "headers of the request", read.arguments),
    Key("params", "mapping", "the query of the URL", read.arguments_or_template),
    Key("payload", "data", "the body", read.data),
    Key("code", "text", "Python code that takes the result"),
    Key("when", "condition", "whether it takes the result", read.condition),
)
ARC = key_table(
    "an arc of `next`",
    Key("step", "text", "the step"),
    Key("when", "condition", "whether", read.condition),
    Key("then", "list", "where to go if it holds"),
    Key("else", "list", "where to go if no condition before holds"),
    *read.with_aliases(Key("args", "mapping", "values for that step", read.arguments), "with", "data", "input"),
    Key("set", "mapping", "variables that are set when it is taken"),
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
ADMIT_THEN = key_table("then of `admit`", Key("allow", "bool", "is the step admitted?", boolean))
ADMIT_ELSE = key_table("else of `admit`", Key("then", "mapping", "the answer", read.mapping_of(ADMIT_THEN)))
ADMIT_RULE = key_table(
    "a rule of `admit`",
    Key("when", "condition", "asked when a path comes to the step", read.condition),
    Key("then", "mapping", "the answer", read.mapping_of(ADMIT_THEN)),
    Key("else", "mapping", "the answer if no rule before holds", read.mapping_of(ADMIT_ELSE)),
)
STEP_POLICY = key_table(
    "policy of a step",
    Key("admit", "mapping", "whether it runs when a path comes to it"),
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
    Key("case", "list", "what follows from its events"),
    Key("next", "arcs", "where to go"),
    Key("vars", "mapping", "variables that are set from its result", read.arguments),
    Key("set", "mapping", "the same as `vars`"),
    Key("retry", "true, number, mapping or list", "when it is tried again"),
    *read.with_aliases(Key("sink", "mapping", "where its result goes"), "save"),
    Key("assert", "mapping", "what must be there"),
    Key("timeout", "duration", "how long it may take", duration),
    Key("critical", "bool", "does its failure cancel what runs beside it?", boolean),
    Key("pass", "bool", "with `true` the tool is not run", boolean),
    Key("spec", "mapping", "whether it is admitted", read.mapping_of(STEP_SPEC)),
    refused_key("output", "a step's result is what its tool gives"),
    refused_key("auth", "it belongs into `tool`"),
    refused_key("call", "it belongs into `then` of a case"),
    refused_key("run", "it belongs into `tool`"),
)
WORKBOOK_ENTRY = key_table(
    "an entry of the workbook",
    Key("name", "text", "its name"),
    read.comment("desc", "what it is for"),
    *read.with_aliases(Key("tool", "mapping or text", "the tool"), "type"),
    Key("assert", "mapping", "what must be there"),
    Key("sink", "mapping", "where the result goes"),
)
TASK = key_table(
    "the task of an iterator",
    read.comment("name", "what it is called"),
    read.comment("desc", "what it is for"),
    *read.with_aliases(Key("tool", "mapping or text", "the tool"), "type"),
    *ARGS,
    *read.with_aliases(Key("sink", "mapping", "where the result of an item goes"), "save"),
    Key("assert", "mapping", "what must be there for an item"),
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
    Key("no_next_is_error", "bool", "must be false: a step without an arc leads to `end`", read.no_next_is_error),
    read.comment("pool", "Resile has one"),
)
EXECUTOR = key_table(
    "executor",
    Key("spec", "mapping", "the steps that begin and end it", read.mapping_of(EXECUTOR_SPEC)),
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
    Key("metadata", "mapping", "what it is called"),
    Key("name", "text", "the same as `metadata.name`", read.name),
    Key("path", "text", "the same as `metadata.path`", read.name),
    read.comment("description", "what it is for"),
    read.comment("version", "what it is called"),
    Key("workload", "mapping", "values that a run can be given, with their defaults"),
    Key("spec", "mapping", "more of them, under the name `spec`"),
    Key("keychain", "list", "secrets"),
    Key("workbook", "list", "tools that steps can call"),
    Key("workflow", "list", "the steps"),
    Key("executor", "mapping", "how it starts", read.mapping_of(EXECUTOR)),
    read.comment("tracing", "Resile has its own log and metrics"),
)
TASK_SPEC = key_table("spec of a tool", Key("policy", "mapping", "rules"))
# What follows from its outcome: the first rule that holds counts.
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
TASK_ELSE = key_table("else of a tool", Key("then", "mapping", "what follows"))
TASK_RULE = key_table(
    "a rule of a tool",
    Key("when", "condition", "of `outcome`", read.condition),
    Key("then", "mapping", "what follows"),
    Key("else", "mapping", "what follows if no rule before holds", read.mapping_of(TASK_ELSE)),
)
TABLES: tuple[Table, ...] = (
    FILE, METADATA, EXECUTOR, EXECUTOR_SPEC, KEYCHAIN_ENTRY, WORKBOOK_ENTRY, TASK, STEP, LOOP, LOOP_SPEC, LOOP_POLICY,
    CASE, THEN, NEXT, NEXT_SPEC, ARC, COLLECT, SINK, RETRY, PER_ITERATION, POLICY, NEXT_CALL, ASSERT, STEP_SPEC,
    STEP_POLICY, ADMIT, ADMIT_RULE, ADMIT_ELSE, ADMIT_THEN, TASK_SPEC, TASK_POLICY, TASK_RULE, TASK_ELSE, TASK_THEN,
    SCRIPT, SCRIPT_SOURCE, AUTH,
    *(known for kind, known in TOOLS.items() if kind != "duckdb"),
)  # fmt: skip
