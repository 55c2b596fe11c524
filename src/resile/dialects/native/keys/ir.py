"""The tables of `ir`: keys that only the files of other systems need, on the workflow and on a step.

Front ends lower their files to these keys, and `resile migrate` writes them; people use shorter keys.
"""

from __future__ import annotations

from resile.dialects.native.function import FUNCTION_KEY
from resile.dialects.native.keys.builtin_actions import (
    ACTION_KEYS,
    INSIDE_TABLES,
    OUTPUT_KEYS,
    read_arguments,
    read_memory_file,
    read_words,
)
from resile.dialects.native.keys.failures import STEP_RULE_TABLES
from resile.dialects.native.keys.model_fields import CLUSTER_KEY, MODEL_KEYS, QUERY_KEY
from resile.dialects.reading.key_tables import Key, Table, read_mapping, table
from resile.dialects.reading.values import boolean, choice, node_itself, non_empty, only_true, text, texts

SOURCE = table(
    "source", "Where a workflow stands that another file takes in.",
    Key("file", "path", "The file, as messages name it.", non_empty(text, "`file`")),
    Key("folder", "path", "What paths in it are relative to.", non_empty(text, "`folder`")),
)  # fmt: skip
IR_WORKFLOW = table(
    "ir, of the workflow", "What other systems say about a whole file.",
    Key("templates", "dollar, liquid, jinja",
        "The language of texts; with one other than `dollar`, `${…}` means nothing in them.",
        choice("dollar", "liquid", "jinja")),
    Key("failure_key", "on_failure, on_fail", "What messages call the answer to a failure.",
        choice("on_failure", "on_fail")),
    Key("memory_file", "path or mapping", "Where the run's memory is kept between runs.", read_memory_file),
    Key("memory_namespace", "text", "The part of the memory that code sees; `default` where it is left out.",
        non_empty(text, "`memory_namespace`")),
    CLUSTER_KEY,
    Key("source", "mapping", "The file in which this workflow stands, where another takes it in.",
        lambda reading, node: read_mapping(reading, node, SOURCE)),
)  # fmt: skip
CALLED = table(
    "called", "A workflow file as another system calls it: its inputs come from the arguments of the step.",
    Key("path", "text", "The name by which the caller knows it.", non_empty(text, "`path`")),
    Key("takes", "list of names", "Inputs that it can be given besides those that it declares.", read_words),
)  # fmt: skip
IR_STEP = table(
    "ir, of a step", "What other systems say about a step; its action may stand here too.",
    *ACTION_KEYS,
    QUERY_KEY,
    FUNCTION_KEY,
    Key("result", "name", "Beside `workflow`: the step of it whose value is its value.", non_empty(text, "`result`")),
    Key("given", "mapping", "Beside `workflow`: values for its inputs, handed over as they are.", read_arguments),
    Key("shares", "bool", "Beside `workflow`: it is a part of this one; its steps see what the step sees.", boolean),
    Key("called", "mapping", "Beside `workflow`: how another system calls that file.",
        lambda reading, node: read_mapping(reading, node, CALLED)),
    Key("inherit", "true or false",
        "`false`: in a map or a handler, nothing is taken over from the step around: no env, folder, shell.", boolean),
    Key("join", "any, all",
        "Where arcs lead here: run for each that is taken, or once, when no path that is under way can lead here.",
        choice("any", "all")),
    *OUTPUT_KEYS,
    *MODEL_KEYS,
    Key("in_order", "true or false", "`true`: in each item it waits until all items before are over.", boolean),
    Key("copies", "name or list", "Steps of which copies run in this one's answers: they count as called for.",
        texts(text)),
    Key("accepts_in_items", "true", "Below a `foreach`, a failure that is tolerated leaves the item whole.", only_true),
    Key("in_turn", "true", "Beside `foreach`: items whose steps need each other run one after the other.", only_true),
    Key("called_only", "true or false",
        "Runs only as a remedy, or always; where it is left out, that follows from who names it.", boolean),
    Key("rules", "list of rules",
        "The ladder, rule by rule, or names of failure handlers; it stands above what the other keys say.",
        node_itself),
    Key("on_exit_code", "mapping of exit codes to commands",
        "Answers these exit codes first: the step counts as recovered once the commands of its code pass.",
        node_itself),
)  # fmt: skip

IR_TABLES: tuple[Table, ...] = (IR_WORKFLOW, SOURCE, IR_STEP, CALLED, *INSIDE_TABLES, *STEP_RULE_TABLES)
