"""The tables of `ir`: keys that only the files of other systems need, on the workflow and on a step.

Front ends lower their files to these keys, and `resile migrate` writes them; people use shorter keys. `lift_ir` moves
the keys one level up, each with its own position, so that readers treat them like other keys.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe
from resile.dialects.native.keys.elsewhere import SCRIPT
from resile.dialects.native.keys.failures import STEP_RULE_TABLES
from resile.dialects.native.keys.model_fields import as_model, fields_of, read_cases
from resile.dialects.native.step_types.builtin import BUILTIN_TABLES
from resile.dialects.native.step_types.registry import IR_TYPES
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import INVALID, Key, Table, read_mapping, struct_reader, table
from resile.dialects.reading.values import (
    boolean,
    code,
    non_empty,
    one_of,
    one_or_more,
    only_true,
    read_data,
    schema,
    text,
    texts,
    true_or_false,
    wrong,
)
from resile.errors import shorten
from resile.model.builtin_actions import Case, Check, Effect, MemoryFile, Transform
from resile.model.cluster import Cluster

IR = "ir"
"""The key, on the workflow and on a step, for settings that only files of other systems have."""
_words = one_or_more(non_empty(text, "a word"))


def _checks(reading: Reading, node: Node) -> Any:
    """Read a list of conditions."""
    if not isinstance(node, Sequence):
        return wrong(reading, node, "a list of checks")
    read = struct_reader(Check, CHECK, "", "name", "code", "must")
    return tuple(check for item in node.items if (check := read(reading, item)) is not INVALID)


def _arguments(reading: Reading, node: Node) -> Any:
    return (
        read_data(reading, node) if isinstance(node, Mapping) else wrong(reading, node, "a mapping of names to values")
    )


def _aliases(reading: Reading, node: Node) -> Any:
    """Read alternative names of steps."""
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a mapping of names to steps")
    named = {name: non_empty(text, "a name")(reading, value) for name, (_, value) in node.entries.items()}
    return {name: step for name, step in named.items() if step is not INVALID}


def _transform(reading: Reading, node: Node) -> Any:
    """Read a transform, which may have another one before it."""
    return struct_reader(Transform, TRANSFORM, "")(reading, node)


TRANSFORM = table(
    "transform", "Computes a step's value from the output: first `parse`, then `template`, then `code`.",
    one_of("parse",
        "`auto`: JSON if it is valid JSON; `json`: must be JSON; `text`: unchanged; `last`: the last line, as JSON.",
        "auto", "json", "text", "last"),
    Key("template", "text", "A template that sees the output.", text),
    Key("code", "code", "The body of a function that sees `output` and returns the value.", code),
    true_or_false("as_items", "`true`: a value that is no list becomes a list."),
    Key("schema", "JSON schema", "The schema that the value must meet.", schema),
    Key("schema_name", "text", "The name of the schema, which code sees as `schema`.", text),
    Key("first", "mapping", "A transform of the output that comes before this one.", _transform),
)  # fmt: skip
CHECK = table(
    "a check", "A condition that a successful attempt must meet.",
    Key("name", "text", "The name of the check.", non_empty(text, "`name`")),
    Key("code", "code", "An expression, or the body of a function, that returns true or false.", code),
    true_or_false("must", "The result that `code` must return."),
    one_of("effect", "Else: fail the attempt, end the scope, or only log it.", "fail", "halt", "remark"),
    Key("message", "text", "The message of the failure or remark.", text),
)  # fmt: skip
MEMORY_FILE = table(
    "memory_file", "The file that keeps the memory of a workflow between runs.",
    Key("path", "path", "The file, relative to the caller's folder.", non_empty(text, "`path`")),
    true_or_false("load", "`false`: do not read the file."),
    true_or_false("save", "`false`: do not write the file."),
)  # fmt: skip
read_memory_file = struct_reader(MemoryFile, MEMORY_FILE, "path", "path")
SOURCE = table(
    "source", "The file of a workflow that another file includes.",
    Key("file", "path", "The file, as messages name it.", non_empty(text, "`file`")),
    Key("folder", "path", "The folder that its paths are relative to.", non_empty(text, "`folder`")),
)  # fmt: skip
IR_WORKFLOW = table(
    "ir, of the workflow", "Settings of a whole file that only other systems have.",
    one_of("templates", "The template language of texts; only `dollar` knows `${…}`.",
        "dollar", "liquid", "jinja"),
    one_of("failure_key", "The key for failures that messages name.", "on_failure", "on_fail"),
    one_of("condition_errors", "`skip`: a condition that throws does not hold; else its step fails.", "fail", "skip"),
    Key("memory_file", "path or mapping", "The file that keeps the run's memory between runs.", read_memory_file),
    Key("memory_namespace", "text", "The part of the memory that code sees; `default` by default.",
        non_empty(text, "`memory_namespace`")),
    Key("cluster", "mapping", f"The cluster settings of jobs: {fields_of(Cluster)}.",
        as_model(Cluster, "`cluster`")),
    Key("source", "mapping", "The file of this workflow, if another file includes it.",
        lambda reading, node: read_mapping(reading, node, SOURCE)),
)  # fmt: skip
CALLED = table(
    "called", "A workflow file as another system calls it: its inputs come from the arguments of the step.",
    Key("path", "text", "The name that the caller uses.", non_empty(text, "`path`")),
    Key("takes", "list of names", "Inputs that it accepts besides those that it declares.", _words),
)  # fmt: skip
IR_STEP = table(
    "ir, of a step", "Settings of a step that only other systems have; its action may be here too.",
    *(row.key for row in IR_TYPES),
    Key("given", "mapping", "Beside `workflow`: values for the child's inputs, passed unchanged.", _arguments),
    Key("shares", "bool", "Beside `workflow`: the child's steps see the same values as this step.", boolean),
    Key("called", "mapping", "Beside `workflow`: how another system calls that file.",
        lambda reading, node: read_mapping(reading, node, CALLED)),
    true_or_false("inherit",
        "`false`: a step in a map or a handler does not inherit env, folder and shell from the outer step."),
    one_of("join",
        "With arcs to this step: run for each arc that is taken, or once, when no active path can reach it.",
        "any", "all"),
    Key("transform", "mapping", "Computes the step's value from the output.", _transform),
    Key("checks", "list of checks", "Conditions that the value must meet.", _checks),
    Key("args", "mapping", "Values for the texts and the code of the step.", _arguments),
    Key("reads_data", "mapping", "Data that the results of the step depend on, by name (`rerun --changed`).",
        _arguments),
    Key("aliases", "mapping", "Other names under which the step sees the outputs of steps.", _aliases),
    Key("tags", "word or list", "Words that conditions can test.", _words),
    Key("events", "word or list", "Events for which the step runs; conditions test them.", _words),
    Key("group", "text", "The group in which reports show it.", non_empty(text, "`group`")),
    Key("cases", "list of mappings", f"Conditions on an attempt, by their number: {fields_of(Case)}.", read_cases),
    Key("effects", "list of mappings", f"Effects after the end of an attempt: {fields_of(Effect)}.",
        as_model(tuple[Effect, ...], "`effects`")),
    true_or_false("in_order", "`true`: in each item the step waits until all earlier items have ended."),
    Key("copies", "name or list", "Steps that this step's rules run as copies; they count as called.",
        texts(text)),
    Key("accepts_in_items", "true", "Below a `foreach`: the item goes on after a tolerated failure.", only_true),
    Key("in_turn", "true", "Beside `foreach`: items whose steps need each other run one after the other.", only_true),
    true_or_false("called_only",
        "Runs only as a remedy, or always; by default the references to the step decide."),
    Key("rules", "list of rules",
        "The ladder: rules, or names of failure handlers; the rules of other keys come after it."),
    Key("on_exit_code", "mapping of exit codes to commands",
        "Answers these exit codes first: the step is recovered if the commands of its exit code pass."),
)  # fmt: skip

IR_TABLES: tuple[Table, ...] = (
    IR_WORKFLOW,
    SOURCE,
    IR_STEP,
    CALLED,
    *BUILTIN_TABLES,
    TRANSFORM,
    CHECK,
    MEMORY_FILE,
    *STEP_RULE_TABLES,
)


def lift_ir(reading: Reading, node: Mapping, known: Table) -> Mapping:
    """Move the keys of `ir` up beside the others; report keys at the wrong level."""
    if IR not in node.entries and known.under_ir.keys().isdisjoint(node.entries):
        return node
    hints = {"script": SCRIPT} | {word: hint for word, hint in known.elsewhere.items() if word in known.under_ir}
    entries: dict[str, tuple[Scalar, Node]] = {}
    for name, (key, value) in node.entries.items():
        if name == IR:
            continue
        if name in known.under_ir:
            message = f"`{name}` is a key for files of other systems and stands under `ir`"
            reading.report.error("unknown-key", message, key, hint=hints.get(name, f"ir: {{{name}: …}}"))
        entries[name] = key, value
    if IR in node.entries:
        entries |= _ir_entries(reading, node.entries[IR][1], known)
    return Mapping(entries, node.line, node.column, node.file)


def _ir_entries(reading: Reading, node: Node, known: Table) -> dict[str, tuple[Scalar, Node]]:
    """The known entries of `ir`; report the others."""
    if not isinstance(node, Mapping):
        reading.report.error("type", f"`ir` must be a mapping, not {describe(node)}", node)
        return {}
    for name, (key, _) in node.entries.items():
        if name not in known.under_ir:
            hint = did_you_mean(name, known.under_ir, "keys")
            if name in known.keys:
                hint = f"`{name}` is a key of {known.name} itself"
            reading.report.error("unknown-key", f"`ir` has no key `{shorten(name)}`", key, hint=hint)
    return {name: entry for name, entry in node.entries.items() if name in known.under_ir}
